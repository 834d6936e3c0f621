// Where words of rows lie in an output, by the words of moecomm.h, and what they must be. It shares no code with the
// library.
#pragma once

#include <vector>

#include "device/view/scale_grid.h"
#include "moecomm.h"
#include "support/base/guarded_bytes.h"
#include "support/reference/reference.h"

namespace moe::test {

// The words of a row: of its scales, or of a payload.
struct WordsForm {
  int words = 0;
  int bytes = 0;   // in blocks: number of bytes that exist; the others are 0
  int layout = 0;  // a moeScales value
  int pad = 0;     // words between one row, or one column, and the next
};

// The places for such words of one rank's rows, and the words that they must hold.
class WordsOutput {
 public:
  WordsOutput() = default;
  // For `rows` rows of the layout, in an output with room for `capacity` rows. Without room for either, it takes none.
  // `experts`: where the rows of the rank's experts begin, and the last ones end.
  WordsOutput(const WordsForm& form, const RouteConfig& route, const std::vector<int>& experts, std::int64_t rows,
              std::int64_t capacity);

  std::size_t bytes() const { return expected_.size(); }
  // The grid that a step gets.
  ScaleGrid grid() const;
  // Notes the words that a layout row must have.
  void expect(std::int64_t layoutRow, const std::vector<std::uint32_t>& words);
  // Notes zeros in the blocks of arriving rows, or in all blocks. Must be called before rows are noted.
  void expectPads(const Arrivals& arrivals, bool all);
  // Where the blocks of each expert begin, and the last ones end.
  std::vector<int> blockOffsets() const;
  // True if all expected words are there and nothing else was written.
  bool isRight(const std::uint8_t* words) const;

 private:
  bool inBlocks() const { return form_.layout == moeScales128x4; }
  std::int64_t column() const;
  std::int64_t wordAt(std::int64_t layoutRow, int word) const;
  std::int64_t blockBytes() const { return std::int64_t{form_.words} * 512; }
  int slack() const;
  int groupOf(std::int64_t layoutRow) const;
  std::int64_t firstRow(int group) const;
  std::int64_t firstBlock(int group) const;
  std::int64_t blockByte(std::int64_t layoutRow, int byte) const;
  ScaleGrid blockGrid() const;

  WordsForm form_;
  RouteConfig route_;
  std::vector<int> experts_;
  std::int64_t capacity_ = 0;
  GuardedBytes expected_;
};

}  // namespace moe::test
