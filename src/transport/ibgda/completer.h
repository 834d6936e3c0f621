// Serves the queues that steps post to: takes completions out and gives slots back, rings for steps that cannot, looks
// for events, and reports the first failure. By hand at first, then on a thread of its own.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <thread>

#include "transport/ibgda/queues.h"
#include "transport/verbs/event_watch.h"

namespace moe::ibgda {

class Completer {
 public:
  using SendFailure = verbs::SendFailure;

  // References outlive it.
  Completer(const RemoteSetup& setup, Queues& queues, const verbs::EventWatch& events);
  // Ends the thread.
  ~Completer();
  Completer(const Completer&) = delete;
  Completer& operator=(const Completer&) = delete;

  // One look, while there is no thread. Returns whether there was anything to do.
  bool look();
  // The first failure, while there is no thread.
  const std::optional<SendFailure>& failure() const { return failure_; }

  // From now on the thread looks, and reports a failure. `cpus`: where it may run; empty: anywhere.
  void start(const std::vector<int>& cpus, std::function<void(const SendFailure&)> report);
  bool failed() const { return failed_.load(std::memory_order_acquire); }
  // From now on failures are not reported: peers leave.
  void silence() { silent_.store(true, std::memory_order_release); }

 private:
  using Clock = std::chrono::steady_clock;

  void run();
  bool ring();
  bool collect();
  void complete(const mlx5::Completion& completion);
  void watch(Clock::time_point now);
  void fail(SendFailure failure);
  void report();

  const RemoteSetup& setup_;
  Queues& queues_;
  const verbs::EventWatch& events_;
  std::function<void(const SendFailure&)> report_;
  std::optional<SendFailure> failure_;
  Clock::time_point watchAt_{};
  std::atomic<bool> failed_{false};
  std::atomic<bool> silent_{false};
  std::atomic<bool> stop_{false};
  std::thread thread_;  // last: it uses the others
};

}  // namespace moe::ibgda
