// Sends the puts of one ring to their ranks, over non-blocking sockets. A rank that takes nothing gets a backlog of its
// own, so that it does not hold up the others; when that is full, the ring waits for it.
#pragma once

#include <poll.h>
#include <sys/uio.h>

#include <deque>
#include <vector>

#include "transport/put_carrier.h"
#include "transport/tcp_frame.h"
#include "transport/tcp_peer.h"

namespace moe {

class TcpSender final : public PutSink {
 public:
  // Most puts in a backlog. They are put in it without their bytes, which stay in the window until they are sent.
  TcpSender(TcpGroup& group, std::size_t backlogMax);

  void add(TcpPeer& peer);  // before the carrier starts

  void begin() override { reader_->enter(); }
  bool carry(const Put& put) override;
  bool progress() override;
  void rest(std::chrono::microseconds most) override;

  // A peer's `answerWanted` or `drainWanted` has been set. Any thread.
  void attend() { attention_.store(true, std::memory_order_release); }

 private:
  using Clock = Deadline::Clock;
  struct Outgoing {
    TcpFrame frame;
    std::uint64_t source;  // of the bytes, in this rank's window
  };
  // What goes to one peer.
  struct Outbound {
    TcpPeer* peer = nullptr;
    std::deque<Outgoing> backlog;
    std::size_t firstSent = 0;     // bytes of the first, with its header
    bool active = false;           // in active_
    bool blocked = false;          // its socket was full
    bool broken = false;           // it takes nothing any more; the receiver finds out why
    std::uint64_t sent = 0;        // since the beginning
    std::uint64_t arrived = 0;     // of that: acknowledged by the peer's host, when last asked
    Clock::time_point moved = {};  // when `arrived` last grew, or there was nothing to wait for
  };

  void queue(Outbound& out, const Outgoing& outgoing);
  bool answer();
  bool flush(Outbound& out);
  std::size_t gather(Outbound& out);
  bool sendGathered(Outbound& out, std::size_t total);
  void advance(Outbound& out, std::size_t bytes);
  void stopWriting(Outbound& out, int error);
  void loseSilent(TcpPeer& peer);
  void pollBlocked(std::chrono::microseconds most);
  void watch();

  TcpGroup& group_;
  std::size_t backlogMax_;
  std::unique_ptr<WindowReader> reader_;
  std::vector<std::unique_ptr<Outbound>> outbound_;
  std::vector<Outbound*> byRank_;
  std::vector<Outbound*> active_;  // with a backlog
  std::vector<pollfd> polled_;
  std::vector<iovec> parts_;
  std::atomic<bool> attention_ = false;
  Clock::time_point watchAt_ = {};
};

}  // namespace moe
