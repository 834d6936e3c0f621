// What a handle keeps between steps in private memory, and what it tells the host.
#pragma once

#include "device/view/failure.h"

namespace moe {

// Private device memory of a handle that outlives a step.
struct HandleState {
  std::uint64_t dispatchEpoch, combineEpoch;    // of the operation that was started last
  std::uint64_t dispatchHanded, combineHanded;  // its number among those that go like it, at once or in waves
  std::uint64_t combineLeft;  // the combine whose second part sends what the first one has not: its epoch
  std::uint32_t routes;       // the latest ticket whose counts were received, the tag of the host's counts
  std::uint32_t fault;        // not 0: resultOf why nothing of the handle is delivered until its next route
  std::uint32_t silent;       // 1: the operation that was started last delivers nothing
  std::uint64_t faults;       // so far
};

// A count for the host, in memory that it sees, with the ticket of its route. Each word says for itself whether it has
// come, so steps store them in no order and fence nothing.
using CountWord = std::uint64_t;
MOE_HOST_DEVICE constexpr CountWord countWord(std::uint32_t ticket, std::int32_t count) {
  return std::uint64_t{ticket} << 32 | static_cast<std::uint32_t>(count);
}
constexpr std::uint32_t ticketOf(CountWord word) {
  return static_cast<std::uint32_t>(word >> 32);
}
constexpr std::int32_t countOf(CountWord word) {
  return static_cast<std::int32_t>(static_cast<std::uint32_t>(word));
}

// What a handle tells the host. `fault` says what HandleState::fault stands for. A route that changes it publishes
// `rows` behind it. Behind `layoutRows` are the arrays of HandleView::hostPerRank and so on.
struct HostCounts {
  Failure fault;
  CountWord rows, layoutRows;
};

}  // namespace moe
