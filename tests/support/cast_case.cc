#include "support/cast_case.h"

#include <cstring>

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

CastOutput::CastOutput(const CastCase& cast, const RouteConfig& route, std::int64_t rows, std::int64_t capacity)
    : cast_(cast), route_(route), capacity_(capacity) {
  const bool whole = cast.tokenContiguous && !hasFixedRows(route.layout);
  expected_ = GuardedBytes(static_cast<std::size_t>((whole ? capacity : rows) * cast.words() * 4));
}

CastArgs CastOutput::args(void* scales, const ReferenceRule& rule) const {
  CastArgs args{};
  args.codeBytes = static_cast<std::uint32_t>(cast_.codeBytes());
  args.inputScale = cast_.scalesInput ? &rule.inputScale : nullptr;
  args.globalScale = cast_.scalesAll ? &rule.globalScale : nullptr;
  args.type = cast_.type | (cast_.exact ? kCastExact : 0), args.rowType = cast_.rowType, args.elements = cast_.elements;
  args.outScales = bytes() == 0 ? nullptr : static_cast<std::uint32_t*>(scales);
  args.words = cast_.words();
  args.grid = {INT32_MAX, 0, args.words, 1};
  if (!cast_.tokenContiguous) return args;
  args.grid = {INT32_MAX, 0, 1, hasFixedRows(route_.layout) ? slotsOf(route_) : capacity_};
  if (route_.layout != Layout::expertMajorPadded) return args;
  args.grid.group = static_cast<int>(slotsOf(route_));
  args.grid.groupStride = slotsOf(route_) * args.words;
  return args;
}

std::int64_t CastOutput::wordAt(std::int64_t layoutRow, int word) const {
  const std::int64_t words = cast_.words(), slots = slotsOf(route_);
  if (!cast_.tokenContiguous) return layoutRow * words + word;
  if (route_.layout == Layout::rankMajor) return word * slots + layoutRow;
  if (route_.layout != Layout::expertMajorPadded) return word * capacity_ + layoutRow;
  return (layoutRow / slots * words + word) * slots + layoutRow % slots;
}

void CastOutput::expect(std::int64_t layoutRow, const std::vector<std::uint32_t>& scales) {
  if (bytes() == 0) return;
  for (int word = 0; word < cast_.words(); ++word) {
    std::memcpy(expected_.data() + wordAt(layoutRow, word) * 4, &scales[static_cast<std::size_t>(word)], 4);
  }
}

bool CastOutput::isRight(const std::uint8_t* scales) const {
  return std::memcmp(scales, expected_.data(), bytes()) == 0;
}

CastCase drawCast(int rowBytesMax, std::uint64_t seed, Rng& rng) {
  CastCase cast;
  cast.type = rng.coin() ? kCastFp8 : kCastFp8Ue8m0;
  cast.exact = rng.coin();
  cast.rowType = rng.between(kBf16, kFp32);
  cast.elements = 128 * rng.between(1, 12);
  cast.tokenContiguous = rng.coin();
  if (cast.travellingBytes() > rowBytesMax || !rng.oneIn(3)) return {};
  Rng format(mix(seed, 0xca57));
  CastCase other = cast;
  other.type = format.between(kCastFp8, kCastNvfp4);
  if (other.travellingBytes() <= rowBytesMax) cast = other;
  cast.scalesInput = format.coin();
  cast.scalesAll = cast.type == kCastNvfp4 && format.coin();
  return cast;
}

Parts drawTiles(int elements, Rng& rng) {
  const int tiles = castTiles(elements), each = rng.between(1, tiles);
  return {(tiles + each - 1) / each, static_cast<std::uint32_t>(each * kCastTileElements)};
}

Parts partsOfCodes(Parts tiles, const CastCase& cast) {
  return {tiles.count, static_cast<std::uint32_t>(castCodeBytes(cast.type, static_cast<int>(tiles.bytes)))};
}

}  // namespace moe::test
