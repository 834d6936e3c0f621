#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "device/rows/row_math.h"
#include "device/view/flag.h"
#include "device/view/shape.h"

namespace moe::test {
namespace {

// Every half converts to a float and back to itself.
template <class Type>
void checkRoundTrip(std::uint32_t nanBits) {
  for (std::uint32_t half = 0; half < 0x10000u; ++half) {
    const float value = Type::toFloat(half);
    ASSERT_EQ(Type::fromFloat(value), std::isnan(value) ? nanBits : half) << half;
  }
}

// A float between two neighbours becomes the nearer one. In the middle it becomes the even one.
template <class Type>
void checkRounding(std::uint32_t largest) {
  for (std::uint32_t half = 0; half < largest; ++half) {
    const float low = Type::toFloat(half), high = Type::toFloat(half + 1), middle = low + (high - low) / 2;
    ASSERT_EQ(Type::fromFloat(std::nextafter(middle, low)), half);
    ASSERT_EQ(Type::fromFloat(std::nextafter(middle, high)), half + 1);
    ASSERT_EQ(Type::fromFloat(middle), half % 2 == 0 ? half : half + 1);
    ASSERT_EQ(Type::fromFloat(-middle), (half % 2 == 0 ? half : half + 1) | 0x8000u);
  }
}

TEST(RowMath, Bf16RoundsToNearestEven) {
  checkRoundTrip<Bf16>(0x7fff);
  checkRounding<Bf16>(0x7f7f);
}

TEST(RowMath, Fp16RoundsToNearestEven) {
  checkRoundTrip<Fp16>(0x7fff);
  checkRounding<Fp16>(0x7bff);
  EXPECT_EQ(Fp16::fromFloat(65519.0f), 0x7bffu);
  EXPECT_EQ(Fp16::fromFloat(65520.0f), 0x7c00u);
  EXPECT_EQ(Fp16::fromFloat(1e30f), 0x7c00u);
}

TEST(Flag, EpochAndValueShareAWord) {
  const Flag word = flagWord((std::uint64_t{1} << 40) - 1, kFlagValueMax);
  EXPECT_EQ(flagEpoch(word), (std::uint64_t{1} << 40) - 1);
  EXPECT_EQ(flagValue(word), kFlagValueMax);
  EXPECT_LT(flagWord(7, kFlagValueMax), flagWord(8, 0));
}

TEST(Divisor, DividesAsTheProcessorDoes) {
  constexpr int kMost = std::numeric_limits<int>::max();
  std::vector<int> divisors{4096, 65535, 65536, 65537, 1 << 30, (1 << 30) + 1, kMost - 1, kMost};
  for (int divisor = 1; divisor < 300; ++divisor) divisors.push_back(divisor);
  for (const int divisor : divisors) {
    const Divisor by = divisorOf(divisor);
    const int last = kMost / divisor * divisor;  // the largest multiple
    for (const int n : {0, 1, divisor - 1, divisor, last / 2, last - 1, last, kMost - 1, kMost}) {
      ASSERT_EQ(by.of(n), n / divisor) << n << " / " << divisor;
    }
    for (int n = 0; n < 3000; ++n) ASSERT_EQ(by.of(n), n / divisor) << n << " / " << divisor;
  }
  EXPECT_EQ(divisorOf(0).of(7), 7);
}

TEST(ExpertMap, EveryExpertHasOneRank) {
  for (int experts = 1; experts < 70; ++experts) {
    for (int nranks = 1; nranks < 12; ++nranks) {
      const ExpertMap map{experts, nranks};
      int next = 0;
      for (int rank = 0; rank < nranks; ++rank) {
        ASSERT_EQ(map.first(rank), next);
        for (int i = 0; i < map.count(rank); ++i) ASSERT_EQ(map.rankOf(next++), rank);
      }
      ASSERT_EQ(next, experts);
    }
  }
}

}  // namespace
}  // namespace moe::test
