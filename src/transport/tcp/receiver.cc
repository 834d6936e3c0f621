#include "transport/tcp/receiver.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/quiet_thread.h"
#include "transport/tcp/sender.h"

namespace moe {
namespace {

constexpr int kEventsMax = 64;             // per look
constexpr std::size_t kAskedDirectly = 2;  // with so few connections each is tried, without asking which are ready
constexpr int kReceivesPerTurn = 256;      // from one peer, before the next one gets its turn
// So many bytes are received beyond a frame and then copied to their place. After a small frame the next is probably
// small too, and a copy costs less than a system call. After a large frame there are words.
constexpr std::size_t kAheadBytes = 16384, kAheadOfLarge = 512;
constexpr std::size_t kSmallBytes = 8192;
constexpr int kLookMs = 100;                                   // between looks for connections that are stuck
constexpr std::chrono::milliseconds kAwayMin{1}, kAwayMax{4};  // between checks whether steps still help

void watch(int epoll, int fd, void* data) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = data;
  if (::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0) throw systemError("epoll_ctl");
}

bool isWake(const epoll_event& event) {
  return event.data.ptr == nullptr;
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
  inbound_.back()->early = std::move(unread);
  inbound_.back()->unread = inbound_.back()->early;
  watch(epoll_.get(), peer.socket.get(), inbound_.back().get());
}

// Reports what `body` throws as the group's failure, and returns false then.
template <class Body>
bool TcpReceiver::reports(Body body) noexcept {
  try {
    body();
    return true;
  } catch (...) {  // NOLINT: it is reported
    reportCurrentError([this](moeResult_t result, const std::string& sentence) { group_.fail(result, sentence); });
  }
  return false;
}

void TcpReceiver::start() {
  thread_ = startQuietThread([this] { reports([this] { run(); }); });
}

void TcpReceiver::stop() noexcept {
  if (!thread_.joinable()) return;
  stop_ = true;
  takeOver();
  thread_.join();
}

void TcpReceiver::takeOver() noexcept {
  (void)::eventfd_write(wake_.get(), 1);
}

void TcpReceiver::run() {
  writer_->enter();
  {
    const std::lock_guard lock(serving_);
    for (const auto& in : inbound_) serve(*in);  // data that came with the handshake
  }
  std::array<epoll_event, kEventsMax> events;
  while (!stop_) {
    if (keepAway()) continue;
    const int count = ::epoll_wait(epoll_.get(), events.data(), kEventsMax, kLookMs);
    if (count < 0 && errno != EINTR) throw systemError("epoll_wait");
    if (helped_ != helpSeen_) continue;
    if (std::any_of(events.begin(), events.begin() + std::max(count, 0), isWake)) (void)woken();
    const std::lock_guard lock(serving_);
    if (broken_) return;
    serveReady(std::span(events).first(static_cast<std::size_t>(std::max(count, 0))));
  }
}

// True if takeOver() was called since the last check.
bool TcpReceiver::woken() noexcept {
  eventfd_t times = 0;
  return ::eventfd_read(wake_.get(), &times) == 0;
}

// While steps help, the thread only sleeps. If it watched the sockets, every arrival would wake it. Returns true if it
// has slept.
bool TcpReceiver::keepAway() {
  const std::uint64_t helped = helped_;
  if (helped == helpSeen_) {
    away_ = {};
    return false;
  }
  helpSeen_ = helped;
  away_ = std::clamp(2 * away_, kAwayMin, kAwayMax);
  pollfd wake{wake_.get(), POLLIN, 0};
  (void)::poll(&wake, 1, static_cast<int>(away_.count()));
  if (woken()) helpSeen_ = helped_;
  const std::lock_guard lock(serving_);
  findStuck();
  return true;
}

bool TcpReceiver::help() noexcept {
  helped_.fetch_add(1, std::memory_order_relaxed);
  const std::unique_lock lock(serving_, std::try_to_lock);
  if (!lock.owns_lock() || broken_) return false;
  const std::uint64_t before = received_;
  broken_ = !reports([this] {
    if (inbound_.size() <= kAskedDirectly) {
      for (const auto& in : inbound_) {
        if (in->watched) serve(*in);
      }
      return;
    }
    std::array<epoll_event, kEventsMax> events;
    const int count = ::epoll_wait(epoll_.get(), events.data(), kEventsMax, 0);
    serveReady(std::span(events).first(static_cast<std::size_t>(std::max(count, 0))));
  });
  return received_ != before;
}

void TcpReceiver::serveReady(std::span<const epoll_event> events) {
  for (const epoll_event& event : events) {
    if (event.data.ptr != nullptr) serve(*static_cast<Inbound*>(event.data.ptr));
  }
  // With fewer events than kEventsMax, none has been left unserved.
  if (events.size() < kEventsMax) findStuck();
}

void TcpReceiver::serve(Inbound& in) {
  // Data that has already been received makes no event.
  const auto turnLasts = [&](int i) { return i < kReceivesPerTurn || !in.unread.empty(); };
  for (int i = 0; turnLasts(i) && !in.peer->gone && receive(in); ++i) {
  }
  if (in.peer->gone) forgetGone(in);
}

// Events of this socket no longer matter, but would repeat for ever.
void TcpReceiver::forgetGone(Inbound& in) {
  if (!in.watched) return;
  (void)::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, in.peer->socket.get(), nullptr);
  in.watched = false;
}

