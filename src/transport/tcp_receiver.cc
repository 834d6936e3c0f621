#include "transport/tcp_receiver.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "bootstrap/quiet_thread.h"
#include "transport/tcp_sender.h"

namespace moe {
namespace {

constexpr int kReceivesPerTurn = 256;  // from one peer, then the next one gets its turn
// Behind a small put this much more is received at once: what comes next is likely to be small too.
constexpr std::size_t kAheadBytes = 2048;
constexpr std::size_t kSmallBytes = 512;
constexpr int kLookMs = 100;  // between looks for connections that are stuck

void watch(int epoll, int fd, void* data) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = data;
  if (::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0) throw systemError("epoll_ctl");
}

}  // namespace

TcpReceiver::TcpReceiver(TcpGroup& group, TcpSender& sender)
    : group_(group),
      sender_(sender),
      writer_(group.setup().backend.makeWriter(group.setup().window)),
      ahead_(kAheadBytes),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!epoll_ || !wake_) throw systemError("cannot wait for several sockets (epoll, eventfd)");
  watch(epoll_.get(), wake_.get(), nullptr);
}

void TcpReceiver::add(TcpPeer& peer, std::vector<std::uint8_t> unread) {
  inbound_.push_back(std::make_unique<Inbound>());
  inbound_.back()->peer = &peer;
  inbound_.back()->unread = std::move(unread);
  watch(epoll_.get(), peer.socket.get(), inbound_.back().get());
}

void TcpReceiver::start() {
  thread_ = bootstrap::startQuietThread([this] {
    try {
      run();
    } catch (...) {  // NOLINT: it is reported
      reportCurrentError([this](moeResult_t result, const std::string& sentence) { group_.fail(result, sentence); });
    }
  });
}

void TcpReceiver::stop() noexcept {
  if (!thread_.joinable()) return;
  (void)::eventfd_write(wake_.get(), 1);
  thread_.join();
}

void TcpReceiver::run() {
  writer_->enter();
  for (const auto& in : inbound_) serve(*in);  // what came with the handshake
  std::array<epoll_event, 64> events;
  for (;;) {
    const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), kLookMs);
    if (count < 0 && errno != EINTR) throw systemError("epoll_wait");
    for (int i = 0; i < count; ++i) {
      auto* in = static_cast<Inbound*>(events[static_cast<std::size_t>(i)].data.ptr);
      if (in == nullptr) return;
      serve(*in);
    }
    // Not while some may not have been served.
    if (count < static_cast<int>(events.size())) findStuck();
  }
}

void TcpReceiver::serve(Inbound& in) {
  // What is here already makes no event.
  const auto turnLasts = [&](int i) { return i < kReceivesPerTurn || !in.unread.empty(); };
  for (int i = 0; turnLasts(i) && !in.peer->gone && receive(in); ++i) {
  }
  if (in.peer->gone) forgetGone(in);
}

// What its socket says does not matter any more, and would be said again and again.
void TcpReceiver::forgetGone(Inbound& in) {
  if (!in.watched) return;
  (void)::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, in.peer->socket.get(), nullptr);
  in.watched = false;
}

// The rest of the bytes goes to the window, the header behind them here. False: nothing is left.
bool TcpReceiver::receive(Inbound& in) {
  std::array<iovec, 2> parts;
  std::size_t count = 0;
  std::span<std::uint8_t> room;
  if (in.bytesLeft > 0) {
    room = writer_->stage(in.target, in.bytesLeft);
    parts[count++] = {room.data(), room.size()};
  }
  if (room.size() == in.bytesLeft) {
    auto* header = reinterpret_cast<std::uint8_t*>(&in.header);
    parts[count++] = {header + in.headerBytes, sizeof in.header - in.headerBytes};
  }
  const ssize_t got = read(in, std::span(parts).first(count));
  if (got < 0 && errno == EINTR) return true;
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
  if (got <= 0) {
    closed(in, got < 0 ? errno : 0);
    return false;
  }
  in.heard = Clock::now();
  const std::size_t bytes = std::min(room.size(), static_cast<std::size_t>(got));
  if (bytes > 0) writer_->commit(in.target, bytes);
  in.target += bytes;
  in.bytesLeft -= bytes;
  in.headerBytes += static_cast<std::size_t>(got) - bytes;
  if (in.headerBytes == sizeof in.header) obey(in);
  return true;
}

