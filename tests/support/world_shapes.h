// The sizes of random worlds: what their communicator is built for, and its handles.
#pragma once

#include <vector>

#include "support/rng.h"
#include "support/scenario.h"

namespace moe::test {

inline constexpr int kOutputAreas = 2 * kParities + 1;  // for outstanding dispatches and combines, and one more

inline constexpr int kSpareCapacity = 100;                      // rows that an output may hold more than arrive
inline constexpr std::size_t kBlockedScaleBytesMax = 64 << 10;  // of scales in blocks, which are mostly pads

struct WorldShapes {
  CommShape comm;
  std::vector<HandleShape> handles;
};
WorldShapes drawWorldShapes(std::uint64_t seed, Protocol protocol, const ScenarioLimits& limits, Rng& rng);

}  // namespace moe::test
