#include "perf/moe_perf/token_counts.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <stdexcept>

namespace moe::perf {
namespace {

[[noreturn]] void refuse(const std::string& word, const std::string& why) {
  throw std::invalid_argument(fmt::format("{}: {}", word, why));
}

int number(const std::string& word, const std::string& text) {
  int value = 0;
  const char* end = text.data() + text.size();
  const auto [after, error] = std::from_chars(text.data(), end, value);
  if (text.empty() || after != end || error != std::errc()) {
    refuse(word, "expected a number, BEGIN:END:xFACTOR or BEGIN:END:+STEP");
  }
  if (value < 0 || value > kTokensLimit) refuse(word, fmt::format("{} is not from 0 to {}", value, kTokensLimit));
  return value;
}

std::vector<std::string> parts(const std::string& word) {
  std::vector<std::string> found(1);
  for (const char c : word) {
    if (c == ':') {
      found.emplace_back();
    } else {
      found.back() += c;
    }
  }
  return found;
}

}  // namespace

std::vector<int> parseTokenCounts(const std::string& word) {
  std::vector<std::string> range = parts(word);
  if (range.size() == 1) return {number(word, word)};
  if (range.size() == 2) range.emplace_back("x2");
  if (range.size() > 3 || range[2].empty()) refuse(word, "expected BEGIN:END:xFACTOR or BEGIN:END:+STEP");
  const int begin = number(word, range[0]), end = number(word, range[1]);
  const bool times = range[2].front() == 'x';
  if (!times && range[2].front() != '+') refuse(word, "expected xFACTOR or +STEP behind the second colon");
  const int by = number(word, range[2].substr(1));
  if (begin > end) refuse(word, fmt::format("begins at {}, above its end {}", begin, end));
  if (times && by < 2) refuse(word, "a factor must be at least 2");
  if (times && begin == 0) refuse(word, "0 times a factor stays 0: begin at 1, or give +STEP");
  if (!times && by < 1) refuse(word, "a step must be at least 1");
  std::vector<int> counts;
  for (std::int64_t count = begin; count <= end; count = times ? count * by : count + by) {
    counts.push_back(static_cast<int>(count));
  }
  return counts;
}

}  // namespace moe::perf
