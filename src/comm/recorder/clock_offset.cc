#include "comm/recorder/clock_offset.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <span>

#include "backend/snapshot.h"
#include "bootstrap/group/bootstrap.h"

namespace moe {
namespace {

constexpr int kRounds = 4;

}  // namespace

// A round's times travel in the next one.
ClockOffset measureClock(bootstrap::Bootstrap& group) {
  ClockBounds bounds;
  Round latest;
  for (int i = 0; i <= kRounds; ++i) {
    const Round before = latest;
    Round ofRank0;
    latest.entered = wallClock();
    const auto all = group.allGather({reinterpret_cast<const std::uint8_t*>(&before), sizeof before});
    latest.left = wallClock();
    if (all.front().size() != sizeof ofRank0) {
      throw Error(moeInvalidUsage, "moeCommInit: rank 0 runs a different version of the library");
    }
    std::memcpy(&ofRank0, all.front().data(), sizeof ofRank0);
    if (i > 0) bounds.add(before, ofRank0);
  }
  return group.rank() == 0 ? ClockOffset{} : bounds.offset();
}

void ClockBounds::add(const Round& mine, const Round& ofRank0) {
  least_ = std::max(least_, ofRank0.entered - mine.left);
  most_ = std::min(most_, ofRank0.left - mine.entered);
}

// A clock that was set meanwhile may leave nothing between the bounds.
ClockOffset ClockBounds::offset() const {
  return {least_ / 2 + most_ / 2, (std::max(most_, least_) - std::min(most_, least_)) / 2 + 1};
}

}  // namespace moe
