// The casts of a dispatch by the definitions of their formats: tables of all codes, searched for the nearest, and
// exponents that are tried one after the other. It shares no code with device/rows.
#pragma once

#include <cstdint>
#include <vector>

namespace moe::test {

// What a row is cast to, as moecomm.h says.
struct ReferenceRule {
  int cast;  // a moeCast value
  bool exact = false;
  float inputScale = 1, globalScale = 1;
};

// Of a row: elements of a block, bytes of its codes, 32-bit words of its scales, and its bytes on the wire.
struct ReferenceSizes {
  int block, codeBytes, scaleWords, rowBytes;
};
ReferenceSizes referenceSizes(int cast, int elements);

// The value of an E2M1 code.
double valueOfE2m1(std::uint32_t code);

// A cast row: its codes, and its scales as the words that a dispatch writes.
struct ReferenceCast {
  std::vector<std::uint8_t> codes;
  std::vector<std::uint32_t> scales;
};
ReferenceCast referenceCast(const ReferenceRule& rule, int rowType, const std::uint8_t* row, int elements);

// What a receiver makes of a cast row: code times scale, of NVFP4 divided by the global scale.
std::vector<double> dequantised(const ReferenceRule& rule, const ReferenceCast& cast);

}  // namespace moe::test
