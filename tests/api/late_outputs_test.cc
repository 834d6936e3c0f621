// Dispatches that get their outputs when they end: moeOutputsLater and moeCompleteDispatch.
#include <array>

#include "support/api/moe_step.h"
#include "support/api/refusal_calls.h"

namespace moe::test {
namespace {

constexpr int kLater = moeSendOnly | moeOutputsLater;

class LateOutputs : public OnBackend {
 protected:
  moeConfig_t cut(int domainSize) const {
    moeConfig_t made = config();
    made.domainSize = domainSize;
    made.transport = moeTransportTcp;
    return made;
  }
};

StepCase lateCase(Rng& rng) {
  StepCase c;
  c.describes = true;
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
  c.arrivals = rng.coin() && (c.layout == moeLayoutExpertMajor || c.layout == moeLayoutExpertMajorPadded);
  c.padding = rng.coin() ? moePadIndices | moePadRows : 0;
  c.weightGrads = rng.coin();
  c.seed = rng.next();
  if (c.seed % 3 == 0) {
    c.cast = static_cast<int>(1 + c.seed / 3 % moeCastNvfp4);
    c.hidden = 128;
    c.scales = rng.coin() ? moeScalesTokenContiguous : moeScalesRowMajor;
  }
  return c;
}

void beginLate(MoeStep& step, int iteration) {
  step.prepare(iteration);
  if (iteration % 2 == 0) {
    step.route();
    step.dispatch(kLater);
  } else {
    step.routeDispatch(kLater);
  }
}

void endLate(MoeStep& step) {
  step.complete();
  step.checkDispatch();
  step.runExperts();
  step.combine();
  step.checkCombine();
}

void runLateCases(int nranks, const moeConfig_t& config, int cases, std::uint64_t seed) {
  world(nranks, config, [&](RankContext& context) {
    Rng rng(seed);
    for (int i = 0; i < cases; ++i) {
      const StepCase c = lateCase(rng);
      SCOPED_TRACE(c.name());
      MoeStep step(context, c);
      for (int iteration = 0; iteration < 4; ++iteration) {
        beginLate(step, iteration);
        endLate(step);
      }
    }
  });
}

TEST_P(LateOutputs, OfRandomShapesAreRight) {
  for (const int nranks : {1, 2, 5}) runLateCases(nranks, config(), 12, static_cast<std::uint64_t>(nranks));
}

TEST_P(LateOutputs, OfRowsThatTakeTheRailsAreRight) {
  runLateCases(4, cut(2), 6, 7);
}

TEST_P(LateOutputs, OfTwoDispatchesMayComeInAnyOrder) {
  moeConfig_t two = config();
  two.stagingAreas = 2;
  world(3, two, [&](RankContext& context) {
    StepCase a, b;
    b.layout = moeLayoutExpertMajor;
    b.seed = 5;
    MoeStep first(context, a), second(context, b);
    for (int i = 0; i < 6; ++i) {
      beginLate(first, i);
      beginLate(second, i);
      endLate(i % 2 == 0 ? second : first);
      endLate(i % 2 == 0 ? first : second);
    }
  });
}

// Two ranks that have begun a dispatch, in a world of right calls.
class BegunDispatch {
 public:
  BegunDispatch(RankContext& context, int layout) : context_(context), calls_(context, handleOf(moeModeHt, layout)) {
    context.meet();
  }

  Calls& calls() { return calls_; }
  void begin() {
    MOE_EXPECT_OK(calls_.route(), context_);
    MOE_EXPECT_OK(calls_.dispatch(begunArgs()), context_);
  }
  DispatchFields begunArgs() const {
    DispatchFields args = calls_.dispatchArgs();
    args.flags = kLater;
    return args;
  }
  moeResult_t complete(DispatchFields args) {
    return moeCompleteDispatch(calls_.handle(), args.linked(), context_.stream());
  }
  template <class Spoil>
  void refuses(moeResult_t result, const std::string& sentence, Spoil spoil) {
    DispatchFields args = calls_.dispatchArgs();
    spoil(args);
    EXPECT_EQ(complete(args), result);
    EXPECT_TRUE(says(context_.error(), sentence));
  }
  void endsRight() {
    MOE_EXPECT_OK(complete(calls_.dispatchArgs()), context_);
    MOE_EXPECT_OK(calls_.combine(calls_.combineArgs()), context_);
    calls_.expectSums(2.0f);
    calls_.expectStatus(moeSuccess, "");
  }

