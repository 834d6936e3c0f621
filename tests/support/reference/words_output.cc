#include "support/reference/words_output.h"

#include <cstring>
#include <numeric>

namespace moe::test {
namespace {

// The rows of a layout that does not depend on what arrives, or of one expert's group.
std::int64_t slotsOf(const RouteConfig& route) {
  return std::int64_t{route.nranks} * route.tokensMax;
}

}  // namespace

WordsOutput::WordsOutput(const WordsForm& form, const RouteConfig& route, const std::vector<int>& experts,
                         std::int64_t rows, std::int64_t capacity)
    : form_(form), route_(route), experts_(experts), capacity_(capacity) {
  if (rows == 0 && capacity == 0) return;
  std::int64_t words = rows * (form.words + form.pad);
  if (inBlocks()) {
    words = firstBlock(-1) * blockBytes() / 4;
  } else if (form.layout == moeScalesTokenContiguous) {
    const std::size_t groups = route.layout == Layout::expertMajorPadded ? experts.size() - 1 : 1;
    words = static_cast<std::int64_t>(groups) * form.words * column();
  }
  expected_ = GuardedBytes(static_cast<std::size_t>(words * 4));
}

// Words from one column to the next.
std::int64_t WordsOutput::column() const {
  return (hasFixedRows(route_.layout) ? slotsOf(route_) : capacity_) + form_.pad;
}

ScaleGrid WordsOutput::grid() const {
  if (inBlocks()) return blockGrid();
  const std::int64_t each = form_.words + form_.pad;
  if (form_.layout == moeScalesRowMajor) return {INT32_MAX, 0, 0, 0, 0, each, 1};
  if (route_.layout != Layout::expertMajorPadded) return {INT32_MAX, 0, 0, 0, 0, 1, column()};
  return {static_cast<int>(slotsOf(route_)), 0, 0, 0, form_.words * column(), 1, column()};
}

std::int64_t WordsOutput::wordAt(std::int64_t layoutRow, int word) const {
  const std::int64_t words = form_.words, slots = slotsOf(route_);
  if (form_.layout == moeScalesRowMajor) return layoutRow * (words + form_.pad) + word;
  if (route_.layout != Layout::expertMajorPadded) return word * column() + layoutRow;
  return (layoutRow / slots * words + word) * column() + layoutRow % slots;
}

void WordsOutput::expect(std::int64_t layoutRow, const std::vector<std::uint32_t>& words) {
  if (bytes() == 0) return;
  for (int byte = 0; inBlocks() && byte < form_.words * 4; ++byte) {
    const std::uint32_t word = byte < form_.bytes ? words[static_cast<std::size_t>(byte / 4)] : 0;
    expected_.data()[blockByte(layoutRow, byte)] = static_cast<std::uint8_t>(word >> byte % 4 * 8);
  }
  for (int word = 0; !inBlocks() && word < form_.words; ++word) {
    std::memcpy(expected_.data() + wordAt(layoutRow, word) * 4, &words[static_cast<std::size_t>(word)], 4);
  }
}

// ---- Blocks of 128 rows, by the words of moecomm.h

// Offsets of experts are multiples of the alignment. So an expert may waste up to 128 - gcd(alignment, 128) rows of a
// block.
int WordsOutput::slack() const {
  return route_.layout == Layout::expertMajor ? 128 - std::gcd(route_.alignment, 128) : 0;
}

// FLAT has one group. EXPERT_MAJOR has the groups that are not empty. The others have groups of one size.
int WordsOutput::groupOf(std::int64_t layoutRow) const {
  if (route_.layout == Layout::flat) return 0;
  if (route_.layout == Layout::rankMajor) return static_cast<int>(layoutRow / route_.tokensMax);
  if (route_.layout == Layout::expertMajorPadded) return static_cast<int>(layoutRow / slotsOf(route_));
  int expert = 0;
  while (experts_[static_cast<std::size_t>(expert) + 1] <= layoutRow) ++expert;
  return expert;
}

std::int64_t WordsOutput::firstRow(int group) const {
  if (route_.layout == Layout::expertMajor) return experts_[static_cast<std::size_t>(group)];
  return group * (route_.layout == Layout::rankMajor ? route_.tokensMax : slotsOf(route_));
}

// -1: the row lies beyond the room of the output.
std::int64_t WordsOutput::firstBlock(int group) const {
  const auto experts = static_cast<std::int64_t>(experts_.size()) - 1;
  if (route_.layout == Layout::flat) return group < 0 ? (capacity_ + 127) / 128 : 0;
  if (route_.layout == Layout::expertMajor) {
    if (group < 0) return (capacity_ + experts * slack()) / 128;
    return (experts_[static_cast<std::size_t>(group)] + std::int64_t{group} * slack()) / 128;
  }
  const bool byRank = route_.layout == Layout::rankMajor;
  const std::int64_t each = byRank ? route_.tokensMax : slotsOf(route_);
  return (group < 0 ? byRank ? route_.nranks : experts : group) * ((each + 127) / 128);
}

std::int64_t WordsOutput::blockByte(std::int64_t layoutRow, int byte) const {
  const int group = groupOf(layoutRow);
  const std::int64_t m = layoutRow - firstRow(group), k = byte;
  const std::int64_t columns = (form_.bytes + 3) / 4;
  return firstBlock(group) * columns * 512 + ((m / 128) * columns + k / 4) * 512 + (m % 32) * 16 + ((m / 32) % 4) * 4 +
         k % 4;
}

void WordsOutput::expectPads(const Arrivals& arrivals, bool all) {
  if (bytes() == 0 || !inBlocks()) return;
  if (all) std::memset(expected_.data(), 0, bytes());
  const auto zero = [&](int group, std::int64_t rows) {
    std::memset(expected_.data() + firstBlock(group) * blockBytes(), 0,
                static_cast<std::size_t>((rows + 127) / 128 * blockBytes()));
  };
  if (route_.layout == Layout::flat) return zero(0, arrivals.layoutRows);
  const std::vector<int>& groups = route_.layout == Layout::rankMajor ? arrivals.rowsPerRank : arrivals.rowsPerExpert;
  for (std::size_t group = 0; group < groups.size(); ++group) zero(static_cast<int>(group), groups[group]);
}

std::vector<int> WordsOutput::blockOffsets() const {
  std::vector<int> blocks;
  for (std::size_t e = 0; e < experts_.size(); ++e) blocks.push_back(static_cast<int>(firstBlock(static_cast<int>(e))));
  return blocks;
}

// The grid that a step gets.
ScaleGrid WordsOutput::blockGrid() const {
  ScaleGrid grid{INT32_MAX, 1, 0, slack(), 0, std::int64_t{form_.words} * 128, 128};
  if (route_.layout == Layout::expertMajor) grid.experts = static_cast<int>(experts_.size()) - 1;
  if (!hasFixedRows(route_.layout)) return grid;
  grid.group = static_cast<int>(firstRow(1));
  grid.groupStride = firstBlock(1) * grid.rowStride;
  return grid;
}

bool WordsOutput::isRight(const std::uint8_t* words) const {
  return std::memcmp(words, expected_.data(), bytes()) == 0;
}

}  // namespace moe::test
