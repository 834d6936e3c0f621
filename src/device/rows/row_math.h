// Row types and their arithmetic, with the same bits on every machine. Conversions round to nearest even. Products and
// sums are rounded separately, because baseline x86-64 has no fused multiply-add and the compiler must not decide
// whether to fuse them.
#pragma once

#include "device/lanes.h"

#if defined(__CUDACC__)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#else
#include <bit>
#include <cstring>
#endif

namespace moe {

enum RowType : int { kRowBytesType, kBf16, kFp16, kFp32 };

MOE_HOST_DEVICE constexpr int elementBytes(int rowType) {
  return rowType == kFp32 ? 4 : rowType == kRowBytesType ? 1 : 2;
}

#if defined(__CUDACC__)
MOE_LANES float bitsToFloat(std::uint32_t bits) {
  return __uint_as_float(bits);
}
MOE_LANES std::uint32_t floatToBits(float value) {
  return __float_as_uint(value);
}
MOE_LANES float addRounded(float a, float b) {
  return __fadd_rn(a, b);
}
MOE_LANES float multiplyRounded(float a, float b) {
  return __fmul_rn(a, b);
}
MOE_LANES int bitCount(std::uint32_t bits) {
  return __popc(bits);
}
#else
MOE_LANES float bitsToFloat(std::uint32_t bits) {
  return std::bit_cast<float>(bits);
}
MOE_LANES std::uint32_t floatToBits(float value) {
  return std::bit_cast<std::uint32_t>(value);
}
MOE_LANES float addRounded(float a, float b) {
  return a + b;
}  // built with -ffp-contract=off
MOE_LANES float multiplyRounded(float a, float b) {
  return a * b;
}
MOE_LANES int bitCount(std::uint32_t bits) {
  return std::popcount(bits);
}
#endif

struct Bf16 {
  static constexpr int kPerWord = 2;
  static MOE_LANES float toFloat(std::uint32_t half) { return bitsToFloat(half << 16); }
#if defined(__CUDACC__)  // one instruction, with the same rounding and the same bits of a NaN
  static MOE_LANES std::uint32_t fromFloat(float value) {
    return __bfloat16_as_ushort(__float2bfloat16_rn(value));
  }
#else
  static MOE_LANES std::uint32_t fromFloat(float value) {
    const std::uint32_t bits = floatToBits(value);
    const std::uint32_t nan = (bits & 0x7fffffffu) > 0x7f800000u ? 1u : 0u;
    const std::uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    return nan != 0 ? 0x7fffu : rounded;
  }
#endif
};

struct Fp16 {
  static constexpr int kPerWord = 2;
#if defined(__CUDACC__)  // as for bf16
  static MOE_LANES float toFloat(std::uint32_t half) {
    return __half2float(__ushort_as_half(static_cast<unsigned short>(half)));
  }
  static MOE_LANES std::uint32_t fromFloat(float value) {
    return __half_as_ushort(__float2half_rn(value));
  }
#else
  static MOE_LANES float toFloat(std::uint32_t half) {
    const std::uint32_t sign = (half & 0x8000u) << 16, magnitude = half & 0x7fffu;
    if (magnitude >= 0x7c00u) return bitsToFloat(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
    // A subnormal half is exact in fp32. Shift it into place and multiply by 2^112, which is right for normal numbers
    // too.
    return bitsToFloat(sign | floatToBits(multiplyRounded(bitsToFloat(magnitude << 13), bitsToFloat(0x77800000u))));
  }
  static MOE_LANES std::uint32_t fromFloat(float value) {
    const std::uint32_t bits = floatToBits(value), sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return 0x7fffu;                       // NaN
    if (magnitude >= 0x477ff000u) return sign | 0x7c00u;               // rounds to infinity
    if (magnitude < 0x38800000u) {                                     // subnormal: the addition rounds
      const float shifted = addRounded(bitsToFloat(magnitude), 0.5f);  // one unit of 0.5f's last place is 2^-24
      return sign | (floatToBits(shifted) - 0x3f000000u);
    }
    return sign | (magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
  }
#endif
};

struct Fp32 {
  static constexpr int kPerWord = 1;
  static MOE_LANES float toFloat(std::uint32_t word) { return bitsToFloat(word); }
  static MOE_LANES std::uint32_t fromFloat(float value) {
    const std::uint32_t bits = floatToBits(value);
    return (bits & 0x7fffffffu) > 0x7f800000u ? 0x7fffffffu : bits;  // processors differ in the bits of a
                                                                     // NaN, so all get these
  }
};

// The sum of one 16-byte piece of several rows.
template <class Type>
struct Accumulator {
  static constexpr int kFloats = 4 * Type::kPerWord;
  float sum[kFloats];

  MOE_LANES Accumulator() {
    for (int i = 0; i < kFloats; ++i) sum[i] = 0.0f;
  }

  template <bool kWeighted>
  MOE_LANES void add(Quad piece, float weight) {
    addWord<kWeighted>(0, piece.x, weight);
    addWord<kWeighted>(1, piece.y, weight);
    addWord<kWeighted>(2, piece.z, weight);
    addWord<kWeighted>(3, piece.w, weight);
  }

  MOE_LANES Quad rounded() const { return {word(0), word(1), word(2), word(3)}; }

 private:
  template <bool kWeighted>
  MOE_LANES void addWord(int i, std::uint32_t bits, float weight) {
    if constexpr (Type::kPerWord == 2) {
      addFloat<kWeighted>(2 * i, Type::toFloat(bits & 0xffffu), weight);
      addFloat<kWeighted>(2 * i + 1, Type::toFloat(bits >> 16), weight);
    } else {
      addFloat<kWeighted>(i, Type::toFloat(bits), weight);
    }
  }
  template <bool kWeighted>
  MOE_LANES void addFloat(int i, float value, float weight) {
    sum[i] = addRounded(sum[i], kWeighted ? multiplyRounded(value, weight) : value);
  }
  MOE_LANES std::uint32_t word(int i) const {
    if constexpr (Type::kPerWord == 2)
      return Type::fromFloat(sum[2 * i]) | Type::fromFloat(sum[2 * i + 1]) << 16;
    else
      return Type::fromFloat(sum[i]);
  }
};

}  // namespace moe
