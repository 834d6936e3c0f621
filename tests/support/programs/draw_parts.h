// Draws how the rows of an operation are divided among warps. For some combines it also draws the wire format, and the
// rows that are made beside them.
#pragma once

#include <algorithm>

#include "device/rows/wire_row.h"
#include "moecomm.h"
#include "support/base/rng.h"
#include "support/programs/operations.h"

namespace moe::test {

inline Parts drawParts(int rowBytes, Rng& rng) {
  const int quads = rowBytes / 16, count = rng.coin() ? 1 : rng.between(1, std::min(quads, 6));
  const int quadsEach = (quads + count - 1) / count;
  return {(quads + quadsEach - 1) / quadsEach, static_cast<std::uint32_t>(quadsEach * 16)};
}

// Lets the rows of some combines travel in a wire format, with as many elements as fit. False: this combine's rows do
// not.
inline bool drawWire(CombineOptions& options, int rowBytesMax, Rng& rng) {
  CombineCase& sum = options.sum;
  const int units = rowBytesMax / elementBytes(sum.rowType) / kWireUnit;
  if (units == 0 || !rng.oneIn(3)) return false;
  const int used = rng.between(1, units), parts = rng.between(1, std::min(used, kWireFactors));
  const int each = (used + parts - 1) / parts, unitBytes = kWireUnit * elementBytes(sum.rowType);
  sum.wire = rng.between(moeWireFp8, moeWireLogfmt10);
  sum.rowBytes = std::int64_t{used} * unitBytes;
  options.parts = {(used + each - 1) / each, static_cast<std::uint32_t>(each * unitBytes)};
  return true;
}

// Lets a combine start before its rows are made, on some ranks. Blocks of an EXPERT_MAJOR group are whole.
inline void drawReady(CombineOptions& options, const HandleShape& shape, int ranks, Rng& rng) {
  ReadyCase& ready = options.ready;
  for (int rank = 0; rank < ranks; ++rank) ready.ranks.push_back(!rng.oneIn(3));
  ready.value = rng.coin() ? 2 : static_cast<std::uint32_t>(rng.next());
  const int block = 1 << rng.between(1, 4);
  const bool whole = shape.layout == Layout::expertMajorPadded || shape.alignment % block == 0;
  ready.blockRows = whole && !rng.oneIn(4) ? block : 0;
  ready.leaves = rng.coin();
}

}  // namespace moe::test
