#include "bootstrap/socket.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include <algorithm>

#include "base/error.h"

namespace moe::bootstrap {
namespace {

constexpr int kSocketFlags = SOCK_NONBLOCK | SOCK_CLOEXEC;

void setOption(int fd, int level, int name, int value) noexcept {
  (void)::setsockopt(fd, level, name, &value, sizeof(value));  // all of them only improve, none is needed
}

std::uint16_t boundPort(int fd) {
  SocketName name;
  name.length = sizeof(name.storage);
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&name.storage), &name.length) != 0) {
    throw systemError("getsockname");
  }
  return Address::of(name.get()).port;
}

// An empty Fd if this family does not exist here.
Fd tryListen(const Address& where) {
  Fd fd(::socket(where.family, SOCK_STREAM | kSocketFlags, 0));
  if (!fd) {
    if (errno == EAFNOSUPPORT) return {};
    throw systemError("socket");
  }
  if (where.port != 0) setOption(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (where.family == AF_INET6) setOption(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, where.isLoopback() ? 1 : 0);
  const SocketName name = where.socketName();
  if (::bind(fd.get(), name.get(), name.length) != 0) {
    if (errno == EADDRNOTAVAIL && where.family == AF_INET6) return {};  // IPv6 is switched off
    throw systemError(fmt::format("cannot listen on {}", where.text()));
  }
  if (::listen(fd.get(), 4096) != 0) throw systemError(fmt::format("cannot listen on {}", where.text()));
  return fd;
}

}  // namespace

Listener listenTcp(const std::vector<Address>& advertised, std::uint16_t port) {
  std::vector<Address> candidates;
  if (advertised.size() == 1 && advertised.front().isLoopback()) {
    candidates.push_back(advertised.front());
    candidates.back().port = port;
  } else {
    candidates = {Address::any(AF_INET6, port), Address::any(AF_INET, port)};
  }
  for (const Address& where : candidates) {
    Fd fd = tryListen(where);
    if (!fd) continue;
    const std::uint16_t bound = boundPort(fd.get());
    return {std::move(fd), bound};
  }
  throw Error(moeSystemError,
              fmt::format("cannot listen on {}: the address is not available here", candidates.front().text()));
}

Connecting startConnect(const Address& to) {
  Connecting result;
  result.fd = Fd(::socket(to.family, SOCK_STREAM | kSocketFlags, 0));
  if (result.fd) sendAtOnce(result.fd.get());
  const SocketName name = to.socketName();
  if (!result.fd || (::connect(result.fd.get(), name.get(), name.length) != 0 && errno != EINPROGRESS)) {
    result.error = errno;
    result.fd.reset();
  }
  return result;
}

int pendingSocketError(int fd) {
  int error = 0;
  socklen_t length = sizeof(error);
  return ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0 ? error : errno;
}

void sendAtOnce(int fd) noexcept {
  setOption(fd, IPPROTO_TCP, TCP_NODELAY, 1);
}

void keepAlive(int fd, std::chrono::milliseconds timeout) noexcept {
  const auto thirdSeconds = static_cast<int>(std::clamp<std::int64_t>(timeout.count() / 3000, 2, 30));
  setOption(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  setOption(fd, IPPROTO_TCP, TCP_KEEPIDLE, thirdSeconds);
  setOption(fd, IPPROTO_TCP, TCP_KEEPINTVL, std::max(1, thirdSeconds / 3));
  setOption(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
  setOption(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, thirdSeconds * 2000);  // the same for data that nobody acknowledges
}

Address peerAddress(int fd) {
  SocketName name;
  name.length = sizeof(name.storage);
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&name.storage), &name.length) != 0) return {};
  if (name.get()->sa_family != AF_INET && name.get()->sa_family != AF_INET6) return {};
  return Address::of(name.get());
}

}  // namespace moe::bootstrap
