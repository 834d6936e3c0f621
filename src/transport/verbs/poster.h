// One of the threads that post the puts of steps, with what belongs to it alone: a ring, and the connections that it
// serves from the ring.
#pragma once

#include <memory>

#include "transport/rdma/local_end.h"
#include "transport/verbs/carrier.h"

namespace moe::verbs {

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
