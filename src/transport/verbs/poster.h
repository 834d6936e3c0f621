// One of the threads that post the puts of steps, with what belongs to it alone: a ring, and the connections that it
// serves from the ring.
#pragma once

#include <atomic>
#include <memory>
#include <thread>

#include "base/log.h"
#include "transport/put_intake.h"
#include "transport/rdma/event_watch.h"
#include "transport/rdma/failure_report.h"
#include "transport/rdma/local_end.h"
#include "transport/rdma/pace.h"
#include "transport/verbs/sender.h"

namespace moe::verbs {

// The thread that takes puts from the ring and sends them, looks for completions and events, and reports the first
// failure.
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

// A thread with its ring and connections.
class Poster {
 public:
  // Poster number `index` of `end`, which must outlive it. It serves the connections that complete to the queue of that
  // number, and their adapter.
  Poster(const RemoteSetup& setup, const LocalEnd& end, int index, int depth);

  PutRing ring() const { return intake_.ring(); }

  // Before start(): adds a connection, and sends an empty write on each, which completes when the peer has answered.
  void add(PeerQueue queue) { sender_.add(std::move(queue)); }
  void probe();
  Sender& sender() { return sender_; }
  const Sender& sender() const { return sender_; }
  // Starts the thread.
  void start(const EventWatch* events, const FailureReport::Tell& report, const std::vector<int>& cpus);

  // For use when no step runs any more. Counts the posted puts, posts one more, and tells when all have arrived. Throws
  // moeCudaError.
  void countPosted() { posted_ = intake_.posted(); }
  void append(const Put& put) { intake_.append(posted_++, put); }
  bool allHaveArrived() const { return carrier_->arrived() >= posted_; }
  bool failed() const { return carrier_->failed(); }
  void silence() { carrier_->silence(); }

 private:
  PutIntake intake_;
  Sender sender_;
  std::uint64_t posted_ = 0;
  std::unique_ptr<Carrier> carrier_;  // last: its thread uses the others
};

}  // namespace moe::verbs
