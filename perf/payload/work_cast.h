// Checks rows that dispatch has cast. See payload/work.h.
#pragma once

#include "perf/payload/work_rows.h"

namespace moe::perf {

// Where the scales of a cast are. Word w of layout row r is at base + r / group * groupStride + r % group * rowStride +
// w * wordStride, in bytes. Four power-of-two scales share a word.
struct ScaleAddress {
  const void* base;
  std::int64_t group, groupStride, rowStride, wordStride;

  MOE_PERF_BOTH const char* word(std::int64_t row, int index) const {
    return static_cast<const char*>(base) + row / group * groupStride + row % group * rowStride + index * wordStride;
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

  MOE_PERF_BOTH std::int64_t rowCount() const { return cast == Cast::kNone ? 0 : specCount; }
  MOE_PERF_BOTH void operator()(std::int64_t index, int first, int step) const {
    const RowSpec spec = specs[index];
    const std::uint64_t key = payloadOf.key(spec.source, spec.token);
    const char* row = static_cast<const char*>(rows) + spec.row * rowBytes;
    unsigned long long wrong = 0;
    for (int block = first; block < shape.hidden / kScaleColumns; block += step) {
      const float scale = scaleAt(spec.row, block);
      wrong += isScale(scale, largest(key, block)) ? 0 : 1;
      for (int group = block * kGroups; group < (block + 1) * kGroups; ++group) {
        const GroupValues expected = payload(key, group);
        const GroupValues codes = loadGroup(Format::kFp8, row, group);
        for (int i = 0; i < kGroup; ++i) wrong += isNear(codes.value[i] * scale, expected.value[i]) ? 0 : 1;
      }
    }
    addTo(&findings->wrongPayloads, wrong);
  }

 private:
  static constexpr int kGroups = kScaleColumns / kGroup;

  MOE_PERF_BOTH float scaleAt(std::int64_t row, int block) const {
    if (cast == Cast::kFp8) return loadAs<float>(scales.word(row, block));
    return bitsFloat(static_cast<std::uint32_t>(loadAs<std::uint8_t>(scales.word(row, block / 4) + block % 4)) << 23);
  }
  MOE_PERF_BOTH static float largest(std::uint64_t key, int block) {
    float amax = 0;
    for (int group = block * kGroups; group < (block + 1) * kGroups; ++group) {
      const GroupValues values = payload(key, group);
      for (int i = 0; i < kGroup; ++i) {
        const float magnitude = values.value[i] < 0 ? -values.value[i] : values.value[i];
        amax = magnitude > amax ? magnitude : amax;
      }
    }
    return amax;
  }
  // 448 is the largest e4m3. A block of zeros has the scale of 1e-4.
  MOE_PERF_BOTH bool isScale(float scale, float amax) const {
    const double wanted = (amax > 1e-4F ? static_cast<double>(amax) : 1e-4) / 448;
    if (cast == Cast::kFp8) return scale > wanted * (1 - 1e-6) && scale < wanted * (1 + 1e-6);
    return scale >= wanted && scale < 2 * wanted;
  }
  MOE_PERF_BOTH bool isNear(float actual, float expected) const {
    const float difference = actual < expected ? expected - actual : actual - expected;
    if (cast == Cast::kFp8Ue8m0) return difference == 0;
    return difference <= (expected < 0 ? -expected : expected) * 0.0625001F;  // half a unit of the last of 3 bits
  }
};

}  // namespace moe::perf
