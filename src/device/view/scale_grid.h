// Where the scales of cast rows lie in an output: in rows or columns of words, or in the blocks that block-scaled
// tensor cores load.
#pragma once

#include "device/lanes.h"

namespace moe {

// A block has 128 rows. Four neighbouring scales of a row are a word. A column has 128 words, one for each row of the
// block: row m is at word m % 32 * 4 + m / 32. The columns of a block are contiguous.
inline constexpr int kScaleBlockRows = 128, kScaleColumnWords = 128;

MOE_HOST_DEVICE constexpr int scaleColumnWord(int row) {
  return row % 32 * 4 + row / 32 % 4;
}
// The row of a block that has word `word` of a column.
MOE_HOST_DEVICE constexpr int rowOfColumnWord(int word) {
  return word % 4 * 32 + word / 4;
}
MOE_HOST_DEVICE constexpr std::int64_t scaleBlocks(std::int64_t rows) {
  return (rows + kScaleBlockRows - 1) / kScaleBlockRows;
}

// Word w of the scales of a layout row is at start(row) + w * wordStride, in words from the first.
struct ScaleGrid {
  int group;    // rows per group
  int blocked;  // 1: groups consist of blocks, and rowStride is that of blocks
  // Blocked EXPERT_MAJOR: the number of experts, each of which is a group of any size. Else 0.
  int experts;
  int slack;  // rows that an expert may leave unused in its last block: see firstBlock()
  std::int64_t groupStride, rowStride, wordStride;

  // For layouts whose groups have the same size.
  MOE_HOST_DEVICE std::int64_t rowStart(int row) const { return row / group * groupStride + inGroup(row % group); }

  // The first block of expert e, whose rows begin at `offset`. Offsets are multiples of 128 - slack. Therefore an
  // expert has enough blocks for its rows, however many rows precede them: see docs/decisions/0081-swizzled-scales.md.
  MOE_HOST_DEVICE int firstBlock(int offset, int e) const {
    return static_cast<int>((static_cast<unsigned>(offset) + static_cast<unsigned>(slack) * static_cast<unsigned>(e)) /
                            kScaleBlockRows);
  }
  // For blocked EXPERT_MAJOR: where a row of expert e lies, whose rows begin at `offset`.
  MOE_HOST_DEVICE std::int64_t startOf(int row, int e, int offset) const {
    return firstBlock(offset, e) * rowStride + inGroup(row - offset);
  }
  // For any layout. offsetOf(e): where the rows of local expert e begin.
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
