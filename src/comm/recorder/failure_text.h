// Turns the failure record of a step into a result and the sentence for moeGetLastError.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/error.h"
#include "device/view/failure.h"

namespace moe {

struct FailureText {
  moeResult_t result;
  std::string sentence;
  // For a wait that ended by its deadline: the awaited rank, or this rank if it waited for a part of itself.
  std::optional<int> awaited = std::nullopt;
};

// "args.hidden is 64, but it was 128": the first field in which the terms of a dispatch differ from those with which it
// was begun.
std::string dispatchDifference(std::uint64_t terms, std::uint64_t begun);

FailureText describeFailure(const Failure& failure, int rank, std::int64_t timeoutMs);

}  // namespace moe
