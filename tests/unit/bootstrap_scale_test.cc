// 512 ranks as threads of one process. Prints the times that it measured.
#include <cstdio>

#include "support/base/sanitizers.h"
#include "unit/bootstrap_world.h"

namespace moe::test {
namespace {

TEST(BootstrapScale, FiveHundredAndTwelveRanksJoinGatherAndMeetInFiveSeconds) {
  allowManyDescriptors();
  constexpr int kRanks = 512;
  const auto start = Clock::now();
  std::atomic<std::int64_t> joinedUs = 0;
  std::atomic<std::int64_t> doneUs = 0;
  Meet allDone(kRanks);
  const auto since = [&] {
    return std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - start).count();
  };
  expectAllWell(world(kRanks, [&](Bootstrap& member) {
    if (member.rank() == 0) joinedUs = since();
    const std::vector<std::uint8_t> mine(256, static_cast<std::uint8_t>(member.rank()));
    const auto all = member.allGather(mine);
    for (int rank = 0; rank < kRanks; ++rank) {
      const auto& blob = all[static_cast<std::size_t>(rank)];
      ASSERT_EQ(blob.size(), 256U);
      ASSERT_EQ(blob[255], static_cast<std::uint8_t>(rank));
    }
    member.barrier();
    std::int64_t latest = doneUs.load();
    while (latest < since() && !doneUs.compare_exchange_weak(latest, since())) {
    }
    allDone.wait();
  }));
  std::printf(
      "512 ranks: rank 0 joined after %.3f s, all through the all-gather and the barrier after %.3f s, all left "
      "after %.3f s\n",
      static_cast<double>(joinedUs) / 1e6, static_cast<double>(doneUs) / 1e6, secondsSince(start));
#if !MOE_TEST_TSAN && !MOE_TEST_ASAN
  EXPECT_LT(static_cast<double>(doneUs) / 1e6, 5.0);
#endif
}

}  // namespace
}  // namespace moe::test
