#include "bootstrap/net/address.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>

namespace moe::bootstrap {

Address Address::loopback(int family) {
  Address address = any(family, 0);
  if (family == AF_INET) {
    address.ip[0] = 127;
    address.ip[3] = 1;
  } else {
    address.ip[15] = 1;
  }
  return address;
}

bool Address::isLoopback() const {
  return family == AF_INET ? ip[0] == 127 : ip == loopback(family).ip;
}

std::string Address::host() const {
  std::array<char, INET6_ADDRSTRLEN> buffer{};
  return ::inet_ntop(family, ip.data(), buffer.data(), buffer.size()) == nullptr ? "?" : buffer.data();
}

std::string Address::text() const {
  return family == AF_INET ? fmt::format("{}:{}", host(), port) : fmt::format("[{}]:{}", host(), port);
}

SocketName Address::socketName() const {
  SocketName name;
  if (family == AF_INET) {
    sockaddr_in v4{};
    v4.sin_family = AF_INET;
    v4.sin_port = htons(port);
    std::memcpy(&v4.sin_addr, ip.data(), 4);
    std::memcpy(&name.storage, &v4, sizeof(v4));
    name.length = sizeof(v4);
  } else {
    sockaddr_in6 v6{};
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(port);
    std::memcpy(&v6.sin6_addr, ip.data(), 16);
    std::memcpy(&name.storage, &v6, sizeof(v6));
    name.length = sizeof(v6);
  }
  return name;
}

Address Address::of(const sockaddr* name) {
  Address address;
  if (name->sa_family == AF_INET) {
    sockaddr_in v4{};
    std::memcpy(&v4, name, sizeof(v4));
    address.port = ntohs(v4.sin_port);
    std::memcpy(address.ip.data(), &v4.sin_addr, 4);
    return address;
  }
  sockaddr_in6 v6{};
  std::memcpy(&v6, name, sizeof(v6));
  address.port = ntohs(v6.sin6_port);
  if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) {
    std::memcpy(address.ip.data(), reinterpret_cast<const std::uint8_t*>(&v6.sin6_addr) + 12, 4);
    return address;
  }
  address.family = AF_INET6;
  std::memcpy(address.ip.data(), &v6.sin6_addr, 16);
  return address;
}

Address Address::any(int family, std::uint16_t port) {
  Address address;
  address.family = family;
  address.port = port;
  return address;
}

void Address::write(Writer& out) const {
  out.u8(family == AF_INET ? 4 : 6);
  out.u8(0);
  out.u16(port);
  out.bytes(ip);
}

bool Address::read(Reader& in, Address& out) {
  const std::uint8_t version = in.u8();
  const std::uint8_t zero = in.u8();
  out.family = version == 4 ? AF_INET : AF_INET6;
  out.port = in.u16();
  in.bytes(out.ip);
  return in.ok() && zero == 0 && (version == 4 || version == 6) && out.port != 0;
}

void addOnce(std::vector<Address>& addresses, const Address& address) {
  const auto same = [&](const Address& other) { return other.sameIp(address); };
  if (std::none_of(addresses.begin(), addresses.end(), same)) addresses.push_back(address);
}

std::string describe(const std::vector<Address>& addresses) {
  std::string text;
  for (const Address& address : addresses) text += (text.empty() ? "" : ", ") + address.text();
  return text;
}

void writeAddresses(Writer& out, const std::vector<Address>& addresses) {
  const std::size_t count = std::min(addresses.size(), kAddressCountMax);
  out.u8(static_cast<std::uint8_t>(count));
  for (std::size_t i = 0; i < count; ++i) addresses[i].write(out);
}

bool readAddresses(Reader& in, std::vector<Address>& out) {
  const std::size_t count = in.u8();
  if (count == 0 || count > kAddressCountMax) return false;
  out.assign(count, Address{});
  for (Address& address : out) {
    if (!Address::read(in, address)) return false;
  }
  return true;
}

}  // namespace moe::bootstrap
