// Receives what peers put to this rank and stores it in the window. It has a thread for the connections that are added
// to it. While steps on a CPU wait, they do the thread's work, and it does not watch the sockets.
#pragma once

#include <sys/epoll.h>
#include <sys/uio.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "transport/tcp/frame.h"
#include "transport/tcp/peer.h"

namespace moe {

class TcpSender;

class TcpReceiver {
 public:
  // `sender` serves the same peers, and sends the answers.
  TcpReceiver(TcpGroup& group, TcpSender& sender);
  ~TcpReceiver() { stop(); }
  TcpReceiver(const TcpReceiver&) = delete;
  TcpReceiver& operator=(const TcpReceiver&) = delete;

  // Call it before start(). `unread`: data that has already been received.
  void add(TcpPeer& peer, std::vector<std::uint8_t> unread);
  void start();
  void stop() noexcept;

  // Any thread: receives what is there, unless another thread does so. Returns true if something came. The receiver's
  // own thread keeps away until no such call has come for a while.
  bool help() noexcept;
  // Any thread: nobody is going to help any more.
  void takeOver() noexcept;
  // Readable when something has come.
  int readiness() const { return epoll_.get(); }

 private:
  using Clock = Deadline::Clock;
  // A connection, inside a header or inside the bytes that follow it.
  struct Inbound {
    TcpPeer* peer = nullptr;
    std::vector<std::uint8_t> early;       // received before there was a thread
    std::span<const std::uint8_t> unread;  // received, behind what was used; the next read refills it
    bool empty = false;                    // the socket had less than there was room for
    TcpFrame header{};
    std::size_t headerBytes = 0;
    std::uint64_t target = 0;
    std::size_t bytesLeft = 0;
    Clock::time_point heard = {};
    bool watched = true;
  };

  void run();
  template <class Body>
  bool reports(Body body) noexcept;
  bool woken() noexcept;
  bool keepAway();
  void serveReady(std::span<const epoll_event> events);
  void serve(Inbound& in);
  bool receive(Inbound& in);
  ssize_t read(Inbound& in, std::span<const iovec> parts);
  ssize_t readAhead(Inbound& in, std::span<const iovec> parts);
  void obey(Inbound& in);
  void closed(Inbound& in, int error);
  void forgetGone(Inbound& in);
  void findStuck();

  TcpGroup& group_;
  TcpSender& sender_;
  std::unique_ptr<WindowWriter> writer_;
  std::vector<std::unique_ptr<Inbound>> inbound_;
  std::vector<std::uint8_t> ahead_;
  Fd epoll_;
  Fd wake_;  // in epoll_ too
  Clock::time_point lookAt_ = {};
  std::mutex serving_;
  std::uint64_t received_ = 0;  // times that something came
  bool broken_ = false;         // something that is needed to go on has failed
  std::atomic<bool> stop_ = false;
  std::atomic<std::uint64_t> helped_ = 0;
  std::uint64_t helpSeen_ = 0;  // the calls of help() that the thread has seen
  std::chrono::milliseconds away_{0};
  std::thread thread_;
};

}  // namespace moe
