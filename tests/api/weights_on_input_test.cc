// Rows that are multiplied by their tokens' weights before they are cast (moeWeightsOnInput).
#include "support/api/refusal_calls.h"

namespace moe::test {
namespace {

class WeightsOnInput : public Refusal {};

StepCase weighedCase(int mode, int layout, int cast, bool scalesInput) {
  StepCase c;
  c.mode = mode;
  c.layout = layout;
  c.cast = cast;
  c.topk = 1;
  c.tokensMax = 9;
  c.weighsInput = true;
  c.rowType = 1 + (layout + cast) % 3;
  c.hidden = 128 * (1 + (layout + cast) % 5);
  c.exact = cast == moeCastFp8 && layout % 2 == 0;
  c.scalesInput = scalesInput;
  c.scalesAll = cast == moeCastNvfp4;
  c.scales = layout % 2 == 0 ? moeScalesTokenContiguous : moeScalesRowMajor;
  c.window = mode == moeModeHt && cast % 2 == 0;
  c.seed = static_cast<std::uint64_t>(850 + 40 * mode + 8 * layout + cast);
  return c;
}

// A dispatch that routes reads the weights from the caller's array; other dispatches read those that the route kept.
TEST_P(WeightsOnInput, CountBeforeEveryCast) {
  for (const int mode : {moeModeHt, moeModeLl}) {
    for (int layout = moeLayoutFlat; layout <= moeLayoutRankMajor; ++layout) {
      world(3, config(), [&](RankContext& context) {
        for (int cast = moeCastFp8; cast <= moeCastNvfp4; ++cast) {
          for (const bool scalesInput : {false, true}) {
            MoeStep step(context, weighedCase(mode, layout, cast, scalesInput));
            for (int i = 0; i < 4; ++i) {
              step.prepare(i);
              if (i % 2 == 0) {
                step.route();
                step.dispatch(i == 2 ? moeSendOnly : 0);
              } else {
                step.routeDispatch(i == 3 ? moeSendOnly : 0);
              }
              if (i >= 2) step.complete();
              step.checkDispatch();
            }
          }
        }
      });
    }
  }
}

// Weights that the route was not given are 1.
TEST_P(WeightsOnInput, WithoutWeightsRowsStayAsTheyAre) {
  for (const int mode : {moeModeHt, moeModeLl}) {
    world(2, small(), [&](RankContext& context) {
      moeHandleConfig_t shape = handleOf(mode, moeLayoutFlat);
      shape.topk = 1;
      moeHandle_t handle = nullptr;
      MOE_ASSERT_OK(moeHandleCreate(&handle, context.comm, &shape), context);
      const std::vector<float> ones(128, 1.0f);
      const std::vector<std::int32_t> ids = {2 * context.rank};
      DispatchFields args;
      args.rows = context.arena.put<float>(ones);
      args.rowType = moeRowFp32;
      args.hidden = 128;
      args.cast.type = moeCastFp8Pow2;
      args.cast.flags = moeWeightsOnInput;
      args.outRows = context.arena.take(4 * 128);
      args.cast.outScales = context.arena.take(4 * 4);
      args.outRowsMax = 4;
      const auto* idsThere = context.arena.put<std::int32_t>(ids);
      context.meet();
      MOE_EXPECT_OK(moeRouteDispatch(handle, idsThere, nullptr, 1, args.linked(), context.stream()), context);
      EXPECT_EQ(context.arena.get(static_cast<float*>(args.cast.outScales), 1)[0], 0x1p-8f);  // 2^ceil(log2(1 / 448))
      MOE_EXPECT_OK(moeDispatch(handle, args.linked(), context.stream()), context);
      EXPECT_EQ(context.arena.get(static_cast<float*>(args.cast.outScales), 1)[0], 0x1p-8f);
      context.meet();
      MOE_EXPECT_OK(moeHandleDestroy(handle), context);
    });
  }
}

TEST_P(WeightsOnInput, NeedACastAndOneExpertPerToken) {
  world(1, small(), [](RankContext& context) {
    moeHandleConfig_t shape = handleOf(moeModeHt, moeLayoutFlat);
    Calls two(context, shape);
    MOE_EXPECT_OK(two.route(), context);
    DispatchFields args = two.dispatchArgs();
    args.cast.flags = moeWeightsOnInput;
    EXPECT_EQ(two.dispatch(args), moeInvalidArgument);
    EXPECT_TRUE(says(context.error(), "args.cast.flags is 8, but args.cast.type is none"));
    args.hidden = 128;
    args.rowType = moeRowBf16;
    args.cast.type = moeCastFp8;
    args.cast.outScales = two.take(4096);
    EXPECT_EQ(two.dispatch(args), moeInvalidArgument);
    EXPECT_TRUE(says(context.error(), "args.cast.flags has moeWeightsOnInput, but config.topk is 2, must be 1"));
    EXPECT_EQ(two.routeDispatch(args), moeInvalidArgument);
    EXPECT_TRUE(says(context.error(), "config.topk is 2, must be 1"));
    args.flags = 32;
    EXPECT_EQ(two.dispatch(args), moeInvalidArgument);
    EXPECT_TRUE(says(context.error(), "args.flags is 32"));
  });
}

TEST_P(WeightsOnInput, IfRanksDifferTheFlagIsNamed) {
  for (const int mode : {moeModeHt, moeModeLl}) {
    world(2, small(), [&](RankContext& context) {
      moeHandleConfig_t shape = handleOf(mode, moeLayoutFlat);
      shape.topk = 1;
      Calls calls(context, shape);
      DispatchFields args = calls.dispatchArgs();
      args.hidden = 128;
      args.rowType = moeRowBf16;
      args.cast.type = moeCastFp8;
      args.rows = calls.take(kTokens * 256);
      args.outRows = calls.take(kRowsMax * 128);
      args.cast.outScales = calls.take(kRowsMax * 4);
      args.cast.flags = context.rank == 0 ? moeWeightsOnInput : 0;
      context.meet();
      MOE_EXPECT_OK(calls.routeDispatch(args), context);
      calls.expectStatus(moeInvalidUsage, "ranks disagree: moeWeightsOnInput is set on rank 0 and not set on rank 1");
      context.meet();
    });
  }
}

MOE_INSTANTIATE_BACKENDS(WeightsOnInput);

}  // namespace
}  // namespace moe::test