// Receives the rest of the bytes into the window, and the header behind them here. Returns false if nothing is left.
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
  ++received_;
  const std::size_t bytes = std::min(room.size(), static_cast<std::size_t>(got));
  if (bytes > 0) writer_->commit(in.target, bytes);
  in.target += bytes;
  in.bytesLeft -= bytes;
  in.headerBytes += static_cast<std::size_t>(got) - bytes;
  if (in.headerBytes == sizeof in.header) obey(in);
  return !in.empty || !in.unread.empty();
}

ssize_t TcpReceiver::read(Inbound& in, std::span<const iovec> parts) {
  if (in.unread.empty()) return readAhead(in, parts);
  std::size_t total = 0;
  for (const iovec& part : parts) {
    const std::size_t bytes = std::min(part.iov_len, in.unread.size());
    std::memcpy(part.iov_base, in.unread.data(), bytes);
    in.unread = in.unread.subspan(bytes);
    total += bytes;
  }
  return static_cast<ssize_t>(total);
}

// Fills the parts from the socket, and takes some of the data that follows.
ssize_t TcpReceiver::readAhead(Inbound& in, std::span<const iovec> parts) {
  std::array<iovec, 3> all;
  const auto end = std::copy(parts.begin(), parts.end(), all.begin());
  *end = {ahead_.data(), in.header.bytes <= kSmallBytes ? kAheadBytes : kAheadOfLarge};
  std::size_t wanted = 0;
  for (const iovec& part : parts) wanted += part.iov_len;
  msghdr message{};
  message.msg_iov = all.data();
  message.msg_iovlen = parts.size() + 1;
  const ssize_t got = ::recvmsg(in.peer->socket.get(), &message, MSG_DONTWAIT);
  if (got <= 0) return got;
  in.empty = static_cast<std::size_t>(got) < wanted + end->iov_len;
  if (static_cast<std::size_t>(got) <= wanted) return got;
  in.unread = std::span(ahead_).first(static_cast<std::size_t>(got) - wanted);
  return static_cast<ssize_t>(wanted);
}

void TcpReceiver::obey(Inbound& in) {
  in.headerBytes = 0;
  const TcpFrame& frame = in.header;
  if (const std::string fault = faultOf(frame, group_.setup().windowBytes); !fault.empty()) {
    return group_.lose(*in.peer, moeRemoteError, fmt::format("rank {}: {}", in.peer->rank, fault));
  }
  switch (frame.kind) {
    case TcpKind::bytes:
      in.target = frame.target;
      in.bytesLeft = frame.bytes;
      return;
    case TcpKind::word:
      return writer_->writeWord(frame.target, frame.word);
    case TcpKind::drain:
      writer_->settle();
      in.peer->leaving = true;
      in.peer->answerWanted = true;
      return sender_.attend();
    case TcpKind::drained:
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

// A frame that has started must go on, because its sender had all of it when it started.
void TcpReceiver::findStuck() {
  const auto now = Clock::now();
  if (now < lookAt_) return;
  lookAt_ = now + std::chrono::milliseconds(kLookMs);
  const std::chrono::milliseconds timeout = group_.setup().timeout();
  const auto late = now - timeout;
  for (const auto& in : inbound_) {
    if (in->peer->gone || (in->bytesLeft == 0 && in->headerBytes == 0) || in->heard > late) continue;
    group_.lose(
        *in->peer, moeTimeout,
        fmt::format("rank {} sent a part of a put, and then nothing for {} ms", in->peer->rank, timeout.count()));
  }
}

}  // namespace moe
