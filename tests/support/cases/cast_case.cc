#include "support/cases/cast_case.h"

#include <algorithm>

#include "device/rows/cast_row.h"

namespace moe::test {
ReferenceRule CastCase::ruleOf(int rank) const {
  const float input = (rank % 2 == 0 ? 0.375f : -2.5f) * static_cast<float>(rank + 1);
  return {type, exact, scalesInput ? input : 1.0f, scalesAll ? 300.0f : 1.0f};
}

ReferenceRule CastCase::ruleOf(const ArrivedToken& token) const {
  ReferenceRule rule = ruleOf(token.source);
  if (weighsInput) rule.inputScale = static_cast<float>(double{rule.inputScale} * double{token.entries[0].weight});
  return rule;
}

CastArgs castArgs(const CastCase& cast, const WordsOutput& output, void* scales, const ReferenceRule& rule) {
  CastArgs args{};
  args.codeBytes = static_cast<std::uint32_t>(cast.codeBytes());
  args.inputScale = cast.scalesInput ? &rule.inputScale : nullptr;
  args.globalScale = cast.scalesAll ? &rule.globalScale : nullptr;
  args.type = cast.type | (cast.exact ? kCastExact : 0);
  args.rowType = cast.rowType;
  args.elements = cast.elements;
  args.outScales = output.bytes() == 0 ? nullptr : static_cast<std::uint32_t*>(scales);
  args.words = cast.words();
  args.grid = output.grid();
  return args;
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
    return WordsOutput(cast.form(), route.config, arrivals.expertOffsets, rows, rows).bytes() > bytes;
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
