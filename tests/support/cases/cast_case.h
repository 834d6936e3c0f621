// Draws and checks the cast of a dispatch.
#pragma once

#include <string>
#include <vector>

#include "moecomm.h"
#include "support/base/rng.h"
#include "support/reference/cast_reference.h"
#include "support/reference/reference.h"
#include "support/reference/words_output.h"

namespace moe::test {

struct CastCase {
  int type = 0;  // a CastType
  bool exact = false;
  int rowType = kBf16;
  int elements = 0;
  int scales = 0;                               // a moeScales value
  bool scalesInput = false, scalesAll = false;  // with an input scale, a global scale
  bool weighsInput = false;                     // rows are multiplied by the weights of their tokens, which have one
                                                // expert each

  explicit operator bool() const { return type != 0; }
  std::int64_t sourceBytes() const { return std::int64_t{elements} * elementBytes(rowType); }
  int words() const { return sizes().scaleWords; }
  int scalesOfRow() const { return elements / sizes().block; }
  WordsForm form() const { return type == 0 ? WordsForm{} : WordsForm{words(), scalesOfRow(), scales, 0}; }
  int codeBytes() const { return sizes().codeBytes; }
  int travellingBytes() const { return sizes().rowBytes; }
  // Each rank has an input scale of its own.
  ReferenceRule ruleOf(int rank) const;
  // The rule for a token that has arrived.
  ReferenceRule ruleOf(const ArrivedToken& token) const;

 private:
  ReferenceSizes sizes() const { return type == 0 ? ReferenceSizes{} : referenceSizes(type, elements); }
};

// The arguments of a step. `scales` has output.bytes() bytes of poison. `rule` is the rank's, and lives as long as the
// step.
CastArgs castArgs(const CastCase& cast, const WordsOutput& output, void* scales, const ReferenceRule& rule);

// Draws a cast now and then, if its rows fit. `seed` decides on the format, so that other choices of a world do not
// change. `blocks`: always casts, with scales in blocks.
CastCase drawCast(int rowBytesMax, std::uint64_t seed, bool blocks, Rng& rng);
// Takes another layout of the scales if blocks, for `spare` more rows than arrive at a rank, would exceed `bytes`.
void keepSmall(CastCase& cast, const ReferenceRoute& route, std::int64_t spare, std::size_t bytes);
// Parts of whole tiles, as a cast divides rows.
Parts drawTiles(int elements, Rng& rng);
// The same parts of a row's codes.
Parts partsOfCodes(Parts tiles, const CastCase& cast);

}  // namespace moe::test
