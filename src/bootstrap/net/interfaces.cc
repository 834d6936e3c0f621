#include "bootstrap/net/interfaces.h"

#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string_view>

#include "base/error.h"

namespace moe::bootstrap {
namespace {

struct Entry {
  std::string name;
  InterfaceKind kind;
  Address address;
};

bool isLinkLocal(const Address& address) {
  if (address.family == AF_INET) return address.ip[0] == 169 && address.ip[1] == 254;
  return address.ip[0] == 0xfe && (address.ip[1] & 0xc0) == 0x80;
}

std::vector<Entry> listEntries(std::vector<std::string>& names) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) throw systemError("getifaddrs");
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
  std::vector<Entry> entries;
  for (const ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
    if (i->ifa_name == nullptr) continue;
    const std::string name = i->ifa_name;
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    if (i->ifa_addr == nullptr || (i->ifa_flags & IFF_UP) == 0) continue;
    if (i->ifa_addr->sa_family != AF_INET && i->ifa_addr->sa_family != AF_INET6) continue;
    const Address address = Address::of(i->ifa_addr);
    if (!isLinkLocal(address)) entries.push_back({name, kindOfInterface(name, i->ifa_flags), address});
  }
  return entries;
}

std::string join(const std::vector<std::string>& names) {
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

InterfaceKind kindOfInterface(const std::string& name, unsigned flags) {
  constexpr std::array<std::string_view, 14> kVirtual = {"docker", "veth",  "br-",   "virbr", "cni", "flannel", "cali",
                                                         "podman", "lxcbr", "lxdbr", "vmnet", "tun", "tap",     "kube"};
  if ((flags & IFF_LOOPBACK) != 0) return InterfaceKind::loopback;
  const bool isVirtual =
      std::any_of(kVirtual.begin(), kVirtual.end(), [&](std::string_view prefix) { return name.starts_with(prefix); });
  return isVirtual ? InterfaceKind::software : InterfaceKind::physical;
}

std::vector<Address> localAddresses(const std::string& interfaceName) {
  std::vector<std::string> names;
  std::vector<Entry> entries = listEntries(names);
  if (!interfaceName.empty()) {
    std::erase_if(entries, [&](const Entry& entry) { return entry.name != interfaceName; });
    if (entries.empty()) {
      throw Error(moeInvalidArgument, fmt::format("network interface {} does not exist or has no usable address; this "
                                                  "host has {}",
                                                  interfaceName, join(names)));
    }
  }
  if (entries.empty()) {
    throw Error(moeSystemError, fmt::format("no network interface is up and has an address; this host has {}",
                                            names.empty() ? "none" : join(names)));
  }
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.kind, a.address.family == AF_INET6) < std::pair(b.kind, b.address.family == AF_INET6);
  });
  const InterfaceKind best = entries.front().kind;
  std::vector<Address> addresses;
  for (const Entry& entry : entries) {
    if (entry.kind == best && addresses.size() < kAddressCountMax) addOnce(addresses, entry.address);
  }
  return addresses;
}

}  // namespace moe::bootstrap
