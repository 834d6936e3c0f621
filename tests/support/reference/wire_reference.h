// The wire formats of combine: a row on the wire, and the values that its owner reads. The formats use the references
// of the casts, and LogFMT-10 follows its rule. This file shares no code with device/rows/wire_row.h.
#pragma once

#include <cstdint>
#include <vector>

namespace moe::test {

struct ReferenceWire {
  std::vector<std::uint8_t> bytes;
  std::vector<float> values;
};

// `wire`: a moeWire value, not moeWireRow. `sums` has a multiple of 128 elements.
ReferenceWire referenceWire(int wire, const std::vector<float>& sums);
int referenceWireBytes(int wire, int elements);

}  // namespace moe::test
