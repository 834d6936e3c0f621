// What an operation of a handle is launched with.
#pragma once

#include "backend/backend.h"

namespace moe {

enum class OperationKind { none, dispatch, combine };

// A dispatch or combine that may be launched: all of its arguments are good.
struct Operation {
  OperationKind kind;
  Step step;
  StepParams params;
  bool sendOnly;  // only begun: moeComplete ends it
  LaunchShape shape{};
  LaunchShape completing{};  // of moeComplete
};

// Of calls in which this rank takes part with a refusal: what their steps read and write. refused_calls.cc.
struct RefusedMemory {
  const std::uint8_t* ids = nullptr;  // a token whose entries cannot be, behind the host's counts
  Memory sums;                        // of LL combines; made by the first one
  std::size_t sumsBytes = 0;
};

}  // namespace moe
