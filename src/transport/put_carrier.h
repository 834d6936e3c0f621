// What every transport needs that carries puts with a CPU thread: a ring in memory that steps reach, and the thread
// that takes puts from it, in order, and hands them to the transport's sink.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>

#include "base/deadline.h"
#include "transport/put_intake.h"

namespace moe {

// What carries a put out. Only the carrier's thread calls it. What it throws is reported and ends the thread.
class PutSink {
 public:
  virtual ~PutSink() = default;

  // Before all others.
  virtual void begin() {}
  // False: there is no room for it now. It is offered again, and nothing behind it in the ring before it.
  virtual bool carry(const Put& put) = 0;
  // What is to be done beside: called after every look at the ring, and once more when the carrier stops. True if there
  // was something to do.
  virtual bool progress() = 0;
  // Nothing is to be done: sleeps at most so long, or until progress() can go on.
  virtual void rest(std::chrono::microseconds most) { std::this_thread::sleep_for(most); }
};

class PutCarrier {
 public:
  using Fail = std::function<void(moeResult_t, const std::string&)>;

  // `slots` is a power of two. Allocates; the thread begins with start().
  PutCarrier(Backend& backend, std::uint32_t slots, PutSink& sink, Fail fail);
  ~PutCarrier() { stop(); }
  PutCarrier(const PutCarrier&) = delete;
  PutCarrier& operator=(const PutCarrier&) = delete;

  PutRing ring() const { return intake_.ring(); }
  void start();
  // Puts that are still in the ring stay there.
  void stop() noexcept;
  // No step runs any more. True when all posted puts have been taken; false at the deadline or when giveUp() says so.
  bool waitTaken(const Deadline& deadline, const std::function<bool()>& giveUp);

 private:
  void run();
  bool takeSome();

  PutIntake intake_;
  PutSink& sink_;
  Fail fail_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

}  // namespace moe
