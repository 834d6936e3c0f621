// Draws and checks the cast of a dispatch.
#pragma once

#include <string>
#include <vector>

#include "moecomm.h"
#include "support/cast_reference.h"
#include "support/guarded_bytes.h"
#include "support/reference.h"
#include "support/rng.h"

namespace moe::test {

struct CastCase {
  int type = 0;  // a CastType
  bool exact = false;
  int rowType = kBf16;
  int elements = 0;
  int scales = 0;                               // a moeScales value
  bool scalesInput = false, scalesAll = false;  // with an input scale, a global scale
  bool weighsInput = false;                     // with the weights of the rows' tokens, which have one expert each

  explicit operator bool() const { return type != 0; }
  std::int64_t sourceBytes() const { return std::int64_t{elements} * elementBytes(rowType); }
  int words() const { return sizes().scaleWords; }
  int scalesOfRow() const { return elements / sizes().block; }
  int codeBytes() const { return sizes().codeBytes; }
  int travellingBytes() const { return sizes().rowBytes; }
  // Each rank has an input scale of its own.
  ReferenceRule ruleOf(int rank) const;
  // The rule for a token that has arrived.
  ReferenceRule ruleOf(const ArrivedToken& token) const;

 private:
  ReferenceSizes sizes() const { return type == 0 ? ReferenceSizes{} : referenceSizes(type, elements); }
};

// The places for the scales of one rank, and the scales that they must hold.
class CastOutput {
 public:
  CastOutput() = default;
  // For `rows` rows of the layout, in an output with room for `capacity` rows. Without room for either, it takes none.
  // `experts`: where the rows of the rank's experts begin, and the last ones end.
  CastOutput(const CastCase& cast, const RouteConfig& route, const std::vector<int>& experts, std::int64_t rows,
             std::int64_t capacity);

  std::size_t bytes() const { return expected_.size(); }
  // The arguments of a step. `scales` has bytes() bytes of poison. `rule` is of the rank and lives as long as the step.
  CastArgs args(void* scales, const ReferenceRule& rule) const;
  // Notes the scales that a layout row must have.
  void expect(std::int64_t layoutRow, const std::vector<std::uint32_t>& scales);
  // Notes zeros in the blocks of what arrives, or in all. Before rows are noted.
  void expectPads(const Arrivals& arrivals, bool all);
  // Where the blocks of each expert begin, and the last ones end.
  std::vector<int> blockOffsets() const;
  // True if all expected scales are there and nothing else was written.
  bool isRight(const std::uint8_t* scales) const;

 private:
  bool inBlocks() const { return cast_.scales == moeScales128x4; }
  std::int64_t wordAt(std::int64_t layoutRow, int word) const;
  std::int64_t blockBytes() const { return std::int64_t{cast_.words()} * 512; }
  int slack() const;
  int groupOf(std::int64_t layoutRow) const;
  std::int64_t firstRow(int group) const;
  std::int64_t firstBlock(int group) const;
  std::int64_t scaleByte(std::int64_t layoutRow, int scale) const;
  ScaleGrid blockGrid() const;

  CastCase cast_;
  RouteConfig route_;
  std::vector<int> experts_;
  std::int64_t capacity_ = 0;
  GuardedBytes expected_;
};

// Now and then a cast, if its rows fit. `seed` decides on the format, so that worlds stay what they are. `blocks`:
// always, with scales in blocks.
CastCase drawCast(int rowBytesMax, std::uint64_t seed, bool blocks, Rng& rng);
// Takes another layout of the scales if blocks for what arrives at a rank, and for `spare` more rows, are larger.
void keepSmall(CastCase& cast, const ReferenceRoute& route, std::int64_t spare, std::size_t bytes);
// Parts of whole tiles, as a cast divides rows.
Parts drawTiles(int elements, Rng& rng);
// The same parts of a row's codes.
Parts partsOfCodes(Parts tiles, const CastCase& cast);

}  // namespace moe::test
