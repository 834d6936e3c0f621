// A row as the library casts it, in the shape of the reference.
#pragma once

#include <cstring>
#include <vector>

#include "device/rows/cast_row.h"
#include "support/reference/cast_reference.h"

namespace moe::test {

using Bytes = std::vector<std::uint8_t>;

template <class Type>
ReferenceCast castOfLibrary(const ReferenceRule& rule, const Bytes& source, int elements) {
  const ReferenceSizes sizes = referenceSizes(rule.cast, elements);
  ReferenceCast result{Bytes(static_cast<std::size_t>(sizes.codeBytes)), {}};
  const int cast = rule.cast | (rule.exact ? kCastExact : 0);
  Bytes scales(static_cast<std::size_t>(castTiles(elements) * castScaleBytes(cast)));
  const CastFactors factors = CastFactors::of({cast, &rule.inputScale, &rule.globalScale});
  for (int tile = 0; tile < castTiles(elements); ++tile) {
    castTile<Type, false>(
        {source.data(), elements, 1}, factors, tile,
        [&](int) {
          return CastSink{result.codes.data(), scales.data(), 1};
        },
        std::memcpy);
  }
  result.scales.resize(static_cast<std::size_t>(sizes.scaleWords));
  std::memcpy(result.scales.data(), scales.data(), result.scales.size() * 4);
  return result;
}

inline ReferenceCast castOfLibrary(const ReferenceRule& rule, int rowType, const Bytes& source, int elements) {
  if (rowType == kFp32) return castOfLibrary<Fp32>(rule, source, elements);
  if (rowType == kFp16) return castOfLibrary<Fp16>(rule, source, elements);
  return castOfLibrary<Bf16>(rule, source, elements);
}

}  // namespace moe::test
