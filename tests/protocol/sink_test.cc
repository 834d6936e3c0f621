// A sink says whether its row is in the rank's own memory. For rows that land it must always say no. Steps work even if
// a sink is wrong, so only this test checks it.
#include <gtest/gtest.h>

#include <atomic>

#include "protocol/lists.h"
#include "support/programs/thread_runner.h"

namespace moe::test {
namespace {

struct SinkCounts {
  std::atomic<int> here{0}, elsewhere{0}, wrong{0};
};

// A HostWarp that checks each sink.
class LookingWarp : public HostWarp {
 public:
  LookingWarp(const CommView& comm, std::uint64_t windowBytes, SinkCounts& counts)
      : comm_(comm), windowBytes_(windowBytes), counts_(counts) {}

  template <CopyList List>
  bool streamRows(const List& list) const {
    constexpr bool kLands = MadeToLand<List>;
    return mayPlace(list) && HostWarp::streamRows(copiesOf<HasSides<List>, kLands>(
                                 list.count(), list.sinksMax(), [&](int i) { return list.job(i); },
                                 [&](int i, int sink) { return seen(list.sink(i, sink), kLands); }));
  }

 private:
  Sink seen(const Sink& to, bool lands) const {
    if (to.row == nullptr) return to;
    ++(to.here ? counts_.here : counts_.elsewhere);
    const bool mayBeHere = !lands && !isOfAPeer(to.row);
    if (to.here != mayBeHere) ++counts_.wrong;
    return to;
  }
  bool isOfAPeer(const std::uint8_t* place) const {
    for (int i = 0; i < comm_.domainSize; ++i) {
      const int rank = comm_.domainFirst + i;
      const auto* window = comm_.in<std::uint8_t>(rank, 0);
      if (rank != comm_.rank && place >= window && place < window + windowBytes_) return true;
    }
    return false;
  }

  const CommView& comm_;
  std::uint64_t windowBytes_;
  SinkCounts& counts_;
};

struct LookingTeam {
  inline static std::uint64_t windowBytes;
  inline static SinkCounts* counts;

  static void run(Step step, const StepParams& params, int warps, int movers) {
    runTogether(warps, [&](int i) {
      runNamedStep(LookingWarp(params.comm, windowBytes, *counts), step, params, {i, warps, warps}, movers);
    });
  }
};

TEST(Sinks, SayWhetherTheyAreInTheRanksOwnMemory) {
  const ScenarioLimits limits{4, 12, 14, 2};
  SinkCounts counts;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    Scenario scenario = makeScenario(seed, test::Protocol::both, Trouble::none, limits, 60'000'000'000);
    LookingTeam::windowBytes = scenario.comm->rank(0).window.size();
    LookingTeam::counts = &counts;
    ASSERT_EQ(runScenario<LookingTeam>(scenario), "") << "seed " << seed << "\n" << scenario.text;
    ASSERT_EQ(counts.wrong, 0) << "seed " << seed << "\n" << scenario.text;
  }
  EXPECT_GT(counts.here, 0);
  EXPECT_GT(counts.elsewhere, 0);
}

}  // namespace
}  // namespace moe::test
