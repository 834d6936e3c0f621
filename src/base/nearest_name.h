// Finds the known name that a user probably meant by an unknown one.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace moe {

// The fewest insertions, deletions, replacements and swaps of neighbouring letters.
inline std::size_t editDistance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> beforeLast, last(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], beforeLast[j - 2] + 1);
    }
    beforeLast = last;
    last = row;
  }
  return last[b.size()];
}

// The only known name that begins with `given`; empty if there is none, or if there are several.
inline std::string onlyNameWithPrefix(std::string_view given, const std::vector<std::string>& known) {
  const auto begins = [given](const std::string& name) { return name.starts_with(given); };
  const auto first = std::find_if(known.begin(), known.end(), begins);
  if (given.empty() || first == known.end() || std::find_if(first + 1, known.end(), begins) != known.end()) return "";
  return *first;
}

// The name that `given` abbreviates, or else the one with the most letters in common. Empty if more than a third of the
// letters differ.
inline std::string nearestName(std::string_view given, const std::vector<std::string>& known) {
  std::string nearest = onlyNameWithPrefix(given, known);
  if (!nearest.empty()) return nearest;
  std::size_t least = std::max<std::size_t>(given.size() / 3, 1) + 1;
  for (const std::string& name : known) {
    const std::size_t distance = editDistance(given, name);
    if (distance < least) {
      nearest = name;
      least = distance;
    }
  }
  return nearest;
}

// The end of a sentence: "; did you mean --tokens?", or nothing.
inline std::string didYouMean(std::string_view given, const std::vector<std::string>& known) {
  const std::string nearest = nearestName(given, known);
  return nearest.empty() ? "" : "; did you mean " + nearest + "?";
}

}  // namespace moe
