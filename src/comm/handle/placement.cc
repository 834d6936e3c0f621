#include <fmt/format.h>

#include "base/error.h"
#include "comm/handle/call_checks.h"
#include "comm/handle/handle_config.h"

namespace moe {
namespace {

std::size_t at(std::int64_t index) {
  return static_cast<std::size_t>(index);
}

void requireElement(const char* array, int index, std::int32_t value, int end) {
  if (value >= 0 && value < end) return;
  refuse(fmt::format("placement.{}[{}] is {}, must be 0..{}", array, index, value, end - 1));
}

// Where physical expert `i` of the caller's list is, among the handle's.
int physicalAt(const moePlacement_t& p, const ExpertMap& map, int i) {
  if (p.ranks == nullptr) return i;
  requireElement("ranks", i, p.ranks[i], map.nranks);
  const std::int32_t rank = p.ranks[i], local = p.localExperts[i];
  if (local < 0 || local >= map.count(rank)) {
    refuse(fmt::format("placement.localExperts[{}] is {}, but rank {} has {} local experts", i, local, rank,
                       map.count(rank)));
  }
  return map.first(rank) + local;
}

void checkSizes(const moePlacement_t& p, const ExpertMap& map) {
  requireRange("placement.physicalExperts", p.physicalExperts, 1, map.experts);
  requireRange("placement.logicalExperts", p.logicalExperts, 1, p.physicalExperts);
  requirePointer(p.logical, "placement.logical", "with placement.physicalExperts above 0");
  if ((p.ranks == nullptr) != (p.localExperts == nullptr)) {
    refuse(fmt::format("placement.ranks is {} and placement.localExperts {}: they must be given together",
                       static_cast<const void*>(p.ranks), static_cast<const void*>(p.localExperts)));
  }
  if (p.ranks == nullptr && p.physicalExperts != map.experts) {
    refuse(
        fmt::format("placement.physicalExperts is {}, but the handle has {} experts: without placement.ranks it must "
                    "name all of them",
                    p.physicalExperts, map.experts));
  }
}

}  // namespace

std::vector<std::int32_t> logicalExpertsOf(const moePlacement_t& p, const ExpertMap& map) {
  checkSizes(p, map);
  std::vector<std::int32_t> logicalOf(at(map.experts), -1);
  std::vector<bool> has(at(p.logicalExperts));
  for (int i = 0; i < p.physicalExperts; ++i) {
    requireElement("logical", i, p.logical[i], p.logicalExperts);
    std::int32_t& logical = logicalOf[at(physicalAt(p, map, i))];
    if (logical >= 0) {
      refuse(fmt::format("placement: local expert {} of rank {} is named twice, the second time by physical expert {}",
                         p.localExperts[i], p.ranks[i], i));
    }
    logical = p.logical[i];
    has[at(logical)] = true;
  }
  for (int e = 0; e < p.logicalExperts; ++e) {
    if (has[at(e)]) continue;
    refuse(fmt::format("placement.logical does not name expert {} of 0..{}", e, p.logicalExperts - 1));
  }
  return logicalOf;
}

}  // namespace moe
