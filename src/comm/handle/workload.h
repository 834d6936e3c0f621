// How much a call moves, for the choice of its launch.
#pragma once

#include "comm/handle/handle.h"

namespace moe {

struct CallSize {
  int tokens;              // bound of the route that the operation uses
  std::int32_t sms;        // 0: the communicator's setting
  std::uint32_t rowBytes;  // rows that are divided into parts
  std::uint32_t crossing;  // bytes per token and rank that cross between ranks
  bool movesOnly;          // rows come from or go to their final place, without a copy or sum here
};

// Counts this call's tokens. Ranks need not have the same number, because each announces what its own blocks have done.
inline Workload workloadOf(const Handle& handle, Step step, const CallSize& call) {
  const int tokensMax = handle.shape().tokensMax, destinations = handle.view().destinationsMax;
  return {.step = step,
          .tokensMax = tokensMax,
          .rows = call.movesOnly ? call.tokens : tokensMax * destinations,
          .rowBytes = call.rowBytes,
          .sms = call.sms > 0 ? call.sms : handle.comm().config().sms,
          .movesOnly = call.movesOnly,
          .bytes = std::int64_t{call.tokens} * destinations * call.crossing,
          .lowLatency = handle.lowLatency(),
          .split = handle.room().view.split()};
}

}  // namespace moe
