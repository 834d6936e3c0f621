// Terms of a dispatch and of a combine: each difference changes the word, and the sentence names the field that differs
// with both values, up to the limits of the library.
#include <gtest/gtest.h>

#include "comm/config/config.h"
#include "comm/recorder/failure_text.h"
#include "comm/recorder/refused.h"
#include "device/rows/cast_type.h"
#include "device/rows/wire_row.h"
#include "device/view/terms.h"

namespace moe::test {
namespace {

struct DispatchOf {
  std::int64_t hidden = 7168;
  int rowType = 1, sideBytes = 0, cast = kCastNvfp4;
  bool weightsOnInput = false;
  int payloads = 0;
  std::uint64_t word() const { return packDispatchTerms(hidden, rowType, sideBytes, cast, weightsOnInput, payloads); }
};

// The sentence of rank 0, whose word is `ours`, if rank 1 has sent `theirs`.
std::string said(Phase phase, std::uint64_t ours, std::uint64_t theirs) {
  Failure failure{};
  failure.fault = Fault::disagreement;
  failure.phase = phase;
  failure.peer = 1;
  failure.expected = static_cast<std::int64_t>(ours);
  failure.actual = static_cast<std::int64_t>(theirs);
  return describeFailure(failure, 0, 1000).sentence;
}

void expectNamed(const DispatchOf& ours, const DispatchOf& theirs, const std::string& difference) {
  EXPECT_NE(ours.word(), theirs.word());
  EXPECT_EQ(said(Phase::dispatchOutput, ours.word(), theirs.word()),
            "rank 0: moeDispatch: ranks disagree: " + difference);
}

void expectNamed(std::uint32_t ours, std::uint32_t theirs, const std::string& difference) {
  EXPECT_NE(ours, theirs);
  EXPECT_EQ(said(Phase::combineRows, ours, theirs), "rank 0: moeCombine: ranks disagree: " + difference);
}

TEST(Terms, OfADispatchNameEachFieldThatDiffers) {
  const DispatchOf plain;
  expectNamed(plain, {.hidden = Limits::kRowBytes}, "args.hidden is 7168 on rank 0 and 1048576 on rank 1");
  expectNamed(plain, {.rowType = 3}, "args.rowType is bf16 on rank 0 and fp32 on rank 1");
  expectNamed(plain, {.sideBytes = Limits::kSideBytes},
              "the bytes of args.payloads is 0 on rank 0 and 65536 on rank 1");
  expectNamed(plain, {.cast = kNoCast}, "args.cast.type is NVFP4 on rank 0 and none on rank 1");
  expectNamed(plain, {.cast = kCastNvfp4 | kCastExact}, "moeCastExact is not set on rank 0 and set on rank 1");
  expectNamed(plain, {.weightsOnInput = true}, "moeWeightsOnInput is not set on rank 0 and set on rank 1");
  expectNamed(
      plain, {.payloads = 4093},
      "the fingerprint of the sizes in args.payloads is none (of an array of rows) on rank 0 and 4093 on rank 1");
}

TEST(Terms, OfACombineNameEachFieldThatDiffers) {
  const std::uint32_t plain = packCombineTerms(14336, 1, false, 0);
  expectNamed(plain, packCombineTerms(Limits::kRowBytes, 1, false, 0),
              "row size in units of 16 bytes is 896 on rank 0 and 65536 on rank 1");
  expectNamed(plain, packCombineTerms(14336, 2, false, 0), "args.rowType is bf16 on rank 0 and fp16 on rank 1");
  expectNamed(plain, packCombineTerms(14336, 1, true, 0),
              "gradients of the weights (args.grads) is without on rank 0 and with on rank 1");
  expectNamed(plain, packCombineTerms(14336, 1, false, kWireLogfmt10),
              "args.wire is the row type on rank 0 and LogFMT-10 on rank 1");
}

// A flag's value has 24 bits, and a rail's word must not look like a fault word.
TEST(Terms, FitTheirWordsAtTheLimits) {
  EXPECT_LT(packCombineTerms(Limits::kRowBytes, 3, true, kWireLogfmt10), 1u << 24);
  EXPECT_GT((DispatchOf{.hidden = 1, .rowType = 0, .cast = kNoCast}.word()), std::uint64_t{kBadUsage});
  EXPECT_GT(packCombineTerms(16, 0, false, 0), kBadUsage);
}

TEST(Terms, OfARefusalAreNobodyElses) {
  for (const int rank : {0, Limits::kRanks - 1}) {
    EXPECT_EQ(said(Phase::dispatchOutput, DispatchOf{}.word(), refusedDispatchTerms(rank)),
              "rank 0: moeDispatch: rank 1 has refused its arguments; see the error on that rank");
    EXPECT_EQ(said(Phase::combineRows, packCombineTerms(16, 0, false, 0), refusedCombineTerms(rank)),
              "rank 0: moeCombine: rank 1 has refused its arguments; see the error on that rank");
  }
  EXPECT_NE(refusedDispatchTerms(0), refusedDispatchTerms(Limits::kRanks - 1));
  EXPECT_NE(refusedCombineTerms(0), refusedCombineTerms(Limits::kRanks - 1));
}

}  // namespace
}  // namespace moe::test
