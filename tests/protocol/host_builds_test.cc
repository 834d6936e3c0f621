// Each build of the host's steps that this processor can run, in fixed and random worlds. The reference checks every
// bit of what they sum, cast and copy, so all builds give the same bits.
#include <gtest/gtest.h>

#include "device/kernels/host_steps.h"
#include "protocol/fixed_shape.h"
#include "support/programs/thread_runner.h"

namespace moe::test {
namespace {

template <class Team>
class HostBuild : public testing::Test {};
using Builds = testing::Types<BuildTeam<HostSimd::none>, BuildTeam<HostSimd::avx2>, BuildTeam<HostSimd::avx512>>;
class BuildNames {
 public:
  template <class Team>
  static std::string GetName(int i) {
    return i == 0 ? "None" : i == 1 ? "Avx2" : "Avx512";
  }
};
TYPED_TEST_SUITE(HostBuild, Builds, BuildNames);

template <HostSimd kSimd>
bool canRun(BuildTeam<kSimd>) {
  return hostStepRunner(kSimd) != nullptr;
}

TYPED_TEST(HostBuild, HasTheBitsOfTheReferenceInRandomWorlds) {
  if (!canRun(TypeParam())) GTEST_SKIP() << "this processor, or this build of the library, has no such instructions";
  for (std::uint64_t seed = 1; seed <= 120; ++seed) {
    Scenario scenario = makeScenario(seed, test::Protocol::both, Trouble::none, {4, 16, 14, 2}, 60'000'000'000);
    const std::string wrong = runScenario<TypeParam>(scenario);
    ASSERT_EQ(wrong, "") << "seed " << seed << "\n" << scenario.text;
  }
}

TYPED_TEST(HostBuild, HasTheBitsOfTheReferenceInLongRows) {
  if (!canRun(TypeParam())) GTEST_SKIP() << "this processor, or this build of the library, has no such instructions";
  std::uint64_t seed = 1;
  for (const int rowType : {kBf16, kFp16, kFp32}) {
    for (const Layout layout : {Layout::flat, Layout::expertMajor}) {
      for (const bool lowLatency : {false, true}) {
        FixedShape shape{.ranks = 2, .experts = 6, .topk = 5, .tokens = 9, .rowBytes = 5008, .warps = 2};
        shape.rowType = rowType;
        shape.layout = layout;
        shape.lowLatency = lowLatency;
        Scenario scenario = makeFixedScenario(shape, seed++);
        EXPECT_EQ(runScenario<TypeParam>(scenario), "") << scenario.text;
      }
    }
  }
}

TEST(HostBuild, AutomaticIsTheBestThatThereIs) {
  const HostStepRunner best = hostStepRunner(HostSimd::automatic);
  for (const HostSimd simd : {HostSimd::avx512, HostSimd::avx2, HostSimd::none}) {
    const HostStepRunner runner = hostStepRunner(simd);
    if (runner == nullptr) continue;
    EXPECT_EQ(best, runner);
    break;
  }
}

}  // namespace
}  // namespace moe::test
