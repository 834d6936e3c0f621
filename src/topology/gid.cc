#include "topology/gid.h"

#include <arpa/inet.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "topology/sysfs.h"

namespace moe::topology {
namespace {

constexpr Gid kIpv4Mapped = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
constexpr int kIpv4Offset = 12;
constexpr int kIpv4Bits = 96;  // bits that precede an IPv4 address

const GidPrefix kIpv4Prefix = {kIpv4Mapped, kIpv4Bits};
const GidPrefix kLinkLocalPrefix = {{0xfe, 0x80}, 10};
const GidPrefix kIpv4LinkLocalPrefix = {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 169, 254}, kIpv4Bits + 16};

}  // namespace

bool isIpv4(const Gid& gid) {
  return kIpv4Prefix.covers(gid);
}

GidKind kindOf(const Gid& gid) {
  if (kLinkLocalPrefix.covers(gid) || kIpv4LinkLocalPrefix.covers(gid)) return GidKind::linkLocal;
  return isIpv4(gid) ? GidKind::ipv4 : GidKind::ipv6;
}

const char* nameOf(GidKind kind) {
  if (kind == GidKind::ipv4) return "IPv4";
  return kind == GidKind::ipv6 ? "IPv6" : "link-local";
}

std::string textOf(const Gid& gid) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const bool ipv4 = isIpv4(gid);
  ::inet_ntop(ipv4 ? AF_INET : AF_INET6, gid.data() + (ipv4 ? kIpv4Offset : 0), text.data(), text.size());
  return text.data();
}

std::optional<Gid> parseGid(const std::string& text) {
  Gid gid = kIpv4Mapped;
  if (::inet_pton(AF_INET, text.c_str(), gid.data() + kIpv4Offset) == 1) return gid;
  if (::inet_pton(AF_INET6, text.c_str(), gid.data()) == 1) return gid;
  return std::nullopt;
}

bool GidPrefix::covers(const Gid& other) const {
  for (int bit = 0; bit < bits; bit += 8) {
    const auto byte = static_cast<std::size_t>(bit / 8);
    const int ignored = std::max(0, 8 - (bits - bit));
    if ((gid[byte] ^ other[byte]) >> ignored != 0) return false;
  }
  return true;
}

std::optional<GidPrefix> parseGidPrefix(const std::string& text) {
  const std::size_t slash = text.find('/');
  const auto gid = parseGid(text.substr(0, slash));
  if (!gid || slash == std::string::npos) return std::nullopt;
  const int before = isIpv4(*gid) ? kIpv4Bits : 0;
  int bits = 0;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data() + slash + 1, end, bits);
  if (parsed.ec != std::errc() || parsed.ptr != end || bits < 0 || before + bits > 128) return std::nullopt;
  return GidPrefix{*gid, before + bits};
}

std::vector<GidEntry> readGidTable(const std::filesystem::path& sys, const std::filesystem::path& port) {
  std::vector<GidEntry> table;
  for (const std::string& index : listNames(port / "gids")) {
    const auto gid = parseGid(readLine(port / "gids" / index));
    if (!gid || *gid == Gid{}) continue;
    const std::string interface = readLine(port / "gid_attrs/ndevs" / index);
    const std::filesystem::path files = sys / "class/net" / interface;
    table.push_back({std::atoi(index.c_str()), *gid, readLine(port / "gid_attrs/types" / index), interface,
                     readLine(files / "operstate") != "down", readNumber(files / "mtu").value_or(0)});
  }
  std::sort(table.begin(), table.end(), [](const auto& a, const auto& b) { return a.index < b.index; });
  return table;
}

}  // namespace moe::topology
