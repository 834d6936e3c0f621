// Refused calls. If a call is repeated in time, no other rank notices. A rank that cannot repeat it takes part with a
// refusal (moeRefused), so that nobody waits for it. docs/decisions/0095.
#include <cstdlib>

#include "support/api/refusal_calls.h"

namespace moe::test {
namespace {

class RefusedCalls : public Refusal {
 protected:
  static DispatchFields refusedDispatch() {
    DispatchFields args;
    args.flags = moeRefused;
    return args;
  }
  static CombineFields refusedCombine() {
    CombineFields args;
    args.flags = moeRefused;
    args.rowType = moeRowFp32;
    args.hidden = kHidden;
    return args;
  }
  static std::string refusedBy(int rank) { return "rank " + std::to_string(rank) + " has refused its arguments"; }
};

TEST_P(RefusedCalls, MayBeRepeatedWhileTheOthersWait) {
  inEveryLayout([&](const moeHandleConfig_t& shape) {
    world(2, small(), [&](RankContext& context) {
      Calls calls(context, shape);
      context.meet();
      if (context.rank == 1) {
        EXPECT_EQ(calls.route(9), moeInvalidArgument);
      }
      MOE_EXPECT_OK(calls.route(), context);
      DispatchFields args = calls.dispatchArgs();
      args.hidden = -1;
      if (context.rank == 1) {
        EXPECT_EQ(calls.dispatch(args), moeInvalidArgument);
      }
      if (context.rank == 0) {
        EXPECT_EQ(calls.routeDispatch(args), moeInvalidArgument);
      }
      MOE_EXPECT_OK(calls.dispatch(calls.dispatchArgs()), context);
      CombineFields sum = calls.combineArgs();
      sum.out = nullptr;
      if (context.rank == 1) {
        EXPECT_EQ(calls.combine(sum), moeInvalidArgument);
      }
      MOE_EXPECT_OK(calls.combine(calls.combineArgs()), context);
      calls.expectSums(2.0f);
      calls.expectStatus(moeSuccess, "");
      calls.wholeStep();
    });
  });
}

TEST_P(RefusedCalls, ARefusedRouteIsHeardByAllRanks) {
  for (bool withDispatch : {false, true}) {
    inEveryLayout([&](const moeHandleConfig_t& shape) {
      world(3, small(), [&](RankContext& context) {
        Calls calls(context, shape);
        context.meet();
        if (context.rank == 1) {
          MOE_EXPECT_OK(withDispatch ? moeRouteDispatch(calls.handle(), nullptr, nullptr, moeTokensRefused, nullptr,
                                                        context.stream())
                                     : moeRoute(calls.handle(), nullptr, nullptr, moeTokensRefused, context.stream()),
                        context);
        } else {
          MOE_EXPECT_OK(withDispatch ? calls.routeDispatch(calls.dispatchArgs()) : calls.route(), context);
        }
        calls.expectStatus(moeInvalidArgument, "moeRoute: " + refusedBy(1));
        MOE_EXPECT_OK(calls.dispatch(calls.dispatchArgs()), context);
        MOE_EXPECT_OK(calls.combine(calls.combineArgs()), context);
        if (context.rank != 1) calls.expectSums(0.0f);
        calls.wholeStep();
      });
    });
  }
}

TEST_P(RefusedCalls, ARefusedDispatchIsHeardByAllRanks) {
  for (bool everywhere : {false, true}) {
    inEveryLayout([&](const moeHandleConfig_t& shape) {
      world(3, small(), [&](RankContext& context) {
        Calls calls(context, shape);
        context.meet();
        MOE_EXPECT_OK(calls.route(), context);
        const bool refuses = everywhere || context.rank == 1;
        MOE_EXPECT_OK(calls.dispatch(refuses ? refusedDispatch() : calls.dispatchArgs()), context);
        context.arena.synchronize();
        moeHandleStatus_t status = MOE_HANDLE_STATUS_INITIALIZER;
        MOE_EXPECT_OK(moeHandleGetStatus(calls.handle(), &status), context);
        EXPECT_NE(status.result, moeSuccess);
        EXPECT_TRUE(says(status.sentence, everywhere ? "has refused its arguments" : refusedBy(1)));
        if (!everywhere) {
          EXPECT_EQ(status.rank, 1);
        }
        MOE_EXPECT_OK(calls.combine(calls.combineArgs()), context);
        calls.expectSums(0.0f);
        calls.wholeStep();
      });
    });
  }
}

// In LL the others get their sums without this rank's rows, and only this rank knows.
TEST_P(RefusedCalls, ARefusedCombineKeepsNobodyWaiting) {
  for (bool everywhere : {false, true}) {
    inEveryLayout([&](const moeHandleConfig_t& shape) {
      for (int wire : {moeWireRow, moeWireFp8}) {
        moeConfig_t wide = small();
        wide.rowBytesMax = 1024;
        world(2, wide, [&](RankContext& context) {
          Calls calls(context, shape);
          const bool coded = wire != moeWireRow, refuses = everywhere || context.rank == 1;
          const int hidden = coded ? 128 : kHidden;
          void* rows = calls.take(kRowsMax * 128 * 4);
          void* sums = calls.take(kTokens * 128 * 4);
          calls.untilCombine();
          CombineFields args = refuses ? refusedCombine() : calls.combineArgs();
          args.hidden = hidden;
          args.wire = wire;
          if (!refuses && coded) {
            args.rows = rows;
            args.out = sums;
          }
          MOE_EXPECT_OK(calls.combine(args), context);
          const bool knows = shape.mode == moeModeHt || refuses;
          context.arena.synchronize();
          moeHandleStatus_t status = MOE_HANDLE_STATUS_INITIALIZER;
          MOE_EXPECT_OK(moeHandleGetStatus(calls.handle(), &status), context);
          EXPECT_EQ(status.result != moeSuccess, knows);
          EXPECT_TRUE(says(status.sentence, !knows ? "" : everywhere ? "has refused its arguments" : refusedBy(1)));
          if (!refuses && !coded) calls.expectSums(shape.mode == moeModeHt ? 0.0f : 1.0f);
          calls.wholeStep();
          calls.wholeStep();
        });
      }
    });
  }
}

TEST_P(RefusedCalls, OtherDomainsHearOfThem) {
  moeConfig_t apart = small();
  apart.domainSize = 1;
  apart.transport = std::getenv("MOECOMM_TRANSPORT") != nullptr ? 0 : moeTransportTcp;
  inEveryLayout([&](const moeHandleConfig_t& shape) {
    world(2, apart, [&](RankContext& context) {
      Calls calls(context, shape);
      context.meet();
      if (context.rank == 1) {
        MOE_EXPECT_OK(moeRoute(calls.handle(), nullptr, nullptr, moeTokensRefused, context.stream()), context);
      } else {
        MOE_EXPECT_OK(calls.route(), context);
      }
      calls.expectStatus(moeInvalidArgument, refusedBy(1));
      calls.wholeStep();

      MOE_EXPECT_OK(calls.route(), context);
      MOE_EXPECT_OK(calls.dispatch(context.rank == 1 ? refusedDispatch() : calls.dispatchArgs()), context);
      const bool ht = shape.mode == moeModeHt;
      context.arena.synchronize();
      moeHandleStatus_t status = MOE_HANDLE_STATUS_INITIALIZER;
      MOE_EXPECT_OK(moeHandleGetStatus(calls.handle(), &status), context);
      EXPECT_TRUE(
          says(status.sentence, ht && context.rank == 0 ? "in the domain of rank 1 has a fault" : refusedBy(1)));
      calls.wholeStep();

      calls.untilCombine();
      MOE_EXPECT_OK(calls.combine(context.rank == 1 ? refusedCombine() : calls.combineArgs()), context);
      if (context.rank == 0) calls.expectSums(ht ? 0.0f : 1.0f);
      calls.wholeStep();
      calls.wholeStep();
    });
  });
}

MOE_INSTANTIATE_BACKENDS(RefusedCalls);

}  // namespace
}  // namespace moe::test
