// The casts of a dispatch by the definitions of their formats: tables of all codes, searched for the nearest, and
// exponents that are tried one after the other. It shares no code with device/rows.
#pragma once

#include <cstdint>
#include <vector>

namespace moe::test {

// The cast of a row, as moecomm.h defines it.
struct ReferenceRule {
  int cast;  // a moeCast value
  bool exact = false;
  float inputScale = 1, globalScale = 1;
};

// The sizes of a cast row: elements of a block, bytes of codes, 32-bit words of scales, and bytes on the wire.
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

// The values that a receiver decodes from a cast row: code times scale, in NVFP4 divided by the global scale.
std::vector<double> dequantised(const ReferenceRule& rule, const ReferenceCast& cast);

}  // namespace moe::test
