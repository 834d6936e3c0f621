// Placements of experts: logical ids in routes, and the copy that each id takes. The rule of the tests is in
// support/reference/placed_experts.cc.
#include <numeric>

#include "support/api/refusal_calls.h"

namespace moe::test {
namespace {

class Placements : public Refusal {};

StepCase placedCase(int mode, int layout) {
  StepCase c;
  c.mode = mode;
  c.layout = layout;
  c.placed = true;
  c.describes = true;
  c.experts = 11;
  c.topk = 3;
  c.tokensMax = 10;
  c.alignment = layout == moeLayoutExpertMajor ? 4 : 1;
  c.weighted = layout == moeLayoutExpertMajor;
  c.lateWeights = c.weighted && mode == moeModeHt;
  c.weightGrads = layout % 2 == 0;
  c.wideIndex = layout == moeLayoutFlat;
  c.idKind = layout == moeLayoutRankMajor ? moeIdsGlobal : moeIdsLocal;
  c.expertCounts = layout == moeLayoutFlat;
  c.seed = static_cast<std::uint64_t>(840 + 10 * mode + layout);
  return c;
}

// The handle swaps its placement between steps. On the host backend every step sees the latest one at once.
TEST_P(Placements, AreSwappedBetweenStepsInEveryLayoutAndMode) {
  for (const int mode : {moeModeHt, moeModeLl}) {
    for (int layout = moeLayoutFlat; layout <= moeLayoutRankMajor; ++layout) {
      const StepCase c = placedCase(mode, layout);
      SCOPED_TRACE(c.name());
      world(4, config(), [&](RankContext& context) {
        MoeStep step(context, c);
        for (int i = 0; i < 9; ++i) {
          step.prepare(i);
          if (i % 2 == 0) {
            step.route();
            step.dispatch();
          } else {
            step.routeDispatch();
          }
          step.checkDispatch();
          step.runExperts();
          step.combine();
          step.checkCombine();
        }
      });
    }
  }
}

// Two ranks with two places each; expert 0 has a copy on each rank.
moePlacement_t twoCopies(const std::vector<std::int32_t>& logical) {
  moePlacement_t placement = MOE_PLACEMENT_INITIALIZER;
  placement.logicalExperts = 3;
  placement.physicalExperts = 4;
  placement.logical = logical.data();
  return placement;
}

// Rows that each expert of this rank gets from the tokens of both ranks.
std::vector<std::int32_t> rowsPerExpert(RankContext& context, moeHandle_t handle) {
  moeCounts_t counts = MOE_COUNTS_INITIALIZER;
  context.arena.synchronize();
  MOE_EXPECT_OK(moeHandleGetCounts(handle, &counts), context);
  return {counts.rowsPerExpert, counts.rowsPerExpert + counts.localExperts};
}

TEST_P(Placements, TakeTheRanksOwnCopyElseTurnsAmongAll) {
  inEveryLayout([&](const moeHandleConfig_t& shape) {
    world(2, small(), [&](RankContext& context) {
      Calls calls(context, shape);
      const std::vector<std::int32_t> near = {0, 1, 2, 0}, far = {0, 0, 1, 2};
      const std::vector<std::int32_t> zeros = {0, -1, 0, -1, 0, -1, 0, -1, 0, -1, 0, -1, 0, -1, 0, -1};
      const moePlacement_t nearby = twoCopies(near), away = twoCopies(far);
      MOE_EXPECT_OK(moeHandleSetPlacement(calls.handle(), &nearby, context.stream()), context);
      context.meet();
      MOE_EXPECT_OK(calls.routeBy(zeros), context);
      EXPECT_EQ(rowsPerExpert(context, calls.handle()),
                (context.rank == 0 ? std::vector<std::int32_t>{8, 0} : std::vector<std::int32_t>{0, 8}));
      MOE_EXPECT_OK(moeHandleSetPlacement(calls.handle(), &away, context.stream()), context);
      MOE_EXPECT_OK(calls.routeBy(zeros), context);
      EXPECT_EQ(rowsPerExpert(context, calls.handle()),
                (context.rank == 0 ? std::vector<std::int32_t>{8, 8} : std::vector<std::int32_t>{0, 0}));
      MOE_EXPECT_OK(moeHandleSetPlacement(calls.handle(), nullptr, context.stream()), context);
      MOE_EXPECT_OK(calls.routeBy(zeros), context);
      EXPECT_EQ(rowsPerExpert(context, calls.handle()),
                (context.rank == 0 ? std::vector<std::int32_t>{16, 0} : std::vector<std::int32_t>{0, 0}));
      calls.wholeStep();
    });
  });
}

// Expert 3 exists without a placement, and its number as a physical expert's does not help it.
TEST_P(Placements, AnIdThatIsNoLogicalExpertIsNamedAsItWasGiven) {
  inEveryLayout([&](const moeHandleConfig_t& shape) {
    world(2, small(), [&](RankContext& context) {
      Calls calls(context, shape);
      const std::vector<std::int32_t> logical = {0, 1, 2, 0};
      const moePlacement_t placement = twoCopies(logical);
      MOE_EXPECT_OK(moeHandleSetPlacement(calls.handle(), &placement, context.stream()), context);
      context.meet();
      std::vector<std::int32_t> ids = calls.ids();
      for (std::int32_t& id : ids) id = id == 3 ? 0 : id;
      for (int token = 0; token < kTokens; ++token) ids[static_cast<std::size_t>(2 * token)] = 1;
      if (context.rank == 1) ids[5] = 3;
      MOE_EXPECT_OK(calls.routeBy(ids), context);
      calls.expectStatus(moeInvalidArgument, "topkIdx[token 2][1] of rank 1 is 3, not -1..2");
      if (context.rank == 1) ids[5] = 1;  // twice, as it was given
      MOE_EXPECT_OK(calls.routeBy(ids), context);
      calls.expectStatus(moeInvalidArgument, "topkIdx[token 2][1] of rank 1 is 1, which an earlier entry");
    });
  });
}

// Rank 1 has a placement and rank 0 has none, or another one.
void routeByDifferentOnes(RankContext& context, int mode, bool both) {
  Calls calls(context, handleOf(mode, moeLayoutFlat));
  const std::vector<std::int32_t> ours = {0, 1, 2, 0}, theirs = {1, 0, 2, 0};
  const moePlacement_t placement = twoCopies(context.rank == 0 ? ours : theirs);
  if (both || context.rank == 1) {
    MOE_EXPECT_OK(moeHandleSetPlacement(calls.handle(), &placement, context.stream()), context);
  }
  context.meet();
  calls.routeDispatch(calls.dispatchArgs(), 0);
}

TEST_P(Placements, ThatDifferAreNamedAcrossDomainsToo) {
  const std::string what = "ranks disagree: the fingerprint of the placement (moeHandleSetPlacement) is ";
  for (const int mode : {moeModeHt, moeModeLl}) {
    for (const int domainSize : {2, 1}) {
      moeConfig_t cut = small();
      cut.domainSize = domainSize;
      cut.transport = domainSize == 1 ? moeTransportTcp : 0;
      for (const bool both : {false, true}) {
        world(2, cut, [&](RankContext& context) {
          routeByDifferentOnes(context, mode, both);
          expectFailure(context, moeInvalidUsage, what + (both ? "" : "none on rank 0 and "));
        });
      }
    }
  }
}

TEST_P(Placements, ThatCannotBeAreRefusedAndChangeNothing) {
  world(2, small(), [](RankContext& context) {
    Calls calls(context, handleOf(moeModeHt, moeLayoutFlat));
    std::vector<std::int32_t> logical = {0, 1, 2, 0}, ranks = {0, 0, 1, 1}, local = {0, 1, 0, 1};
    const auto right = [&] {
      moePlacement_t p = twoCopies(logical);
      p.ranks = ranks.data();
      p.localExperts = local.data();
      return p;
    };
    const auto refuses = [&](const moePlacement_t& placement, const char* sentence) {
      EXPECT_EQ(moeHandleSetPlacement(calls.handle(), &placement, context.stream()), moeInvalidArgument);
      EXPECT_TRUE(says(context.error(), sentence));
    };
    const auto refusesElement = [&](std::vector<std::int32_t>& of, int index, std::int32_t value,
                                    const char* sentence) {
      std::int32_t& element = of[static_cast<std::size_t>(index)];
      const std::int32_t before = std::exchange(element, value);
      refuses(right(), sentence);
      element = before;
    };
    refusesElement(logical, 1, 3, "placement.logical[1] is 3, must be 0..2");
    refusesElement(logical, 3, -1, "placement.logical[3] is -1, must be 0..2");
    refusesElement(logical, 2, 1, "placement.logical does not name expert 2 of 0..2");
    refusesElement(ranks, 0, 2, "placement.ranks[0] is 2, must be 0..1");
    refusesElement(ranks, 0, -1, "placement.ranks[0] is -1, must be 0..1");
    refusesElement(local, 2, 2, "placement.localExperts[2] is 2, but rank 1 has 2 local experts");
    refusesElement(local, 2, -1, "placement.localExperts[2] is -1, but rank 1 has 2 local experts");
    refusesElement(local, 3, 0, "local expert 0 of rank 1 is named twice, the second time by physical expert 3");
    moePlacement_t wrong = right();
    wrong.physicalExperts = 5;
    refuses(wrong, "placement.physicalExperts is 5, must be 1..4");
    wrong.physicalExperts = 0;
    refuses(wrong, "placement.physicalExperts is 0, must be 1..4");
    wrong = right();
    wrong.logicalExperts = 5;
    refuses(wrong, "placement.logicalExperts is 5, must be 1..4");
    wrong = right();
    wrong.logical = nullptr;
    refuses(wrong, "placement.logical is NULL");
    wrong = right();
    wrong.ranks = nullptr;
    refuses(wrong, "they must be given together");
    wrong = twoCopies(logical);
    wrong.physicalExperts = 3;
    refuses(wrong, "placement.physicalExperts is 3, but the handle has 4 experts");
    wrong = right();
    wrong.size = 3;
    refuses(wrong, "placement.size is 3");
    EXPECT_EQ(moeHandleSetPlacement(nullptr, nullptr, nullptr), moeInvalidArgument);
    context.meet();
    calls.wholeStep();
    MOE_EXPECT_OK(calls.route(), context);
    DispatchFields sending = calls.dispatchArgs();
    sending.flags = moeSendOnly;
    MOE_EXPECT_OK(calls.dispatch(sending), context);
    EXPECT_EQ(moeHandleSetPlacement(calls.handle(), nullptr, context.stream()), moeInvalidUsage);
    EXPECT_TRUE(says(context.error(), "moeHandleSetPlacement: this handle has an operation that awaits moeComplete"));
    MOE_EXPECT_OK(moeComplete(calls.handle(), context.stream()), context);
    const moePlacement_t placement = right();
    MOE_EXPECT_OK(moeHandleSetPlacement(calls.handle(), &placement, context.stream()), context);
  });
}

MOE_INSTANTIATE_BACKENDS(Placements);

}  // namespace
}  // namespace moe::test
