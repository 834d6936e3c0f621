#include "bootstrap/group/text.h"

#include <fmt/format.h>

#include <algorithm>

namespace moe::bootstrap {

std::string describeRanks(std::span<const int> ranks, std::size_t total) {
  constexpr int kRunsMax = 8;
  total = std::max(total, ranks.size());
  std::string text = total == 1 ? "rank " : "ranks ";
  std::size_t shown = 0;
  for (int run = 0; run < kRunsMax && shown < ranks.size(); ++run) {
    std::size_t end = shown + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    if (run > 0) text += ", ";
    text += std::to_string(ranks[shown]);
    if (end - shown == 2) text += fmt::format(", {}", ranks[end - 1]);
    if (end - shown > 2) text += fmt::format("-{}", ranks[end - 1]);
    shown = end;
  }
  if (shown < total) text += fmt::format(" and {} more", total - shown);
  return text;
}

}  // namespace moe::bootstrap
