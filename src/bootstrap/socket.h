// TCP sockets as the bootstrap uses them: non-blocking, close-on-exec, no SIGPIPE. IPv4 and IPv6.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "base/fd.h"
#include "bootstrap/address.h"

namespace moe::bootstrap {

struct Listener {
  Fd fd;
  std::uint16_t port = 0;
};

// Listens for connections to any of `advertised` (their ports are ignored): on the loopback address if that is the only
// one, else on all interfaces. port 0: any free one. Throws moeSystemError.
Listener listenTcp(const std::vector<Address>& advertised, std::uint16_t port);

struct Connecting {
  Fd fd;          // empty if it failed at once
  int error = 0;  // then the errno
};
Connecting startConnect(const Address& to);

int pendingSocketError(int fd);  // SO_ERROR

void sendAtOnce(int fd) noexcept;  // small frames do not wait for acknowledgements; does nothing for other sockets

// Notices a peer whose host is gone after about `timeout`.
void keepAlive(int fd, std::chrono::milliseconds timeout) noexcept;

Address peerAddress(int fd);  // zero address if unknown

}  // namespace moe::bootstrap
