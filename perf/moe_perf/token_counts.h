// A word of --tokens: one number, or a range.
#pragma once

#include <string>
#include <vector>

namespace moe::perf {

inline constexpr int kTokensLimit = 1 << 20;

// Accepts "128"; "1:4096:x2", where each number is twice the one before (":x2" is optional); and "512:4096:+512", in
// steps. A range ends with its largest number that is not above the end. Throws std::invalid_argument with a sentence.
std::vector<int> parseTokenCounts(const std::string& word);

}  // namespace moe::perf
