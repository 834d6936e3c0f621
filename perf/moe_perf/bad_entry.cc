#include "perf/moe_perf/bad_entry.h"

#include <cstddef>

#include "perf/payload/draw.h"

namespace moe::perf {
namespace {

constexpr std::uint64_t kStream = 0xbadULL;  // other draws of the session use other streams

}  // namespace

// An expert that exists is named twice: the entry before gets the same id.
std::vector<std::int32_t> BadEntry::putInto(std::vector<std::int32_t> experts, int topk) const {
  const std::size_t at = static_cast<std::size_t>(token) * static_cast<std::size_t>(topk) + static_cast<std::size_t>(k);
  experts.at(at) = expert;
  if (expert == 0) experts.at(at - 1) = expert;
  return experts;
}

BadEntry drawBadEntry(const Options& options, std::uint64_t seed, const Load& load, int version) {
  Draw draw(mix(seed ^ mix(kStream + static_cast<std::uint64_t>(version))));
  std::vector<int> senders;
  for (int rank = 0; rank < load.nranks(); ++rank) {
    if (load.at(version, rank) > 0) senders.push_back(rank);
  }
  if (senders.empty()) return {};
  BadEntry bad;
  bad.rank = senders[static_cast<std::size_t>(draw.below(static_cast<int>(senders.size())))];
  bad.token = draw.below(load.at(version, bad.rank));
  bad.k = draw.below(options.topk);
  const bool twice = bad.k > 0 && draw.below(2) == 0;
  bad.expert = twice ? 0 : draw.below(2) == 0 ? options.experts : -2;
  return bad;
}

}  // namespace moe::perf
