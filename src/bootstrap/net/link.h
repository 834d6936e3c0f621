// One connection that carries frames. It is non-blocking, starts with the handshake, and has an output queue. Whatever
// the other side does, it does not throw: it closes and keeps the reason. One thread at a time uses it.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "bootstrap/net/frame.h"
#include "bootstrap/net/handshake.h"

struct msghdr;  // the buffers that recvmsg() fills

namespace moe::bootstrap {

using SharedBytes = std::shared_ptr<const std::vector<std::uint8_t>>;

// An encoded frame, shared so that a broadcast is stored once.
SharedBytes share(FrameType type, int rank, std::span<const std::uint8_t> payload = {}, std::uint16_t sequence = 0);

class Link {
 public:
  // `accepted`: the frames that are valid after the handshake.
  Link(Fd socket, Handshake::Side side, const Key& key, FrameMask accepted);

  int fd() const { return socket_.get(); }
  short wanted() const;         // the events to poll for
  void pump(short events);      // reads and writes what does not block
  std::optional<Frame> next();  // the next frame after the handshake; its payload is valid until the next pump()
  bool frameReady();            // next() would return one
  void accept(FrameMask accepted) { parser_.accept(accepted_ = accepted); }

  void send(FrameType type, int rank, std::span<const std::uint8_t> payload = {}, std::uint16_t sequence = 0);
  void send(SharedBytes bytes);            // encoded frames
  void wantFd() { wantsFd_ = true; }       // UNIX sockets: from now on a descriptor may come with a frame, once open
  Fd takeFd();                             // the first descriptor that came, if any
  bool lostFd() const { return lostFd_; }  // the kernel could not hand one over to this process
  bool sendFd(const SharedBytes& bytes, int fd);  // with `fd` attached, at once; false if that is not possible

  bool spoken() const { return spoken_; }  // a valid whole frame of the handshake has arrived
  bool open() const { return handshake_.state() == Handshake::State::done && socket_; }  // may send and receive
  bool closed() const { return !socket_; }  // frames that arrived before may still be there
  bool drained() const { return output_.empty(); }
  bool wrongKey() const { return handshake_.wrongKey(); }
  bool otherVersion() const { return parser_.otherVersion(); }
  const std::string& reason() const { return reason_; }  // why it closed; empty if the other side just closed
  int error() const { return error_; }                   // the errno behind the reason, if there is one
  void close(std::string reason, int error = 0);
  void reject(std::string reason);  // closes, and drops what has arrived
  // Gives the connection away, once drained. `unread` gets what arrived and next() has not returned.
  Fd release(std::vector<std::uint8_t>* unread);
  void finishWriting();  // after everything queued; the other side then sees the end of the stream

 private:
  void readSome();
  ssize_t receive(std::span<std::uint8_t> into);
  void keepFirst(const msghdr& message);
  void runHandshake();
  void closeBroken();
  void writeSome();

  Fd socket_;
  Handshake handshake_;
  FrameMask accepted_;
  FrameParser parser_{kHandshakeFrames};
  std::deque<SharedBytes> output_;
  std::size_t firstSent_ = 0;  // bytes of output_.front() that have been sent
  bool spoken_ = false;
  bool connected_ = false;  // the socket has been writable once
  bool writable_ = true;    // false: writing has failed or ended
  bool finishing_ = false;
  bool wantsFd_ = false;
  bool lostFd_ = false;
  Fd received_;
  std::string reason_;
  int error_ = 0;
};

}  // namespace moe::bootstrap
