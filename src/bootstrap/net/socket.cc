#include "bootstrap/net/socket.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include <algorithm>

#include "base/error.h"

namespace moe::bootstrap {
namespace {

constexpr int kSocketFlags = SOCK_NONBLOCK | SOCK_CLOEXEC;

void setOption(int fd, int level, int name, int value) noexcept {
  (void)::setsockopt(fd, level, name, &value, sizeof(value));  // may fail: every option is only an improvement
}

std::uint16_t boundPort(int fd) {
  SocketName name;
  name.length = sizeof(name.storage);
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&name.storage), &name.length) != 0) {
    throw systemError("getsockname");
  }
  return Address::of(name.get()).port;
}

// Returns an empty Fd, with the reason in errno, if this host lacks the address or the port is taken.
Fd tryListen(const Address& where, bool bothFamilies) {
  Fd fd(::socket(where.family, SOCK_STREAM | kSocketFlags, 0));
  if (!fd) {
    if (errno == EAFNOSUPPORT) return {};
    throw Error(moeSystemError, "cannot make a socket: " + errorText(errno));
  }
  if (where.port != 0) setOption(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (where.family == AF_INET6) setOption(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, bothFamilies ? 0 : 1);
  const SocketName name = where.socketName();
  if (::bind(fd.get(), name.get(), name.length) == 0 && ::listen(fd.get(), 4096) == 0) return fd;
  if (errno == EADDRNOTAVAIL || errno == EADDRINUSE) return {};
  throw systemError(fmt::format("cannot listen on {}", where.text()));
}

Error cannotListen(const Address& where, int error) {
  return systemError(fmt::format("cannot listen on {}", where.text()), error);
}

// Uses the first address's port for all. Returns no sockets if that port is taken at another address.
Listener tryListenAt(const std::vector<Address>& addresses, std::uint16_t port) {
  Listener listener;
  listener.port = port;
  int error = 0;
  for (Address where : addresses) {
    where.port = listener.port;
    Fd fd = tryListen(where, false);
    error = errno;
    if (!fd && error == EADDRINUSE && port == 0 && listener.port != 0) return {};
    if (!fd && error == EADDRINUSE) throw cannotListen(where, error);
    if (!fd) continue;
    where.port = listener.port = boundPort(fd.get());
    listener.sockets.push_back(std::move(fd));
    listener.addresses.push_back(where);
  }
  if (listener.sockets.empty()) throw cannotListen(addresses.front(), error);
  return listener;
}

}  // namespace

Listener listenTcp(const std::vector<Address>& given, std::uint16_t port) {
  std::vector<Address> addresses;
  for (const Address& address : given) addOnce(addresses, address);
  constexpr int kAttempts = 64;  // each with another port
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    Listener listener = tryListenAt(addresses, port);
    if (!listener.sockets.empty()) return listener;
  }
  throw Error(moeSystemError, fmt::format("cannot listen on {} addresses with the same port", addresses.size()));
}

Listener listenTcpEverywhere(std::uint16_t port) {
  Address where = Address::any(AF_INET6, port);
  Fd fd = tryListen(where, true);
  if (!fd && errno != EADDRINUSE) fd = tryListen(where = Address::any(AF_INET, port), false);  // IPv6 is switched off
  if (!fd) throw cannotListen(where, errno);
  Listener listener;
  where.port = listener.port = boundPort(fd.get());
  listener.sockets.push_back(std::move(fd));
  listener.addresses.push_back(where);
  return listener;
}

bool isOfThisHost(const Address& address) {
  const Fd fd(::socket(address.family, SOCK_STREAM | kSocketFlags, 0));
  Address anyPort = address;
  anyPort.port = 0;
  const SocketName name = anyPort.socketName();
  return fd && ::bind(fd.get(), name.get(), name.length) == 0;
}

Address loopbackOfThisHost() {
  const Address v6 = Address::loopback(AF_INET6), v4 = Address::loopback(AF_INET);
  return !isOfThisHost(v4) && isOfThisHost(v6) ? v6 : v4;
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
  setOption(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, thirdSeconds * 2000);  // the same for data that stays unacknowledged
}

Address peerAddress(int fd) {
  SocketName name;
  name.length = sizeof(name.storage);
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&name.storage), &name.length) != 0) return {};
  if (name.get()->sa_family != AF_INET && name.get()->sa_family != AF_INET6) return {};
  return Address::of(name.get());
}

}  // namespace moe::bootstrap
