// Two HT combines that are outstanding together, as two micro-batches of a prefill have them.
#include "support/api/moe_step.h"
#include "support/api/refusal_calls.h"

namespace moe::test {
namespace {

class CombinePairs : public OnBackend {
 protected:
  moeConfig_t configOf(int stagingAreas) const {
    moeConfig_t made = config();
    made.stagingAreas = stagingAreas;
    return made;
  }
};

TEST_P(CombinePairs, MayEndInAnyOrder) {
  for (const int layout : {moeLayoutFlat, moeLayoutExpertMajor}) {
    world(3, configOf(layout == moeLayoutFlat ? 1 : 2), [&](RankContext& context) {
      StepCase a, b;
      a.layout = b.layout = layout;
      a.weightGrads = b.weightGrads = true;
      b.seed = 5;
      b.hidden = 128;
      MoeStep first(context, a), second(context, b);
      for (int i = 0; i < 6; ++i) {
        for (MoeStep* step : {&first, &second}) {
          step->prepare(i);
          step->route();
          step->dispatch();
          step->runExperts();
        }
        first.combine(moeSendOnly);
        second.combine(moeSendOnly);
        (i % 3 == 0 ? first : second).complete();
        (i % 3 == 0 ? second : first).complete();
        first.checkCombine();
        second.checkCombine();
      }
    });
  }
}

// Rows come from outside the window, so each combine needs a staging area.
struct Batch {
  Batch(RankContext& context, int layout) : calls(context, handleOf(moeModeHt, layout)) { calls.untilCombine(); }
  moeResult_t combine(std::int32_t flags) {
    CombineFields args = calls.combineArgs();
    args.flags = flags;
    return calls.combine(args);
  }
  Calls calls;
};

TEST_P(CombinePairs, NeedAStagingAreaEach) {
  world(2, configOf(1), [](RankContext& context) {
    Batch first(context, moeLayoutExpertMajor), second(context, moeLayoutFlat);
    MOE_EXPECT_OK(first.combine(moeSendOnly), context);
    EXPECT_EQ(second.combine(moeSendOnly), moeInvalidUsage);
    EXPECT_TRUE(says(context.error(),
                     "moeCombine: another operation that uses the staging area awaits moeComplete, and "
                     "config.stagingAreas is 1"));
    MOE_EXPECT_OK(moeComplete(first.calls.handle(), context.stream()), context);
    MOE_EXPECT_OK(second.combine(0), context);
  });
}

// The outputs lie outside the window, so that the dispatch needs the area that the combine does not use.
TEST_P(CombinePairs, AStagedDispatchMayComeBesideACombine) {
  world(3, configOf(2), [](RankContext& context) {
    StepCase a, b;
    a.layout = moeLayoutExpertMajor;
    b.window = false;
    b.sideBytes = 16;
    b.seed = 5;
    MoeStep first(context, a), second(context, b);
    for (int i = 0; i < 4; ++i) {
      for (MoeStep* step : {&first, &second}) step->prepare(i), step->route();
      first.dispatch();
      first.runExperts();
      first.combine(moeSendOnly);
      second.dispatch(moeSendOnly);
      first.complete();
      first.checkCombine();
      second.complete();
      second.checkDispatch();
    }
  });
}

TEST_P(CombinePairs, AThirdOneIsRefused) {
  world(2, configOf(2), [](RankContext& context) {
    Batch first(context, moeLayoutFlat), second(context, moeLayoutExpertMajor), third(context, moeLayoutFlat);
    MOE_EXPECT_OK(first.combine(moeSendOnly), context);
    MOE_EXPECT_OK(second.combine(moeSendOnly), context);
    EXPECT_EQ(third.combine(moeSendOnly), moeInvalidUsage);
    EXPECT_TRUE(says(context.error(), "(2 outstanding, at most 2 in a row)"));
    MOE_EXPECT_OK(moeComplete(second.calls.handle(), context.stream()), context);
    EXPECT_EQ(third.combine(moeSendOnly), moeInvalidUsage) << "it would take the records of the first";
    MOE_EXPECT_OK(moeComplete(first.calls.handle(), context.stream()), context);
    MOE_EXPECT_OK(third.combine(0), context);
  });
}

TEST_P(CombinePairs, AreRefusedAcrossDomains) {
  moeConfig_t cut = configOf(2);
  cut.domainSize = 1;
  world(2, cut, [](RankContext& context) {
    Batch first(context, moeLayoutFlat), second(context, moeLayoutFlat);
    MOE_EXPECT_OK(first.combine(moeSendOnly), context);
    EXPECT_EQ(second.combine(moeSendOnly), moeInvalidUsage);
    EXPECT_TRUE(says(context.error(), "(1 outstanding, at most 1 in a row: there are several domains)"));
    MOE_EXPECT_OK(moeComplete(first.calls.handle(), context.stream()), context);
    MOE_EXPECT_OK(second.combine(0), context);
  });
}

MOE_INSTANTIATE_BACKENDS(CombinePairs);

}  // namespace
}  // namespace moe::test
