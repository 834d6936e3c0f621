// An IPv4 or IPv6 address with a port, as a value that converts to a sockaddr, a frame field and a sentence.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "bootstrap/net/wire.h"

namespace moe::bootstrap {

constexpr std::size_t kAddressCountMax = 4;  // most addresses of one listener, in the unique id and in the table of
                                             // ranks

struct SocketName {  // the arguments of bind() and connect()
  sockaddr_storage storage{};
  socklen_t length = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

struct Address {
  int family = AF_INET;  // AF_INET or AF_INET6
  std::uint16_t port = 0;
  std::array<std::uint8_t, 16> ip{};  // network order; IPv4 uses the first four

  bool isLoopback() const;
  std::string host() const;  // "10.0.0.1", "fd00::1"
  std::string text() const;  // "10.0.0.1:4000", "[fd00::1]:4000"
  SocketName socketName() const;
  bool operator==(const Address&) const = default;
  bool sameIp(const Address& other) const { return family == other.family && ip == other.ip; }

  static Address of(const sockaddr* name);  // name->sa_family is AF_INET or AF_INET6; IPv4-mapped becomes IPv4
  static Address any(int family, std::uint16_t port);
  static Address loopback(int family);  // without a port

  void write(Writer& out) const;               // 20 bytes
  static bool read(Reader& in, Address& out);  // false if malformed
};

// Appends the address unless one with the same IP is there: two interfaces may have the same.
void addOnce(std::vector<Address>& addresses, const Address& address);

std::string describe(const std::vector<Address>& addresses);

// The count and the addresses, at most kAddressCountMax.
void writeAddresses(Writer& out, const std::vector<Address>& addresses);
bool readAddresses(Reader& in, std::vector<Address>& out);  // false if malformed, none or too many

}  // namespace moe::bootstrap
