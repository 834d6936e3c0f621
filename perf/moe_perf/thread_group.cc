// The Group of ranks that are threads of one process.
#include <chrono>
#include <stdexcept>
#include <utility>

#include "perf/moe_perf/group.h"

namespace moe::perf {
namespace {

constexpr std::chrono::seconds kWaitMax{120};

class ThreadGroup : public Group {
 public:
  ThreadGroup(ThreadMeeting& meeting, int rank, int nranks) : Group(rank, nranks), meeting_(meeting) {}
  std::vector<std::vector<std::byte>> gatherBytes(std::vector<std::byte> mine) override {
    return meeting_.exchange(rank(), std::move(mine));
  }

 private:
  ThreadMeeting& meeting_;
};

}  // namespace

std::vector<std::vector<std::byte>> ThreadMeeting::exchange(int rank, std::vector<std::byte> mine) {
  std::unique_lock lock(mutex_);
  const std::size_t round = round_;
  slots_[static_cast<std::size_t>(rank)] = std::move(mine);
  if (++arrived_ == slots_.size()) {
    result_ = slots_;
    arrived_ = 0;
    round_ += 1;
    changed_.notify_all();
  }
  // The next round's result cannot replace this one before we have copied it, because that round needs our own arrival.
  if (!changed_.wait_for(lock, kWaitMax, [&] { return round_ != round || failed_; })) {
    throw std::runtime_error("a rank did not reach a barrier of moe_perf");
  }
  if (failed_) throw std::runtime_error("another rank has failed");
  return result_;
}

void ThreadMeeting::giveUp() {
  const std::lock_guard lock(mutex_);
  failed_ = true;
  changed_.notify_all();
}

std::unique_ptr<Group> makeThreadGroup(ThreadMeeting& meeting, int rank, int nranks) {
  return std::make_unique<ThreadGroup>(meeting, rank, nranks);
}

}  // namespace moe::perf
