// Wrong arguments that only a step can see: all ranks get a sentence that names the argument, the rank and the values.
#include "support/refusal_calls.h"

namespace moe::test {
namespace {

TEST_P(Refusal, RowsOfACombineThatAreNull) {
  for (bool everywhere : {false, true}) {
    inEveryLayout([&](const moeHandleConfig_t& shape) {
      world(2, small(), [&](RankContext& context) {
        Calls calls(context, shape);
        calls.untilCombine();
        moeCombineArgs_t args = calls.combineArgs();
        if (everywhere || context.rank == 1) args.rows = nullptr;
        calls.combine(args);
        expectFailure(context, moeInvalidArgument,
                      everywhere ? "moeCombine: args.rows of rank " : "args.rows of rank 1 is NULL or has no room");
      });
    });
  }
}

TEST_P(Refusal, RowsOfACombineInABlockThatIsTooSmall) {
  for (int layout : {moeLayoutFlat, moeLayoutRankMajor, moeLayoutExpertMajor}) {
    world(2, small(), [&](RankContext& context) {
      Calls calls(context, handleOf(moeModeHt, layout));
      void* block = nullptr;
      MOE_ASSERT_OK(moeMemAlloc(context.comm, 3 * kRowBytes, &block), context);
      calls.untilCombine();
      moeCombineArgs_t args = calls.combineArgs();
      if (context.rank == 0) args.rows = block;
      calls.combine(args);
      // Blocks have whole units of 256 bytes, while a row has 32, so the room is larger than what was asked for.
      expectFailure(context, moeInvalidArgument,
                    layout == moeLayoutFlat ? "args.rows of rank 0 has room for" : "moeCombine: args.rows of rank 0");
    });
  }
}

TEST_P(Refusal, RowTypesThatDiffer) {
  inEveryLayout([&](const moeHandleConfig_t& shape) {
    world(2, small(), [&](RankContext& context) {
      Calls calls(context, shape);
      calls.untilCombine();
      moeCombineArgs_t args = calls.combineArgs();
      args.rowType = context.rank == 0 ? moeRowBf16 : moeRowFp16;
      calls.combine(args);
      expectFailure(context, moeInvalidUsage,
                    "moeCombine: ranks disagree: args.rowType is bf16 on rank 0 and fp16 on rank 1");
    });
  });
}

TEST_P(Refusal, GradientsOnSomeRanksOnly) {
  inEveryLayout([&](const moeHandleConfig_t& shape) {
    world(2, small(), [&](RankContext& context) {
      Calls calls(context, shape);
      calls.untilCombine();
      moeCombineArgs_t args = calls.combineArgs();
      if (context.rank == 1) args.weightGrads = calls.grads(), args.outWeightGrads = calls.outGrads();
      calls.combine(args);
      expectFailure(context, moeInvalidUsage,
                    "gradients of the weights (moeCombineGrads) is without on rank 0 and with on rank 1");
    });
  });
}

TEST_P(Refusal, GradientsThatAreHalfThere) {
  inEveryLayout([&](const moeHandleConfig_t& shape) {
    world(2, small(), [&](RankContext& context) {
      Calls calls(context, shape);
      context.meet();
      MOE_EXPECT_OK(calls.route(), context);
      MOE_EXPECT_OK(calls.dispatch(calls.dispatchArgs()), context);
      moeCombineArgs_t args = calls.combineArgs();
      args.weightGrads = calls.grads();
      EXPECT_EQ(calls.combine(args), moeInvalidArgument);
      EXPECT_TRUE(says(context.error(), "args.outWeightGrads is NULL with 8 tokens routed, but args.weightGrads is"));
      args.weightGrads = nullptr, args.flags = moeCombineGrads;
      EXPECT_EQ(calls.combine(args), moeInvalidArgument);
      EXPECT_TRUE(says(context.error(), "args.outWeightGrads is NULL with 8 tokens routed, but args.flags has"));
      calls.roundTrip();
      context.arena.synchronize();
      context.meet();
      args.flags = 0, args.outWeightGrads = calls.outGrads();
      if (context.rank == 1) args.weightGrads = calls.grads();
      calls.combine(args);
      expectFailure(context, moeInvalidArgument, "args.weightGrads of rank 0 is NULL, but");
    });
  });
}

// Only rank 0 has tokens, and no row goes to it, so no rank needs all arrays.
TEST_P(Refusal, GradientsOfRanksWithoutRowsOrTokensAreRight) {
  inEveryLayout([&](const moeHandleConfig_t& shape) {
    world(3, small(), [&](RankContext& context) {
      moeHandleConfig_t wide = shape;
      wide.experts = 6;
      Calls calls(context, wide);
      const std::vector<std::int32_t> ids = {2, 3, 3, 2};  // rank 0's two tokens go to rank 1
      const auto* there = context.arena.put<std::int32_t>(ids);
      const int tokens = context.rank == 0 ? 2 : 0;
      context.meet();
      MOE_EXPECT_OK(moeRoute(calls.handle(), tokens > 0 ? there : nullptr, nullptr, tokens, context.stream()), context);
      moeDispatchArgs_t dispatch = calls.dispatchArgs();
      MOE_EXPECT_OK(calls.dispatch(dispatch), context);
      moeCombineArgs_t args = calls.combineArgs();
      if (context.rank != 1) args.rows = nullptr;
      if (context.rank == 0) args.outWeightGrads = calls.outGrads();
      if (context.rank == 1) args.weightGrads = calls.grads();
      if (context.rank == 2) args.flags = moeCombineGrads;
      MOE_EXPECT_OK(calls.combine(args), context);
      context.arena.synchronize();
      MOE_EXPECT_OK(moeRoute(calls.handle(), nullptr, nullptr, 0, context.stream()), context);
      if (context.rank != 0) return;
      for (float grad : context.arena.get(calls.outGrads(), 4)) EXPECT_EQ(grad, 0.5f);
    });
  });
}

TEST_P(Refusal, StagingAreasThatAreTooSmallAreCalledSo) {
  world(2, small(2), [&](RankContext& context) {
    Calls calls(context, handleOf(moeModeHt, moeLayoutFlat));
    context.meet();
    MOE_EXPECT_OK(calls.route(), context);
    context.arena.synchronize();
    context.meet();
    calls.dispatch(calls.dispatchArgs());
    expectFailure(context, moeInvalidArgument, "is 2, but 16 rows arrive for its output outside the window");
    EXPECT_TRUE(says(context.error(), "moeDispatch: config.stagingRows of rank "));
  });
  world(2, small(2), [&](RankContext& context) {
    Calls calls(context, handleOf(moeModeHt, moeLayoutFlat));
    void* window = nullptr;
    MOE_ASSERT_OK(moeMemAlloc(context.comm, kRowsMax * kRowBytes, &window), context);
    context.meet();
    MOE_EXPECT_OK(calls.route(), context);
    moeDispatchArgs_t args = calls.dispatchArgs();
    args.outRows = window;
    MOE_EXPECT_OK(calls.dispatch(args), context);
    context.arena.synchronize();
    context.meet();
    calls.combine(calls.combineArgs());
    expectFailure(context, moeInvalidArgument, "is 2, but 16 rows had arrived there");
  });
}

TEST_P(Refusal, HandlesThatDifferAreNamedByTheField) {
  struct Difference {
    const char* sentence;
    std::int32_t moeHandleConfig_t::*field;
    std::int32_t value;
  };
  const Difference all[] = {
      {"config.experts is 4 on rank 0 and 6 on rank 1", &moeHandleConfig_t::experts, 6},
      {"config.topk is 2 on rank 0 and 1 on rank 1", &moeHandleConfig_t::topk, 1},
      {"config.layout is FLAT on rank 0 and RANK_MAJOR on rank 1", &moeHandleConfig_t::layout, moeLayoutRankMajor},
      {"config.mode is HT on rank 0 and LL on rank 1", &moeHandleConfig_t::mode, moeModeLl},
      {"config.tokensMax is 8 on rank 0 and 7 on rank 1", &moeHandleConfig_t::tokensMax, 7},
      {"config.expertAlignment is 1 on rank 0 and 4 on rank 1", &moeHandleConfig_t::expertAlignment, 4}};
  for (const Difference& difference : all) {
    world(2, small(), [&](RankContext& context) {
      moeHandleConfig_t shape = handleOf(moeModeHt, moeLayoutFlat);
      if (context.rank == 1) shape.*difference.field = difference.value;
      moeHandle_t handle = nullptr;
      MOE_ASSERT_OK(moeHandleCreate(&handle, context.comm, &shape), context);
      context.meet();
      moeRoute(handle, nullptr, nullptr, 0, context.stream());
      expectFailure(context, moeInvalidUsage, std::string("moeRoute: ranks disagree: ") + difference.sentence);
    });
  }
}

TEST_P(Refusal, DispatchesThatDifferAreNamedByTheField) {
  for (int mode : {moeModeHt, moeModeLl}) {
    const auto differs = [&](const char* sentence, const auto& spoil) {
      moeConfig_t wide = small();
      wide.sideBytesMax = 64, wide.rowBytesMax = 1024;
      world(2, wide, [&](RankContext& context) {
        Calls calls(context, handleOf(mode, moeLayoutFlat));
        context.meet();
        MOE_EXPECT_OK(calls.route(), context);
        context.arena.synchronize();
        context.meet();
        moeDispatchArgs_t args = calls.dispatchArgs();
        if (context.rank == 1) spoil(args, calls);
        calls.dispatch(args);
        expectFailure(context, moeInvalidUsage, std::string("moeDispatch: ranks disagree: ") + sentence);
      });
    };
    differs("args.hidden is 8 on rank 0 and 4 on rank 1", [](auto& args, Calls&) { args.hidden = 4; });
    differs("args.rowType is fp32 on rank 0 and bf16 on rank 1", [](auto& args, Calls&) { args.rowType = moeRowBf16; });
    differs("args.sideBytes is 0 on rank 0 and 16 on rank 1", [](auto& args, Calls& calls) {
      args.side = calls.sideIn(), args.sideBytes = 16, args.outSide = calls.sideOut();
    });
  }
}

MOE_INSTANTIATE_BACKENDS(Refusal);

}  // namespace
}  // namespace moe::test
