// Arguments that only a step can see. Some of the wrong ones end the communicator: all ranks get a sentence that names
// the argument, the rank and the values. Others end nothing: handle_fault_test.cc.
#include "support/api/refusal_calls.h"

namespace moe::test {
namespace {

// In LL, owners take rows before they could look at terms.
TEST_P(Refusal, LowLatencyCombinesOfDifferentTypes) {
  for (int layout : {moeLayoutFlat, moeLayoutExpertMajor, moeLayoutExpertMajorPadded, moeLayoutRankMajor}) {
    world(2, small(), [&](RankContext& context) {
      Calls calls(context, handleOf(moeModeLl, layout));
      calls.untilCombine();
      CombineFields args = calls.combineArgs();
      args.rowType = context.rank == 0 ? moeRowBf16 : moeRowFp16;
      calls.combine(args);
      expectFailure(context, moeInvalidUsage,
                    "moeCombine: ranks disagree: args.rowType is bf16 on rank 0 and fp16 on rank 1");
    });
    world(2, small(), [&](RankContext& context) {
      Calls calls(context, handleOf(moeModeLl, layout));
      calls.untilCombine();
      CombineFields args = calls.combineArgs();
      if (context.rank == 1) args.carry(calls.grads(), calls.outGrads());
      calls.combine(args);
      expectFailure(context, moeInvalidUsage,
                    "gradients of the weights (args.grads) is without on rank 0 and with on rank 1");
    });
  }
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
      DispatchFields dispatch = calls.dispatchArgs();
      MOE_EXPECT_OK(calls.dispatch(dispatch), context);
      CombineFields args = calls.combineArgs();
      if (context.rank != 1) args.rows = nullptr;
      args.carry(context.rank == 1 ? calls.grads() : nullptr, context.rank == 0 ? calls.outGrads() : nullptr);
      MOE_EXPECT_OK(calls.combine(args), context);
      context.arena.synchronize();
      MOE_EXPECT_OK(moeRoute(calls.handle(), nullptr, nullptr, 0, context.stream()), context);
      if (context.rank != 0) return;
      for (float grad : context.arena.get(calls.outGrads(), 4)) EXPECT_EQ(grad, 0.5f);
    });
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
      {"config.tokensMax or tokensBound is 8 on rank 0 and 7 on rank 1", &moeHandleConfig_t::tokensMax, 7},
      {"config.expertAlignment is 1 on rank 0 and 4 on rank 1", &moeHandleConfig_t::expertAlignment, 4},
      {"config.expertCounts is 0 on rank 0 and 1 on rank 1", &moeHandleConfig_t::expertCounts, 1},
      {"config.rowsBudget is 0 on rank 0 and 5 on rank 1", &moeHandleConfig_t::rowsBudget, 5},
      {"config.combineWeights is 0 on rank 0 and 1 on rank 1", &moeHandleConfig_t::combineWeights, 1}};
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

TEST_P(Refusal, BoundsThatDifferAreNamed) {
  world(2, small(), [&](RankContext& context) {
    moeHandleConfig_t shape = handleOf(moeModeHt, moeLayoutFlat);
    moeHandle_t handle = nullptr;
    MOE_ASSERT_OK(moeHandleCreate(&handle, context.comm, &shape), context);
    MOE_EXPECT_OK(moeHandleSetTokensBound(handle, 4 + context.rank), context);
    context.meet();
    moeRoute(handle, nullptr, nullptr, 0, context.stream());
    expectFailure(context, moeInvalidUsage,
                  "moeRoute: ranks disagree: config.tokensMax or tokensBound is 4 on rank 0 and 5 on rank 1");
  });
}

MOE_INSTANTIATE_BACKENDS(Refusal);

}  // namespace
}  // namespace moe::test
