// A placement of experts: which copies of an expert there are, and which of them a rank's tokens go to. The host makes
// a table of it for its rank (placement_table.h) in the handle's memory, and the steps that read expert ids look up
// there. Decision 0084.
#pragma once

#include "device/lanes.h"

namespace moe {

// An expert's copies as a rank takes them. Of one: `first` is its physical expert; -1: it is on no rank of the map. Of
// several, token t takes place `first` + t mod count of the list behind the table.
struct alignas(16) Replicas {
  std::int32_t count;  // 0: there is no such expert
  std::int32_t first;
  Divisor byCount;
};

// The head of a table. Behind it are the Replicas of all experts that a handle may have, and then the list of physical
// experts, as many again.
struct alignas(16) Placement {
  std::int32_t logicalExperts;
  // The fingerprint as parts of a handle's terms, at their places in its second and third word.
  std::uint32_t boundWord, alignmentWord;
  std::uint32_t reserved;

  MOE_HOST_DEVICE const Replicas* replicas() const { return reinterpret_cast<const Replicas*>(this + 1); }
  // `places`: experts that the table has room for, HandleView::placesNamed.
  MOE_HOST_DEVICE const std::int32_t* list(int places) const {
    return reinterpret_cast<const std::int32_t*>(replicas() + places);
  }
};

constexpr std::int64_t placementBytes(int places) {
  return std::int64_t{sizeof(Placement)} + std::int64_t{places} * std::int64_t{sizeof(Replicas) + sizeof(std::int32_t)};
}

}  // namespace moe
