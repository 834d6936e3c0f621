// The terms that all ranks must share, as words that they send each other and compare. Steps compare whole words. The
// host packs the words, and names the field that differs (comm/recorder/failure_text.cc). Decision 0033.
#pragma once

#include <array>

#include "device/lanes.h"
#include "device/view/payloads.h"

namespace moe {

using TermNames = std::array<const char*, 16>;

// A field of a word.
struct TermField {
  const char* name;
  int shift, bits;
  TermNames values{};  // names of the values; empty: values are printed as numbers

  constexpr std::uint64_t of(std::uint64_t word) const { return word >> shift & ((std::uint64_t{1} << bits) - 1); }
  constexpr std::uint64_t packed(std::int64_t value) const {
    return (static_cast<std::uint64_t>(value) & ((std::uint64_t{1} << bits) - 1)) << shift;
  }
};

inline constexpr TermNames kRowTypeNames = {"opaque bytes", "bf16", "fp16", "fp32"};

// Terms of a handle: a first word, and three words with one number each.
namespace handle_terms {
inline constexpr TermField kExperts{"config.experts", 0, 16}, kTopk{"config.topk", 16, 6},
    kLayout{"config.layout", 22, 2, {"FLAT", "EXPERT_MAJOR", "EXPERT_MAJOR_PADDED", "RANK_MAJOR"}},
    kMode{"config.mode", 24, 1, {"HT", "LL"}}, kArrivals{"config.arrivals", 25, 1},
    kCombineWeights{"config.combineWeights", 26, 1}, kExpertCounts{"config.expertCounts", 27, 1};
inline constexpr TermField kTokensBound{"config.tokensMax or tokensBound", 0, 24},
    kAlignment{"config.expertAlignment", 0, 17}, kRowsBudget{"config.rowsBudget", 0, 31};
// A placement's fingerprint, in the unused bits of the second and the third word. No part of it is 0.
inline constexpr TermField kPlacement{"the fingerprint of the placement (moeHandleSetPlacement)", 24, 8, {"none"}},
    kPlacementRest{"the rest of the placement's fingerprint (moeHandleSetPlacement)", 17, 15, {"none"}};
}  // namespace handle_terms

// Set in the last word of a handle's terms, as a route sends them, if an entry of the rank's tokens is invalid.
inline constexpr std::uint32_t kRouteRefused = 1u << 31;

// Terms of a dispatch, 58 of 64 bits. The cast type has 4 bits, with 7 of 16 values in use; 6 bits are free for
// extensions. The hidden size is never 0 and has the highest bits in use, so that the word is larger than any handle's
// fault word (isRailFault).
namespace dispatch_terms {
inline constexpr TermField kCast{
    "args.cast.type",
    0,
    4,
    {"none", "fp8", "fp8 with UE8M0 scales", "fp8 with powers of two", "MXFP8", "MXFP4", "NVFP4"}},
    kExact{"moeCastExact", 4, 1, {"not set", "set"}}, kWeightsOnInput{"moeWeightsOnInput", 5, 1, {"not set", "set"}},
    kRowType{"args.rowType", 6, 2, kRowTypeNames}, kSideBytes{"the bytes of args.payloads", 8, 17},
    kPayloads{"the fingerprint of the sizes in args.payloads", 25, 12, {"none (of an array of rows)"}},
    kHidden{"args.hidden", 37, 21};
}  // namespace dispatch_terms

// Terms of a combine, in the 24 bits that a flag has for a value. The wire format has 4 bits, with 5 of 16 values in
// use. Row sizes are in units of 16 bytes.
namespace combine_terms {
inline constexpr TermField kGrads{"gradients of the weights (args.grads)", 0, 1, {"without", "with"}},
    kRowType{"args.rowType", 1, 2, kRowTypeNames},
    kWire{"args.wire", 3, 4, {"the row type", "fp8", "fp8 with a scale per 128 elements", "NVFP4", "LogFMT-10"}},
    kPieces{"row size in units of 16 bytes", 7, 17};
}  // namespace combine_terms

// Whether terms, or the first word of a handle's, are those of a lost rank (lost.h). No other rank tells these.
MOE_HOST_DEVICE constexpr bool areLost(std::uint64_t terms) {
  return terms == 0;
}

// The fingerprint of the payloads' sizes in words: 1 to 4093, and 0 without payloads.
inline int payloadFingerprint(const PayloadArgs& payloads) {
  if (payloads.count == 0) return 0;
  unsigned all = 0;
  for (int i = 0; i < payloads.count; ++i) all = all * 31 + static_cast<unsigned>(payloads.payload[i].end);
  return static_cast<int>(1 + all % 4093);
}

// `cast` is as in CastArgs: the type in four bits, and a flag beside it.
inline std::uint64_t packDispatchTerms(std::int64_t hidden, int rowType, int sideBytes, int cast, bool weightsOnInput,
                                       int payloads = 0) {
  namespace terms = dispatch_terms;
  return terms::kHidden.packed(hidden) | terms::kSideBytes.packed(sideBytes) | terms::kRowType.packed(rowType) |
         terms::kPayloads.packed(payloads) | terms::kCast.packed(cast & 15) | terms::kExact.packed(cast >> 4) |
         terms::kWeightsOnInput.packed(weightsOnInput ? 1 : 0);
}

// `rowBytes`: bytes of a row of the row type. `wire`: a WireType.
inline std::uint32_t packCombineTerms(std::uint32_t rowBytes, int rowType, bool grads, int wire) {
  namespace terms = combine_terms;
  return static_cast<std::uint32_t>(terms::kPieces.packed(rowBytes / sizeof(Quad)) | terms::kRowType.packed(rowType) |
                                    terms::kWire.packed(wire) | terms::kGrads.packed(grads ? 1 : 0));
}

}  // namespace moe
