// Where the scales of rows that are cast lie in an output: in rows or columns of words, or in the blocks that
// block-scaled tensor cores load.
#pragma once

#include "device/lanes.h"

namespace moe {

// A block has 128 rows. Four neighbouring scales of a row, a word, make a column: 128 words for the rows of the block,
// row m at word m % 32 * 4 + m / 32. The columns of a block lie one behind the other.
inline constexpr int kScaleBlockRows = 128, kScaleColumnWords = 128;

MOE_HOST_DEVICE constexpr int scaleColumnWord(int row) {
  return row % 32 * 4 + row / 32 % 4;
}
// The row of a block whose word of a column this is.
MOE_HOST_DEVICE constexpr int rowOfColumnWord(int word) {
  return word % 4 * 32 + word / 4;
}
MOE_HOST_DEVICE constexpr std::int64_t scaleBlocks(std::int64_t rows) {
  return (rows + kScaleBlockRows - 1) / kScaleBlockRows;
}

// Where word w of the scales of a layout row is, in words from the first: start(row) + w * wordStride.
struct ScaleGrid {
  int group;    // rows
  int blocked;  // 1: groups are made of blocks, and rowStride is that of blocks
  // Blocked, EXPERT_MAJOR: the groups are those of so many experts, of any size. Else 0.
  int experts;
  int slack;  // rows that an expert may waste in its last block: firstBlock()
  std::int64_t groupStride, rowStride, wordStride;

  // Of layouts whose groups have one size.
  MOE_HOST_DEVICE std::int64_t rowStart(int row) const { return row / group * groupStride + inGroup(row % group); }

  // The first block of expert e, whose rows begin at `offset`. Offsets are multiples of 128 - slack, and so an expert
  // has blocks enough for its rows, whatever rows come before: see docs/decisions/0081-swizzled-scales.md.
  MOE_HOST_DEVICE int firstBlock(int offset, int e) const {
    return static_cast<int>((static_cast<unsigned>(offset) + static_cast<unsigned>(slack) * static_cast<unsigned>(e)) /
                            kScaleBlockRows);
  }
  // Of blocked EXPERT_MAJOR: a row of expert e, whose rows begin at `offset`.
  MOE_HOST_DEVICE std::int64_t startOf(int row, int e, int offset) const {
    return firstBlock(offset, e) * rowStride + inGroup(row - offset);
  }
  // Of any layout. offsetOf(e): where the rows of local expert e begin.
  template <class OffsetOf>
  MOE_LANES std::int64_t start(int row, OffsetOf offsetOf) const {
    if (experts == 0) return rowStart(row);
    int expert = 0, end = experts;
    MOE_ROLLED
    while (end - expert > 1) {
      const int middle = (expert + end) / 2;
      (offsetOf(middle) <= row ? expert : end) = middle;
    }
    return startOf(row, expert, offsetOf(expert));
  }

 private:
  MOE_HOST_DEVICE std::int64_t inGroup(int row) const {
    return blocked == 0 ? row * rowStride : row / kScaleBlockRows * rowStride + scaleColumnWord(row);
  }
};

}  // namespace moe
