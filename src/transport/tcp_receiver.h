// Receives what peers put to this rank and stores it in the window: a thread for the connections that are added to it.
#pragma once

#include <sys/uio.h>

#include <chrono>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "transport/tcp_frame.h"
#include "transport/tcp_peer.h"

namespace moe {

class TcpSender;

class TcpReceiver {
 public:
  // `sender` serves the same peers: it is told what to answer.
  TcpReceiver(TcpGroup& group, TcpSender& sender);
  ~TcpReceiver() { stop(); }
  TcpReceiver(const TcpReceiver&) = delete;
  TcpReceiver& operator=(const TcpReceiver&) = delete;

  // Before start(). `unread`: what has been received already.
  void add(TcpPeer& peer, std::vector<std::uint8_t> unread);
  void start();
  void stop() noexcept;

 private:
  using Clock = Deadline::Clock;
  // A connection: in a header, or in the bytes that follow it.
  struct Inbound {
    TcpPeer* peer = nullptr;
    std::vector<std::uint8_t> unread;  // received, behind what has been used
    std::size_t unreadTaken = 0;
    TcpFrame header{};
    std::size_t headerBytes = 0;
    std::uint64_t target = 0;
    std::size_t bytesLeft = 0;
    Clock::time_point heard = {};
    bool watched = true;
  };

  void run();
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
  Fd wake_;
  Clock::time_point lookAt_ = {};
  std::thread thread_;
};

}  // namespace moe
