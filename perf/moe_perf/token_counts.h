// A word of --tokens: one number, or a range.
#pragma once

#include <string>
#include <vector>

namespace moe::perf {

inline constexpr int kTokensLimit = 1 << 20;

// "128"; "1:4096:x2", each number twice the one before (":x2" may be left out); "512:4096:+512", in steps. The last
// number of a range is the largest that is not above its end. Throws std::invalid_argument with a sentence.
std::vector<int> parseTokenCounts(const std::string& word);

}  // namespace moe::perf
