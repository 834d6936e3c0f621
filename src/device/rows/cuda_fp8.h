// The GPU's own conversion to e4m3, where it has one. For device/rows/fp8.h alone, in code for nvcc.
#pragma once

#include "device/lanes.h"

namespace moe::cuda_fp8 {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890

inline constexpr bool kConverts = true;

// Two codes; that of `low` is in the low byte. Nearest even, saturating at 448. The sign of a NaN's code is not
// defined.
MOE_LANES std::uint32_t codesOf(float low, float high) {
  std::uint16_t codes;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(high), "f"(low));
  return codes;
}

#else

inline constexpr bool kConverts = false;
MOE_LANES std::uint32_t codesOf(float, float) {
  return 0;
}

#endif

}  // namespace moe::cuda_fp8
