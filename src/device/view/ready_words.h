// How a combine learns that the experts have made its rows: src/device/protocol/combine/README.md, "Combine behind
// blocks of the experts' rows".
#pragma once

#include "device/lanes.h"

namespace moe {

// Words that a kernel beside a combine counts up as it makes the rows of local experts, in the layout of the handle. A
// row's word is number expert * wordsEach + (row - expert * rowsEach) >> shift.
struct ReadyWords {
  const std::uint32_t* words;  // NULL: the rows are there
  std::uint32_t value;         // what a word must have reached
  int shift;                   // of a row number: a block has 2^shift rows
  int wordsEach, rowsEach;     // of an expert whose rows and words begin at a place of their own; else 0

  MOE_HOST_DEVICE std::int64_t number(int expert, int row) const {
    return std::int64_t{expert} * wordsEach + ((row - expert * rowsEach) >> shift);
  }
  MOE_HOST_DEVICE int blocks(int rows) const { return (rows + (1 << shift) - 1) >> shift; }
};
inline constexpr int kShiftsRowsAway = 31;  // a word for each expert

}  // namespace moe
