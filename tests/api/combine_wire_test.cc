// Combines whose rows travel in a wire format: whole steps against the reference, on both backends, and refused calls.
#include "support/api/moe_step.h"
#include "support/api/refusal_calls.h"

namespace moe::test {
namespace {

class CombineWire : public Refusal {
 protected:
  moeConfig_t wide(int domainSize = 0) const {
    moeConfig_t config = this->config();
    config.rowBytesMax = 8192;
    config.domainSize = domainSize;
    if (domainSize > 0) config.transport = moeTransportTcp;
    return config;
  }

  // Rows of several units, the last one of a step of lanes incomplete.
  static StepCase stepCase(int mode, int layout, int wire) {
    StepCase c;
    c.mode = mode;
    c.layout = layout;
    c.wire = wire;
    c.rowType = moeRowBf16 + (layout + wire) % 3;
    c.hidden = 128 * (1 + (layout * 3 + wire * 2) % 9);
    c.topk = 4;
    c.biases = (layout + wire) % 3;
    c.weighted = hasRowPerExpert(static_cast<Layout>(layout)) && wire != moeWireFp8Block;
    c.weightGrads = wire == moeWireNvfp4;
    c.window = wire != moeWireFp8;
    c.seed = static_cast<std::uint64_t>(1000 * mode + 10 * layout + wire);
    return c;
  }
  template <class Body>
  static void inEveryFormat(Body body) {
    for (int wire = moeWireFp8; wire <= moeWireLogfmt10; ++wire) {
      for (int mode : {moeModeHt, moeModeLl}) {
        for (int layout = moeLayoutFlat; layout <= moeLayoutRankMajor; ++layout) body(stepCase(mode, layout, wire));
      }
    }
  }
  static void runTwice(RankContext& context, const StepCase& c) {
    SCOPED_TRACE(c.name());
    MoeStep step(context, c);
    for (int i = 0; i < 2; ++i) {
      step.prepare(i);
      step.routeDispatch();
      step.checkDispatch();
      step.runExperts();
      step.combine(i == 0 ? 0 : moeSendOnly);
      if (i == 1) step.complete();
      step.checkCombine();
    }
  }
};

TEST_P(CombineWire, EveryFormatIsRightInEveryLayout) {
  for (int nranks : {1, 4}) {
    world(nranks, wide(),
          [](RankContext& context) { inEveryFormat([&](const StepCase& c) { runTwice(context, c); }); });
  }
}

TEST_P(CombineWire, EveryFormatIsRightAcrossDomains) {
  for (const auto& [nranks, domainSize] : {std::pair{4, 2}, {2, 1}}) {
    world(nranks, wide(domainSize),
          [](RankContext& context) { inEveryFormat([&](const StepCase& c) { runTwice(context, c); }); });
  }
}

// Few long rows, so that warps share a row: one of NVFP4 has at most four parts.
TEST_P(CombineWire, PartsOfARowAreRight) {
  moeConfig_t config = wide();
  config.rowBytesMax = 16384;
  world(2, config, [](RankContext& context) {
    for (int wire = moeWireFp8; wire <= moeWireLogfmt10; ++wire) {
      for (int mode : {moeModeHt, moeModeLl}) {
        StepCase c = stepCase(mode, moeLayoutExpertMajor, wire);
        c.rowType = moeRowBf16;
        c.hidden = 7168;
        c.tokensMax = 2;
        runTwice(context, c);
      }
    }
  });
}

// Slots of a set hold rows of the row type and coded ones in turn.
TEST_P(CombineWire, FormatsMayChangeBetweenSteps) {
  for (int layout = moeLayoutFlat; layout <= moeLayoutRankMajor; ++layout) {
    world(3, wide(), [&](RankContext& context) {
      std::vector<std::unique_ptr<MoeStep>> steps;
      for (int wire : {moeWireNvfp4, moeWireRow, moeWireFp8Block, moeWireLogfmt10}) {
        StepCase c = stepCase(moeModeLl, layout, wire);
        steps.push_back(std::make_unique<MoeStep>(context, c));
      }
      for (int i = 0; i < 12; ++i) {
        MoeStep& step = *steps[static_cast<std::size_t>(i * 3 % 4)];
        step.prepare(i);
        step.route();
        step.dispatch();
        step.runExperts();
        step.combine();
        step.combine();  // right after another one
        step.checkCombine();
      }
    });
  }
}

TEST_P(CombineWire, RanksThatDifferAreNamedByTheField) {
  moeConfig_t config = small(64);
  config.rowBytesMax = 1024;
  for (const auto& [theirs, name] :
       {std::pair{moeWireRow, "the row type"}, {moeWireNvfp4, "NVFP4"}, {moeWireLogfmt10, "LogFMT-10"}}) {
    const std::string sentence =
        std::string("moeCombine: ranks disagree: args.wire is fp8 on rank 0 and ") + name + " on rank 1";
    inEveryLayout([&, theirs = theirs](const moeHandleConfig_t& shape) {
      world(2, config, [&](RankContext& context) {
        Calls calls(context, shape);
        calls.untilCombine();
        CombineFields args = calls.combineArgs();
        args.hidden = 128;
        args.wire = context.rank == 0 ? moeWireFp8 : theirs;
        args.rows = context.arena.take(512 * 64);
        args.out = context.arena.take(512 * 64);
        const moeResult_t result = calls.combine(args);
        if (shape.mode == moeModeLl) return expectFailure(context, moeInvalidUsage, sentence);
        EXPECT_EQ(result, moeSuccess);
        calls.expectStatus(moeInvalidUsage, sentence);
        calls.wholeStep();
      });
    });
  }
}

TEST_P(CombineWire, RowsWhereCodedOnesGoAreRefused) {
  world(2, wide(), [](RankContext& context) {
    StepCase c = stepCase(moeModeLl, moeLayoutRankMajor, moeWireFp8);
    MoeStep step(context, c);
    step.prepare(0);
    step.route();
    step.dispatch();
    step.runExperts();
    moeHandleView_t view = MOE_HANDLE_VIEW_INITIALIZER;
    MOE_EXPECT_OK(moeHandleGetView(step.handle(), &view), context);
    moeCombineArgs_t args = MOE_COMBINE_ARGS_INITIALIZER;
    args.rows = view.combineRows;
    args.rowType = c.rowType;
    args.hidden = c.hidden;
    args.wire = c.wire;
    args.out = context.arena.take(4096 * 8);
    EXPECT_EQ(moeCombine(step.handle(), &args, context.stream()), moeInvalidArgument);
    EXPECT_TRUE(says(context.error(), "in moeHandleGetView's combineRows, but args.wire codes rows into that memory"));
    step.combine();  // the communicator goes on
    step.checkCombine();
  });
}

MOE_INSTANTIATE_BACKENDS(CombineWire);

}  // namespace
}  // namespace moe::test
