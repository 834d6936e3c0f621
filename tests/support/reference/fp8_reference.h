// E4m3 by the definition of the format: it searches all codes for the nearest. It shares no code with
// device/rows/fp8.h.
#pragma once

#include <cstdint>

namespace moe::test {

// The value of a code, from its fields. Not for the codes of NaN.
double valueOfCode(std::uint32_t code);

// The nearest finite code. Ties go to the even code.
std::uint32_t nearestCode(double value);

}  // namespace moe::test
