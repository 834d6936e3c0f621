#include "bootstrap/net/find_addresses.h"

#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string_view>

#include "base/error.h"
#include "base/quiet_thread.h"

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

// getaddrinfo() has no deadline. A name server that does not answer costs 10 s and more, whatever the caller's timeout
// is. So a separate thread asks. It owns what it needs and outlives a caller that has stopped waiting. getaddrinfo_a()
// is no alternative: the thread sanitizer does not know libc's own threads, and crashes in them.
struct Question {
  std::string host;
  int error = EAI_AGAIN;
  int systemError = 0;  // errno, with EAI_SYSTEM
  std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> found{nullptr, &::freeaddrinfo};
  std::mutex mutex;
  std::condition_variable isAnswered;
  bool answered = false;

  void ask(int flags) {
    addrinfo hints{};
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = flags;
    addrinfo* list = nullptr;
    error = ::getaddrinfo(host.c_str(), nullptr, &hints, &list);
    systemError = error == EAI_SYSTEM ? errno : 0;
    if (error == 0) found.reset(list);
  }
};

std::shared_ptr<Question> askFor(const std::string& host, std::chrono::milliseconds timeout) {
  auto question = std::make_shared<Question>();
  question->host = host;
  question->ask(AI_NUMERICHOST);  // numeric addresses need no name server
  if (question->error == 0) return question;
  std::thread thread = startQuietThread([question] {
    question->ask(0);
    const std::lock_guard lock(question->mutex);
    question->answered = true;
    question->isAnswered.notify_one();
  });
  std::unique_lock lock(question->mutex);
  const bool answered = question->isAnswered.wait_for(lock, timeout, [&] { return question->answered; });
  lock.unlock();
  if (!answered) {
    thread.detach();
    throw Error(moeTimeout, fmt::format("host {} was not resolved within {} ms", host, timeout.count()));
  }
  thread.join();
  if (question->error != 0) {
    const std::string why =
        question->systemError != 0 ? errorText(question->systemError) : ::gai_strerror(question->error);
    throw Error(moeSystemError, fmt::format("cannot resolve host {}: {}", host, why));
  }
  return question;
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

std::vector<Address> resolveHost(const std::string& host, std::uint16_t port, std::chrono::milliseconds timeout) {
  const auto question = askFor(host, timeout);
  std::vector<Address> addresses;
  for (const addrinfo* entry = question->found.get(); entry != nullptr && addresses.size() < kAddressCountMax;
       entry = entry->ai_next) {
    if (entry->ai_family != AF_INET && entry->ai_family != AF_INET6) continue;
    Address address = Address::of(entry->ai_addr);
    address.port = port;
    addOnce(addresses, address);
  }
  if (addresses.empty()) throw Error(moeSystemError, fmt::format("host {} has no IPv4 or IPv6 address", host));
  return addresses;
}

}  // namespace moe::bootstrap
