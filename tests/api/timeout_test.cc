// The timeout of a communicator may change while it lives, and while ranks wait (moeCommSetTimeout).
#include <chrono>
#include <thread>

#include "support/api/refusal_calls.h"

namespace moe::test {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

class Timeout : public OnBackend {};

moeHandle_t makeHandle(RankContext& context) {
  const moeHandleConfig_t shape = handleOf(moeModeHt, moeLayoutFlat);
  moeHandle_t handle = nullptr;
  EXPECT_EQ(moeHandleCreate(&handle, context.comm, &shape), moeSuccess) << context.error();
  return handle;
}

// Waits for the other rank's route. Sets the timeout first; or another thread sets it when the wait has begun.
moeResult_t routeWithTimeout(RankContext& context, moeHandle_t handle, std::int32_t timeoutMs, bool underWay) {
  std::thread setter([&] {
    if (underWay) std::this_thread::sleep_for(100ms);
    EXPECT_EQ(moeCommSetTimeout(context.comm, timeoutMs), moeSuccess) << context.error();
  });
  if (!underWay) setter.join();
  moeRoute(handle, nullptr, nullptr, 0, context.stream());
  if (underWay) setter.join();
  context.arena.synchronize();
  moeResult_t error = moeSuccess;
  EXPECT_EQ(moeCommGetAsyncError(context.comm, &error), moeSuccess);
  return error;
}

TEST_P(Timeout, EndsWaitsSoonerWhenItIsLowered) {
  for (const bool underWay : {false, true}) {
    world(2, config(), [&](RankContext& context) {
      moeHandle_t handle = makeHandle(context);
      context.meet();
      const auto begin = Clock::now();
      if (context.rank == 1) {
        EXPECT_EQ(routeWithTimeout(context, handle, 300, underWay), moeTimeout);
        EXPECT_TRUE(says(context.error(), "rank 0 did not"));
        EXPECT_TRUE(says(context.error(), "within 300 ms"));
        EXPECT_GE(Clock::now() - begin, 300ms);
        EXPECT_LT(Clock::now() - begin, 10s) << "the configured timeout is 20 s";
        EXPECT_EQ(moeCommSetTimeout(context.comm, 1000), moeTimeout) << "the communicator has failed";
      }
      context.meet();
    });
  }
}

TEST_P(Timeout, LetsWaitsGoOnWhenItIsRaised) {
  for (const bool underWay : {false, true}) {
    moeConfig_t quick = config();
    quick.timeoutMs = 600;
    world(2, quick, [&](RankContext& context) {
      moeHandle_t handle = makeHandle(context);
      context.meet();
      if (context.rank == 1) {
        EXPECT_EQ(routeWithTimeout(context, handle, 60000, underWay), moeSuccess) << context.error();
        return;
      }
      std::this_thread::sleep_for(1200ms);
      MOE_EXPECT_OK(moeRoute(handle, nullptr, nullptr, 0, context.stream()), context);
    });
  }
}

TEST_P(Timeout, IsToldAndRefusesValuesThatAreNone) {
  world(1, config(), [](RankContext& context) {
    const auto timeout = [&] {
      moeCommInfo_t info = MOE_COMM_INFO_INITIALIZER;
      MOE_EXPECT_OK(moeCommGetInfo(context.comm, &info), context);
      return info.timeoutMs;
    };
    EXPECT_EQ(timeout(), 20000);
    MOE_EXPECT_OK(moeCommSetTimeout(context.comm, 86400000), context);
    EXPECT_EQ(timeout(), 86400000);
    for (const std::int32_t bad : {0, -1, 86400001}) {
      EXPECT_EQ(moeCommSetTimeout(context.comm, bad), moeInvalidArgument);
      EXPECT_TRUE(says(context.error(), "timeoutMs is " + std::to_string(bad) + ", must be 1..86400000"));
    }
    EXPECT_EQ(timeout(), 86400000);
    EXPECT_EQ(moeCommSetTimeout(nullptr, 1000), moeInvalidArgument);
  });
}

MOE_INSTANTIATE_BACKENDS(Timeout);

}  // namespace
}  // namespace moe::test
