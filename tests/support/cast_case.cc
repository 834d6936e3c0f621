#include "support/cast_case.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "device/rows/cast_row.h"

namespace moe::test {
namespace {

// The rows of a layout that does not depend on what arrives, or of one expert's group.
std::int64_t slotsOf(const RouteConfig& route) {
  return std::int64_t{route.nranks} * route.tokensMax;
}

}  // namespace

ReferenceRule CastCase::ruleOf(int rank) const {
  const float input = (rank % 2 == 0 ? 0.375f : -2.5f) * static_cast<float>(rank + 1);
  return {type, exact, scalesInput ? input : 1.0f, scalesAll ? 300.0f : 1.0f};
}

ReferenceRule CastCase::ruleOf(const ArrivedToken& token) const {
  ReferenceRule rule = ruleOf(token.source);
  if (weighsInput) rule.inputScale = static_cast<float>(double{rule.inputScale} * double{token.entries[0].weight});
  return rule;
}

CastOutput::CastOutput(const CastCase& cast, const RouteConfig& route, const std::vector<int>& experts,
                       std::int64_t rows, std::int64_t capacity)
    : cast_(cast), route_(route), experts_(experts), capacity_(capacity) {
  if (rows == 0 && capacity == 0) return;
  const bool whole = cast.scales == moeScalesTokenContiguous && !hasFixedRows(route.layout);
  const std::int64_t plain = (whole ? capacity : rows) * cast.words() * 4;
  expected_ = GuardedBytes(static_cast<std::size_t>(inBlocks() ? firstBlock(-1) * blockBytes() : plain));
}

CastArgs CastOutput::args(void* scales, const ReferenceRule& rule) const {
  CastArgs args{};
  args.codeBytes = static_cast<std::uint32_t>(cast_.codeBytes());
  args.inputScale = cast_.scalesInput ? &rule.inputScale : nullptr;
  args.globalScale = cast_.scalesAll ? &rule.globalScale : nullptr;
  args.type = cast_.type | (cast_.exact ? kCastExact : 0), args.rowType = cast_.rowType, args.elements = cast_.elements;
  args.outScales = bytes() == 0 ? nullptr : static_cast<std::uint32_t*>(scales);
  args.words = cast_.words();
  args.grid = {INT32_MAX, 0, 0, 0, 0, args.words, 1};
  if (inBlocks()) args.grid = blockGrid();
  if (cast_.scales != moeScalesTokenContiguous) return args;
  args.grid = {INT32_MAX, 0, 0, 0, 0, 1, hasFixedRows(route_.layout) ? slotsOf(route_) : capacity_};
  if (route_.layout != Layout::expertMajorPadded) return args;
  args.grid.group = static_cast<int>(slotsOf(route_));
  args.grid.groupStride = slotsOf(route_) * args.words;
  return args;
}

std::int64_t CastOutput::wordAt(std::int64_t layoutRow, int word) const {
  const std::int64_t words = cast_.words(), slots = slotsOf(route_);
  if (cast_.scales == moeScalesRowMajor) return layoutRow * words + word;
  if (route_.layout == Layout::rankMajor) return word * slots + layoutRow;
  if (route_.layout != Layout::expertMajorPadded) return word * capacity_ + layoutRow;
  return (layoutRow / slots * words + word) * slots + layoutRow % slots;
}

void CastOutput::expect(std::int64_t layoutRow, const std::vector<std::uint32_t>& scales) {
  if (bytes() == 0) return;
  for (int scale = 0; inBlocks() && scale < cast_.words() * 4; ++scale) {
    const std::uint32_t word = scale < cast_.scalesOfRow() ? scales[static_cast<std::size_t>(scale / 4)] : 0;
    expected_.data()[scaleByte(layoutRow, scale)] = static_cast<std::uint8_t>(word >> scale % 4 * 8);
  }
  for (int word = 0; !inBlocks() && word < cast_.words(); ++word) {
    std::memcpy(expected_.data() + wordAt(layoutRow, word) * 4, &scales[static_cast<std::size_t>(word)], 4);
  }
}

// ---- Blocks of 128 rows, by the words of moecomm.h

// Of rows that an expert's offset is a multiple of, 128 has a part in common.
int CastOutput::slack() const {
  return route_.layout == Layout::expertMajor ? 128 - std::gcd(route_.alignment, 128) : 0;
}

// FLAT has one group, EXPERT_MAJOR those that are not empty, others have groups of one size.
int CastOutput::groupOf(std::int64_t layoutRow) const {
  if (route_.layout == Layout::flat) return 0;
  if (route_.layout == Layout::rankMajor) return static_cast<int>(layoutRow / route_.tokensMax);
  if (route_.layout == Layout::expertMajorPadded) return static_cast<int>(layoutRow / slotsOf(route_));
  int expert = 0;
  while (experts_[static_cast<std::size_t>(expert) + 1] <= layoutRow) ++expert;
  return expert;
}

std::int64_t CastOutput::firstRow(int group) const {
  if (route_.layout == Layout::expertMajor) return experts_[static_cast<std::size_t>(group)];
  return group * (route_.layout == Layout::rankMajor ? route_.tokensMax : slotsOf(route_));
}

// -1: behind all that the output has room for.
std::int64_t CastOutput::firstBlock(int group) const {
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

std::int64_t CastOutput::scaleByte(std::int64_t layoutRow, int scale) const {
  const int group = groupOf(layoutRow);
  const std::int64_t m = layoutRow - firstRow(group), k = scale;
  const std::int64_t columns = (cast_.scalesOfRow() + 3) / 4;
  return firstBlock(group) * columns * 512 + ((m / 128) * columns + k / 4) * 512 + (m % 32) * 16 + ((m / 32) % 4) * 4 +
         k % 4;
}

void CastOutput::expectPads(const Arrivals& arrivals, bool all) {
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

std::vector<int> CastOutput::blockOffsets() const {
  std::vector<int> blocks;
  for (std::size_t e = 0; e < experts_.size(); ++e) blocks.push_back(static_cast<int>(firstBlock(static_cast<int>(e))));
  return blocks;
}

// What a step is told of them.
ScaleGrid CastOutput::blockGrid() const {
  ScaleGrid grid{INT32_MAX, 1, 0, slack(), 0, std::int64_t{cast_.words()} * 128, 128};
  if (route_.layout == Layout::expertMajor) grid.experts = static_cast<int>(experts_.size()) - 1;
  if (!hasFixedRows(route_.layout)) return grid;
  grid.group = static_cast<int>(firstRow(1));
  grid.groupStride = firstBlock(1) * grid.rowStride;
  return grid;
}

bool CastOutput::isRight(const std::uint8_t* scales) const {
  return std::memcmp(scales, expected_.data(), bytes()) == 0;
}

CastCase drawCast(int rowBytesMax, std::uint64_t seed, bool blocks, Rng& rng) {
  CastCase cast;
  cast.type = rng.coin() ? kCastFp8 : kCastFp8Ue8m0;
  cast.exact = rng.coin();
  cast.rowType = rng.between(kBf16, kFp32);
  cast.elements = 128 * rng.between(1, 12);
  cast.scales = rng.coin() ? moeScalesTokenContiguous : moeScalesRowMajor;
  if (blocks) cast.elements = 128 * rng.between(1, 3);
  if (cast.travellingBytes() > rowBytesMax || (!blocks && !rng.oneIn(3))) return {};
  Rng format(mix(seed, 0xca57));
  CastCase other = cast;
  other.type = format.between(blocks ? kCastMxfp8 : kCastFp8, kCastNvfp4);
  if (other.travellingBytes() <= rowBytesMax) cast = other;
  cast.scalesInput = format.coin();
  cast.scalesAll = cast.type == kCastNvfp4 && format.coin();
  Rng place(mix(seed, 0x128));
  if (!castScalesAreFloats(cast.type) && (blocks || place.coin())) cast.scales = moeScales128x4;
  return cast;
}

void keepSmall(CastCase& cast, const ReferenceRoute& route, std::int64_t spare, std::size_t bytes) {
  if (cast.scales != moeScales128x4) return;
  const bool large = std::any_of(route.arrivals.begin(), route.arrivals.end(), [&](const Arrivals& arrivals) {
    const std::int64_t rows = arrivals.layoutRows + spare;
    return CastOutput(cast, route.config, arrivals.expertOffsets, rows, rows).bytes() > bytes;
  });
  if (large) cast.scales = moeScalesTokenContiguous;
}

Parts drawTiles(int elements, Rng& rng) {
  const int tiles = castTiles(elements), each = rng.between(1, tiles);
  return {(tiles + each - 1) / each, static_cast<std::uint32_t>(each * kCastTileElements)};
}

Parts partsOfCodes(Parts tiles, const CastCase& cast) {
  return {tiles.count, static_cast<std::uint32_t>(castCodeBytes(cast.type, static_cast<int>(tiles.bytes)))};
}

}  // namespace moe::test
