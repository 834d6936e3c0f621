// The address of an RDMA port (GID), and the table of a port's addresses as sysfs shows it.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace moe::topology {

using Gid = std::array<std::uint8_t, 16>;  // in network order, like an IPv6 address

// True for addresses of the form ::ffff:a.b.c.d.
bool isIpv4(const Gid& gid);

// How suitable an address is, best first. Link-local ones may be of either family.
enum class GidKind { ipv4, ipv6, linkLocal };

GidKind kindOf(const Gid& gid);

// "IPv4", "IPv6", "link-local".
const char* nameOf(GidKind kind);

// 192.0.2.1 for ::ffff:192.0.2.1, else the shortest IPv6 text.
std::string textOf(const Gid& gid);

// Parses IPv6 and IPv4. IPv4 becomes an address mapped into IPv6.
std::optional<Gid> parseGid(const std::string& text);

struct GidPrefix {
  Gid gid{};
  int bits = 0;  // number of bits of the prefix, of 128, also for IPv4

  bool covers(const Gid& other) const;
};

// "10.1.0.0/16" or "fd00:1::/64".
std::optional<GidPrefix> parseGidPrefix(const std::string& text);

struct GidEntry {
  int index = 0;
  Gid gid{};
  std::string type;       // "IB/RoCE v1" or "RoCE v2"
  std::string interface;  // the network interface that has the address; empty for InfiniBand
  bool interfaceUp = false;
  long interfaceMtu = 0;  // 0: not known
};

// The entries in use. `port` is the port's directory, .../class/infiniband/mlx5_0/ports/1.
std::vector<GidEntry> readGidTable(const std::filesystem::path& sys, const std::filesystem::path& port);

}  // namespace moe::topology
