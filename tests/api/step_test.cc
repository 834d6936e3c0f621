// Whole steps through the C API: route, dispatch, experts, combine, verified on every rank, on both backends.
#include "support/api/moe_step.h"
#include "support/api/refusal_calls.h"
#include "support/base/sanitizers.h"

namespace moe::test {
namespace {

class Step : public OnBackend {};

void runSteps(int nranks, const moeConfig_t& config, const StepCase& c, int iterations) {
  world(nranks, config, [&](RankContext& context) {
    MoeStep step(context, c);
    for (int i = 0; i < iterations; ++i) {
      step.begin(i);
      step.checkDispatch();
      step.runExperts();
      if (c.rowType == moeRowBytes) continue;
      step.combine();
      step.checkCombine();
    }
  });
}

TEST_P(Step, EveryLayoutInBothModesIsRight) {
  for (int mode : {moeModeHt, moeModeLl}) {
    for (int layout = moeLayoutFlat; layout <= moeLayoutRankMajor; ++layout) {
      StepCase c;
      c.mode = mode;
      c.layout = layout;
      c.alignment = layout == moeLayoutExpertMajor ? 4 : 1;
      c.weighted = true;  // counts as 1 where a row stands for several experts
      c.weightGrads = true;
      c.biases = layout % 3;
      c.describes = true;
      c.seed = static_cast<std::uint64_t>(100 * mode + layout);
      runSteps(4, config(), c, 4);
    }
  }
}

TEST_P(Step, ABoundForAStepMakesItsPlacesFewer) {
  moeConfig_t wide = config();
  wide.rowBytesMax = 8192;
  for (int mode : {moeModeHt, moeModeLl}) {
    for (int layout = moeLayoutFlat; layout <= moeLayoutRankMajor; ++layout) {
      StepCase c;
      c.mode = mode;
      c.layout = layout;
      c.bounded = true;
      c.describes = true;
      c.weightGrads = true;
      c.weighted = c.lateWeights = layout >= moeLayoutExpertMajor;
      c.padding = layout % 4;
      c.window = mode == moeModeHt;
      c.sideBytes = 16;
      c.seed = static_cast<std::uint64_t>(500 * mode + layout);
      runSteps(3, wide, c, 6);
      c.cast = moeCastMxfp8;
      c.hidden = 256;
      c.scales = layout % 2 == 0 ? moeScalesTokenContiguous : moeScales128x4;
      runSteps(3, wide, c, 6);
    }
  }
}

// A bound holds from the next route on. Until then the old one holds, also in a repeated dispatch.
TEST_P(Step, ABoundIsThatOfTheRoute) {
  world(2, config(), [](RankContext& context) {
    StepCase c;
    c.mode = moeModeLl;
    c.layout = moeLayoutRankMajor;
    MoeStep step(context, c);
    step.prepare(0);
    EXPECT_EQ(moeHandleSetTokensBound(step.handle(), 9), moeInvalidArgument);
    EXPECT_TRUE(says(context.error(), "tokensBound is 9, must be 0..8")) << context.error();
    EXPECT_EQ(moeHandleSetTokensBound(step.handle(), -1), moeInvalidArgument);
    EXPECT_EQ(moeHandleSetTokensBound(nullptr, 1), moeInvalidArgument);
    step.route();
    MOE_EXPECT_OK(moeHandleSetTokensBound(step.handle(), 1), context);
    step.dispatch();
    step.checkDispatch();
    step.runExperts();
    step.combine();
    step.checkCombine();
    EXPECT_EQ(moeRoute(step.handle(), nullptr, nullptr, 2, context.stream()), moeInvalidArgument);
    EXPECT_TRUE(says(context.error(), "tokens is 2, must be 0..1")) << context.error();
    MOE_EXPECT_OK(moeHandleSetTokensBound(step.handle(), 0), context);
    step.prepare(1);
    step.routeDispatch();
    step.checkDispatch();
  });
}

TEST_P(Step, RowsBehindABudgetAreLeftOut) {
  const int all = StepCase{}.tokensMax * (startedRanks() > 0 ? startedRanks() : 3);
  for (int mode : {moeModeHt, moeModeLl}) {
    for (int layout = moeLayoutFlat; layout <= moeLayoutRankMajor; ++layout) {
      for (int budget : {1, 7, all}) {
        StepCase c;
        c.mode = mode;
        c.layout = layout;
        c.rowsBudget = budget;
        c.topk = 4;
        c.experts = 6;
        c.weightGrads = c.describes = true;
        c.biases = 1;
        c.expertCounts = budget != 1;
        c.weighted = layout >= moeLayoutExpertMajor;
        c.window = budget != 7;
        c.arrivals = layout == moeLayoutExpertMajor && budget == 7;
        c.seed = static_cast<std::uint64_t>(700 * mode + 10 * layout + budget);
        runSteps(3, config(), c, 4);
      }
    }
  }
}

TEST_P(Step, OutputsOutsideTheWindowAreRight) {
  for (int layout = moeLayoutFlat; layout <= moeLayoutRankMajor; ++layout) {
    StepCase c;
    c.layout = layout;
    c.window = false;
    c.sideBytes = 32;
    c.seed = static_cast<std::uint64_t>(7 + layout);
    runSteps(3, config(), c, 3);
  }
}

TEST_P(Step, OpaqueRowsWithASidePayloadAreRight) {
  for (int mode : {moeModeHt, moeModeLl}) {
    StepCase c;
    c.mode = mode;
    c.rowType = moeRowBytes;
    c.hidden = 1008;
    c.sideBytes = 48;
    c.wideIndex = true;
    runSteps(3, config(), c, 3);
  }
}

// Every cast in every layout of a mode. HT stores to window memory at once, and to the staging area otherwise.
void runCasts(int mode, const moeConfig_t& wide) {
  for (int cast = moeCastFp8; cast <= moeCastNvfp4; ++cast) {
    for (int layout = moeLayoutFlat; layout <= moeLayoutRankMajor; ++layout) {
      StepCase c;
      c.mode = mode;
      c.layout = layout;
      c.cast = cast;
      c.rowType = moeRowBf16 + layout % 3;
      c.hidden = 128 * (layout * 5 + cast);  // whole and incomplete last tiles
      c.topk = 4;
      c.scales = (layout + cast) % 2 == 0 ? moeScalesTokenContiguous : moeScalesRowMajor;
      c.sideBytes = 16 * (layout % 2);
      c.window = mode == moeModeHt && cast % 2 == 0;
      runSteps(4, wide, c, 3);
      c.scales = moeScalesTokenContiguous - c.scales;
      c.exact = true;
      c.window = mode == moeModeHt;
      runSteps(1 + layout, wide, c, 2);
      c.exact = layout % 2 == 0;
      c.scalesInput = true;
      c.scalesAll = cast == moeCastNvfp4;
      c.window = mode == moeModeHt && cast % 2 != 0;
      c.arrivals = hasRowPerExpert(static_cast<Layout>(layout));
      runSteps(2, wide, c, 2);
    }
  }
}

TEST_P(Step, RowsThatLlCastsOnTheirWayAreRight) {
  moeConfig_t wide = config();
  wide.rowBytesMax = 8192;
  runCasts(moeModeLl, wide);
}

TEST_P(Step, RowsThatHtCastsOnTheirWayAreRight) {
  moeConfig_t wide = config();
  wide.rowBytesMax = 8192;
  runCasts(moeModeHt, wide);
}

// Scales in blocks, in each layout, with each cast that has scales of one byte. Groups have more rows than a block and
// fewer, and experts begin anywhere, at multiples of 32 and 128, or have no rows.
void runBlocks(int mode, const moeConfig_t& wide) {
  for (int cast : {moeCastFp8Ue8m0, moeCastMxfp8, moeCastMxfp4, moeCastNvfp4}) {
    for (int layout = moeLayoutFlat; layout <= moeLayoutRankMajor; ++layout) {
      StepCase c;
      c.mode = mode;
      c.layout = layout;
      c.cast = cast;
      c.scales = moeScales128x4;
      c.hidden = 128 * (1 + (layout + cast) % 5);
      c.experts = 5;
      c.topk = 3;
      c.tokensMax = 100;
      c.window = mode == moeModeHt && cast % 2 == 0;
      runSteps(3, wide, c, 2);
      c.window = mode == moeModeHt && !c.window;
      c.experts = 40;
      c.tokensMax = 8;
      c.alignment = layout == moeLayoutExpertMajor ? cast % 2 == 0 ? 32 : 128 : 1;
      c.padding = cast % 2 == 0 ? moePadRows : moePadIndices;
      c.arrivals = hasRowPerExpert(static_cast<Layout>(layout));
      runSteps(4, wide, c, 2);
    }
  }
}

TEST_P(Step, ScalesOfLlLieInBlocks) {
  moeConfig_t wide = config();
  wide.rowBytesMax = 8192;
  wide.llTokensMax = 100;
  runBlocks(moeModeLl, wide);
}

TEST_P(Step, ScalesOfHtLieInBlocks) {
  moeConfig_t wide = config();
  wide.rowBytesMax = 8192;
  wide.tokensMax = 100;
  wide.heapBytes = 32 << 20;
  runBlocks(moeModeHt, wide);
}

TEST_P(Step, RowsThatNothingArrivesForArePadded) {
  moeConfig_t wide = config();
  wide.rowBytesMax = 8192;
  for (int mode : {moeModeHt, moeModeLl}) {
    for (int layout = moeLayoutFlat; layout <= moeLayoutRankMajor; ++layout) {
      for (int padding = 1; padding <= 3; ++padding) {
        StepCase c;
        c.mode = mode;
        c.layout = layout;
        c.alignment = layout == moeLayoutExpertMajor ? 8 : 1;
        c.padding = padding;
        c.sideBytes = 16 * (padding % 2);
        c.window = (layout + padding) % 2 == 0;
        c.idKind = padding == 2 ? moeIdsLocal : moeIdsGlobal;
        c.invalidId = padding == 1 ? c.experts : -1;
        c.describes = true;
        c.seed = static_cast<std::uint64_t>(31 * mode + 4 * layout + padding);
        runSteps(3, wide, c, 3);
        c.cast = padding == 2 ? moeCastFp8Ue8m0 : padding == 3 ? moeCastNvfp4 : moeCastFp8;
        c.hidden = 128 * (1 + layout);
        c.scales = padding == 3 ? moeScalesTokenContiguous : moeScalesRowMajor;
        c.window = c.window && mode == moeModeHt;
        runSteps(3, wide, c, 2);
      }
    }
  }
}

TEST_P(Step, ArrivalWordsComeWithTheRows) {
  for (int mode : {moeModeHt, moeModeLl}) {
    for (int layout : {moeLayoutExpertMajor, moeLayoutExpertMajorPadded}) {
      StepCase c;
      c.mode = mode;
      c.layout = layout;
      c.experts = 37;  // groups of unequal size
      c.topk = 5;
      c.tokensMax = 12;
      c.sideBytes = 16;
      c.arrivals = true;
      c.window = layout == moeLayoutExpertMajor;
      c.seed = static_cast<std::uint64_t>(11 * mode + layout);
      runSteps(3, config(), c, 4);
      c.experts = 2;  // fewer experts than ranks
      runSteps(3, config(), c, 2);
    }
  }
}

// Enough rows for the bulk-copy kernels of the cuda backend.
TEST_P(Step, LargeBatchesAreRight) {
  // Comparing the rows of a step takes seconds under a sanitizer. Other tests run several steps under it.
  const int steps = MOE_TEST_TSAN || MOE_TEST_ASAN ? 1 : 4;
  moeConfig_t large = config();
  large.tokensMax = 600;
  large.heapBytes = 40 << 20;
  large.rowBytesMax = 4096;
  for (int layout : {moeLayoutFlat, moeLayoutExpertMajor}) {
    for (bool window : {true, false}) {
      StepCase c;
      c.mode = moeModeHt;
      c.layout = layout;
      c.tokensMax = 600;
      c.hidden = 1032 - 8 * layout;
      c.topk = 3;
      c.sideBytes = 16;
      c.window = window;
      c.weighted = layout == moeLayoutExpertMajor;
      runSteps(3, large, c, steps);
      c.arrivals = layout == moeLayoutExpertMajor;
      if (c.arrivals) runSteps(3, large, c, steps);
    }
  }
}

TEST_P(Step, RandomShapesAreRight) {
  Rng rng(2026);
  for (int i = 0; i < 24; ++i) {
    StepCase c;
    const int nranks = rng.between(1, 9);
    c.mode = rng.coin() ? moeModeHt : moeModeLl;
    c.layout = rng.between(moeLayoutFlat, moeLayoutRankMajor);
    c.rowType = rng.between(moeRowBf16, moeRowFp32);
    c.hidden = 8 * rng.between(1, 24);
    c.experts = rng.between(1, 40);
    c.topk = rng.between(1, 8);
    c.tokensMax = rng.between(1, 12);
    c.alignment = rng.coin() ? 1 : 8;
    c.sideBytes = 16 * rng.below(3);
    c.window = rng.coin();
    c.wideIndex = rng.coin();
    c.weighted = (c.layout == moeLayoutExpertMajor || c.layout == moeLayoutExpertMajorPadded) && rng.coin();
    c.biases = rng.below(3);
    c.weightGrads = rng.coin();
    c.seed = rng.next();
    SCOPED_TRACE(c.name());
    runSteps(nranks, config(), c, 3);
  }
}

// One handle has free routing, the other has group-limited routing.
TEST_P(Step, TwoHandlesMayBeInterleaved) {
  for (int mode : {moeModeHt, moeModeLl}) {
    world(4, config(), [&](RankContext& context) {
      StepCase a, b;
      a.mode = b.mode = mode;
      b.layout = moeLayoutExpertMajor;
      b.seed = 99;
      b.topk = 4;
      b.groups = 4;
      b.groupsPerToken = 2;
      MoeStep first(context, a), second(context, b);
      for (int i = 0; i < 5; ++i) {
        first.prepare(i);
        second.prepare(i);
        first.route();
        first.dispatch();
        second.route();
        second.dispatch();
        first.runExperts();
        second.runExperts();
        first.combine();
        second.combine();
        first.checkCombine();
        second.checkCombine();
      }
    });
  }
}

TEST_P(Step, SplitPhasesMayEndInAnyOrder) {
  for (int mode : {moeModeHt, moeModeLl}) {
    world(3, config(), [&](RankContext& context) {
      StepCase a, b;
      a.mode = b.mode = mode;
      a.describes = true;
      b.layout = moeLayoutExpertMajor;
      b.describes = true;
      b.seed = 5;
      MoeStep first(context, a), second(context, b);
      for (int i = 0; i < 6; ++i) {
        first.prepare(i);
        second.prepare(i);
        first.route();
        first.dispatch(moeSendOnly);
        second.routeDispatch(moeSendOnly);
        (i % 2 == 0 ? second : first).complete();
        (i % 2 == 0 ? first : second).complete();
        first.checkDispatch();
        second.checkDispatch();
        first.runExperts();
        first.combine(moeSendOnly);
        first.complete();
        first.checkCombine();
      }
    });
  }
}

TEST_P(Step, ARouteMayBeUsedAgainAndBackwards) {
  world(3, config(), [&](RankContext& context) {
    StepCase c;
    MoeStep step(context, c);
    step.prepare(0);
    step.route();
    for (int i = 0; i < 3; ++i) {
      step.dispatch();
      step.checkDispatch();
      step.runExperts();
      step.combine();
      step.checkCombine();
      step.combine();  // the gradient of a dispatch
      step.checkCombine();
    }
  });
}

MOE_INSTANTIATE_BACKENDS(Step);

}  // namespace
}  // namespace moe::test
