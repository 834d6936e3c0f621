// Payloads that travel with rows as words, from anywhere to anywhere. On the wire they are side payload, word behind
// word. docs/decisions/0089-several-payloads.md.
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
  std::uint64_t outOffset;  // window offset, HT and not staged
  ScaleGrid grid;           // where its words are in `out`
  int first, end;           // of the row's words; behind the last payload both are INT_MAX
};

struct PayloadArgs {
  int count;   // 0: side payload is one array
  int byRows;  // 1: words of neighbouring rows are closer to each other in `out` than neighbouring words of a row
  PayloadWords payload[kPayloadsMax];

  MOE_HOST_DEVICE int words() const { return payload[count - 1].end; }
  // The payload of a word.
  MOE_HOST_DEVICE int of(int word) const {
    int found = 0;
    for (int i = 1; i < kPayloadsMax; ++i) found += word >= payload[i].first ? 1 : 0;
    return found;
  }
};

}  // namespace moe
