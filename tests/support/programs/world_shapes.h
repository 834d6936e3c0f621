// The sizes of random worlds: those of their communicators and handles.
#pragma once

#include <vector>

#include "support/base/rng.h"
#include "support/programs/scenario.h"

namespace moe::test {

inline constexpr int kOutputAreas = 2 * kParities + 1;  // for outstanding dispatches and combines, and one more

inline constexpr int kSpareCapacity = 100;                      // rows that an output may hold in addition to those
                                                                // that arrive
inline constexpr std::size_t kBlockedScaleBytesMax = 64 << 10;  // bytes of scales in blocks, which are mostly pads

// In a few worlds all handles are EXPERT_MAJOR, and all dispatches cast to scales in blocks. There dispatches of two
// such handles follow each other, which tests the offsets of experts that ranks exchange.
inline bool isWorldOfBlocks(std::uint64_t seed) {
  return seed % 16 == 5;
}

struct WorldShapes {
  CommShape comm;
  std::vector<HandleShape> handles;
};
WorldShapes drawWorldShapes(std::uint64_t seed, Protocol protocol, const ScenarioLimits& limits, Rng& rng);

}  // namespace moe::test
