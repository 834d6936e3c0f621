#include "tools/moerun_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstddef>

#include "base/error.h"

namespace moe::tools {
namespace {

int parseSlots(const std::string& text, const std::string& entry) {
  int slots = 0;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, slots);
  if (parsed.ec != std::errc() || parsed.ptr != end || slots < 1 || slots > 65536) {
    throw Error(moeInvalidArgument, fmt::format("--hosts: '{}' must end in a number of slots, at least 1", entry));
  }
  return slots;
}

HostSlots parseHost(const std::string& entry) {
  HostSlots host;
  std::string rest;
  if (!entry.empty() && entry.front() == '[') {
    const std::size_t close = entry.find(']');
    if (close == std::string::npos) {
      throw Error(moeInvalidArgument, fmt::format("--hosts: '{}' has no closing bracket", entry));
    }
    host.name = entry.substr(1, close - 1);
    rest = entry.substr(close + 1);
  } else {
    const std::size_t colon = entry.find(':');
    host.name = entry.substr(0, colon);
    if (colon != std::string::npos) rest = entry.substr(colon);
  }
  if (!rest.empty()) host.slots = parseSlots(rest.front() == ':' ? rest.substr(1) : "", entry);
  // ssh would take a leading dash as an option.
  if (host.name.empty() || host.name.front() == '-') {
    throw Error(moeInvalidArgument, fmt::format("--hosts: invalid host name '{}'", entry));
  }
  return host;
}

// Ranks per host, in host order.
std::vector<int> blockSizes(int nranks, const std::vector<HostSlots>& hosts) {
  const bool anySlots = std::any_of(hosts.begin(), hosts.end(), [](const HostSlots& host) { return host.slots > 0; });
  const int hostCount = static_cast<int>(hosts.size());
  std::vector<int> sizes;
  int left = nranks;
  for (int i = 0; i < hostCount; ++i) {
    const int room = anySlots ? std::max(hosts[static_cast<std::size_t>(i)].slots, 1)
                              : nranks / hostCount + (i < nranks % hostCount ? 1 : 0);
    sizes.push_back(std::min(room, left));
    left -= sizes.back();
  }
  if (left > 0) {
    throw Error(moeInvalidArgument,
                fmt::format("--hosts: {} ranks requested, but the hosts have slots for {}", nranks, nranks - left));
  }
  return sizes;
}

}  // namespace

std::vector<HostSlots> parseHosts(const std::string& text) {
  std::vector<HostSlots> hosts;
  std::size_t begin = 0;
  while (begin <= text.size()) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    hosts.push_back(parseHost(text.substr(begin, end - begin)));
    begin = end + 1;
  }
  return hosts;
}

bool isThisHost(const std::string& name, const std::string& thisHost) {
  return name == "localhost" || name == "127.0.0.1" || name == "::1" || name == thisHost;
}

std::vector<Placement> placeRanks(int nranks, const std::vector<HostSlots>& hosts, const std::string& thisHost) {
  const std::vector<HostSlots> used = hosts.empty() ? std::vector<HostSlots>{{"localhost", 0}} : hosts;
  const std::vector<int> sizes = blockSizes(nranks, used);
  std::vector<Placement> placements;
  for (std::size_t host = 0; host < used.size(); ++host) {
    for (int local = 0; local < sizes[host]; ++local) {
      placements.push_back({static_cast<int>(placements.size()),
                            local,
                            sizes[host],
                            used[host].name,
                            isThisHost(used[host].name, thisHost),
                            {}});
    }
  }
  return placements;
}

}  // namespace moe::tools
