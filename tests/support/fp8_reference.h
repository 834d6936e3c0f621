// Quantisation to e4m3 by the definition of the format: looks for the nearest of all codes. Shares no code with
// device/rows/fp8.h.
#pragma once

#include <cstdint>
#include <vector>

namespace moe::test {

// What a code means, from its fields; not for the codes of NaN.
double valueOfCode(std::uint32_t code);

// The nearest finite code, and of two equally near ones the even one.
std::uint32_t nearestCode(double value);

// A cast row: its codes, and its scales as the words that a dispatch hands out. `power`: scales are powers of two.
struct ReferenceCast {
  std::vector<std::uint8_t> codes;
  std::vector<std::uint32_t> scales;
};
ReferenceCast referenceCast(int rowType, bool power, const std::uint8_t* row, int elements, bool exact = false);

}  // namespace moe::test
