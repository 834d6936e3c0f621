// The rows that a kernel is compiled for. Code for other types and formats would lie in the way of a step of few tokens
// (decision 0126), and would take registers from one that codes many rows (decision 0134).
#pragma once

#include "device/rows/row_math.h"
#include "device/rows/wire_row.h"

namespace moe {

enum class RowTypes { all, bf16, others };

// Like withRowType.
template <RowTypes kTypes, class Body>
MOE_LANES void withTypeOf(int rowType, Body body) {
  if constexpr (kTypes == RowTypes::bf16) {
    body(Bf16{});
  } else if (rowType == kFp32) {
    body(Fp32{});
  } else if (kTypes == RowTypes::others || rowType == kFp16) {
    body(Fp16{});
  } else {
    body(Bf16{});
  }
}

// The policy of a kernel whose sums have rows of these types only, and in one wire format.
template <class Policy, RowTypes kTypes, int kWireType = kWireRow>
struct OnlyFor : Policy {
  static constexpr RowTypes kRowTypes = kTypes;
  static constexpr int kWire = kWireType;

  template <class List>
  MOE_LANES bool reduceRows(const auto& comm, const List& list) const {
    return Policy::template reduceRowsOf<OnlyFor>(comm, list);
  }
};

}  // namespace moe
