// The cost of an LL operation for the adapter, by the adapter's own counters. tests/rdma/ibgda_test.sh runs it between
// processes over the adapter in software.
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "support/api/moe_step.h"

namespace moe::test {
namespace {

class PutCount : public OnBackend {};

// The counts of what this process's adapter has taken so far.
struct Taken {
  std::uint64_t wqes, doorbells;
  bool operator==(const Taken&) const = default;
  Taken since(const Taken& before) const { return {wqes - before.wqes, doorbells - before.doorbells}; }
};

using Count = unsigned long (*)(const char* name);
Count counter() {
  return reinterpret_cast<Count>(dlsym(RTLD_DEFAULT, "fake_mlx5_count"));
}

// Waits until the adapter has taken nothing for a while.
Taken settle() {
  const auto now = [] { return Taken{counter()("wqes"), counter()("doorbells")}; };
  Taken taken = now(), before{};
  do {
    before = taken;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    taken = now();
  } while (taken != before);
  return taken;
}

std::uint64_t rowsTo(const MoeStep& step, int from, int to) {
  const auto& tokens = step.reference().arrivals[static_cast<std::size_t>(to)].tokens;
  return static_cast<std::uint64_t>(
      std::count_if(tokens.begin(), tokens.end(), [&](const ArrivedToken& token) { return token.source == from; }));
}

TEST_P(PutCount, OfLowLatencyIsARowEachAndTwoWords) {
  if (counter() == nullptr) GTEST_SKIP() << "the software adapter is not there to count";
  StepCase c;
  c.mode = moeModeLl;
  c.layout = moeLayoutRankMajor;
  c.tokensMax = 250;
  moeConfig_t large = config();
  large.tokensMax = large.llTokensMax = c.tokensMax;
  world(2, large, [&](RankContext& context) {
    MoeStep step(context, c);
    step.prepare(0);
    step.route();
    step.dispatch();  // the first operations load kernels and make queues
    step.runExperts();
    step.combine();
    step.checkCombine();
    for (int i = 1; i < 6; ++i) {
      step.prepare(i);
      step.route();
      const Taken before = settle();
      step.dispatch();
      step.checkDispatch();
      const Taken dispatched = settle(), dispatch = dispatched.since(before);
      step.runExperts();
      step.combine();
      step.checkCombine();
      const Taken combine = settle().since(dispatched);
      const std::uint64_t rows = rowsTo(step, context.rank, 1 - context.rank);
      std::printf("LL, %lu rows to a peer: dispatch %lu work elements and %lu doorbells, combine %lu and %lu\n", rows,
                  dispatch.wqes, dispatch.doorbells, combine.wqes, combine.doorbells);
      EXPECT_EQ(dispatch.wqes, rows + 2);
      EXPECT_LE(dispatch.doorbells, 1 + rows / 128);
      EXPECT_LE(combine.wqes, 2u);
      EXPECT_EQ(combine.doorbells, 1u);
    }
  });
}

MOE_INSTANTIATE_BACKENDS(PutCount);

}  // namespace
}  // namespace moe::test
