// Weights that a combine carries, instead of those of the route (moeHandleConfig_t.combineWeights).
#include "support/api/moe_step.h"
#include "support/api/refusal_calls.h"

namespace moe::test {
namespace {

class CombineWeights : public OnBackend {};

StepCase lateCase(int mode, int layout) {
  StepCase c;
  c.mode = mode;
  c.layout = layout;
  c.weighted = true;
  c.lateWeights = true;
  c.alignment = layout == moeLayoutExpertMajor ? 4 : 1;
  c.biases = layout % 3;
  c.weightGrads = layout % 2 == 0;
  c.seed = static_cast<std::uint64_t>(300 * mode + layout);
  return c;
}

void runUntilExperts(MoeStep& step, int iteration) {
  step.prepare(iteration);
  if (iteration % 2 == 0) {
    step.route();
    step.dispatch();
  } else {
    step.routeDispatch();
  }
  step.runExperts();
}

// Operations of a handle without such weights come in between, on the same set of slots and the same channel.
TEST_P(CombineWeights, CountInEveryLayoutAndMode) {
  moeConfig_t one = config();
  one.llSets = 1;
  for (const int mode : {moeModeHt, moeModeLl}) {
    for (int layout = moeLayoutFlat; layout <= moeLayoutRankMajor; ++layout) {
      world(4, one, [&](RankContext& context) {
        StepCase plain = lateCase(mode, layout);
        plain.lateWeights = false;
        MoeStep late(context, lateCase(mode, layout)), other(context, plain);
        for (int i = 0; i < 6; ++i) {
          MoeStep& step = i % 3 == 2 ? other : late;
          runUntilExperts(step, i);
          step.combine(i % 2 == 0 ? moeSendOnly : 0);
          if (i % 2 == 0) step.complete();
          step.checkCombine();
          step.combine();  // with nothing in between
          step.checkCombine();
        }
      });
    }
  }
}

TEST_P(CombineWeights, OfTwoCombinesThatAreOutstandingAreApart) {
  moeConfig_t two = config();
  two.stagingAreas = 2;
  world(3, two, [](RankContext& context) {
    StepCase other = lateCase(moeModeHt, moeLayoutExpertMajorPadded);
    other.seed = 8;
    MoeStep first(context, lateCase(moeModeHt, moeLayoutExpertMajor)), second(context, other);
    for (int i = 0; i < 6; ++i) {
      for (MoeStep* step : {&first, &second}) runUntilExperts(*step, i);
      first.combine(moeSendOnly);
      second.combine(moeSendOnly);
      (i % 2 == 0 ? first : second).complete();
      (i % 2 == 0 ? second : first).complete();
      first.checkCombine();
      second.checkCombine();
    }
  });
}

// One row per expert, whose elements are all 1, so a sum is the sum of its token's weights.
TEST_P(CombineWeights, AreThoseOfTheRouteIfNoneAreGivenAndAddUpIfTheyAreMerged) {
  for (const int mode : {moeModeHt, moeModeLl}) {
    world(2, config(), [&](RankContext& context) {
      moeHandleConfig_t shape = handleOf(mode, moeLayoutExpertMajor);
      shape.combineWeights = 1;
      shape.duplicates = moeDuplicatesMerge;
      moeHandle_t handle = nullptr;
      MOE_ASSERT_OK(moeHandleCreate(&handle, context.comm, &shape), context);
      const std::vector<std::int32_t> ids = {0, 3, 2, 2};  // two tokens; the second names an expert twice
      const std::vector<float> routed = {0.5f, 0.25f, 2.0f, 4.0f}, late = {1.0f, 8.0f, 16.0f, 32.0f};
      constexpr std::int32_t kHidden = 8;
      const std::vector<float> ones(64 * kHidden, 1.0f);
      const auto upload = [&](const auto& values) {
        void* memory = context.arena.take(values.size() * 4);
        context.arena.upload(memory, values.data(), values.size() * 4);
        return memory;
      };
      auto* idsThere = static_cast<std::int32_t*>(upload(ids));
      auto *routedThere = static_cast<float*>(upload(routed)), *lateThere = static_cast<float*>(upload(late)),
           *rows = static_cast<float*>(upload(ones)),
           *out = static_cast<float*>(upload(std::vector<float>(2 * kHidden, -1.0f)));
      context.meet();
      MOE_EXPECT_OK(moeRoute(handle, idsThere, routedThere, 2, context.stream()), context);
      for (const float* given : {static_cast<const float*>(nullptr), static_cast<const float*>(lateThere)}) {
        moeCombineArgs_t args = MOE_COMBINE_ARGS_INITIALIZER;
        args.rows = rows;
        args.rowType = moeRowFp32;
        args.hidden = kHidden;
        args.out = out;
        args.weights = moeWeightsApply;
        args.topkWeights = given;
        MOE_EXPECT_OK(moeCombine(handle, &args, context.stream()), context);
        const std::vector<float> sums = context.arena.get(out, 2 * kHidden);
        EXPECT_EQ(sums.front(), given == nullptr ? 0.75f : 9.0f);
        EXPECT_EQ(sums.back(), given == nullptr ? 6.0f : 48.0f);
      }
      MOE_EXPECT_OK(moeHandleDestroy(handle), context);
    });
  }
}

TEST_P(CombineWeights, AreRefusedWhereTheyCannotCount) {
  world(2, config(), [](RankContext& context) {
    moeHandleConfig_t shape = handleOf(moeModeHt, moeLayoutExpertMajor);
    Calls without(context, shape);
    shape.combineWeights = 1;
    Calls with(context, shape);
    without.untilCombine(), with.untilCombine();
    auto* weights = static_cast<float*>(context.arena.take(256));
    const auto refuses = [&](Calls& calls, CombineFields args, const char* sentence) {
      EXPECT_EQ(calls.combine(args), moeInvalidArgument);
      EXPECT_TRUE(says(context.error(), sentence)) << context.error();
    };
    CombineFields args = without.combineArgs();
    args.weights = moeWeightsApply;
    args.topkWeights = weights;
    refuses(without, args, "but the handle was made without config.combineWeights");
    args = with.combineArgs();
    args.topkWeights = weights;
    refuses(with, args, "but args.weights is moeWeightsApplied");
    args.weights = moeWeightsApply;
    args.topkWeights = reinterpret_cast<float*>(reinterpret_cast<char*>(weights) + 2);
    refuses(with, args, "args.topkWeights is ");
    args.topkWeights = static_cast<float*>(args.out);
    refuses(with, args, "args.topkWeights");
    for (Calls* calls : {&without, &with}) MOE_EXPECT_OK(calls->combine(calls->combineArgs()), context);
  });
}

MOE_INSTANTIATE_BACKENDS(CombineWeights);

}  // namespace
}  // namespace moe::test
