// Sends the puts of one ring to their ranks, over non-blocking sockets. A rank that takes nothing has its own backlog,
// so that it does not hold up the others. When the backlog is full, the ring waits for the rank.
#pragma once

#include <sys/uio.h>

#include <deque>
#include <vector>

#include "transport/tcp/frame.h"
#include "transport/tcp/peer.h"
#include "transport/tcp/put_carrier.h"

namespace moe {

class TcpSender final : public PutSink {
 public:
  // `backlogMax`: the most puts in a backlog. Their bytes stay in the window until they are sent.
  TcpSender(TcpGroup& group, std::size_t backlogMax);

  void add(TcpPeer& peer);  // before the carrier starts

  void begin() override { reader_->enter(); }
  bool carry(const Put& put) override;
  bool progress() override;
  bool waits() const override { return !active_.empty(); }
  std::chrono::microseconds restMost() const override { return watchEvery(); }
  int readiness() const override { return writable_.get(); }

  // Sets the function that wakes the carrier, before the carrier starts.
  void setWake(std::function<void()> wake) { wake_ = std::move(wake); }
  // A peer's `answerWanted` or `drainWanted` has been set. Any thread.
  void attend() {
    attention_.store(true, std::memory_order_release);
    wake_();
  }

 private:
  using Clock = Deadline::Clock;
  // A frame, or more bytes of the previous frame. Puts to adjacent places travel as one frame.
  struct Outgoing {
    TcpFrame frame;
    std::uint64_t source;  // offset of the bytes in this rank's window
    std::uint32_t bytes;
    bool begins;

    std::size_t headerBytes() const { return begins ? sizeof frame : 0; }
    std::size_t size() const { return headerBytes() + bytes; }
  };
  // The output to one peer.
  struct Outbound {
    TcpPeer* peer = nullptr;
    std::deque<Outgoing> backlog;
    std::size_t firstSent = 0;     // sent bytes of the first frame, with its header
    Outgoing* open = nullptr;      // the last frame, if it may grow: none of it has been sent
    bool active = false;           // in active_
    bool blocked = false;          // its socket was full
    bool broken = false;           // it takes nothing any more; the receiver finds out why
    std::uint64_t sent = 0;        // bytes since the start
    std::uint64_t arrived = 0;     // the part of these bytes that the peer's host had acknowledged at the last check
    Clock::time_point moved = {};  // when `arrived` last grew, or nothing was outstanding
  };

  void queue(Outbound& out, const TcpFrame& frame, std::uint64_t source = 0);
  static bool append(Outbound& out, const Put& put);
  void activate(Outbound& out);
  bool answer();
  bool flush(Outbound& out);
  std::size_t gather(Outbound& out);
  bool sendGathered(Outbound& out, std::size_t total);
  void advance(Outbound& out, std::size_t bytes);
  void stopWriting(Outbound& out, int error);
  void loseSilent(TcpPeer& peer);
  void forget(Outbound& out);
  void setBlocked(Outbound& out, bool blocked);
  void findWritable();
  std::chrono::milliseconds watchEvery() const;
  void watch();
  void followTimeout(std::chrono::milliseconds timeout);

  TcpGroup& group_;
  std::size_t backlogMax_;
  std::unique_ptr<WindowReader> reader_;
  std::vector<std::unique_ptr<Outbound>> outbound_;
  std::vector<Outbound*> byRank_;
  std::vector<Outbound*> active_;  // with a backlog
  std::vector<iovec> parts_;
  Fd writable_;      // an epoll of sockets that were full
  int blocked_ = 0;  // number of blocked peers
  std::function<void()> wake_ = [] {};
  std::atomic<bool> attention_ = false;
  std::chrono::milliseconds timeout_;  // timeout that the sockets have
  Clock::time_point watchAt_ = {};
};

}  // namespace moe
