// Wrong arguments that the host can see: a sentence names the argument, and the next correct call works.
#include "support/api/refusal_calls.h"

namespace moe::test {
namespace {

class HostRefusal : public Refusal {};

// A refused call makes no route: later calls use the route before it.
TEST_P(HostRefusal, OfARouteWithItsDispatchLeavesTheEarlierRoute) {
  inEveryLayout([&](const moeHandleConfig_t& shape) {
    world(2, small(), [&](RankContext& context) {
      Calls calls(context, shape);
      auto* bytes = static_cast<std::uint8_t*>(calls.take(4096));
      context.meet();
      const auto refuses = [&](const char* sentence, int tokens, const auto& spoil) {
        DispatchFields args = calls.dispatchArgs();
        spoil(args);
        EXPECT_EQ(calls.routeDispatch(args, tokens), moeInvalidArgument) << sentence;
        EXPECT_TRUE(says(context.error(), sentence));
      };
      refuses("args.rows is NULL with tokens", 1, [](auto& args) { args.rows = nullptr; });
      DispatchFields args = calls.dispatchArgs();
      EXPECT_EQ(calls.dispatch(args), moeInvalidUsage) << "a refused call made a route";
      EXPECT_TRUE(says(context.error(), "moeDispatch: moeRoute has not been called on this handle"));
      MOE_EXPECT_OK(calls.route(), context);
      refuses("tokens is 9", 9, [](auto&) {});
      refuses("moeRouteDispatch: args.hidden is 3", 1, [](auto& spoiled) { spoiled.hidden = 3; });
      refuses("args.outRowsMax is -1, must be 0 or more", 1, [](auto& spoiled) { spoiled.outRowsMax = -1; });
      args.describe.outSourceIndex = reinterpret_cast<std::int32_t*>(bytes);
      EXPECT_EQ(moeRouteDispatch(calls.handle(), bytes, nullptr, 1, args.linked(), context.stream()),
                moeInvalidArgument);
      EXPECT_TRUE(says(context.error(), "overlaps topkIdx ("));
      calls.roundTrip();
      MOE_EXPECT_OK(calls.routeDispatch(calls.dispatchArgs()), context);
      calls.roundTrip();
    });
  });
}

// The host refuses each wrong call, and the next one works.
TEST_P(HostRefusal, OfADispatchLetsTheCommunicatorGoOn) {
  inEveryLayout([&](const moeHandleConfig_t& shape) {
    moeConfig_t wide = small();
    wide.sideBytesMax = 64;
    world(2, wide, [&](RankContext& context) {
      Calls calls(context, shape);
      const bool perExpert = shape.layout == moeLayoutExpertMajor || shape.layout == moeLayoutExpertMajorPadded;
      auto* bytes = static_cast<std::uint8_t*>(calls.take(4096));
      const auto refusesRoute = [&](const void* ids, const void* weights, const char* sentence) {
        EXPECT_EQ(moeRoute(calls.handle(), ids, static_cast<const float*>(weights), 1, context.stream()),
                  moeInvalidArgument);
        EXPECT_TRUE(says(context.error(), sentence));
      };
      context.meet();
      refusesRoute(bytes + 2, nullptr, "topkIdx is ");
      refusesRoute(bytes, bytes + 2, "topkWeights is ");
      EXPECT_TRUE(says(context.error(), "not aligned to 4 bytes"));
      MOE_EXPECT_OK(calls.route(), context);
      const auto refuses = [&](const char* sentence, const auto& spoil) {
        DispatchFields args = calls.dispatchArgs();
        spoil(args);
        EXPECT_EQ(calls.dispatch(args), moeInvalidArgument) << sentence;
        EXPECT_TRUE(says(context.error(), sentence));
      };
      refuses("args.padding is 4, must be made of moePadIndices and moePadRows", [](auto& args) { args.padding = 4; });
      refuses("args.describe.idKind is 2", [](auto& args) { args.describe.idKind = 2; });
      if (shape.mode == moeModeLl && shape.layout == moeLayoutRankMajor) {
        refuses("args.padding has moePadRows, but args.outRows is NULL, so that rows stay in slots",
                [](auto& args) { args.outRows = nullptr, args.outRowsMax = 0, args.padding = moePadRows; });
      }
      refuses("args.flags is 32, must be moeSendOnly, moeSendOnly | moeOutputsLater or 0",
              [](auto& args) { args.flags = 32; });
      refuses("args.cast.flags is 4, but args.cast.type is none", [](auto& args) { args.cast.flags = moeCastExact; });
      refuses("args.describe.outTopkWeights is ",
              [&](auto& args) { args.describe.outTopkWeights = reinterpret_cast<float*>(bytes + 1); });
      refuses("args.describe.outSourceIndex is ",
              [&](auto& args) { args.describe.outSourceIndex = reinterpret_cast<std::int32_t*>(bytes + 2); });
      refuses("args.outRows (", [&](auto& args) { args.outRows = const_cast<void*>(args.rows); });
      EXPECT_TRUE(says(context.error(), "overlaps args.rows ("));
      refuses("args.describe.outSourceIndex (",
              [&](auto& args) { args.describe.outSourceIndex = static_cast<std::int32_t*>(calls.arrived()) + 8; });
      EXPECT_TRUE(says(context.error(), "overlaps args.outRows ("));
      refuses("args.outRowsMax is -1, must be 0 or more", [](auto& args) { args.outRowsMax = -1; });
      if (perExpert) {
        refuses("args.describe.outTopkIdx is ", [&](auto& args) { args.describe.outTopkIdx = bytes; });
        EXPECT_TRUE(says(context.error(), "this output needs FLAT or RANK_MAJOR"));
      } else {
        refuses("args.describe.outTopkIdx is ", [&](auto& args) { args.describe.outTopkIdx = bytes + 2; });
      }
      if (shape.layout != moeLayoutExpertMajor) {
        refuses("the layout is not EXPERT_MAJOR",
                [&](auto& args) { args.describe.outExpertOffsets = reinterpret_cast<std::int32_t*>(bytes); });
      }
      calls.roundTrip();
    });
  });
}

TEST_P(HostRefusal, OfArraysThatDescribeARouteLetsTheCommunicatorGoOn) {
  inEveryLayout([&](const moeHandleConfig_t& shape) {
    world(2, small(), [&](RankContext& context) {
      Calls calls(context, shape);
      const bool perExpert = shape.layout == moeLayoutExpertMajor || shape.layout == moeLayoutExpertMajorPadded;
      auto* bytes = static_cast<std::uint8_t*>(calls.take(4096));
      MOE_EXPECT_OK(calls.route(), context);
      const auto refuses = [&](const char* sentence, const auto& spoil) {
        DispatchFields args = calls.dispatchArgs();
        spoil(args);
        EXPECT_EQ(calls.dispatch(args), moeInvalidArgument) << sentence;
        EXPECT_TRUE(says(context.error(), sentence));
      };
      refuses(perExpert ? "args.describe.outLayoutRange (" : "but the layout has no row per expert",
              [&](auto& args) { args.describe.outLayoutRange = static_cast<std::int64_t*>(calls.arrived()); });
      refuses(perExpert ? "args.describe.outRowExperts is " : "but the layout has no row per expert",
              [&](auto& args) { args.describe.outRowExperts = reinterpret_cast<std::int32_t*>(bytes + 2); });
      calls.roundTrip();
    });
  });
}

TEST_P(HostRefusal, OfACombineLetsTheCommunicatorGoOn) {
  inEveryLayout([&](const moeHandleConfig_t& shape) {
    world(2, small(), [&](RankContext& context) {
      Calls calls(context, shape);
      auto* bytes = static_cast<std::uint8_t*>(calls.take(4096));
      context.meet();
      MOE_EXPECT_OK(calls.route(), context);
      const auto refusesSum = [&](const char* sentence, const auto& spoil) {
        CombineFields args = calls.combineArgs();
        spoil(args);
        EXPECT_EQ(calls.combine(args), moeInvalidArgument) << sentence;
        EXPECT_TRUE(says(context.error(), sentence));
      };
      refusesSum("args.wire is -1, must be 0..4", [](auto& args) { args.wire = -1; });
      refusesSum("must be a multiple of 128 with args.wire", [](auto& args) { args.wire = moeWireFp8; });
      refusesSum("args.flags is 4, must be moeSendOnly or 0", [](auto& args) { args.flags = 4; });
      refusesSum("args.out (", [&](auto& args) { args.out = const_cast<void*>(args.rows); });
      EXPECT_TRUE(says(context.error(), "overlaps args.rows ("));
      refusesSum("overlaps args.bias0 (", [&](auto& args) { args.bias0 = static_cast<char*>(args.out) + 16; });
      refusesSum("args.grads.weightGrads is ",
                 [&](auto& args) { args.carry(reinterpret_cast<float*>(bytes + 2), calls.outGrads()); });
      refusesSum("args.grads.outWeightGrads is ",
                 [&](auto& args) { args.carry(calls.grads(), reinterpret_cast<float*>(bytes + 2)); });
      calls.roundTrip();
    });
  });
}

TEST_P(HostRefusal, MoreRowsThanABlockCanHoldAreNotMultipliedAway) {
  world(1, small(), [&](RankContext& context) {
    Calls calls(context, handleOf(moeModeHt, moeLayoutFlat));
    moeHandle_t alone = calls.handle();
    void* block = nullptr;
    MOE_ASSERT_OK(moeMemAlloc(context.comm, 256, &block), context);
    MOE_EXPECT_OK(moeRoute(alone, nullptr, nullptr, 0, context.stream()), context);
    DispatchFields args = calls.dispatchArgs();
    // times 32 bytes: 2^64
    args.outRows = block;
    args.outRowsMax = std::int64_t{1} << 59;
    EXPECT_EQ(calls.dispatch(args), moeInvalidArgument);
    EXPECT_TRUE(says(context.error(), "but the block of moeMemAlloc has only 256 from there on"));
  });
}

TEST_P(HostRefusal, ABiasMayBeTheOutput) {
  inEveryLayout([&](const moeHandleConfig_t& shape) {
    world(2, small(), [&](RankContext& context) {
      Calls calls(context, shape);
      context.meet();
      MOE_EXPECT_OK(calls.route(), context);
      calls.roundTrip();
      MOE_EXPECT_OK(calls.dispatch(calls.dispatchArgs()), context);
      CombineFields args = calls.combineArgs();
      args.bias0 = args.out;
      MOE_EXPECT_OK(calls.combine(args), context);
      for (float value : context.arena.get(static_cast<float*>(calls.out()), kTokens * kHidden)) {
        ASSERT_EQ(value, 4.0f);
      }
    });
  });
}

TEST_P(HostRefusal, WindowMemoryAfterAnAbort) {
  world(1, small(), [](RankContext& context) {
    void *before = nullptr, *after = nullptr;
    MOE_ASSERT_OK(moeMemAlloc(context.comm, 256, &before), context);
    EXPECT_EQ(moeCommGetAsyncError(context.comm, nullptr), moeInvalidArgument);
    EXPECT_TRUE(says(context.error(), "error is NULL"));
    EXPECT_EQ(moeCommAbort(context.comm), moeSuccess);
    EXPECT_EQ(moeMemAlloc(context.comm, 256, &after), moeAborted);
    EXPECT_EQ(after, nullptr);
    EXPECT_EQ(moeMemFree(context.comm, before), moeSuccess);
  });
}

TEST_P(HostRefusal, WhatIsDestroyedIsNotUsed) {
  world(1, small(), [&](RankContext& context) {
    Calls calls(context, handleOf(moeModeHt, moeLayoutFlat));
    const moeHandle_t handle = calls.handle();
    MOE_EXPECT_OK(moeHandleDestroy(handle), context);
    EXPECT_EQ(moeHandleDestroy(handle), moeInvalidArgument);
    EXPECT_TRUE(says(moeGetLastError(nullptr), "handle is invalid or already destroyed"));
    EXPECT_EQ(calls.route(), moeInvalidArgument);
    moeCounts_t counts = MOE_COUNTS_INITIALIZER;
    EXPECT_EQ(moeHandleGetCounts(handle, &counts), moeInvalidArgument);
  });
  if (startedRanks() != 0) return;
  moeUniqueId_t id;
  ASSERT_EQ(moeGetUniqueId(&id), moeSuccess);
  const moeConfig_t alone = small();
  moeComm_t comm = nullptr;
  ASSERT_EQ(moeCommInit(&comm, 1, 0, &id, &alone), moeSuccess);
  ASSERT_EQ(moeCommDestroy(comm), moeSuccess);
  EXPECT_EQ(moeCommDestroy(comm), moeInvalidArgument);
  EXPECT_TRUE(says(moeGetLastError(nullptr), "comm is NULL, invalid or already destroyed"));
  EXPECT_TRUE(says(moeGetLastError(comm), "comm is NULL, invalid or already destroyed"));
  moeHandle_t handle = nullptr;
  const moeHandleConfig_t shape = handleOf(moeModeHt, moeLayoutFlat);
  EXPECT_EQ(moeHandleCreate(&handle, comm, &shape), moeInvalidArgument);
  EXPECT_EQ(moeCommAbort(comm), moeInvalidArgument);
}

MOE_INSTANTIATE_BACKENDS(HostRefusal);

}  // namespace
}  // namespace moe::test
