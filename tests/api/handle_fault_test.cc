// Wrong arguments that only a step can see and that end nothing: the step completes, the handle says what was wrong,
// and the next step is right.
#include <cstdlib>

#include "support/api/refusal_calls.h"

namespace moe::test {
namespace {

class HandleFaults : public Refusal {};

TEST_P(HandleFaults, EntriesThatCannotBeRefuseTheRouteOnAllRanks) {
  for (int id : {4, -2, 1}) {
    inEveryLayout([&](const moeHandleConfig_t& shape) {
      world(3, small(), [&](RankContext& context) {
        Calls calls(context, shape);
        std::vector<std::int32_t> ids = calls.ids();
        if (context.rank == 1) {
          ids[3 * kTopk] = 1;
          ids[3 * kTopk + 1] = id;
        }
        context.meet();
        MOE_EXPECT_OK(calls.routeBy(ids), context);
        calls.expectStatus(moeInvalidArgument,
                           "moeRoute: topkIdx[token 3][1] of rank 1 is " + std::to_string(id) +
                               (id == 1 ? ", which an earlier entry of the token names already" : ", not -1..3"));
        moeCounts_t counts = MOE_COUNTS_INITIALIZER;
        MOE_EXPECT_OK(moeHandleGetCounts(calls.handle(), &counts), context);
        EXPECT_EQ(counts.rows, 0);
        calls.roundTrip(0.0f);
        calls.expectStatus(moeInvalidArgument, "of rank 1");
        calls.wholeStep();
      });
    });
  }
}

// Rank 1 lacks something in a dispatch or combine. In HT all ranks know. In LL only rank 1 knows, and its rows count as
// zeros.
void expectLack(Calls& calls, const RankContext& context, int mode, const std::string& sentence) {
  const bool knows = mode == moeModeHt || context.rank == 1;
  calls.expectStatus(knows ? moeInvalidArgument : moeSuccess, knows ? sentence : "");
}
// Each token goes to one expert on each of two ranks.
float sumWithoutRankOne(int mode) {
  return mode == moeModeHt ? 0.0f : 1.0f;
}

TEST_P(HandleFaults, OutputsThatAreTooSmall) {
  inEveryLayout([&](const moeHandleConfig_t& shape) {
    world(2, small(), [&](RankContext& context) {
      Calls calls(context, shape);
      context.meet();
      MOE_EXPECT_OK(calls.route(), context);
      DispatchFields args = calls.dispatchArgs();
      args.outRows = context.arena.take(kRowsMax * kRowBytes);
      if (context.rank == 1) args.outRowsMax = 5;
      MOE_EXPECT_OK(calls.dispatch(args), context);
      expectLack(calls, context, shape.mode, "moeDispatch: the output of rank 1 holds 5 rows but ");
      const auto* out = static_cast<const std::uint8_t*>(args.outRows);
      const bool fills = shape.mode == moeModeLl && context.rank == 0;
      for (std::uint8_t byte : context.arena.get(out, fills ? 0 : kRowsMax * kRowBytes)) ASSERT_EQ(byte, 0xA5);
      CombineFields sum = calls.combineArgs();
      const std::vector<float> ones(kRowsMax * kHidden, 1.0f);
      context.arena.upload(calls.arrived(), ones.data(), ones.size() * 4);
      MOE_EXPECT_OK(calls.combine(sum), context);
      calls.expectSums(sumWithoutRankOne(shape.mode));
      calls.wholeStep();
    });
  });
}

// Engines read such outputs in a graph.
TEST_P(HandleFaults, APaddedDispatchThatDeliversNothingIsAllPadding) {
  for (int mode : {moeModeHt, moeModeLl}) {
    world(2, small(), [&](RankContext& context) {
      Calls calls(context, handleOf(mode, moeLayoutFlat));
      std::vector<std::int32_t> ids = calls.ids();
      if (context.rank == 0) ids[0] = 99;
      context.meet();
      MOE_EXPECT_OK(calls.routeBy(ids), context);
      DispatchFields args = calls.dispatchArgs();
      auto* experts = static_cast<std::int32_t*>(calls.take(kRowsMax * kTopk * 4));
      args.describe.outTopkIdx = experts;
      args.padding = moePadIndices | moePadRows;
      MOE_EXPECT_OK(calls.dispatch(args), context);
      for (std::int32_t id : context.arena.get(experts, kRowsMax * kTopk)) ASSERT_EQ(id, -1);
      for (float value : context.arena.get(static_cast<float*>(calls.arrived()), kRowsMax * kHidden)) {
        ASSERT_EQ(value, 0.0f);
      }
      calls.wholeStep();
    });
  }
}

TEST_P(HandleFaults, RowsOfACombineThatAreNull) {
  for (bool everywhere : {false, true}) {
    inEveryLayout([&](const moeHandleConfig_t& shape) {
      world(2, small(), [&](RankContext& context) {
        Calls calls(context, shape);
        calls.untilCombine();
        CombineFields args = calls.combineArgs();
        if (everywhere || context.rank == 1) args.rows = nullptr;
        MOE_EXPECT_OK(calls.combine(args), context);
        if (everywhere) {
          calls.expectStatus(moeInvalidArgument, "moeCombine: args.rows of rank ");
        } else {
          expectLack(calls, context, shape.mode, "args.rows of rank 1 is NULL or has no room");
        }
        calls.expectSums(everywhere ? 0.0f : sumWithoutRankOne(shape.mode));
        calls.wholeStep();
      });
    });
  }
}

TEST_P(HandleFaults, RowsOfACombineInABlockThatIsTooSmall) {
  for (int layout : {moeLayoutFlat, moeLayoutRankMajor, moeLayoutExpertMajor}) {
    world(2, small(), [&](RankContext& context) {
      Calls calls(context, handleOf(moeModeHt, layout));
      void* block = nullptr;
      MOE_ASSERT_OK(moeMemAlloc(context.comm, 3 * kRowBytes, &block), context);
      calls.untilCombine();
      CombineFields args = calls.combineArgs();
      if (context.rank == 0) args.rows = block;
      MOE_EXPECT_OK(calls.combine(args), context);
      // Blocks have whole units of 256 bytes, while a row has 32, so the room is larger than what was asked for.
      calls.expectStatus(moeInvalidArgument, layout == moeLayoutFlat ? "args.rows of rank 0 has room for"
                                                                     : "moeCombine: args.rows of rank 0");
      calls.expectSums(0.0f);
      calls.wholeStep();
    });
  }
}

TEST_P(HandleFaults, BiasesAreTheSumsOfACombineThatCannotBe) {
  world(2, small(), [&](RankContext& context) {
    Calls calls(context, handleOf(moeModeHt, moeLayoutFlat));
    calls.untilCombine();
    CombineFields args = calls.combineArgs();
    const std::vector<float> threes(kTokens * kHidden, 3.0f);
    args.bias0 = args.bias1 = context.arena.put<float>(threes);
    if (context.rank == 0) args.rows = nullptr;
    MOE_EXPECT_OK(calls.combine(args), context);
    calls.expectSums(6.0f);
    calls.wholeStep();
  });
}

TEST_P(HandleFaults, CombinesThatDifferAreNamedByTheField) {
  for (int layout : {moeLayoutFlat, moeLayoutExpertMajor, moeLayoutExpertMajorPadded, moeLayoutRankMajor}) {
    const auto differs = [&](const char* sentence, const auto& spoil) {
      world(2, small(), [&](RankContext& context) {
        Calls calls(context, handleOf(moeModeHt, layout));
        calls.untilCombine();
        CombineFields args = calls.combineArgs();
        spoil(args, calls, context.rank);
        MOE_EXPECT_OK(calls.combine(args), context);
        calls.expectStatus(moeInvalidUsage, sentence);
        if (context.rank == 1) calls.expectSums(0.0f);  // rank 0 may ask for fewer
        calls.wholeStep();
      });
    };
    differs("moeCombine: ranks disagree: args.rowType is bf16 on rank 0 and fp32 on rank 1",
            [](auto& args, Calls&, int rank) {
              if (rank == 0) {
                args.rowType = moeRowBf16;
                args.hidden = 2 * kHidden;
              }
            });
    differs("moeCombine: ranks disagree: row size in units of 16 bytes is 1 on rank 0 and 2 on rank 1",
            [](auto& args, Calls&, int rank) {
              if (rank == 0) args.hidden = kHidden / 2;
            });
    differs("gradients of the weights (args.grads) is without on rank 0 and with on rank 1",
            [](auto& args, Calls& calls, int rank) {
              if (rank == 1) {
                args.carry(calls.grads(), calls.outGrads());
              }
            });
  }
}

// Each rank is a domain. The rank that lacks something names it, and the other rank names that rank.
TEST_P(HandleFaults, OtherDomainsHearOfAFault) {
  moeConfig_t apart = small();
  apart.domainSize = 1;
  apart.transport = std::getenv("MOECOMM_TRANSPORT") != nullptr ? 0 : moeTransportTcp;
  for (int layout : {moeLayoutFlat, moeLayoutExpertMajor, moeLayoutExpertMajorPadded, moeLayoutRankMajor}) {
    world(2, apart, [&](RankContext& context) {
      Calls calls(context, handleOf(moeModeHt, layout));
      context.meet();
      MOE_EXPECT_OK(calls.route(), context);
      DispatchFields args = calls.dispatchArgs();
      if (context.rank == 1) args.outRowsMax = 5;
      MOE_EXPECT_OK(calls.dispatch(args), context);
      calls.expectStatus(moeInvalidArgument, context.rank == 1
                                                 ? "moeDispatch: the output of rank 1 holds 5 rows but "
                                                 : "moeDispatch: a rank in the domain of rank 1 has a fault");
      MOE_EXPECT_OK(calls.combine(calls.combineArgs()), context);
      calls.expectSums(0.0f);
      calls.wholeStep();

      calls.untilCombine();
      CombineFields sum = calls.combineArgs();
      if (context.rank == 0) sum.rows = nullptr;
      MOE_EXPECT_OK(calls.combine(sum), context);
      calls.expectStatus(moeInvalidArgument, context.rank == 0
                                                 ? "moeCombine: args.rows of rank 0 is NULL or has no room"
                                                 : "moeCombine: a rank in the domain of rank 0 has a fault");
      calls.expectSums(0.0f);
      calls.wholeStep();

      calls.untilCombine();
      sum = calls.combineArgs();
      if (context.rank == 0) sum.hidden = kHidden / 2;
      MOE_EXPECT_OK(calls.combine(sum), context);
      calls.expectStatus(moeInvalidUsage, "row size in units of 16 bytes is 1 on rank 0 and 2 on rank 1");
      calls.wholeStep();
    });
  }
}

// Two domains of two ranks. The other domain does not see what rank 1 has passed, but learns the kind of the fault.
TEST_P(HandleFaults, OtherDomainsHearWhichResultAFaultHas) {
  moeConfig_t apart = small();
  apart.domainSize = 2;
  apart.transport = std::getenv("MOECOMM_TRANSPORT") != nullptr ? 0 : moeTransportTcp;
  world(4, apart, [&](RankContext& context) {
    Calls calls(context, handleOf(moeModeHt, moeLayoutFlat));
    const bool hears = context.rank >= 2;
    context.meet();
    MOE_EXPECT_OK(calls.route(), context);
    DispatchFields args = calls.dispatchArgs();
    if (context.rank == 1) args.hidden = kHidden / 2;
    MOE_EXPECT_OK(calls.dispatch(args), context);
    calls.expectStatus(moeInvalidUsage,
                       hears ? "moeDispatch: a rank in the domain of rank " : "ranks disagree: args.hidden");
    calls.roundTrip(0.0f);

    calls.untilCombine();
    CombineFields sum = calls.combineArgs();
    if (context.rank == 1) sum.hidden = kHidden / 2;
    MOE_EXPECT_OK(calls.combine(sum), context);
    calls.expectStatus(moeInvalidUsage,
                       hears ? "moeCombine: a rank in the domain of rank " : "row size in units of 16 bytes");

    calls.untilCombine();
    sum = calls.combineArgs();
    if (context.rank == 1) sum.rows = nullptr;
    MOE_EXPECT_OK(calls.combine(sum), context);
    calls.expectStatus(moeInvalidArgument,
                       hears ? "moeCombine: a rank in the domain of rank " : "args.rows of rank 1 is NULL");
  });
}

TEST_P(HandleFaults, GradientsThatAreHalfThere) {
  inEveryLayout([&](const moeHandleConfig_t& shape) {
    world(2, small(), [&](RankContext& context) {
      Calls calls(context, shape);
      context.meet();
      MOE_EXPECT_OK(calls.route(), context);
      MOE_EXPECT_OK(calls.dispatch(calls.dispatchArgs()), context);
      CombineFields args = calls.combineArgs();
      args.carry(calls.grads(), nullptr);
      EXPECT_EQ(calls.combine(args), moeInvalidArgument);
      EXPECT_TRUE(says(context.error(), "args.grads.outWeightGrads is NULL with 8 tokens routed"));
      args.carry(nullptr, nullptr);
      EXPECT_EQ(calls.combine(args), moeInvalidArgument);
      EXPECT_TRUE(says(context.error(), "args.grads.outWeightGrads is NULL with 8 tokens routed"));
      calls.roundTrip();
      args.carry(context.rank == 0 ? calls.grads() : nullptr, calls.outGrads());
      MOE_EXPECT_OK(calls.combine(args), context);
      expectLack(calls, context, shape.mode, "args.grads.weightGrads of rank 1 is NULL, but");
      for (int entry = 0; entry < kTokens * kTopk; ++entry) {
        const float grad = context.arena.get(calls.outGrads() + entry, 1)[0];
        ASSERT_EQ(grad, shape.mode == moeModeLl && entry % kTopk == 0 ? 0.5f : 0.0f);
      }
      calls.wholeStep();
    });
  });
}

TEST_P(HandleFaults, StagingAreasThatAreTooSmallAreCalledSo) {
  world(2, small(2), [&](RankContext& context) {
    Calls calls(context, handleOf(moeModeHt, moeLayoutFlat));
    void* window = nullptr;
    MOE_ASSERT_OK(moeMemAlloc(context.comm, kRowsMax * kRowBytes, &window), context);
    context.meet();
    MOE_EXPECT_OK(calls.route(), context);
    MOE_EXPECT_OK(calls.dispatch(calls.dispatchArgs()), context);
    calls.expectStatus(moeInvalidArgument, "is 2, but 16 rows arrive for its output outside the window");
    calls.expectStatus(moeInvalidArgument, "moeDispatch: config.stagingRows of rank 0");
    MOE_EXPECT_OK(calls.route(), context);
    DispatchFields args = calls.dispatchArgs();
    args.outRows = window;
    MOE_EXPECT_OK(calls.dispatch(args), context);
    MOE_EXPECT_OK(calls.combine(calls.combineArgs()), context);
    calls.expectStatus(moeInvalidArgument, "is 2, but 16 rows had arrived there");
    calls.expectSums(0.0f);
  });
}

TEST_P(HandleFaults, DispatchesThatDifferAreNamedByTheField) {
  moePayload_t payload = MOE_PAYLOAD_INITIALIZER;
  payload.bytes = 16;
  payload.outLayout = moePayloadArray;
  for (int mode : {moeModeHt, moeModeLl}) {
    const auto differs = [&](const char* sentence, const auto& spoil) {
      moeConfig_t wide = small();
      wide.sideBytesMax = 64;
      wide.rowBytesMax = 1024;
      world(2, wide, [&](RankContext& context) {
        Calls calls(context, handleOf(mode, moeLayoutFlat));
        context.meet();
        MOE_EXPECT_OK(calls.route(), context);
        DispatchFields args = calls.dispatchArgs();
        if (context.rank == 1) spoil(args, calls);
        MOE_EXPECT_OK(calls.dispatch(args), context);
        calls.expectStatus(moeInvalidUsage, std::string("moeDispatch: ranks disagree: ") + sentence);
        calls.wholeStep();
      });
    };
    differs("args.hidden is 8 on rank 0 and 4 on rank 1", [](auto& args, Calls&) { args.hidden = 4; });
    differs("args.rowType is fp32 on rank 0 and bf16 on rank 1", [](auto& args, Calls&) { args.rowType = moeRowBf16; });
    differs("the bytes of args.payloads is 0 on rank 0 and 16 on rank 1", [&](auto& args, Calls& calls) {
      payload.in = calls.sideIn();
      payload.out = calls.sideOut();
      args.payloads = &payload;
      args.payloadCount = 1;
    });
  }
}

// A completion knows of the fault too, if its dispatch or combine was sent before.
TEST_P(HandleFaults, OfSplitOperations) {
  inEveryLayout([&](const moeHandleConfig_t& shape) {
    world(2, small(), [&](RankContext& context) {
      Calls calls(context, shape);
      context.meet();
      MOE_EXPECT_OK(calls.route(), context);
      DispatchFields args = calls.dispatchArgs();
      args.flags = moeSendOnly;
      if (context.rank == 1) args.outRowsMax = 5;
      MOE_EXPECT_OK(calls.dispatch(args), context);
      MOE_EXPECT_OK(moeComplete(calls.handle(), context.stream()), context);
      expectLack(calls, context, shape.mode, "moeDispatch: the output of rank 1 holds 5 rows but ");
      CombineFields sum = calls.combineArgs();
      sum.flags = moeSendOnly;
      const std::vector<float> ones(kRowsMax * kHidden, 1.0f);
      context.arena.upload(calls.arrived(), ones.data(), ones.size() * 4);
      MOE_EXPECT_OK(calls.combine(sum), context);
      MOE_EXPECT_OK(moeComplete(calls.handle(), context.stream()), context);
      calls.expectSums(sumWithoutRankOne(shape.mode));
      calls.wholeStep();
    });
  });
}

// Each token names one expert in both entries, as the dummy batch of an idle rank does.
TEST_P(HandleFaults, ButAHandleMayMergeExpertsThatComeTwice) {
  for (int mode : {moeModeHt, moeModeLl}) {
    for (int layout : {moeLayoutExpertMajor, moeLayoutExpertMajorPadded}) {
      world(2, small(), [&](RankContext& context) {
        moeHandleConfig_t shape = handleOf(mode, layout);
        shape.duplicates = moeDuplicatesMerge;
        Calls calls(context, shape);
        std::vector<float> weights;
        for (int t = 0; t < kTokens; ++t) weights.push_back(0.5f), weights.push_back(static_cast<float>(t));
        const auto* ids = context.arena.put<std::int32_t>(std::vector<std::int32_t>(kTokens * kTopk, 2));
        const auto* weightsThere = context.arena.put<float>(weights);
        context.meet();
        MOE_EXPECT_OK(moeRoute(calls.handle(), ids, weightsThere, kTokens, context.stream()), context);
        calls.expectStatus(moeSuccess, "");
        moeCounts_t counts = MOE_COUNTS_INITIALIZER;
        MOE_EXPECT_OK(moeHandleGetCounts(calls.handle(), &counts), context);
        EXPECT_EQ(counts.rows, context.rank == 1 ? 2 * kTokens : 0);
        MOE_EXPECT_OK(calls.dispatch(calls.dispatchArgs()), context);
        CombineFields args = calls.combineArgs();
        args.weights = moeWeightsApply;
        args.carry(calls.grads(), calls.outGrads());
        MOE_EXPECT_OK(calls.combine(args), context);
        const auto sums = context.arena.get(static_cast<float*>(calls.out()), kTokens * kHidden);
        for (int i = 0; i < kTokens * kHidden; ++i) {
          ASSERT_EQ(sums[static_cast<std::size_t>(i)], 0.5f + static_cast<float>(i / kHidden));
        }
        for (float grad : context.arena.get(calls.outGrads(), kTokens * kTopk)) ASSERT_EQ(grad, 0.5f);
      });
    }
  }
}

TEST_P(HandleFaults, TheStatusOfAHandleThatWasNotUsedIsGood) {
  world(1, small(), [](RankContext& context) {
    Calls calls(context, handleOf(moeModeHt, moeLayoutFlat));
    calls.expectStatus(moeSuccess, "");
    EXPECT_EQ(moeHandleGetStatus(calls.handle(), nullptr), moeInvalidArgument);
    EXPECT_TRUE(says(context.error(), "status is NULL"));
    moeHandleStatus_t status = MOE_HANDLE_STATUS_INITIALIZER;
    EXPECT_EQ(moeHandleGetStatus(nullptr, &status), moeInvalidArgument);
  });
}

MOE_INSTANTIATE_BACKENDS(HandleFaults);

}  // namespace
}  // namespace moe::test
