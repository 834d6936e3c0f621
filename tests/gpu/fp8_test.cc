// device/rows/fp8.h gives the same bits on the GPU as on the CPU. tests/unit/device_fp8_test.cc compares the CPU's bits
// with a reference.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cfloat>
#include <cstring>
#include <limits>

#include "gpu/fp8_probe.h"
#include "support/base/rng.h"

namespace moe::test {
namespace {

class Fp8OnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) GTEST_SKIP() << "no GPU here";
  }
};

// Compares field by field, so that a failure names the field. Stops at the first difference.
void compare(const std::vector<Fp8Question>& questions) {
  constexpr const char* kFields[] = {"codes of bf16, low",
                                     "codes of bf16, high",
                                     "codes of fp16, low",
                                     "codes of fp16, high",
                                     "codes of fp32",
                                     "E4m3::fromFloat",
                                     "dequantised code",
                                     "amax of bf16",
                                     "amax of fp16",
                                     "amax of fp32",
                                     "scale",
                                     "inverse",
                                     "scale 2^n",
                                     "inverse 2^-n",
                                     "UE8M0 byte",
                                     "float of a UE8M0 byte"};
  constexpr std::size_t kWords = sizeof(Fp8Answer) / sizeof(std::uint32_t);
  static_assert(std::size(kFields) == kWords);
  const std::vector<Fp8Answer> answers = answersOfGpu(questions);
  for (std::size_t i = 0; i < questions.size(); ++i) {
    const Fp8Answer onCpu = answer(questions[i]);
    if (std::memcmp(&onCpu, &answers[i], sizeof(onCpu)) == 0) continue;
    std::uint32_t cpu[kWords], gpu[kWords];
    std::memcpy(cpu, &onCpu, sizeof(cpu));
    std::memcpy(gpu, &answers[i], sizeof(gpu));
    const Quad& piece = questions[i].piece;
    for (std::size_t field = 0; field < kWords; ++field) {
      ASSERT_EQ(gpu[field], cpu[field]) << std::hex << kFields[field] << " of piece " << piece.x << " " << piece.y
                                        << " " << piece.z << " " << piece.w << ", inverse " << questions[i].inverse
                                        << ", amax " << questions[i].amax;
    }
  }
}

// The upper halves are all bf16 and fp16 values, and all signs, exponents and first mantissa bits of floats. The lower
// halves are those that decide ties.
TEST_F(Fp8OnGpu, HasTheBitsOfTheCpuForEveryValue) {
  for (const float amax : {0.0f, 1e-5f, 1e-4f, 0.7f, 1.0f, 17.0f, 448.0f, 60000.0f, 3e38f, FLT_MAX,
                           std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    for (const float inverse : {1.0f, fp8Scale(amax).inverse, ue8m0Scale(amax).inverse}) {
      std::vector<Fp8Question> questions;
      for (std::uint32_t half = 0; half < 0x10000u; ++half) {
        const Quad piece{half << 16 | (half & 0xffu), half << 16 | 1u, half << 16 | 0x8000u, half << 16 | 0xffffu};
        questions.push_back({piece, floatToBits(inverse), floatToBits(amax), {}});
      }
      ASSERT_NO_FATAL_FAILURE(compare(questions)) << "amax " << amax;
    }
  }
}

TEST_F(Fp8OnGpu, HasTheBitsOfTheCpuForRandomPieces) {
  constexpr std::uint64_t kSeed = 20250917;
  Rng rng(kSeed);
  const auto word = [&] { return static_cast<std::uint32_t>(rng.next()); };
  for (int round = 0; round < 16; ++round) {
    std::vector<Fp8Question> questions;
    for (int i = 0; i < 1 << 18; ++i) {
      const std::uint32_t amax = word() & 0x7fffffffu;
      const Fp8Scale scale = i % 2 == 0 ? fp8Scale(bitsToFloat(amax)) : ue8m0Scale(bitsToFloat(amax));
      // Elements near the block's amax, or of any size.
      const auto element = [&] { return i % 3 == 0 ? word() : (amax & 0x7f800000u) - (word() & 0x03ffffffu); };
      questions.push_back({{element(), element(), element(), element()}, floatToBits(scale.inverse), amax, {}});
    }
    ASSERT_NO_FATAL_FAILURE(compare(questions)) << "seed " << kSeed << ", round " << round;
  }
}

// Every float from the smallest one that the quotient is used for.
TEST_F(Fp8OnGpu, HasTheQuotientsOfDivisions) {
  constexpr float kFp8Least = 0x1.cp-118f, kNvfp4Least = 0x1.5p-107f;  // 448 * 2^-126, 2688 * 2^-118
  EXPECT_EQ(wrongQuotients(Quotient::bySix, 0x1.8p-124f, 2689.0f), 0u);
  EXPECT_EQ(wrongQuotients(Quotient::byFp8Max, kFp8Least, FLT_MAX), 0u);
  EXPECT_EQ(wrongQuotients(Quotient::byNvfp4Max, kNvfp4Least, FLT_MAX), 0u);
  EXPECT_EQ(wrongQuotients(Quotient::ofFp8Max, kFp8Least, FLT_MAX), 0u);
  EXPECT_EQ(wrongQuotients(Quotient::ofNvfp4Max, kNvfp4Least, FLT_MAX), 0u);
  EXPECT_EQ(wrongQuotients(Quotient::byCode, 2688.0f / FLT_MAX, 0x1p118f), 0u);
  EXPECT_GT(wrongQuotients(Quotient::byCode, 0x1p120f, FLT_MAX), 0u);  // overflows, so the kernel does compare
}

}  // namespace
}  // namespace moe::test
