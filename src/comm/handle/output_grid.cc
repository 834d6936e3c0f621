// Where the words beside an output's rows are: OutputGrid of dispatch_call.h.
#include <numeric>

#include "comm/handle/dispatch_call.h"

namespace moe {

ScaleGrid OutputGrid::ofWords(int layout, int words) const {
  if (layout == moeScalesRowMajor) return {INT32_MAX, 0, 0, 0, 0, words, 1};
  const bool fixed = shape_.layout == Layout::rankMajor || shape_.layout == Layout::expertMajorPadded;
  const std::int64_t rows = fixed ? std::int64_t{ranks_} * bound_ : rowsMax_;
  if (shape_.layout != Layout::expertMajorPadded) return {INT32_MAX, 0, 0, 0, 0, 1, rows};
  return {static_cast<int>(rows), 0, 0, 0, words * rows, 1, rows};
}

// Each group of rows has blocks of its own.
ScaleGrid OutputGrid::blocked(int words) const {
  ScaleGrid grid{INT32_MAX, 1, 0, 0, 0, std::int64_t{words} * kScaleColumnWords, kScaleColumnWords};
  if (shape_.layout == Layout::expertMajor) {
    grid.experts = experts_;
    grid.slack = kScaleBlockRows - std::gcd(shape_.alignment, kScaleBlockRows);
  } else if (shape_.layout != Layout::flat) {
    grid.group = shape_.layout == Layout::rankMajor ? bound_ : ranks_ * bound_;
    grid.groupStride = scaleBlocks(grid.group) * grid.rowStride;
  }
  return grid;
}

std::int64_t OutputGrid::blockedBytes(std::int64_t rowBytes) const {
  const ScaleGrid grid = blocked(1);
  std::int64_t blocks = scaleBlocks(rows());
  if (shape_.layout == Layout::expertMajor) {
    blocks = (rows() + std::int64_t{grid.slack} * grid.experts) / kScaleBlockRows;
  } else if (shape_.layout != Layout::flat) {
    const int groups = shape_.layout == Layout::rankMajor ? ranks_ : experts_;
    blocks = groups * scaleBlocks(grid.group);
  }
  return blocks * kScaleBlockRows * rowBytes;
}

}  // namespace moe