ssize_t TcpReceiver::read(Inbound& in, std::span<const iovec> parts) {
  if (in.unread.empty()) return readAhead(in, parts);
  std::size_t total = 0;
  for (const iovec& part : parts) {
    const std::size_t bytes = std::min(part.iov_len, in.unread.size() - in.unreadTaken);
    std::memcpy(part.iov_base, in.unread.data() + in.unreadTaken, bytes);
    in.unreadTaken += bytes;
    total += bytes;
  }
  if (in.unreadTaken == in.unread.size()) in.unread.clear();
  return static_cast<ssize_t>(total);
}

// Fills the parts from the socket; behind small puts, takes what comes after them too.
ssize_t TcpReceiver::readAhead(Inbound& in, std::span<const iovec> parts) {
  std::array<iovec, 3> all;
  const auto end = std::copy(parts.begin(), parts.end(), all.begin());
  *end = {ahead_.data(), in.header.bytes <= kSmallBytes ? ahead_.size() : 0};
  std::size_t wanted = 0;
  for (const iovec& part : parts) wanted += part.iov_len;
  msghdr message{};
  message.msg_iov = all.data();
  message.msg_iovlen = parts.size() + 1;
  const ssize_t got = ::recvmsg(in.peer->socket.get(), &message, MSG_DONTWAIT);
  if (got <= 0 || static_cast<std::size_t>(got) <= wanted) return got;
  in.unread.assign(ahead_.begin(), ahead_.begin() + (got - static_cast<ssize_t>(wanted)));
  in.unreadTaken = 0;
  return static_cast<ssize_t>(wanted);
}

void TcpReceiver::obey(Inbound& in) {
  in.headerBytes = 0;
  const TcpFrame& frame = in.header;
  if (const std::string fault = faultOf(frame, group_.setup().windowBytes); !fault.empty()) {
    return group_.lose(*in.peer, moeRemoteError, fmt::format("rank {}: {}", in.peer->rank, fault));
  }
  switch (frame.kind) {
    case TcpKind::Bytes:
      in.target = frame.target;
      in.bytesLeft = frame.bytes;
      return;
    case TcpKind::Word:
      return writer_->writeWord(frame.target, frame.word);
    case TcpKind::Drain:
      writer_->settle();
      in.peer->leaving = true;
      in.peer->answerWanted = true;
      return sender_.attend();
    case TcpKind::Drained:
      in.peer->drained = true;
      return;
  }
}

void TcpReceiver::closed(Inbound& in, int error) {
  if (error == ETIMEDOUT) {
    group_.lose(*in.peer, moeTimeout, fmt::format("nothing arrives from rank {} any more", in.peer->rank));
  } else {
    const std::string why = error == 0 ? "" : fmt::format(" ({})", std::strerror(error));
    group_.lose(*in.peer, moeRemoteError,
                fmt::format("rank {} closed the connection for puts without a goodbye{}", in.peer->rank, why));
  }
}

// A frame that has begun must go on: its sender had all of it when it began.
void TcpReceiver::findStuck() {
  const auto now = Clock::now();
  if (now < lookAt_) return;
  lookAt_ = now + std::chrono::milliseconds(kLookMs);
  const auto late = now - std::chrono::milliseconds(group_.setup().timeoutMs);
  for (const auto& in : inbound_) {
    if (in->peer->gone || (in->bytesLeft == 0 && in->headerBytes == 0) || in->heard > late) continue;
    group_.lose(*in->peer, moeTimeout,
                fmt::format("nothing arrives from rank {} any more: a part of a put, and then nothing for {} ms",
                            in->peer->rank, group_.setup().timeoutMs));
  }
}

}  // namespace moe
