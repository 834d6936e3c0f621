// LL handles on one to four sets of slots (moeConfig_t.llSets).
#include <memory>

#include "support/api/moe_step.h"
#include "support/api/refusal_calls.h"

namespace moe::test {
namespace {

class LlSets : public OnBackend {
 protected:
  moeConfig_t configOf(int sets) const {
    moeConfig_t made = config();
    made.llSets = sets;
    return made;
  }
};

using Steps = std::vector<std::unique_ptr<MoeStep>>;

Steps makeSteps(RankContext& context, int count) {
  constexpr int kLayouts[] = {moeLayoutRankMajor, moeLayoutExpertMajor, moeLayoutFlat, moeLayoutRankMajor};
  Steps steps;
  for (int i = 0; i < count; ++i) {
    StepCase c;
    c.mode = moeModeLl;
    c.layout = kLayouts[i % 4];
    c.seed = 10 + static_cast<std::uint64_t>(i);
    c.hidden = 64 << i % 4;
    c.sideBytes = 16 * (i % 2);
    c.weightGrads = i % 2 != 0;
    steps.push_back(std::make_unique<MoeStep>(context, c));
  }
  return steps;
}

// Every handle's dispatch is outstanding at the same time, and then every handle's combine.
void runTogether(const Steps& steps, int iteration) {
  for (const auto& step : steps) step->prepare(iteration);
  for (const auto& step : steps) step->route();
  for (const auto& step : steps) step->dispatch(moeSendOnly);
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) (*step)->complete();
  for (const auto& step : steps) step->checkDispatch();
  for (const auto& step : steps) step->runExperts();
  for (const auto& step : steps) step->combine(moeSendOnly);
  for (const auto& step : steps) step->complete();
  for (const auto& step : steps) step->checkCombine();
}

TEST_P(LlSets, AsManyHandlesAsSetsMayHaveOperationsOutstanding) {
  for (const int sets : {1, 2, 3, 4}) {
    world(3, configOf(sets), [&](RankContext& context) {
      const Steps steps = makeSteps(context, sets);
      for (int i = 0; i < 4; ++i) runTogether(steps, i);
    });
  }
}

TEST_P(LlSets, TheHandleAfterThemWaitsForItsSet) {
  for (const int sets : {1, 4}) {
    world(2, configOf(sets), [&](RankContext& context) {
      const Steps steps = makeSteps(context, sets + 1);
      for (const auto& step : steps) step->prepare(0), step->route();
      steps.front()->dispatch(moeSendOnly);
      const moeDispatchArgs_t args = MOE_DISPATCH_ARGS_INITIALIZER;
      EXPECT_EQ(moeDispatch(steps.back()->handle(), &args, context.stream()), moeInvalidUsage);
      EXPECT_TRUE(says(context.error(), "the buffers belong to an operation that still awaits moeComplete"));
      if (sets > 1) steps[1]->dispatch(moeSendOnly), steps[1]->complete();
      steps.front()->complete();
      steps.back()->dispatch();
      steps.back()->checkDispatch();
    });
  }
}

TEST_P(LlSets, RanksAgreeAboutThem) {
  moeUniqueId_t id;
  ASSERT_EQ(moeGetUniqueId(&id), moeSuccess);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      const moeConfig_t own = configOf(1 + rank);
      moeComm_t comm = nullptr;
      EXPECT_EQ(moeCommInit(&comm, 2, rank, &id, &own), moeInvalidUsage);
      EXPECT_TRUE(says(moeGetLastError(nullptr), "llSets is 1 on rank 0 and 2 on rank 1"));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(LlSetsMemory, GrowsWithThem) {
  moeConfig_t config = MOE_CONFIG_INITIALIZER;
  config.modes = moeModeLl;
  const auto llBytes = [&](int sets) {
    config.llSets = sets;
    moeMemorySize_t size = MOE_MEMORY_SIZE_INITIALIZER;
    EXPECT_EQ(moeCommGetMemorySize(8, &config, &size), moeSuccess) << moeGetLastError(nullptr);
    return size.llBytes;
  };
  EXPECT_EQ(llBytes(0), llBytes(2));
  constexpr double kRounding = 8 * 256;  // rounding of each area
  EXPECT_NEAR(static_cast<double>(llBytes(4)), 2.0 * static_cast<double>(llBytes(2)), kRounding);
  EXPECT_NEAR(static_cast<double>(llBytes(2)), 2.0 * static_cast<double>(llBytes(1)), kRounding);
  config.llSets = 5;
  moeMemorySize_t size = MOE_MEMORY_SIZE_INITIALIZER;
  EXPECT_EQ(moeCommGetMemorySize(8, &config, &size), moeInvalidArgument);
  EXPECT_TRUE(says(moeGetLastError(nullptr), "config.llSets is 5; it must be 1 to 4"));
}

MOE_INSTANTIATE_BACKENDS(LlSets);

}  // namespace
}  // namespace moe::test
