// TCP sockets as the bootstrap uses them: non-blocking, close-on-exec, no SIGPIPE. IPv4 and IPv6.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "base/fd.h"
#include "bootstrap/net/address.h"

namespace moe::bootstrap {

// One socket for each address, all with the same port.
struct Listener {
  std::vector<Fd> sockets;
  std::vector<Address> addresses;  // with the port
  std::uint16_t port = 0;
};

// Listens for connections to `addresses`, to each IP once. Ignores their ports, and skips addresses that this host does
// not have. port 0: any port that is free at all of them. Throws moeSystemError, also if the host has none of the
// addresses.
Listener listenTcp(const std::vector<Address>& addresses, std::uint16_t port);

// The same at all addresses of this host.
Listener listenTcpEverywhere(std::uint16_t port);

bool isOfThisHost(const Address& address);
Address loopbackOfThisHost();  // 127.0.0.1; ::1 on a host that has only that

struct Connecting {
  Fd fd;  // empty if it failed at once, with the errno in `error`
  int error = 0;
};
Connecting startConnect(const Address& to);

int pendingSocketError(int fd);  // SO_ERROR

// Lets small frames go without waiting for acknowledgements. Does nothing for other sockets than TCP.
void sendAtOnce(int fd) noexcept;

// Makes the socket notice, after about `timeout`, that a peer's host is gone.
void keepAlive(int fd, std::chrono::milliseconds timeout) noexcept;

Address peerAddress(int fd);  // zero address if unknown

}  // namespace moe::bootstrap
