#include "bootstrap/net/link.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "bootstrap/net/socket.h"

namespace moe::bootstrap {
namespace {

constexpr std::size_t kReadBytes = 16384;
constexpr std::size_t kReadRounds = 64;  // per pump, so that one busy link does not starve the others

struct FdControl {  // room for one descriptor in a control message
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> bytes{};
};

// True for temporary errors: the socket may later do what it refuses now.
bool isForNow(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == ENOBUFS || error == ENOMEM;
}

}  // namespace

Link::Link(Fd socket, Handshake::Side side, const Key& key, FrameMask accepted)
    : socket_(std::move(socket)), handshake_(side, key, randomKey()), accepted_(accepted) {
  connected_ = side == Handshake::Side::server;
  if (auto hello = handshake_.start(); !hello.empty()) {
    output_.push_back(std::make_shared<const std::vector<std::uint8_t>>(std::move(hello)));
  }
}

short Link::wanted() const {
  const bool write = !connected_ || (writable_ && (!output_.empty() || finishing_));
  return static_cast<short>(write ? (POLLIN | POLLOUT) : POLLIN);
}

void Link::close(std::string reason, int error) {
  if (closed()) return;
  reason_ = std::move(reason);
  error_ = error;
  socket_.reset();
  output_.clear();
}

void Link::reject(std::string reason) {
  close(std::move(reason));
  parser_ = FrameParser(0);
}

void Link::pump(short events) {
  if (closed() || events == 0) return;
  if (!connected_) {
    if (const int error = pendingSocketError(fd()); error != 0) return close(std::strerror(error), error);
    if ((events & POLLOUT) == 0) return;
    connected_ = true;
  }
  writeSome();
  if ((events & (POLLIN | POLLHUP | POLLERR)) != 0) readSome();
}

// Strangers may attach descriptors to what they send. The kernel closes those for which there is no room here.
ssize_t Link::receive(std::span<std::uint8_t> into) {
  iovec part{into.data(), into.size()};
  FdControl control;
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (wantsFd_ && open()) {
    message.msg_control = control.bytes.data();
    message.msg_controllen = control.bytes.size();
  }
  const ssize_t got = ::recvmsg(fd(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (got >= 0) keepFirst(message);
  return got;
}

// This process owns every descriptor that arrived, and closes those that it does not keep. Alignment may leave room for
// more than one.
void Link::keepFirst(const msghdr& message) {
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(const_cast<msghdr*>(&message), c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    for (std::size_t at = CMSG_LEN(0); at + sizeof(int) <= c->cmsg_len; at += sizeof(int)) {
      int value = -1;
      std::memcpy(&value, reinterpret_cast<const char*>(c) + at, sizeof value);
      Fd fd(value);
      if (!received_) received_ = std::move(fd);
    }
  }
  lostFd_ = lostFd_ || (wantsFd_ && !received_ && (message.msg_flags & MSG_CTRUNC) != 0);
}

void Link::readSome() {
  std::array<std::uint8_t, kReadBytes> buffer;
  for (std::size_t round = 0; round < kReadRounds && !closed(); ++round) {
    const ssize_t got = receive(buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && isForNow(errno)) return;
    if (got < 0) return close(std::strerror(errno), errno);
    if (got == 0) return close("");
    try {
      parser_.feed(std::span(buffer).first(static_cast<std::size_t>(got)));
      if (handshake_.state() != Handshake::State::done) runHandshake();
    } catch (...) {
      close(kNoMemory);  // these bytes are lost, so the other side must not wait for an answer to them
      throw;
    }
    if (parser_.broken()) return closeBroken();
    if (static_cast<std::size_t>(got) < buffer.size()) return;
  }
}

// A listener tells a guest of another version its own, so that both sides can say both.
void Link::closeBroken() {
  const bool greeting = handshake_.state() == Handshake::State::running;
  if (otherVersion() && greeting && handshake_.side() == Handshake::Side::server) {
    const auto own = encodeFrame(FrameType::hello, 0, Key{});
    (void)::send(fd(), own.data(), own.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  }
  close(parser_.complaint());
}

void Link::runHandshake() {
  while (handshake_.state() == Handshake::State::running) {
    const auto frame = parser_.next();
    if (!frame) return;
    spoken_ = true;
    auto reply = std::make_shared<std::vector<std::uint8_t>>();
    if (handshake_.onFrame(*frame, *reply) == Handshake::State::refused) {
      return close(wrongKey() ? "it does not know the secret of this group" : "it broke the handshake");
    }
    if (!reply->empty()) output_.push_back(std::move(reply));
  }
  parser_.accept(accepted_);
  writeSome();
}

void Link::writeSome() {
  constexpr std::size_t kParts = 64;
  while (writable_ && !closed() && !output_.empty()) {
    std::array<iovec, kParts> parts;
    std::size_t count = 0;
    for (; count < kParts && count < output_.size(); ++count) {
      const std::size_t skip = count == 0 ? firstSent_ : 0;
      parts[count] = {const_cast<std::uint8_t*>(output_[count]->data()) + skip, output_[count]->size() - skip};
    }
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = count;
    const ssize_t sent = ::sendmsg(fd(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && isForNow(errno)) return;
    if (sent < 0) {
      // Frames of the other side may still be unread, so the reading side decides when to close.
      writable_ = false;
      output_.clear();
      return;
    }
    firstSent_ += static_cast<std::size_t>(sent);
    while (!output_.empty() && firstSent_ >= output_.front()->size()) {
      firstSent_ -= output_.front()->size();
      output_.pop_front();
    }
  }
  if (finishing_ && writable_ && !closed() && output_.empty()) {
    (void)::shutdown(fd(), SHUT_WR);
    writable_ = false;
  }
}

std::optional<Frame> Link::next() {
  if (handshake_.state() != Handshake::State::done) return std::nullopt;
  auto frame = parser_.next();
  if (!frame && parser_.broken()) close(parser_.complaint());
  return frame;
}

bool Link::frameReady() {
  if (handshake_.state() != Handshake::State::done) return false;
  const bool ready = parser_.frameReady();
  if (parser_.broken()) close(parser_.complaint());
  return ready;
}

SharedBytes share(FrameType type, int rank, std::span<const std::uint8_t> payload, std::uint16_t sequence) {
  return std::make_shared<const std::vector<std::uint8_t>>(
      encodeFrame(type, static_cast<std::uint32_t>(rank), payload, sequence));
}

void Link::send(FrameType type, int rank, std::span<const std::uint8_t> payload, std::uint16_t sequence) {
  send(share(type, rank, payload, sequence));
}

void Link::send(SharedBytes bytes) {
  if (closed() || !writable_ || finishing_) return;
  output_.push_back(std::move(bytes));
}

bool Link::sendFd(const SharedBytes& bytes, int fdToSend) {
  if (!open() || !drained()) return false;
  FdControl control;
  iovec part{const_cast<std::uint8_t*>(bytes->data()), bytes->size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes.data();
  message.msg_controllen = control.bytes.size();
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &fdToSend, sizeof(fdToSend));
  return ::sendmsg(fd(), &message, MSG_DONTWAIT | MSG_NOSIGNAL) == static_cast<ssize_t>(bytes->size());
}

Fd Link::takeFd() {
  return std::move(received_);
}

Fd Link::release(std::vector<std::uint8_t>* unread) {
  *unread = parser_.takeRest();
  return std::move(socket_);
}

void Link::finishWriting() {
  if (closed()) return;
  finishing_ = true;
  writeSome();
}

}  // namespace moe::bootstrap
