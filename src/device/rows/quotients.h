// Quotients by a number that is known, or of one, with the bits of a rounded division. A GPU's division looks at its
// arguments and branches before it computes. The arguments here need no look: no step overflows or becomes subnormal.
//
//   q = x * r;  q + (x - y * q) * r        where r is 1 / y, rounded
//
// is x / y, rounded, if q is off by one in its last place at most (P. Markstein, "Computation of elementary functions
// on the IBM RISC System/6000 processor", 1990). tests/gpu/fp8_test.cc compares every float.
#pragma once

#include "device/rows/elements.h"

namespace moe {

#if defined(__CUDACC__)

namespace cuda_quotients {

MOE_LANES float corrected(float quotient, float x, float y, float reciprocal) {
  return __fmaf_rn(__fmaf_rn(-y, quotient, x), reciprocal, quotient);
}

}  // namespace cuda_quotients

// x / y for a constant y. The quotient is a normal number, or 0.
MOE_LANES float overConstant(float x, float y) {
  const float reciprocal = 1.0f / y;  // by the compiler
  return cuda_quotients::corrected(multiplyRounded(x, reciprocal), x, y, reciprocal);
}
// x / y, where x, y, 1 / y and the quotient are normal numbers.
MOE_LANES float normalQuotient(float x, float y) {
  float near;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(near) : "f"(y));
  const float reciprocal = __fmaf_rn(__fmaf_rn(-y, near, 1.0f), near, near);
  const float quotient = cuda_quotients::corrected(multiplyRounded(x, reciprocal), x, y, reciprocal);
  return cuda_quotients::corrected(quotient, x, y, reciprocal);
}

#else

MOE_LANES float overConstant(float x, float y) {
  return x / y;
}
MOE_LANES float normalQuotient(float x, float y) {
  return x / y;
}

#endif

}  // namespace moe
