// moeCommSuspend and moeCommResume: steps, memory and addresses. sleep_calls_test.cc has refusals and failures. Under
// moerun ranks are processes. Threads of one process cannot give GPU memory back, so there the tests have one rank.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "support/api/sleep_world.h"
#include "support/base/held.h"
#include "support/base/mappings.h"
#include "support/base/sanitizers.h"

namespace moe::test {
namespace {

class Sleep : public OnSleepers {};

void stepAroundCycles(int nranks, const moeConfig_t& config, const StepCase& c, int cycles) {
  world(nranks, config, [&](RankContext& context) {
    MoeStep step(context, c);
    for (int i = 0; i < 3; ++i) stepOnce(step, i);
    for (int i = 0; i < cycles; ++i) {
      sleepOnce(context);
      if (i % 4 == 3) stepOnce(step, i);
    }
    for (int i = 0; i < 4; ++i) stepOnce(step, 100 + i);
  });
}

TEST_P(Sleep, StepsOfAllLayoutsInBothModesAreRightAfterTwentyCycles) {
  for (int mode : {moeModeHt, moeModeLl}) {
    for (int layout = moeLayoutFlat; layout <= moeLayoutRankMajor; ++layout) {
      stepAroundCycles(ranks(3), config(), mixedCase(mode, layout), 20);
    }
  }
}

// Over TCP, unless MOECOMM_TRANSPORT names another transport. An adapter in software takes a second to connect.
TEST_P(Sleep, DomainsAreJoinedAnew) {
  moeConfig_t config = this->config();
  config.domainSize = 1;
  const bool chosen = std::getenv("MOECOMM_TRANSPORT") != nullptr;
  if (!chosen) config.transport = moeTransportTcp;
  for (int mode : {moeModeHt, moeModeLl}) {
    for (int layout = moeLayoutFlat; layout <= moeLayoutRankMajor; ++layout) {
      stepAroundCycles(ranks(4), config, mixedCase(mode, layout), chosen ? 1 : 6);
      if (startedRanks() % 2 != 0) continue;
      config.domainSize = 3 - config.domainSize;  // 2, 1, 2, ...
      if (ranks(4) == 1) config.domainSize = 1;
    }
  }
}

// The handle's tables lie beside the window.
TEST_P(Sleep, AKnownRouteStays) {
  for (int mode : {moeModeHt, moeModeLl}) {
    for (int layout = moeLayoutFlat; layout <= moeLayoutRankMajor; ++layout) {
      world(ranks(3), config(), [&](RankContext& context) {
        StepCase c = mixedCase(mode, layout);
        c.window = false;
        MoeStep step(context, c);
        stepOnce(step, 0);
        sleepOnce(context);
        step.dispatch();
        step.checkDispatch();
        step.runExperts();
        sleepOnce(context);  // rows that are not in the window stay too
        step.combine();
        step.checkCombine();
      });
    }
  }
}

TEST_P(Sleep, LeavesRoomForAnotherCommunicator) {
  if (startedRanks() > 0) GTEST_SKIP() << "the second id travels by memory of this process";
  moeUniqueId_t id;
  ASSERT_EQ(moeGetUniqueId(&id), moeSuccess);
  world(ranks(2), config(), [&](RankContext& context) {
    moeConfig_t own = config();
    own.device = deviceUsed(context.comm);
    RankContext other{context.rank, context.nranks, nullptr, context.arena, context.barrier};
    ASSERT_EQ(moeCommInit(&other.comm, context.nranks, context.rank, &id, &own), moeSuccess);
    {
      MoeStep first(context, mixedCase(moeModeHt, moeLayoutFlat)), second(other, mixedCase(moeModeLl, moeLayoutFlat));
      for (int i = 0; i < 5; ++i) {
        MOE_EXPECT_OK(moeCommSuspend(context.comm), context);
        stepOnce(second, i);
        MOE_EXPECT_OK(moeCommSuspend(other.comm), other);
        MOE_EXPECT_OK(moeCommResume(context.comm), context);
        stepOnce(first, i);
        MOE_EXPECT_OK(moeCommResume(other.comm), other);
        stepOnce(second, 10 + i);
      }
    }
    EXPECT_EQ(moeCommDestroy(other.comm), moeSuccess);
  });
}

// ---- Memory ----

TEST_P(Sleep, WindowMemoryIsZerosAtTheSameAddresses) {
  world(ranks(2), config(), [](RankContext& context) {
    MOE_ASSERT_OK(moeMemPoolUse(context.comm), context);
    void* window = nullptr;
    MOE_ASSERT_OK(moeMemAlloc(context.comm, 4096, &window), context);
    void* pool = moeMemPoolAlloc(4096, deviceUsed(context.comm), nullptr);
    ASSERT_NE(pool, nullptr) << moeGetLastError(nullptr);
    moeHandleConfig_t shape = handleOf(moeModeLl, moeLayoutRankMajor);
    shape.experts = 4 * context.nranks;
    moeHandle_t handle = nullptr;
    MOE_ASSERT_OK(moeHandleCreate(&handle, context.comm, &shape), context);
    const moeHandleView_t before = viewOf(handle);
    const std::vector<std::uint8_t> text(4096, 7), zeros(4096, 0);
    for (void* memory : {window, pool, before.combineRows}) context.arena.upload(memory, text.data(), 1024);
    context.meet();
    sleepOnce(context);
    const moeHandleView_t after = viewOf(handle);
    EXPECT_EQ(after.rows, before.rows);
    EXPECT_EQ(after.combineRows, before.combineRows);
    for (void* memory : {window, pool}) {
      EXPECT_EQ(context.arena.get(static_cast<std::uint8_t*>(memory), 4096), zeros);
    }
    const auto* slots = static_cast<std::uint8_t*>(after.combineRows);
    EXPECT_EQ(context.arena.get(slots, 1024), std::vector<std::uint8_t>(1024, 0));
    void* next = nullptr;
    MOE_EXPECT_OK(moeMemAlloc(context.comm, 4096, &next), context);
    EXPECT_NE(next, window) << "blocks are still taken";
    context.arena.upload(window, text.data(), 4096);
    EXPECT_EQ(context.arena.get(static_cast<std::uint8_t*>(window), 4096), text);
    moeMemPoolFree(pool, 0, deviceUsed(context.comm), nullptr);
    moeMemPoolUse(nullptr);
  });
}

TEST_P(Sleep, GivesTheMemoryBack) {
  moeConfig_t config = this->config();
  config.heapBytes = 64 << 20;
  const bool onHost = GetParam() == moeBackendHost;
  world(ranks(2), config, [&](RankContext& context) {
    void* heap = nullptr;
    MOE_ASSERT_OK(moeMemAlloc(context.comm, static_cast<std::size_t>(config.heapBytes), &heap), context);
    const std::vector<std::uint8_t> full(static_cast<std::size_t>(config.heapBytes), 1);
    for (int cycle = 0; cycle < 2; ++cycle) {
      context.arena.upload(heap, full.data(), full.size());
      const std::size_t freeBefore = context.arena.freeBytes(), window = windowBytesOf(context.comm);
      if (onHost) {
        EXPECT_GE(mappingAt(heap).residentBytes, full.size());
      }
      context.meet();
      MOE_ASSERT_OK(moeCommSuspend(context.comm), context);
      if (onHost) {
        const Mapping asleep = mappingAt(heap);
        EXPECT_GE(asleep.bytes, full.size()) << "the addresses are not reserved";
        EXPECT_FALSE(asleep.accessible);
        EXPECT_EQ(asleep.residentBytes, 0U);
        EXPECT_EQ(windowsHeld(), 0) << "a mapping or descriptor keeps the memory of a window";
      } else {
        EXPECT_GE(context.arena.freeBytes(), freeBefore + window / 100 * 98);
      }
      context.meet();
      MOE_ASSERT_OK(moeCommResume(context.comm), context);
      if (onHost) {
        EXPECT_TRUE(mappingAt(heap).accessible);
      }
    }
  });
}

TEST_P(Sleep, LeavesNothingBehindAfterAHundredCycles) {
  Held::settle();
  world(ranks(3), config(), [&](RankContext& context) {
    MoeStep step(context, mixedCase(moeModeLl, moeLayoutRankMajor));
    const auto cycles = [&](int count) {
      for (int i = 0; i < count; ++i) {
        sleepOnce(context);
        if (i % 10 == 0) stepOnce(step, i);
      }
      context.meet();
    };
    cycles(10);  // what threads and the C library keep is there now
    const Held held;
    const int mapped = mappings();
    const std::size_t free = context.arena.freeBytes();
    context.meet();
    cycles(100);
    if (context.rank == 0) {
      EXPECT_TRUE(holdsNoMoreThan(held));
      if (!MOE_TEST_TSAN && !MOE_TEST_ASAN) {
        EXPECT_LE(mappings(), mapped + 2) << "mappings grow";
      }
      EXPECT_GE(context.arena.freeBytes() + (std::size_t{16} << 20), free);
    }
    context.meet();
  });
}

// ---- Graphs ----

// The graph routes anew in every replay, from ids that are uploaded before it. Its sums must be those of the same calls
// before the sleep, bit by bit.
void replayAroundCycles(RankContext& context, int mode, int layout, int cycles) {
  GraphStep step(context, mode, layout);
  step.run();  // loads the kernels
  const auto graph = context.arena.record([&] { step.queue(); });
  ASSERT_NE(graph, nullptr);
  const auto replay = [&](int seed) {
    step.upload(seed);
    graph->replay();
    return step.sums();
  };
  std::vector<std::vector<float>> before;
  for (int seed = 0; seed < 4; ++seed) before.push_back(replay(seed));
  EXPECT_NE(before[0], before[1]);
  for (int cycle = 0; cycle < cycles; ++cycle) {
    sleepOnce(context);
    EXPECT_EQ(replay(cycle % 4), before[static_cast<std::size_t>(cycle % 4)]) << "cycle " << cycle;
  }
  moeResult_t error = moeSuccess;
  EXPECT_EQ(moeCommGetAsyncError(context.comm, &error), moeSuccess);
  EXPECT_EQ(error, moeSuccess) << context.error();
}

TEST_P(Sleep, CapturedGraphsReplayBitEqual) {
  if (GetParam() == moeBackendHost) GTEST_SKIP() << "the host backend has no graphs";
  for (int mode : {moeModeHt, moeModeLl}) {
    for (int layout = moeLayoutFlat; layout <= moeLayoutRankMajor; ++layout) {
      world(ranks(2), config(), [&](RankContext& context) { replayAroundCycles(context, mode, layout, 25); });
    }
  }
}

// Each cycle makes another transport, which the graph must find.
TEST_P(Sleep, CapturedGraphsFindTheNextTransport) {
  if (GetParam() == moeBackendHost) GTEST_SKIP() << "the host backend has no graphs";
  moeConfig_t config = this->config();
  config.domainSize = 1;
  config.transport = moeTransportTcp;
  for (int mode : {moeModeHt, moeModeLl}) {
    world(ranks(2), config, [&](RankContext& context) { replayAroundCycles(context, mode, moeLayoutFlat, 8); });
  }
}

MOE_INSTANTIATE_BACKENDS(Sleep);

}  // namespace
}  // namespace moe::test
