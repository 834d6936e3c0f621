// The contents of rows in tests: numbers that follow from (seed, source, token, column), so that a misplaced row or
// piece shows. Typed rows hold finite numbers of both signs and many magnitudes, so that the order of sums shows in the
// bits.
#pragma once

#include <cstring>

#include "device/rows/row_math.h"
#include "support/base/rng.h"

namespace moe::test {

inline std::uint64_t rowKey(std::uint64_t seed, int source, int token, int share = 0) {
  return mix(seed, mix(static_cast<std::uint64_t>(source) << 40 | static_cast<std::uint64_t>(token) << 8 |
                       static_cast<std::uint64_t>(share)));
}

// `bytes` is a multiple of 8.
inline void fillRow(std::uint64_t key, std::uint8_t* row, std::int64_t bytes) {
  for (std::int64_t i = 0; i < bytes; i += 8) {
    const std::uint64_t word = mix(key + static_cast<std::uint64_t>(i));
    std::memcpy(row + i, &word, 8);
  }
}

inline bool rowIs(std::uint64_t key, const std::uint8_t* row, std::int64_t bytes) {
  for (std::int64_t i = 0; i < bytes; i += 8) {
    const std::uint64_t word = mix(key + static_cast<std::uint64_t>(i));
    if (std::memcmp(row + i, &word, 8) != 0) return false;
  }
  return true;
}

// Random bits, with exponents moved to within a few of that of 1.
inline void fillTypedRow(int rowType, std::uint64_t key, std::uint8_t* row, std::int64_t bytes) {
  fillRow(key, row, bytes);
  const auto keep = [](std::uint32_t bits, std::uint32_t exponentMask, std::uint32_t exponent) {
    return (bits & ~exponentMask) | exponent;
  };
  if (rowType == kFp32) {
    for (std::int64_t i = 0; i < bytes; i += 4) {
      std::uint32_t bits;
      std::memcpy(&bits, row + i, 4);
      bits = keep(bits, 0x7f800000u, (122 + (bits >> 23 & 7u)) << 23);
      std::memcpy(row + i, &bits, 4);
    }
    return;
  }
  for (std::int64_t i = 0; i < bytes; i += 2) {
    std::uint16_t half;
    std::memcpy(&half, row + i, 2);
    half = static_cast<std::uint16_t>(rowType == kFp16 ? keep(half, 0x7c00u, (11 + (half >> 10 & 7u)) << 10)
                                                       : keep(half, 0x7f80u, (122 + (half >> 7 & 7u)) << 7));
    std::memcpy(row + i, &half, 2);
  }
}

}  // namespace moe::test
