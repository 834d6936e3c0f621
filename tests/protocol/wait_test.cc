// How the policies' waits end when nothing arrives.
#include <array>
#include <chrono>
#include <cstring>
#include <thread>

#include "protocol/lists.h"
#include "protocol/one_warp.h"
#include "support/base/guarded_bytes.h"

namespace moe::test {
namespace {

template <class Team>
class Wait : public testing::Test {};
TYPED_TEST_SUITE(Wait, Teams, TeamNames);

TYPED_TEST(Wait, SaysWhichRowDoesNotLand) {
  constexpr int kBytes = 208;
  GuardedBytes landing(2 * kBytes), out(kBytes);
  std::memset(landing.data(), 0x55, landing.size());
  std::memset(landing.data() + kBytes + 100, 0, 4);
  Waiting waiting;
  onOneWarp<TypeParam>([&](const auto& warp) {
    const auto rowAt = [&](int term) { return landing.data() + term * kBytes; };
    EXPECT_FALSE(warp.reduceRows(waiting.view, landedSumOf(kFp32, {out.data(), kBytes, 2}, 2, 40, rowAt)));
  });
  EXPECT_NE(waiting.failure.ready, 0u);
  EXPECT_EQ(waiting.failure.peer, 41);
}

// Waits for the flags of ranks 7 and 8 to reach 2. Returns the failure that the wait reports.
template <class Team>
Failure failureOfWait(Waiting& waiting, std::array<Flag, 2> flags) {
  onOneWarp<Team>([&](const auto& warp) {
    EXPECT_FALSE(warp.waitAll(waiting.view, flags.data(), 2, 2, Awaited{Phase::dispatchRows, 7, 1}));
  });
  EXPECT_NE(waiting.failure.ready, 0u);
  return waiting.failure;
}

TYPED_TEST(Wait, EndsAWaitForARankThatHasLeft) {
  for (const int leaver : {7, 8}) {
    Waiting waiting;
    waiting.orders.timeoutNs = 60'000'000'000;
    waiting.departed[leaver] = 1;
    std::array<Flag, 2> flags{flagWord(2), flagWord(2)};
    flags[static_cast<std::size_t>(leaver - 7)] = flagWord(1);
    const Failure failure = failureOfWait<TypeParam>(waiting, flags);
    EXPECT_EQ(failure.fault, Fault::left);
    EXPECT_EQ(failure.phase, Phase::dispatchRows);
    EXPECT_EQ(failure.peer, leaver);
    EXPECT_EQ(failure.expected, 2);
  }
}

TYPED_TEST(Wait, WaitsForARankThoughAnotherHasLeft) {
  Waiting waiting;
  waiting.departed[7] = 1;  // rank 7 sent its part before it left
  const Failure failure = failureOfWait<TypeParam>(waiting, {flagWord(2), flagWord(1)});
  EXPECT_EQ(failure.fault, Fault::timeout);
  EXPECT_EQ(failure.peer, 8);
}

// Flags that a rank has sent count, even if the wait begins after the rank has left.
TYPED_TEST(Wait, TakesWhatWasSentByARankThatHasLeft) {
  Waiting waiting;
  waiting.departed[7] = waiting.departed[8] = 1;
  std::array<Flag, 2> flags{flagWord(2), flagWord(3)};
  onOneWarp<TypeParam>([&](const auto& warp) {
    EXPECT_TRUE(warp.waitAll(waiting.view, flags.data(), 2, 2, Awaited{Phase::dispatchRows, 7, 1}));
  });
  EXPECT_EQ(waiting.failure.ready, 0u);
}

TYPED_TEST(Wait, EndsAWaitForARowOfARankThatHasLeft) {
  constexpr int kBytes = 208;
  GuardedBytes landing(kBytes), out(kBytes);
  std::memset(landing.data(), 0, landing.size());
  Waiting waiting;
  waiting.orders.timeoutNs = 60'000'000'000;
  waiting.departed[40] = 1;
  onOneWarp<TypeParam>([&](const auto& warp) {
    const auto rowAt = [&](int) { return landing.data(); };
    EXPECT_FALSE(warp.reduceRows(waiting.view, landedSumOf(kFp32, {out.data(), kBytes, 1}, 1, 40, rowAt)));
  });
  EXPECT_EQ(waiting.failure.fault, Fault::left);
  EXPECT_EQ(waiting.failure.peer, 40);
}

// The wait begins with one timeout. The host sets another one when it has looked at the first.
template <class Team>
Failure failureOfWaitWithTimeouts(std::chrono::milliseconds first, std::chrono::milliseconds second) {
  const auto nanoseconds = [](std::chrono::milliseconds time) {
    return static_cast<std::uint64_t>(time.count()) * 1000000;
  };
  Waiting waiting;
  waiting.orders.timeoutNs = nanoseconds(first);
  std::thread host([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(40));
    std::atomic_ref(waiting.orders.timeoutNs).store(nanoseconds(second), std::memory_order_release);
  });
  const Failure failure = failureOfWait<Team>(waiting, {flagWord(2), flagWord(1)});
  host.join();
  return failure;
}

TYPED_TEST(Wait, FollowsATimeoutThatTheHostChanges) {
  using std::chrono::milliseconds, std::chrono::steady_clock;
  for (const auto& [first, second] : {std::pair{60000, 80}, std::pair{200, 400}}) {
    const auto begin = steady_clock::now();
    const Failure failure = failureOfWaitWithTimeouts<TypeParam>(milliseconds(first), milliseconds(second));
    EXPECT_EQ(failure.fault, Fault::timeout);
    EXPECT_EQ(failure.peer, 8);
    EXPECT_GE(steady_clock::now() - begin, milliseconds(second)) << "from its beginning";
    EXPECT_LT(steady_clock::now() - begin, std::chrono::seconds(20));
  }
}

}  // namespace
}  // namespace moe::test
