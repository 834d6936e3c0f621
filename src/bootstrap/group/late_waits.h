// Waits that ended by their deadlines: which rank waited for which, and who is to blame, as far as that can tell. The
// code is pure; node.h explains how ranks learn of late waits.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "bootstrap/group/failure.h"

namespace moe::bootstrap {

// The time from the report of a late wait to the answer who is to blame.
constexpr std::chrono::milliseconds kVerdict{1000};

struct LateWait {
  Failure failure;  // of the rank that waited: its report if nothing better is learned
  int awaited;      // the rank it waited for; its own rank: a part of itself
};

// Payload of Late frames.
std::vector<std::uint8_t> encodeLateWait(const LateWait& wait);
LateWait decodeLateWait(int rank, std::span<const std::uint8_t> payload);  // untrusted: as decodeReason

class LateWaits {
 public:
  bool add(const LateWait& wait);  // false: this rank already has one
  const std::map<int, LateWait>& byRank() const { return byRank_; }

  const LateWait* waitFor(int awaited) const;  // a wait of another rank for `awaited`; NULL: none

  // Follows the chain of waits that starts with that of `rank`, which must be known, and returns its last wait. The
  // rank that the last wait was for has not reported one itself. If the chain is a circle, returns the wait of `rank`.
  const LateWait& lastFrom(int rank) const;

 private:
  std::map<int, LateWait> byRank_;
};

}  // namespace moe::bootstrap
