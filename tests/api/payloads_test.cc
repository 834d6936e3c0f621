// Several payloads beside a row, as words that lie anywhere at both ends.
#include "support/api/refusal_calls.h"

namespace moe::test {
namespace {

class Payloads : public Refusal {};

// Four payloads of 17 words, in every layout: blocks, columns with a gap, rows with a gap, and dense rows.
PayloadCase fourPayloads(bool columns) {
  PayloadCase payloads;
  payloads.columns = columns;
  payloads.forms = {{3, 12, moeScales128x4, 0},
                    {1, 4, moeScalesRowMajor, 0},
                    {5, 20, moeScalesTokenContiguous, 3},
                    {8, 32, moeScalesRowMajor, columns ? 2 : 0}};
  return payloads;
}

StepCase payloadCase(int mode, int layout, bool columns) {
  StepCase c;
  c.mode = mode;
  c.layout = layout;
  c.payloads = fourPayloads(columns);
  c.tokensMax = 9;
  c.alignment = columns ? 8 : 1;
  c.window = mode == moeModeHt && columns;
  c.padding = columns ? moePadRows : 0;
  c.seed = static_cast<std::uint64_t>(4000 + 40 * mode + 2 * layout + (columns ? 1 : 0));
  return c;
}

moeConfig_t withRoom(moeConfig_t config) {
  config.sideBytesMax = 80;  // 17 words, rounded up
  return config;
}

void runStep(MoeStep& step, int iteration) {
  step.prepare(iteration);
  const int flags = iteration >= 2 ? moeSendOnly : 0;
  if (iteration % 2 == 0) {
    step.route();
    step.dispatch(flags);
  } else {
    step.routeDispatch(flags);
  }
  if (flags != 0) step.complete();
  step.checkDispatch();
}

TEST_P(Payloads, ReachTheirPlacesInEveryLayout) {
  for (const int mode : {moeModeHt, moeModeLl}) {
    for (int layout = moeLayoutFlat; layout <= moeLayoutRankMajor; ++layout) {
      world(3, withRoom(config()), [&](RankContext& context) {
        for (const bool columns : {false, true}) {
          MoeStep step(context, payloadCase(mode, layout, columns));
          for (int i = 0; i < 4; ++i) runStep(step, i);
        }
      });
    }
  }
}

// In LL a rank takes a payload of dense rows as an array. Its peers need not know.
TEST_P(Payloads, MayBeDenseRowsOnOneRankAndColumnsOnOthers) {
  for (const int mode : {moeModeHt, moeModeLl}) {
    for (int layout = moeLayoutFlat; layout <= moeLayoutRankMajor; ++layout) {
      for (const int cast : {moeCastNone, moeCastFp8}) {
        world(3, withRoom(config()), [&](RankContext& context) {
          const bool dense = context.rank == 1;
          StepCase c = payloadCase(mode, layout, false);
          c.payloads.forms = {{8, 32, dense ? moeScalesRowMajor : moeScalesTokenContiguous, 0}};
          c.payloads.columns = !dense;
          c.cast = cast;
          c.hidden = 256;
          MoeStep step(context, c);
          for (int i = 0; i < 4; ++i) runStep(step, i);
        });
      }
    }
  }
}

TEST_P(Payloads, TravelBesideACast) {
  for (const int mode : {moeModeHt, moeModeLl}) {
    for (int layout = moeLayoutFlat; layout <= moeLayoutRankMajor; ++layout) {
      world(3, withRoom(config()), [&](RankContext& context) {
        for (const int cast : {moeCastFp8, moeCastMxfp8, moeCastNvfp4}) {
          StepCase c = payloadCase(mode, layout, cast == moeCastMxfp8);
          c.cast = cast;
          c.hidden = 256;
          c.scales = cast == moeCastMxfp8 ? moeScales128x4 : moeScalesTokenContiguous;
          MoeStep step(context, c);
          for (int i = 0; i < 2; ++i) runStep(step, i);
        }
      });
    }
  }
}

TEST_P(Payloads, AreSidePayloadInAView) {
  world(2, withRoom(small()), [](RankContext& context) {
    Calls calls(context, handleOf(moeModeLl, moeLayoutRankMajor));
    std::vector<std::int32_t> words(kTokens * 3);
    for (std::size_t i = 0; i < words.size(); ++i) words[i] = 1000 * context.rank + static_cast<int>(i);
    moePayload_t payload = MOE_PAYLOAD_INITIALIZER;
    payload.bytes = 12;
    payload.in = context.arena.put<std::int32_t>(words);
    DispatchFields args = calls.dispatchArgs();
    args.outRows = nullptr;
    args.outRowsMax = 0;
    args.payloads = &payload;
    args.payloadCount = 1;
    context.meet();
    MOE_EXPECT_OK(calls.routeDispatch(args), context);
    context.arena.synchronize();
    moeHandleView_t view = MOE_HANDLE_VIEW_INITIALIZER;
    MOE_EXPECT_OK(moeHandleGetView(calls.handle(), &view), context);
    const auto side = context.arena.get(static_cast<const std::int32_t*>(view.side), 2 * 8 * 4);
    for (int source = 0; source < 2; ++source) {
      for (int t = 0; t < kTokens; ++t) {
        const auto row = static_cast<std::size_t>((source * 8 + t) * 4);
        for (int w = 0; w < 3; ++w) EXPECT_EQ(side[row + static_cast<std::size_t>(w)], 1000 * source + 3 * t + w);
        EXPECT_EQ(side[row + 3], 0);
      }
    }
    context.meet();
  });
}

// The sentences of calls that refuse payloads. Each case spoils one argument of a right call.
struct Spoiled {
  void (*spoil)(DispatchFields&, moePayload_t*);
  const char* sentence;
};
constexpr Spoiled kSpoiled[] = {
    {[](DispatchFields& args, moePayload_t*) { args.payloadCount = 5; }, "args.payloadCount is 5, must be 0..4"},
    {[](DispatchFields& args, moePayload_t*) { args.payloadCount = -1; }, "args.payloadCount is -1"},
    {[](DispatchFields& args, moePayload_t*) { args.payloads = nullptr; }, "args.payloads is NULL"},
    {[](DispatchFields&, moePayload_t* p) { p[1].size = 8; },
     "args.payloads[1].size is 8, must be that of the first payload, 64"},
    {[](DispatchFields&, moePayload_t* p) { p[1].bytes = 6; }, "args.payloads[1].bytes is 6, must be a multiple of 4"},
    {[](DispatchFields&, moePayload_t* p) { p[0].bytes = 0; }, "args.payloads[0].bytes is 0"},
    {[](DispatchFields&, moePayload_t* p) { p[0].bytes = 80; }, "args.payloads have 84 bytes for a row"},
    {[](DispatchFields&, moePayload_t* p) { p[0].in = nullptr; }, "args.payloads[0].in is NULL with tokens"},
    {[](DispatchFields&, moePayload_t* p) { p[1].out = nullptr; }, "args.payloads[1].out is NULL"},
    {[](DispatchFields&, moePayload_t* p) { p[0].in = static_cast<const char*>(p[0].in) + 2; },
     "not aligned to 4 bytes"},
    {[](DispatchFields&, moePayload_t* p) { p[0].outLayout = 4; }, "args.payloads[0].outLayout is 4"},
    {[](DispatchFields&, moePayload_t* p) { p[0].inRowStride = 6; }, "args.payloads[0].inRowStride is 6"},
    {[](DispatchFields&, moePayload_t* p) { p[0].outWordStride = -4; }, "args.payloads[0].outWordStride is -4"},
    {[](DispatchFields&, moePayload_t* p) { p[0].outLayout = moeScales128x4, p[0].outRowStride = 64; },
     "but outLayout moeScales128x4 takes no strides"},
    {[](DispatchFields&, moePayload_t* p) { p[0].outRowStride = 4; }, "share memory"},
    {[](DispatchFields&, moePayload_t* p) { p[1].out = p[0].out; }, "overlaps"},
    {[](DispatchFields&, moePayload_t* p) { p[1].out = const_cast<void*>(p[0].in); }, "overlaps"},
    {[](DispatchFields& args, moePayload_t*) { args.outRows = nullptr, args.outRowsMax = 0; },
     "args.payloads[0].out is"},
};

TEST_P(Payloads, ThatCannotBeAreRefusedAndTheHandleGoesOn) {
  for (const int mode : {moeModeHt, moeModeLl}) {
    moeConfig_t roomy = withRoom(small());
    world(1, roomy, [&](RankContext& context) {
      Calls calls(context, handleOf(mode, moeLayoutFlat));
      MOE_EXPECT_OK(calls.route(), context);
      for (const Spoiled& spoiled : kSpoiled) {
        moePayload_t payloads[2] = {MOE_PAYLOAD_INITIALIZER, MOE_PAYLOAD_INITIALIZER};
        for (int i = 0; i < 2; ++i) {
          payloads[i].bytes = i == 0 ? 8 : 4;
          payloads[i].in = calls.take(kTokens * 8);
          payloads[i].out = calls.take(kRowsMax * 8);
        }
        DispatchFields args = calls.dispatchArgs();
        args.payloads = payloads;
        args.payloadCount = 2;
        spoiled.spoil(args, payloads);
        EXPECT_EQ(calls.dispatch(args), moeInvalidArgument) << spoiled.sentence;
        EXPECT_TRUE(says(context.error(), spoiled.sentence));
      }
      DispatchFields args = calls.dispatchArgs();
      args.describe.outBlockOffsets = static_cast<std::int32_t*>(calls.take(64));
      EXPECT_EQ(calls.dispatch(args), moeInvalidArgument);
      EXPECT_TRUE(says(context.error(), "neither args.cast.scaleLayout nor a payload's outLayout is moeScales128x4"));
      MOE_EXPECT_OK(calls.dispatch(calls.dispatchArgs()), context);
      calls.expectStatus(moeSuccess, "");
    });
  }
}

TEST_P(Payloads, OfOtherSizesOnAnotherRankDeliverNothing) {
  for (const int mode : {moeModeHt, moeModeLl}) {
    world(2, withRoom(small()), [&](RankContext& context) {
      Calls calls(context, handleOf(mode, moeLayoutFlat));
      moePayload_t payloads[2] = {MOE_PAYLOAD_INITIALIZER, MOE_PAYLOAD_INITIALIZER};
      for (int i = 0; i < 2; ++i) {
        payloads[i].bytes = context.rank == i ? 8 : 4;  // the same sum on both ranks
        payloads[i].in = calls.take(kTokens * 8), payloads[i].out = calls.take(kRowsMax * 8);
      }
      DispatchFields args = calls.dispatchArgs();
      args.payloads = payloads;
      args.payloadCount = 2;
      context.meet();
      MOE_EXPECT_OK(calls.routeDispatch(args), context);
      calls.expectStatus(moeInvalidUsage, "ranks disagree: the fingerprint of the sizes in args.payloads is");
      context.meet();
      payloads[0].bytes = payloads[1].bytes = 4;
      MOE_EXPECT_OK(calls.routeDispatch(args), context);
      calls.expectStatus(moeSuccess, "");
      context.meet();
    });
  }
}

// An HT step stores an array straight to the outputs of others.
TEST_P(Payloads, AreAnArrayOnAllRanksOrOnNone) {
  for (const int mode : {moeModeHt, moeModeLl}) {
    world(2, withRoom(small()), [&](RankContext& context) {
      Calls calls(context, handleOf(mode, moeLayoutFlat));
      moePayload_t payload = MOE_PAYLOAD_INITIALIZER;
      payload.bytes = 16;
      payload.in = calls.take(kTokens * 16);
      payload.out = calls.take(kRowsMax * 16);
      if (context.rank == 0) payload.outLayout = moePayloadArray;
      DispatchFields args = calls.dispatchArgs();
      args.payloads = &payload;
      args.payloadCount = 1;
      context.meet();
      MOE_EXPECT_OK(calls.routeDispatch(args), context);
      calls.expectStatus(
          moeInvalidUsage,
          "ranks disagree: the fingerprint of the sizes in args.payloads is none (of an array of rows) on rank 0 and ");
      context.meet();
    });
  }
}

TEST_P(Payloads, ThatAreAnArrayAreAloneAlignedAndDense) {
  world(1, withRoom(small()), [&](RankContext& context) {
    Calls calls(context, handleOf(moeModeHt, moeLayoutFlat));
    MOE_EXPECT_OK(calls.route(), context);
    auto* in = static_cast<char*>(calls.take(kTokens * 16 + 16));
    void* out = calls.take(kRowsMax * 16);
    const auto refuses = [&](const char* sentence, const auto& spoil) {
      moePayload_t payloads[2] = {MOE_PAYLOAD_INITIALIZER, MOE_PAYLOAD_INITIALIZER};
      payloads[0].outLayout = moePayloadArray;
      payloads[0].bytes = 16;
      payloads[0].in = in;
      payloads[0].out = out;
      DispatchFields args = calls.dispatchArgs();
      args.payloads = payloads;
      args.payloadCount = 1;
      MOE_EXPECT_OK(calls.dispatch(args), context);
      spoil(args, payloads[0]);
      EXPECT_EQ(calls.dispatch(args), moeInvalidArgument) << sentence;
      EXPECT_TRUE(says(context.error(), sentence));
    };
    refuses("args.payloadCount is 2, must be 1 with moePayloadArray", [](auto& args, auto&) { args.payloadCount = 2; });
    refuses("but a stride is not 0", [](auto&, auto& payload) { payload.inRowStride = 16; });
    refuses("its rows have 12 bytes, must be a multiple of 16", [](auto&, auto& payload) { payload.bytes = 12; });
    refuses("args.payloads[0].in is ", [&](auto&, auto& payload) { payload.in = in + 4; });
    refuses("not aligned to 16 bytes", [&](auto&, auto& payload) { payload.in = in + 4; });
  });
}

MOE_INSTANTIATE_BACKENDS(Payloads);

}  // namespace
}  // namespace moe::test
