// Rows in a wire format have the same bits from the GPU's policy as from one lane of the CPU: those that are coded, and
// the sums of those that are read, also from landing words, whose places are then empty. tests/unit/device_wire_test.cc
// compares the CPU's bits with a reference.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstring>

#include "gpu/wire_probe.h"
#include "support/base/rng.h"
#include "support/cases/library_wire.h"
#include "support/reference/reference.h"

namespace moe::test {
namespace {

class WireOnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) GTEST_SKIP() << "no GPU here";
  }
};

template <class Type>
WireAnswer answerOfCpu(const WireQuestion& question) {
  WireAnswer answer;
  answer.coded.resize(question.wire().bytes());
  answer.sum.resize(static_cast<std::size_t>(question.rowBytes()));
  answer.own.resize(answer.sum.size());
  const ProbeSum probe{question.wire(),      probePart(question.elements, 1, 0),
                       question.rowType,     question.rowBytes(),
                       question.terms,       question.weighs,
                       question.rows.data(), answer.coded.data(),
                       answer.coded.data()};
  const ProbeCoded<false> coded{probe};
  WireSum<Type, ProbeCoded<false>, PlainMemory>(coded, 0, PlainMemory{}).make(0, 1);
  ProbeRead read{probe};
  read.to = answer.sum.data();
  WireSum<Type, ProbeRead, PlainMemory>(read, 0, PlainMemory{}).make(0, 1);
  if (question.terms == 0) return answer;
  ProbeOwn own{probe};
  own.to = answer.own.data();
  WireSum<Type, ProbeOwn, PlainMemory>(own, 0, PlainMemory{}).make(0, 1);
  return answer;
}

WireAnswer answerOfCpu(const WireQuestion& question) {
  if (question.rowType == kFp32) return answerOfCpu<Fp32>(question);
  return question.rowType == kFp16 ? answerOfCpu<Fp16>(question) : answerOfCpu<Bf16>(question);
}

void compare(const WireQuestion& question) {
  const WireAnswer cpu = answerOfCpu(question), gpu = answerOfGpu(question);
  const auto where = [&] {
    return ::testing::Message() << "wire " << question.type << " type " << question.rowType << " elements "
                                << question.elements << " rows " << question.terms << " parts " << question.parts
                                << " lands " << question.lands << " weighs " << question.weighs << " one format "
                                << question.oneFormat;
  };
  for (std::size_t i = 0; i < cpu.coded.size(); ++i) {
    ASSERT_EQ(gpu.coded[i], cpu.coded[i]) << "byte " << i << " on the wire; " << where();
  }
  for (std::size_t i = 0; i < cpu.sum.size(); ++i) ASSERT_EQ(gpu.sum[i], cpu.sum[i]) << "byte " << i << "; " << where();
  const bool givesOwn = !question.lands && question.oneFormat && question.type != kWireLogfmt10;
  for (std::size_t i = 0; i < cpu.own.size() && givesOwn; ++i) {
    ASSERT_EQ(gpu.own[i], cpu.own[i]) << "byte " << i << " with a row that is not coded; " << where();
  }
  EXPECT_TRUE(gpu.leftEmpty) << where();
}

TEST_F(WireOnGpu, HasTheBitsOfTheCpu) {
  Rng rng(20261125);
  for (int round = 0; round < 3000; ++round) {
    WireQuestion question{};
    question.type = rng.between(kWireFp8, kWireLogfmt10);
    question.rowType = rng.between(kBf16, kFp32);
    question.elements = round % 50 == 0 ? 7168 : kWireUnit * rng.between(1, 12);
    question.terms = rng.between(0, 9);
    question.parts = rng.between(1, kWireFactors);
    question.lands = rng.coin();
    question.weighs = rng.coin();
    question.oneFormat = question.rowType == kBf16 && rng.coin();
    question.rows.resize(static_cast<std::size_t>(question.terms * question.rowBytes()));
    // Rows of subnormal and other small numbers have the smallest scales.
    const bool wild = rng.oneIn(3), tiny = rng.oneIn(5);
    const int elements = question.terms * question.elements;
    for (int i = 0; i < elements; ++i) {
      const std::uint32_t kept = !tiny ? ~0u : question.rowType == kFp16 ? 0x800f800fu : 0x83ff83ffu;
      const std::uint32_t zero = tiny && rng.oneIn(8) ? 0u : ~0u;
      const auto word = static_cast<std::uint32_t>(rng.next()) & kept & zero;
      const float small = static_cast<float>(static_cast<int>(word % 4096) - 2048) / 512.0f;
      if ((wild || tiny) && question.rowType == kFp32)
        std::memcpy(question.rows.data() + std::ptrdiff_t{4} * i, &word, 4);
      if ((wild || tiny) && question.rowType != kFp32)
        std::memcpy(question.rows.data() + std::ptrdiff_t{2} * i, &word, 2);
      if (!wild && !tiny) encodeElement(question.rowType, small, question.rows.data(), i);
    }
    ASSERT_NO_FATAL_FAILURE(compare(question)) << "round " << round;
  }
}

}  // namespace
}  // namespace moe::test
