// Waits that have ended by their deadlines: who waited for whom, and whose fault it is, as far as that tells. The code
// is pure; node.h says how ranks learn of late waits.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "bootstrap/group/failure.h"

namespace moe::bootstrap {

// The time from the report of a late wait to the answer whose fault it is.
constexpr std::chrono::milliseconds kVerdict{1000};

struct LateWait {
  Failure failure;  // of the rank that waited: what it reports if nothing better is learned
  int awaited;      // for whom it waited; its own rank: for a part of itself
};

// Payload of Late frames.
std::vector<std::uint8_t> encodeLateWait(const LateWait& wait);
LateWait decodeLateWait(int rank, std::span<const std::uint8_t> payload);  // untrusted: as decodeReason

class LateWaits {
 public:
  bool add(const LateWait& wait);  // false: there is one of this rank
  const std::map<int, LateWait>& byRank() const { return byRank_; }

  const LateWait* waitFor(int awaited) const;  // one of another rank; NULL: none

  // The end of the chain that begins with the wait of `rank`, which is known: the rank that this last wait was for has
  // told of none itself. In a circle, the wait of `rank`.
  const LateWait& lastFrom(int rank) const;

 private:
  std::map<int, LateWait> byRank_;
};

}  // namespace moe::bootstrap
