// The thread that takes puts from the ring and sends them, looks for completions and events, and reports the first
// failure.
#pragma once

#include <atomic>
#include <thread>

#include "base/log.h"
#include "transport/put_intake.h"
#include "transport/rdma/event_watch.h"
#include "transport/rdma/failure_report.h"
#include "transport/rdma/pace.h"
#include "transport/verbs/sender.h"

namespace moe::verbs {

class Carrier {
 public:
  // The references must outlive it. `events`: NULL if another thread looks for them. `cpus`: where the thread runs;
  // empty: anywhere.
  Carrier(PutIntake& intake, Sender& sender, const EventWatch* events, FailureReport::Tell report,
          const std::vector<int>& cpus);
  // Ends the thread, and drops what has not been sent.
  ~Carrier();
  Carrier(const Carrier&) = delete;
  Carrier& operator=(const Carrier&) = delete;

  // The number of puts that were taken and have arrived, with all before them.
  std::uint64_t arrived() const { return arrived_.load(std::memory_order_acquire); }
  bool failed() const { return report_.failed(); }
  void silence() { report_.silence(); }

 private:
  using Clock = std::chrono::steady_clock;

  void run();
  bool carry();
  void drop();
  void watch(Clock::time_point now);
  void restSome(bool busy, Clock::time_point now);

  PutIntake& intake_;
  Sender& sender_;
  const EventWatch* events_;
  FailureReport report_;
  std::optional<Put> begun_;  // taken, but only a part of it has had room so far
  Clock::time_point busyAt_ = Clock::now();
  Clock::time_point watchAt_ = busyAt_;
  std::atomic<std::uint64_t> arrived_{0};
  std::atomic<bool> stop_{false};
  std::thread thread_;  // last: it uses the others
};

}  // namespace moe::verbs
