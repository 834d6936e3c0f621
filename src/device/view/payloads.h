// Payloads that travel with rows as words; each has its own source and destination arrays. On the wire they are side
// payload, one word after the other. docs/decisions/0089-several-payloads.md.
#pragma once

#include "device/view/scale_grid.h"

namespace moe {

inline constexpr int kPayloadsMax = 4;
inline constexpr int kQuadWords = 4;

// One payload. Strides are in words.
struct PayloadWords {
  const std::uint32_t* in;
  std::int32_t inRowStride, inWordStride;
  std::uint32_t* out;
  std::uint64_t outOffset;  // window offset; HT without staging only
  ScaleGrid grid;           // where its words lie in `out`
  int first, end;           // range of the row's words; unused entries after the last payload have INT_MAX in both
};

struct PayloadArgs {
  int count;   // 0: side payload is one array
  int byRows;  // 1: in `out`, the same word of neighbouring rows is closer together than neighbouring words of a row
  PayloadWords payload[kPayloadsMax];

  MOE_HOST_DEVICE int words() const { return payload[count - 1].end; }
  // The payload that a word belongs to.
  MOE_HOST_DEVICE int of(int word) const {
    int found = 0;
    for (int i = 1; i < kPayloadsMax; ++i) found += word >= payload[i].first ? 1 : 0;
    return found;
  }
};

}  // namespace moe
