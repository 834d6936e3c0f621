// The shape of the tree that connects the ranks: a complete tree of fan-out 16. 17 ranks are a star, 273 ranks have
// depth 2 and 4369 have depth 3. A parent's rank is always below its children's, even after repairs, so there are no
// cycles.
#pragma once

namespace moe::bootstrap {

constexpr int kFanOut = 16;

constexpr int parentOf(int rank) {
  return (rank - 1) / kFanOut;
}  // rank > 0

}  // namespace moe::bootstrap
