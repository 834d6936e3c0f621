// The common part of transports that carry puts with a CPU thread: a ring in memory that steps reach, and a thread that
// takes puts from it, in order, and hands them to the transport's sink. Waiting steps on a CPU do the thread's work,
// and the thread sleeps then.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/deadline.h"
#include "base/fd.h"
#include "transport/put_intake.h"

namespace moe {

// Where a thread that carries puts sleeps until there is work for it. No work is missed: a poster posts before it
// rings, and the thread looks once more between doze() and its sleep.
class PutBell {
 public:
  PutBell();  // throws moeSystemError

  // Any thread. Makes a system call only if somebody sleeps.
  void ring() noexcept;

  // For the sleeper. After doze() it sees everything that happened before any ring() that found it awake.
  void doze() noexcept { dozes_.exchange(true, std::memory_order_acq_rel); }
  // Sleeps until it is rung, or one of two other descriptors is readable (below 0: none), at most for this long.
  void sleep(std::chrono::microseconds most, int other = -1, int another = -1) noexcept;
  void rise() noexcept;

 private:
  Fd event_;
  std::atomic<bool> dozes_ = false;
};

// Carries a put out. One thread at a time calls it.
class PutSink {
 public:
  virtual ~PutSink() = default;

  // The carrier's thread calls it first.
  virtual void begin() {}
  // Returns false if there is no room for it now. It is offered again, before anything behind it in the ring.
  virtual bool carry(const Put& put) = 0;
  // Other work: called after every look at the ring, and once more when the carrier stops. True if there was any.
  virtual bool progress() = 0;
  // Whether progress() still has work to continue.
  virtual bool waits() const { return false; }
  virtual std::chrono::microseconds restMost() const { return std::chrono::milliseconds(500); }
  // A descriptor that is readable when waiting work can go on; below 0: none.
  virtual int readiness() const { return -1; }
};

// Whether posters on this machine ring. If not, as on a GPU, the thread must look for puts now and then.
enum class Posters { ring, silent };

class PutCarrier {
 public:
  using Fail = std::function<void(moeResult_t, const std::string&)>;

  // `slots`, `lost`: as in PutIntake. Allocates; the thread begins with start().
  PutCarrier(Backend& backend, std::uint32_t slots, PutSink& sink, Fail fail, std::vector<int> lost = {});
  ~PutCarrier() { stop(); }
  PutCarrier(const PutCarrier&) = delete;
  PutCarrier& operator=(const PutCarrier&) = delete;

  PutRing ring() const { return intake_.ring(); }
  void start();
  // Puts in the ring stay there.
  void stop() noexcept;
  // Any thread: does the carrier's work, unless another thread does it. `left`: work remains, or the other thread may
  // have missed the latest put.
  struct Help {
    bool moved, left;
  };
  Help help() noexcept;
  // Any thread, after it has posted or given the sink work: wakes the carrier's thread to do it.
  void wake() noexcept { bell_.ring(); }
  // For use when no step runs any more. Returns true when all posted puts have been taken, and false at the deadline or
  // when giveUp() says so.
  bool waitTaken(const Deadline& deadline, const std::function<bool()>& giveUp);

 private:
  void run();
  bool round();
  bool takeSome();
  void rest();

  PutIntake intake_;
  PutSink& sink_;
  Fail fail_;
  Posters posters_;
  PutBell bell_;
  std::mutex carrying_;
  bool broken_ = false;                // the sink has thrown
  std::atomic<bool> refused_ = false;  // the sink had no room for the next put
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

}  // namespace moe
