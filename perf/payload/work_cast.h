// Checks rows that dispatch has cast. See payload/work.h.
#pragma once

#include "perf/payload/work_rows.h"

namespace moe::perf {

// The places of a cast's scales. Word w of layout row r is at base + r / group * groupStride + r % group * rowStride +
// w * wordStride, in bytes. Four power-of-two scales share a word.
struct ScaleAddress {
  const void* base;
  std::int64_t group, groupStride, rowStride, wordStride;
  // 1: scales are in blocks of 128 rows, and rowStride is that of blocks.
  bool blocked = false;
  // [experts + 1]: the rows and blocks at which the groups of experts begin; NULL: groups have one size.
  const std::int32_t *groupRows = nullptr, *groupBlocks = nullptr;
  int experts = 0;

  MOE_PERF_BOTH const char* word(std::int64_t row, int index) const {
    const char* first = static_cast<const char*>(base) + index * wordStride;
    if (groupRows == nullptr) return first + row / group * groupStride + inGroup(row % group);
    int expert = 0;
    while (expert + 1 < experts && groupRows[expert + 1] <= row) ++expert;
    return first + groupBlocks[expert] * rowStride + inGroup(row - groupRows[expert]);
  }

 private:
  MOE_PERF_BOTH std::int64_t inGroup(std::int64_t row) const {
    return blocked ? row / 128 * rowStride + row % 32 * 16 + row % 128 / 32 * 4 : row * rowStride;
  }
};

// Checks rows that were cast on their way. A block's scale must follow from its largest element, and codes must be the
// nearest ones. Powers of two represent the payload's small integers exactly.
struct VerifyCast {
  PayloadOf payloadOf;
  RowShape shape;
  Cast cast;
  const RowSpec* specs;
  std::int64_t specCount;
  const void* rows;  // codes, `rowBytes` apart
  std::int64_t rowBytes;
  ScaleAddress scales;
  Findings* findings;

  MOE_PERF_BOTH std::int64_t rowCount() const { return cast == Cast::none ? 0 : specCount; }
  MOE_PERF_BOTH void operator()(std::int64_t index, int first, int step) const {
    const RowSpec spec = specs[index];
    const std::uint64_t key = payloadOf.key(spec.source, spec.token);
    const char* row = static_cast<const char*>(rows) + spec.row * rowBytes;
    unsigned long long wrong = 0;
    const int columns = castBlockColumns(cast), groups = columns / kGroup;
    for (int block = first; block < shape.hidden / columns; block += step) {
      const float scale = scaleAt(spec.row, block);
      wrong += isScale(scale, largest(key, block * groups, groups)) ? 0 : 1;
      for (int group = block * groups; group < (block + 1) * groups; ++group) {
        const GroupValues expected = payload(key, group);
        const GroupValues codes = loadCodes(cast, row, group);
        for (int i = 0; i < kGroup; ++i) wrong += isNear(codes.value[i], scale, expected.value[i]) ? 0 : 1;
      }
    }
    addTo(&findings->wrongPayloads, wrong);
  }

 private:
  MOE_PERF_BOTH float scaleAt(std::int64_t row, int block) const {
    if (castScalesAreFloats(cast)) return loadAs<float>(scales.word(row, block));
    const std::uint32_t byte = loadAs<std::uint8_t>(scales.word(row, block / 4) + block % 4);
    return cast == Cast::nvfp4 ? fromFp8(byte) : bitsFloat(byte << 23);
  }
  MOE_PERF_BOTH static float largest(std::uint64_t key, int first, int groups) {
    float amax = 0;
    for (int group = first; group < first + groups; ++group) {
      const GroupValues values = payload(key, group);
      for (int i = 0; i < kGroup; ++i) {
        const float magnitude = values.value[i] < 0 ? -values.value[i] : values.value[i];
        amax = magnitude > amax ? magnitude : amax;
      }
    }
    return amax;
  }
  // 448 is the largest e4m3, 6 the largest E2M1. In blocks of 128, one of zeros has the scale of 1e-4.
  MOE_PERF_BOTH bool isScale(float scale, float amax) const {
    const bool floor = castBlockColumns(cast) == kScaleColumns && amax < 1e-4F;
    const double wanted = (floor ? 1e-4 : static_cast<double>(amax)) / (castPacksTwo(cast) ? 6 : 448);
    if (wanted == 0) return scale == 0;
    if (cast == Cast::fp8) return scale > wanted * (1 - 1e-6) && scale < wanted * (1 + 1e-6);
    if (cast == Cast::nvfp4) return scale >= wanted * (1 - 0.0625001) && scale <= wanted * (1 + 0.0625001);
    return scale >= wanted && scale < 2 * wanted;
  }
  MOE_PERF_BOTH bool isNear(float code, float scale, float expected) const {
    const float difference = code * scale < expected ? expected - code * scale : code * scale - expected;
    const float magnitude = expected < 0 ? -expected : expected;
    if (castPacksTwo(cast)) {  // half of the distance between codes here
      const float unit = magnitude > 4 * scale ? 1.0F : magnitude > 2 * scale ? 0.5F : 0.25F;
      return difference <= unit * scale * 1.000001F;
    }
    if (cast != Cast::fp8) return difference == 0;
    return difference <= magnitude * 0.0625001F;  // half a unit of the last of 3 bits
  }
};

}  // namespace moe::perf
