// Quantisation to e4m3 by the definition of the format: it searches all codes for the nearest. It shares no code with
// device/rows/fp8.h.
#pragma once

#include <cstdint>
#include <vector>

namespace moe::test {

// The value of a code, from its fields. Not for the codes of NaN.
double valueOfCode(std::uint32_t code);

// The nearest finite code. Ties go to the even code.
std::uint32_t nearestCode(double value);

// A cast row: its codes, and its scales as the words that a dispatch writes. `power`: scales are powers of two.
struct ReferenceCast {
  std::vector<std::uint8_t> codes;
  std::vector<std::uint32_t> scales;
};
ReferenceCast referenceCast(int rowType, bool power, const std::uint8_t* row, int elements, bool exact = false);

}  // namespace moe::test
