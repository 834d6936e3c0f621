// Draws and checks the payloads of a dispatch.
#pragma once

#include <cstdint>
#include <vector>

#include "device/view/payloads.h"
#include "support/base/rng.h"
#include "support/reference/words_output.h"

namespace moe::test {

struct PayloadCase {
  std::vector<WordsForm> forms;  // empty: side payload is one array
  bool columns = false;          // the arrays that are given lie in columns

  explicit operator bool() const { return !forms.empty(); }
  int words() const;
};

// The arrays of one rank: its inputs and its outputs.
class PayloadArrays {
 public:
  PayloadArrays() = default;
  // As WordsOutput.
  PayloadArrays(const PayloadCase& payloads, const RouteConfig& route, const std::vector<int>& experts,
                std::int64_t rows, std::int64_t capacity);

  // The bytes of all outputs, each of which begins at a multiple of 16.
  std::int64_t bytes() const;
  // Places the outputs in poison at `area`, which peers know by its window offset; NULL: in separate memory.
  void place(std::uint8_t* area, std::uint64_t offset);
  // The arguments of a step, if this rank gives such rows of words for its tokens.
  PayloadArgs args(const std::vector<std::vector<std::uint32_t>>& tokens);
  // Notes the words that a layout row must have, and zeros in blocks: see WordsOutput.
  void expect(std::int64_t layoutRow, const std::vector<std::uint32_t>& words);
  void expectPads(const Arrivals& arrivals, bool all);
  // Notes that the layout row has zeros, unless it lies in blocks.
  void expectZeros(std::int64_t layoutRow);
  bool inBlocks() const;
  std::vector<int> blockOffsets() const;
  bool isRight() const;
  bool guardsAreIntact() const;

 private:
  struct Array {
    WordsForm form;
    int first = 0;  // word of a row
    WordsOutput output;
    GuardedBytes given, own;
    std::uint8_t* at = nullptr;
    std::uint64_t offset = 0;
  };
  bool columns_ = false;
  std::vector<Array> arrays_;
};

// Sometimes draws payloads, of which a row has `sideBytes`. `seed` decides, so that other choices of a world do not
// change.
PayloadCase drawPayloads(int sideBytes, std::uint64_t seed);
// Gives payloads plain rows if their outputs, with `spare` more rows than arrive at a rank, would exceed `bytes`.
void keepSmall(PayloadCase& payloads, const ReferenceRoute& route, std::int64_t spare, std::size_t bytes);

}  // namespace moe::test
