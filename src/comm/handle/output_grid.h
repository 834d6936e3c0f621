// Where the words beside an output's rows are: scales of a cast, and payloads.
#pragma once

#include <algorithm>
#include <climits>

#include "comm/handle/handle.h"

namespace moe {

class OutputGrid {
 public:
  // Of a dispatch whose ranks have at most `bound` tokens, to an output with room for `rowsMax` rows.
  OutputGrid(const Handle& handle, int bound, std::int64_t rowsMax)
      : shape_(handle.shape()),
        experts_(handle.localExperts()),
        ranks_(handle.room().shape.nranks),
        bound_(bound),
        rowsMax_(rowsMax) {}

  // Rows that can come. Their number fits 31 bits.
  std::int64_t rows() const { return std::min<std::int64_t>(rowsMax_, INT_MAX); }
  std::int64_t rowsMax() const { return rowsMax_; }
  Layout layout() const { return shape_.layout; }
  int experts() const { return experts_; }

  // `words` of a row, in a moeScales layout.
  ScaleGrid of(int layout, int words) const {
    return layout == moeScales128x4 ? blocked(words) : ofWords(layout, words);
  }
  ScaleGrid ofWords(int layout, int words) const;
  ScaleGrid blocked(int words) const;
  // Of an output in blocks, with `rowBytes` of each row.
  std::int64_t blockedBytes(std::int64_t rowBytes) const;

 private:
  const HandleShape& shape_;
  int experts_, ranks_, bound_;
  std::int64_t rowsMax_;
};

}  // namespace moe
