// The arguments with which an operation of a handle is launched, and the tickets of routes.
#pragma once

#include <algorithm>
#include <cstdint>

#include "backend/backend.h"

namespace moe {

enum class OperationKind { none, dispatch, combine };

// A dispatch or combine that may be launched: all of its arguments are good.
struct Operation {
  OperationKind kind;
  Step step;
  StepParams params;
  bool sendOnly;              // only begun: moeComplete ends it
  bool outputsLater = false;  // only begun: moeCompleteDispatch ends it
  LaunchShape shape{};
  LaunchShape completing{};  // shape of moeComplete's step
};

// The memory that steps read and write in calls in which this rank takes part with a refusal (refused_calls.cc).
struct RefusedMemory {
  const std::uint8_t* ids = nullptr;  // a token whose entries are invalid; it lies behind the host's counts
  Memory sums;                        // for LL combines; allocated by the first one
  std::size_t sumsBytes = 0;
};

// Counts for the host carry the ticket of their call, so that the host waits for those of the latest call.
// docs/internals/protocol.md, "Counts for the host".
class Tickets {
 public:
  // The ticket of the next call. A captured call may be replayed any number of times, or never: its ticket is 1.
  std::uint32_t next(bool captured) const { return captured ? kCaptured : given_ + 1; }
  // Called when the call with this ticket has been launched.
  void launched(std::uint32_t ticket) noexcept {
    given_ = std::max(given_, ticket);
    expected_ = std::max(expected_, ticket);
  }
  // The ticket to wait for; 0: nothing was launched. A captured call is waited for only if there is no other.
  std::uint32_t expected() const { return expected_; }

 private:
  static constexpr std::uint32_t kCaptured = 1;

  std::uint32_t given_ = kCaptured, expected_ = 0;
};

}  // namespace moe
