#include "transport/tcp/sender.h"

#include <linux/sockios.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "transport/tcp/meeting.h"

namespace moe {
namespace {

constexpr std::size_t kPartsMax = 256;                    // per system call
constexpr std::size_t kTurnBytes = std::size_t{1} << 20;  // to one peer, before the next one gets its turn
constexpr std::uint32_t kFrameMax = 1U << 20U;            // puts are joined up to this size
constexpr std::chrono::milliseconds kWatchMin{10}, kWatchMax{500};

bool wouldBlock(int error) {
  return error == EAGAIN || error == EWOULDBLOCK;
}

}  // namespace

TcpSender::TcpSender(TcpGroup& group, std::size_t backlogMax)
    : group_(group),
      backlogMax_(backlogMax),
      reader_(group.setup().backend.makeReader(group.setup().window)),
      byRank_(static_cast<std::size_t>(group.setup().nranks)),
      writable_(::epoll_create1(EPOLL_CLOEXEC)),
      timeout_(group.setup().timeout()) {
  if (!writable_) throw systemError("cannot wait for several sockets (epoll)");
  parts_.reserve(kPartsMax);
}

void TcpSender::add(TcpPeer& peer) {
  outbound_.push_back(std::make_unique<Outbound>());
  outbound_.back()->peer = &peer;
  byRank_[static_cast<std::size_t>(peer.rank)] = outbound_.back().get();
}

bool TcpSender::carry(const Put& put) {
  const std::uint64_t windowBytes = group_.setup().windowBytes;
  Outbound* out = group_.peer(put.to) != nullptr ? byRank_[static_cast<std::size_t>(put.to)] : nullptr;
  if (out == nullptr || (put.bytes > 0 && (put.bytes > windowBytes || put.source > windowBytes - put.bytes))) {
    group_.fail(moeInternalError,
                fmt::format("it posted a put of {} bytes at offset {} to rank {}", put.bytes, put.source, put.to));
    return true;
  }
  if (out->peer->gone || out->broken) return true;
  if (out->backlog.size() >= backlogMax_) return false;
  if (put.bytes == 0) {
    queue(*out, {TcpKind::word, 0, put.target, put.source});
  } else if (!append(*out, put)) {
    queue(*out, {TcpKind::bytes, put.bytes, put.target, 0}, put.source);
  }
  return true;
}

void TcpSender::queue(Outbound& out, const TcpFrame& frame, std::uint64_t source) {
  out.backlog.push_back({frame, source, frame.bytes, true});
  out.open = frame.kind == TcpKind::bytes ? &out.backlog.back() : nullptr;
  activate(out);
}

// Returns true if the put became a part of the last frame.
bool TcpSender::append(Outbound& out, const Put& put) {
  if (out.open == nullptr) return false;
  TcpFrame& frame = out.open->frame;
  if (frame.target + frame.bytes != put.target || put.bytes > kFrameMax || frame.bytes > kFrameMax) return false;
  frame.bytes += put.bytes;
  Outgoing& last = out.backlog.back();
  if (last.source + last.bytes == put.source) {
    last.bytes += put.bytes;
  } else {
    out.backlog.push_back({{}, put.source, put.bytes, false});
  }
  return true;
}

void TcpSender::activate(Outbound& out) {
  if (out.active) return;
  out.active = true;
  active_.push_back(&out);
  if (out.sent == out.arrived) out.moved = Clock::now();
}

bool TcpSender::progress() {
  bool did = attention_.exchange(false, std::memory_order_acquire) && answer();
  if (blocked_ > 0) findWritable();
  for (Outbound* out : active_) {
    if (!out->blocked && flush(*out)) did = true;
    if (out->peer->gone || out->broken) forget(*out);
    out->active = !out->backlog.empty();
  }
  std::erase_if(active_, [](const Outbound* out) { return !out->active; });
  watch();
  return did;
}

void TcpSender::forget(Outbound& out) {
  out.backlog.clear();
  out.open = nullptr;
  if (out.blocked) setBlocked(out, false);
}

// While a peer is blocked, its socket makes readiness() readable as soon as it takes bytes again.
void TcpSender::setBlocked(Outbound& out, bool blocked) {
  epoll_event event{};
  event.events = EPOLLOUT;
  event.data.ptr = &out;
  const int operation = blocked ? EPOLL_CTL_ADD : EPOLL_CTL_DEL;
  if (::epoll_ctl(writable_.get(), operation, out.peer->socket.get(), &event) != 0) throw systemError("epoll_ctl");
  out.blocked = blocked;
  blocked_ += blocked ? 1 : -1;
}

void TcpSender::findWritable() {
  std::array<epoll_event, 16> events;
  const int count = ::epoll_wait(writable_.get(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < count; ++i) {
    setBlocked(*static_cast<Outbound*>(events[static_cast<std::size_t>(i)].data.ptr), false);
  }
}

bool TcpSender::answer() {
  bool did = false;
  for (const auto& out : outbound_) {
    if (out->peer->gone) continue;
    const bool answers = out->peer->answerWanted.exchange(false);
    const bool drains = out->peer->drainWanted.exchange(false);
    if (answers) queue(*out, {TcpKind::drained, 0, 0, 0});
    if (drains) queue(*out, {TcpKind::drain, 0, 0, 0});
    did = did || answers || drains;
  }
  return did;
}

// Sends what the socket takes. Returns true if it took something.
bool TcpSender::flush(Outbound& out) {
  const std::uint64_t end = out.sent + kTurnBytes;
  const std::uint64_t before = out.sent;
  while (!out.peer->gone && !out.broken && !out.blocked && !out.backlog.empty() && out.sent < end) {
    if (!sendGathered(out, gather(out))) break;
  }
  return out.sent != before;
}

// Puts the next bytes to send into parts_, and returns how many there are.
std::size_t TcpSender::gather(Outbound& out) {
  parts_.clear();
  reader_->begin();
  out.open = nullptr;
  std::size_t total = 0;
  std::size_t skip = out.firstSent;
  const auto add = [&](const void* from, std::size_t bytes) {
    parts_.push_back({const_cast<void*>(from), bytes});
    total += bytes;
  };
  for (const Outgoing& next : out.backlog) {
    if (parts_.size() + 2 > kPartsMax || total >= kTurnBytes) break;
    const std::size_t header = next.headerBytes();
    if (skip < header) add(reinterpret_cast<const std::uint8_t*>(&next.frame) + skip, header - skip);
    const std::size_t begin = std::max(skip, header) - header;
    skip = 0;
    if (next.bytes == begin) continue;
    const auto bytes = reader_->fetch(next.source + begin, next.bytes - begin);
    if (!bytes.empty()) add(bytes.data(), bytes.size());
    if (bytes.size() < next.bytes - begin) break;
  }
  reader_->settle();
  return total;
}

bool TcpSender::sendGathered(Outbound& out, std::size_t total) {
  msghdr message{};
  message.msg_iov = parts_.data();
  message.msg_iovlen = parts_.size();
  const ssize_t sent = ::sendmsg(out.peer->socket.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent < 0 && errno == EINTR) return true;
  if (sent < 0 && !wouldBlock(errno)) {
    stopWriting(out, errno);
    return false;
  }
  if (sent < 0 || static_cast<std::size_t>(sent) < total) setBlocked(out, true);
  if (sent > 0) advance(out, static_cast<std::size_t>(sent));
  return !out.blocked;
}

void TcpSender::advance(Outbound& out, std::size_t bytes) {
  out.sent += bytes;
  out.firstSent += bytes;
  while (!out.backlog.empty()) {
    const std::size_t size = out.backlog.front().size();
    if (out.firstSent < size) break;
    out.firstSent -= size;
    out.backlog.pop_front();
  }
}

// The peer may have left properly, with its last frames unread. So the receiver judges closed connections.
void TcpSender::stopWriting(Outbound& out, int error) {
  out.broken = true;
  if (error == EPIPE || error == ECONNRESET) return;
  if (error == ETIMEDOUT) {
    loseSilent(*out.peer);
  } else {
    group_.lose(*out.peer, moeRemoteError,
                fmt::format("nothing can be sent to rank {}: {}", out.peer->rank, std::strerror(error)));
  }
}

// The cause is not known: it may be the peer, its host, or the network in between.
void TcpSender::loseSilent(TcpPeer& peer) {
  group_.lose(peer, moeTimeout,
              fmt::format("rank {} has acknowledged nothing for {} ms", peer.rank, group_.setup().timeout().count()));
}

std::chrono::milliseconds TcpSender::watchEvery() const {
  return std::clamp(group_.setup().timeout() / 16, kWatchMin, kWatchMax);
}

// The kernel gives up a connection by its own clock.
void TcpSender::followTimeout(std::chrono::milliseconds timeout) {
  if (timeout == timeout_) return;
  timeout_ = timeout;
  for (const auto& out : outbound_) {
    if (!out->peer->gone) giveUpAfter(out->peer->socket.get(), timeout);
  }
}

// Finds peers to which nothing moves: full backlogs, and bytes in the kernel that stay unacknowledged.
void TcpSender::watch() {
  const auto now = Clock::now();
  if (now < watchAt_) return;
  const std::chrono::milliseconds timeout = group_.setup().timeout();
  watchAt_ = now + watchEvery();
  followTimeout(timeout);
  for (const auto& out : outbound_) {
    if (out->peer->gone || out->broken || (out->backlog.empty() && out->sent == out->arrived)) continue;
    int waiting = 0;
    if (::ioctl(out->peer->socket.get(), SIOCOUTQ, &waiting) != 0) continue;
    // At first more may wait, because the end of the handshake counts too.
    const std::uint64_t arrived = out->sent - std::min(out->sent, static_cast<std::uint64_t>(waiting));
    const bool idle = out->backlog.empty() && arrived == out->sent;
    if (arrived != out->arrived || idle) out->moved = now;
    out->arrived = arrived;
    if (now - out->moved < timeout) continue;
    loseSilent(*out->peer);
  }
}

}  // namespace moe
