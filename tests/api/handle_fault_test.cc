// Wrong arguments that only a step can see and that end nothing: the step completes, the handle says what was wrong,
// and the next step is right.
#include "support/refusal_calls.h"

namespace moe::test {
namespace {

class HandleFaults : public Refusal {};

TEST_P(HandleFaults, EntriesThatCannotBeRefuseTheRouteOnAllRanks) {
  for (int id : {4, -2, 1}) {
    inEveryLayout([&](const moeHandleConfig_t& shape) {
      world(3, small(), [&](RankContext& context) {
        Calls calls(context, shape);
        std::vector<std::int32_t> ids = calls.ids();
        if (context.rank == 1) ids[3 * kTopk] = 1, ids[3 * kTopk + 1] = id;
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
