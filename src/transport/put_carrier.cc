#include "transport/put_carrier.h"

#include <algorithm>

#include "base/poll_until.h"
#include "bootstrap/quiet_thread.h"

namespace moe {
namespace {

constexpr int kPutsPerRound = 64;  // then the sink gets its turn

// How a thread waits that has nothing to do: looks again at once, then lets others run, then sleeps longer and longer.
class Nap {
 public:
  void wake() { rounds_ = 0; }
  void take(PutSink& sink) {
    constexpr int kLooks = 200, kYields = 50;
    constexpr std::int64_t kShortest = 20, kLongest = 500;  // microseconds
    ++rounds_;
    if (rounds_ <= kLooks) return;
    if (rounds_ <= kLooks + kYields) return std::this_thread::yield();
    const int doublings = std::min(rounds_ - kLooks - kYields - 1, 8);
    rounds_ = std::min(rounds_, kLooks + kYields + 8);
    sink.rest(std::chrono::microseconds(std::min(kShortest << doublings, kLongest)));
  }

 private:
  int rounds_ = 0;
};

}  // namespace

PutCarrier::PutCarrier(Backend& backend, std::uint32_t slots, PutSink& sink, Fail fail)
    : intake_(backend, slots), sink_(sink), fail_(std::move(fail)) {}

void PutCarrier::start() {
  thread_ = bootstrap::startQuietThread([this] {
    try {
      run();
    } catch (...) {  // NOLINT: it is reported
      reportCurrentError(fail_);
    }
  });
}

void PutCarrier::stop() noexcept {
  stop_.store(true, std::memory_order_release);
  if (thread_.joinable()) thread_.join();
}

void PutCarrier::run() {
  Nap nap;
  sink_.begin();
  while (!stop_.load(std::memory_order_acquire)) {
    const bool took = takeSome();
    if (sink_.progress() || took) {
      nap.wake();
    } else {
      nap.take(sink_);
    }
  }
  sink_.progress();
}

bool PutCarrier::takeSome() {
  Put put;
  int count = 0;
  while (count < kPutsPerRound && intake_.next(&put) && sink_.carry(put)) {
    intake_.pop();
    ++count;
  }
  intake_.release();
  return count > 0;
}

bool PutCarrier::waitTaken(const Deadline& deadline, const std::function<bool()>& giveUp) {
  const std::uint64_t posted = intake_.posted();
  return pollUntil(
      deadline, [&] { return intake_.released() == posted; }, giveUp);
}

}  // namespace moe
