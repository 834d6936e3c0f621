// Serves the queues that steps post to. It takes completions out and gives slots back, rings for steps that cannot,
// looks for events, and reports the first failure. At first it is called directly, and later it has its own thread.
#pragma once

#include <atomic>
#include <optional>
#include <thread>

#include "transport/ibgda/queues.h"
#include "transport/rdma/event_watch.h"
#include "transport/rdma/failure_report.h"

namespace moe::ibgda {

class Completer {
 public:
  using SendFailure = verbs::SendFailure;
  using Events = std::vector<std::unique_ptr<verbs::EventWatch>>;  // by adapter

  // The references must outlive it.
  Completer(Queues& queues, const Events& events);
  // Ends the thread.
  ~Completer();
  Completer(const Completer&) = delete;
  Completer& operator=(const Completer&) = delete;

  // Looks once, before the thread starts. Returns whether there was anything to do.
  bool look();
  // The first failure, before the thread starts.
  const std::optional<SendFailure>& failure() const { return failure_; }

  // Starts the thread, which from now on looks and reports a failure. `cpus`: where it runs; empty: anywhere.
  void start(const std::vector<int>& cpus, verbs::FailureReport::Tell report);
  bool failed() const { return report_.failed(); }
  void silence() { report_.silence(); }

 private:
  using Clock = std::chrono::steady_clock;

  void run();
  bool ring();
  bool collect();
  void complete(int rail, const mlx5::Completion& completion);
  void watch(Clock::time_point now);
  void fail(SendFailure failure);

  Queues& queues_;
  const Events& events_;
  verbs::FailureReport report_;
  std::optional<SendFailure> failure_;
  Clock::time_point watchAt_{};
  std::atomic<bool> stop_{false};
  std::thread thread_;  // last: it uses the others
};

}  // namespace moe::ibgda
