// Turns the failure record of a step into a result and the sentence for moeGetLastError.
#pragma once

#include <string>

#include "base/error.h"
#include "device/failure.h"

namespace moe {

struct FailureText {
  moeResult_t result;
  std::string sentence;
};

FailureText describeFailure(const Failure& failure, int rank, int timeoutMs);

}  // namespace moe
