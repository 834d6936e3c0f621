// Every format of a cast has the same bits on the GPU as on the CPU. tests/unit/device_cast_test.cc compares the CPU's
// bits with a reference.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <array>
#include <cfloat>
#include <cstring>
#include <limits>

#include "gpu/cast_probe.h"
#include "support/base/rng.h"

namespace moe::test {
namespace {

constexpr float kEndless = std::numeric_limits<float>::infinity();

class CastOnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) GTEST_SKIP() << "no GPU here";
  }
};

void compare(const std::vector<CastQuestion>& questions) {
  const std::vector<CastAnswer> answers = answersOfGpu(questions);
  for (std::size_t i = 0; i < questions.size(); ++i) {
    const CastQuestion& asked = questions[i];
    const CastAnswer cpu = answer(asked), &gpu = answers[i];
    if (std::memcmp(&cpu, &gpu, sizeof cpu) == 0) continue;
    const auto where = [&] {
      return ::testing::Message() << std::hex << "cast " << asked.cast << " type " << asked.rowType << " input "
                                  << floatToBits(asked.input) << " global " << floatToBits(asked.global)
                                  << " magnitude " << asked.magnitude << " piece " << asked.quads[0].x << " "
                                  << asked.quads[0].y << " " << asked.quads[0].z << " " << asked.quads[0].w;
    };
    ASSERT_EQ(gpu.magnitude, cpu.magnitude) << where();
    ASSERT_EQ(gpu.scale, cpu.scale) << where();
    ASSERT_EQ(gpu.inverse, cpu.inverse) << where();
    FAIL() << "codes " << std::hex << gpu.codes.x << " " << gpu.codes.y << " " << gpu.codes.z << " " << gpu.codes.w
           << " should be " << cpu.codes.x << " " << cpu.codes.y << " " << cpu.codes.z << " " << cpu.codes.w << "; "
           << where();
  }
}

// All values of a 16-bit type, and of fp32 all signs, exponents and first mantissa bits, among neighbours and among
// values of all magnitudes.
TEST_F(CastOnGpu, HasTheBitsOfTheCpuForEveryValue) {
  for (int cast = kCastFp8; cast <= kCastNvfp4; ++cast) {
    for (const float input : {1.0f, -0.37f, 1e-30f, 3e30f, 0.0f}) {
      for (const float global : {1.0f, 448 * 6 / 37.5f, 1e20f, FLT_MAX, FLT_TRUE_MIN}) {
        if (cast != kCastNvfp4 && global != 1.0f) continue;
        std::vector<CastQuestion> questions;
        for (std::uint32_t half = 0; half < 0x10000u; ++half) {
          const std::uint32_t step = half % 2 == 0 ? 1 : 40503;
          CastQuestion question{{}, cast, static_cast<int>(half % 3) + kBf16, input, global, 0};
          std::array<std::uint32_t, 16> words;
          for (std::uint32_t i = 0; i < 16; ++i) {
            words[i] = ((half + i * step) & 0xffffu) | ((half + (i + 7) * step) & 0xffffu) << 16;
          }
          std::memcpy(question.quads, words.data(), sizeof words);
          questions.push_back(question);
        }
        ASSERT_NO_FATAL_FAILURE(compare(questions));
      }
    }
  }
}

TEST_F(CastOnGpu, HasTheBitsOfTheCpuForRandomBlocks) {
  constexpr std::uint64_t kSeed = 20261125;
  Rng rng(kSeed);
  const auto word = [&] { return static_cast<std::uint32_t>(rng.next()); };
  for (int round = 0; round < 16; ++round) {
    std::vector<CastQuestion> questions;
    for (int i = 0; i < 1 << 17; ++i) {
      CastQuestion question{};
      question.cast = rng.between(kCastFp8, kCastNvfp4) | (rng.oneIn(4) ? kCastExact : 0);
      question.rowType = rng.between(kBf16, kFp32);
      question.input = rng.coin() ? 1.0f : bitsToFloat(word() % 0x7f800000u);
      question.global = rng.coin() ? 1.0f : bitsToFloat(word() % 0x7f800000u);
      const std::uint32_t top = word() % 0x7f800000u;
      question.magnitude = rng.coin() ? top : rng.oneIn(8) ? 0x7fffffffu : floatToBits(rng.oneIn(8) ? kEndless : 0.0f);
      for (Quad& quad : question.quads) {
        const auto element = [&] { return i % 3 == 0 ? word() : (top & 0x7f800000u) - (word() & 0x03ffffffu); };
        quad = {element(), element(), element(), element()};
      }
      questions.push_back(question);
    }
    ASSERT_NO_FATAL_FAILURE(compare(questions)) << "seed " << kSeed << ", round " << round;
  }
}

}  // namespace
}  // namespace moe::test
