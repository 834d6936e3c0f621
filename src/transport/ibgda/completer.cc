#include "transport/ibgda/completer.h"

#include <fmt/format.h>

#include "base/quiet_thread.h"
#include "device/queue/mlx5/completion_queue.h"
#include "transport/rdma/pace.h"

namespace moe::ibgda {
namespace {

constexpr int kCompletionsPerLook = 256;
constexpr std::chrono::milliseconds kWatchEvery{10};
// The pause while operations are under way, because posters may wait for room, and peers for later operations.
constexpr std::chrono::microseconds kShortRest{20};

}  // namespace

Completer::Completer(Queues& queues, const Events& events) : queues_(queues), events_(events) {}

Completer::~Completer() {
  stop_.store(true, std::memory_order_release);
  if (thread_.joinable()) thread_.join();
}

void Completer::start(const std::vector<int>& cpus, verbs::FailureReport::Tell report) {
  report_.setTell(std::move(report));
  thread_ = startQuietThread([this, cpus] {
    try {
      verbs::runOn(cpus);
      run();
    } catch (...) {  // NOLINT: it is reported
      report_.fail(verbs::currentFailure());
    }
  });
}

void Completer::run() {
  Clock::time_point busyAt = Clock::now();
  while (!stop_.load(std::memory_order_acquire)) {
    const bool busy = look();
    const Clock::time_point now = Clock::now();
    if (now >= watchAt_ || failure_) watch(now);
    if (failure_) report_.fail(*failure_);
    if (busy) busyAt = now;
    const std::chrono::microseconds pause = verbs::restAfter(now - busyAt);
    verbs::rest(pause > kShortRest && !failure_ && queues_.anyUnderWay() ? kShortRest : pause);
  }
}

bool Completer::look() {
  const bool rang = ring();
  return collect() || rang;
}

bool Completer::ring() {
  if (queues_.ringer() == Ringer::steps) return false;
  bool any = false;
  for (std::size_t i = 0; i < queues_.count(); ++i) any = queues_.ringFor(i) || any;
  return any;
}

bool Completer::collect() {
  bool any = false;
  for (int rail = 0; rail < queues_.rails(); ++rail) {
    mlx5::Completion completion{};
    for (int i = 0; i < kCompletionsPerLook; ++i) {
      if (!mlx5::poll(HostQueueMemory(), queues_.completions(rail), &completion)) break;
      complete(rail, completion);
      any = true;
    }
  }
  return any;
}

// After a failure no slots are given back, because nothing behind it was carried out.
void Completer::complete(int rail, const mlx5::Completion& completion) {
  const int index = queues_.indexOf(rail, completion.queuePair);
  if (index < 0) {
    return fail(
        {moeInternalError,
         fmt::format("RDMA: a completion names the queue pair {:#x}, which is not this rank's", completion.queuePair)});
  }
  if (!completion.failed())
    return mlx5::retire(HostQueueMemory(), queues_.queue(static_cast<std::size_t>(index)), completion);
  const int rank = queues_.rankOf(rail, completion.queuePair);
  SendFailure failure = verbs::refusedHere(rank, completion.queuePair);
  if (completion.syndrome != mlx5::Syndrome::flushed) {
    failure.text =
        fmt::format("RDMA write to rank {} failed: {} (queue pair {:#x}, vendor error {:#x})", rank,
                    mlx5::syndromeText(completion.syndrome), completion.queuePair, completion.vendorSyndrome);
  }
  failure.rail = rail;
  fail(std::move(failure));
}

// Looks for events too, because an event explains more than the requests that it ended.
void Completer::watch(Clock::time_point now) {
  watchAt_ = now + kWatchEvery;
  for (const auto& events : events_) {
    std::optional<SendFailure> failure = events->poll();
    if (failure && !failed()) failure_ = std::move(failure);
  }
}

void Completer::fail(SendFailure failure) {
  if (!failure_) failure_ = std::move(failure);
}

}  // namespace moe::ibgda
