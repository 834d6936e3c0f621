// What a rank learns about another one that no longer does its part, and how frames carry it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "moecomm.h"

namespace moe::bootstrap {

struct Failure {
  int rank;            // the rank that died or announced the failure
  moeResult_t result;  // moeRemoteError for a death, otherwise what was announced
  std::string sentence;
};

// Payload of Failure and Refusal frames. The sentence is cut to what a frame may carry.
std::vector<std::uint8_t> encodeReason(moeResult_t result, const std::string& sentence);

// Decodes an untrusted payload. The result is one of the failures, and the sentence has no control characters.
Failure decodeReason(int rank, std::span<const std::uint8_t> payload);

}  // namespace moe::bootstrap
