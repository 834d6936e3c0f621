// A placement of experts: the copies of each expert, and the copies that a rank's tokens go to. The host makes a table
// of it for its rank (placement_table.h) in the handle's memory. Steps that read expert ids look them up there.
// Decision 0084.
#pragma once

#include "device/lanes.h"

namespace moe {

// The copies of an expert that a rank uses. With one copy, `first` is its physical expert, or -1 if it is on no rank of
// the map. With several, token t uses entry `first` + t mod count of the list after the table.
struct alignas(16) Replicas {
  std::int32_t count;  // 0: the expert does not exist
  std::int32_t first;
  Divisor byCount;
};

// The head of a table. The Replicas of all experts that a handle may have follow it, and then the list of physical
// experts, which has as many entries.
struct alignas(16) Placement {
  std::int32_t logicalExperts;
  // The two parts of the fingerprint, shifted to their bits in the second and the third word of a handle's terms.
  std::uint32_t boundWord, alignmentWord;
  std::uint32_t reserved;

  MOE_HOST_DEVICE const Replicas* replicas() const { return reinterpret_cast<const Replicas*>(this + 1); }
  // `places`: experts that the table has room for (HandleView::placesNamed).
  MOE_HOST_DEVICE const std::int32_t* list(int places) const {
    return reinterpret_cast<const std::int32_t*>(replicas() + places);
  }
};

constexpr std::int64_t placementBytes(int places) {
  return std::int64_t{sizeof(Placement)} + std::int64_t{places} * std::int64_t{sizeof(Replicas) + sizeof(std::int32_t)};
}

}  // namespace moe
