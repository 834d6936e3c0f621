// How CPU threads wait beside neighbours that compute. They notice what a yield costs there, and then nap instead.
#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <thread>

#include "device/policy/host/pace.h"
#include "device/policy/host/patience.h"

namespace moe::test {
namespace {

using Clock = HostPace::Clock;
using std::chrono::microseconds;
using std::chrono::milliseconds;

// A thread's time, which the test advances.
class Life {
 public:
  Clock::time_point now() const { return now_; }
  void passes(Clock::duration time) { now_ += time; }
  bool yields(Clock::duration cost) {
    if (!pace_.mayYield(now_)) return false;
    pace_.noteYield(now_, now_ + cost);
    now_ += cost;
    return true;
  }
  void waits(int times) {
    for (int i = 0; i < times; ++i) yields(microseconds(1)), pace_.noteSaved();
  }

 private:
  HostPace pace_;
  Clock::time_point now_{milliseconds(1)};
};

TEST(HostPace, YieldsAsLongAsPeersAreServedByIt) {
  Life life;
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(life.yields(microseconds(300)));
}

TEST(HostPace, NapsWhenAYieldHasCostATimeSlice) {
  Life life;
  EXPECT_TRUE(life.yields(milliseconds(4)));
  EXPECT_FALSE(life.yields(milliseconds(4)));
  life.passes(milliseconds(40));
  EXPECT_FALSE(life.yields(milliseconds(4)));
}

TEST(HostPace, ForgivesASliceNowAndThen) {
  Life life;
  for (int i = 0; i < 100; ++i) {
    life.waits(300);
    EXPECT_TRUE(life.yields(milliseconds(4))) << i;
    EXPECT_TRUE(life.yields(microseconds(1))) << i;
  }
}

TEST(HostPace, LosesLittleTimeToNeighboursThatStay) {
  Life life;
  const Clock::time_point begin = life.now();
  Clock::duration lost{};
  while (life.now() - begin < std::chrono::seconds(20)) {
    if (life.yields(milliseconds(4))) lost += milliseconds(4);
    life.passes(microseconds(100));
  }
  EXPECT_LT(lost, (life.now() - begin) / 100);
}

TEST(HostPace, YieldsAgainWhenTheNeighboursAreGone) {
  Life life;
  for (int i = 0; i < 100; ++i) life.yields(milliseconds(4)), life.passes(milliseconds(10));
  life.passes(std::chrono::seconds(1));
  EXPECT_TRUE(life.yields(microseconds(1)));
  life.waits(1000);
  EXPECT_TRUE(life.yields(microseconds(1)));
}

// ---- The same on a processor that is shared with a neighbour

// The processor on which the test began, for all of its threads.
int oneProcessor() {
  static const int processor = ::sched_getcpu();
  return processor;
}
void stayOnOneProcessor() {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(static_cast<std::size_t>(oneProcessor()), &one);
  ::sched_setaffinity(0, sizeof one, &one);
}

class Neighbour {
 public:
  Neighbour() {
    while (!computes_) std::this_thread::yield();
  }
  ~Neighbour() {
    gone_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> computes_ = false, gone_ = false;
  std::thread thread_{[this] {
    stayOnOneProcessor();
    computes_ = true;
    while (!gone_.load(std::memory_order_relaxed)) continue;
  }};
};

// The time that a yield takes here.
Clock::duration costOfAYield() {
  constexpr int kYields = 20;
  const auto begin = Clock::now();
  for (int i = 0; i < kYields; ++i) std::this_thread::yield();
  return (Clock::now() - begin) / kYields;
}

// Two threads wait for each other in turn, `turns` times. Returns the time that it took.
Clock::duration takeTurns(int turns) {
  const WaitOrders orders{0, 60'000'000'000};
  std::uint32_t departed = 0;
  CommState state{};
  CommView comm{};
  comm.departed = &departed;
  comm.state = &state;
  comm.orders = &orders;
  std::atomic<int> turn = 0;
  const auto player = [&](int parity) {
    HostPace pace;
    for (int i = parity; i < turns; i += 2) {
      HostPatience patience(comm, &pace);
      while (turn.load(std::memory_order_acquire) != i &&
             patience.goesOn([] { return Failure{}; }, [](const Failure&) {}))
        continue;
      patience.anew();
      turn.store(i + 1, std::memory_order_release);
    }
  };
  const auto begin = Clock::now();
  std::thread other([&] {
    stayOnOneProcessor();
    player(1);
  });
  player(0);
  other.join();
  EXPECT_EQ(turn, turns);
  return Clock::now() - begin;
}

TEST(HostPatience, TakesTurnsBesideANeighbourThatComputesWithoutATimeSliceForEach) {
  constexpr int kTurns = 200;
  Clock::duration slice{}, turns{};
  std::thread([&] {
    stayOnOneProcessor();
    const Neighbour neighbour;
    slice = costOfAYield();
    turns = takeTurns(kTurns);
  }).join();
  if (slice < milliseconds(1)) GTEST_SKIP() << "yields are cheap here";
  EXPECT_LT(turns, slice * kTurns / 3);
}

}  // namespace
}  // namespace moe::test