 private:
  RankContext& context_;
  Calls calls_;
};

TEST_P(LateOutputs, ThatDoNotFitAreRefusedAndMayBeGivenAgain) {
  for (const int layout : {moeLayoutFlat, moeLayoutExpertMajor}) {
    world(2, config(), [&](RankContext& context) {
      BegunDispatch begun(context, layout);
      begun.refuses(moeInvalidUsage, "moeCompleteDispatch: no dispatch with moeOutputsLater of this handle",
                    [](auto&) {});
      begun.begin();
      begun.refuses(moeInvalidArgument, "args.outRowsMax is 15, must be at least the 16 rows that have come",
                    [](auto& args) { args.outRowsMax = 15; });
      begun.refuses(moeInvalidArgument, "args.hidden is 4, but it was 8", [](auto& args) { args.hidden = 4; });
      begun.refuses(moeInvalidArgument, "args.rowType is bf16, but it was fp32", [](auto& args) {
        args.rowType = moeRowBf16;
        args.hidden = 8;
      });
      begun.refuses(moeInvalidArgument, "args.outRows is NULL", [](auto& args) { args.outRows = nullptr; });
      begun.refuses(moeInvalidArgument, "args.flags is 16, must be moeSendOnly, moeSendOnly | moeOutputsLater or 0",
                    [](auto& args) {
                      args.flags = moeRefused;
                      args.payloadCount = 1000;
                    });
      EXPECT_EQ(begun.calls().route(), moeInvalidUsage) << "while outputs are awaited";
      begun.endsRight();
      begun.refuses(moeInvalidUsage, "moeCompleteDispatch: no dispatch with moeOutputsLater of this handle",
                    [](auto&) {});
    });
  }
}

TEST_P(LateOutputs, ThatNeverComeDropTheRows) {
  for (const int layout : {moeLayoutFlat, moeLayoutExpertMajor}) {
    world(2, config(), [&](RankContext& context) {
      BegunDispatch begun(context, layout);
      const std::vector<std::uint8_t> poison(kRowsMax * kRowBytes, 0xA5);
      context.arena.upload(begun.calls().arrived(), poison.data(), poison.size());
      begun.begin();
      MOE_EXPECT_OK(moeComplete(begun.calls().handle(), context.stream()), context);
      EXPECT_EQ(context.arena.get(static_cast<std::uint8_t*>(begun.calls().arrived()), poison.size()), poison);
      begun.calls().roundTrip();
      begun.begin();
      begun.endsRight();
    });
  }
}

TEST_P(LateOutputs, OfCallsThatCannotHaveThem) {
  world(2, config(), [&](RankContext& context) {
    BegunDispatch begun(context, moeLayoutFlat);
    MOE_EXPECT_OK(begun.calls().route(), context);
    DispatchFields args = begun.begunArgs();
    args.flags = moeOutputsLater;
    EXPECT_EQ(begun.calls().dispatch(args), moeInvalidArgument);
    EXPECT_TRUE(says(context.error(), "args.flags is 2, must have moeSendOnly with moeOutputsLater"));
    Calls ll(context, handleOf(moeModeLl, moeLayoutExpertMajor));
    context.meet();
    MOE_EXPECT_OK(ll.route(), context);
    EXPECT_EQ(ll.dispatch(begun.begunArgs()), moeInvalidArgument);
    EXPECT_TRUE(says(context.error(), "args.flags has moeOutputsLater, but the handle's mode is LL"));
    CombineFields sums = ll.combineArgs();
    sums.flags = kLater;
    EXPECT_EQ(ll.combine(sums), moeInvalidArgument);
    EXPECT_TRUE(says(context.error(), "args.flags is 3, must be moeSendOnly or 0"));
    ll.roundTrip();
    begun.calls().roundTrip();
  });
}

TEST_P(LateOutputs, GetNothingAfterAFaultOfTheRoute) {
  world(2, config(), [&](RankContext& context) {
    BegunDispatch begun(context, moeLayoutExpertMajor);
    std::vector<std::int32_t> ids = begun.calls().ids();
    if (context.rank == 1) ids[3] = 17;
    MOE_EXPECT_OK(begun.calls().routeBy(ids), context);
    MOE_EXPECT_OK(begun.calls().dispatch(begun.begunArgs()), context);
    const std::vector<std::uint8_t> poison(kRowsMax * kRowBytes, 0xA5);
    context.arena.upload(begun.calls().arrived(), poison.data(), poison.size());
    DispatchFields none = begun.calls().dispatchArgs();
    none.outRows = nullptr;
    none.outRowsMax = 0;
    MOE_EXPECT_OK(begun.complete(none), context);
    begun.calls().expectStatus(moeInvalidArgument, "topkIdx[token 1][1] of rank 1 is 17, not -1..3");
    EXPECT_EQ(context.arena.get(static_cast<std::uint8_t*>(begun.calls().arrived()), poison.size()), poison);
    begun.calls().wholeStep();
  });
}

// A rank that refuses its dispatch is heard of by those that have begun theirs.
TEST_P(LateOutputs, GetNothingIfARankRefuses) {
  world(2, config(), [&](RankContext& context) {
    BegunDispatch begun(context, moeLayoutFlat);
    MOE_EXPECT_OK(begun.calls().route(), context);
    DispatchFields args = begun.begunArgs();
    if (context.rank == 1) args.flags = moeRefused;
    MOE_EXPECT_OK(begun.calls().dispatch(args), context);
    if (context.rank == 0) {
      MOE_EXPECT_OK(begun.complete(begun.calls().dispatchArgs()), context);
    }
    begun.calls().expectStatus(moeInvalidUsage, "rank 1 has refused its arguments");
    begun.calls().wholeStep();
  });
}

MOE_INSTANTIATE_BACKENDS(LateOutputs);

}  // namespace
}  // namespace moe::test
