// moeCommSuspend and moeCommResume: which calls are refused, where, and what happens to ranks that fail meanwhile.
// sleep_test.cc has steps and memory. Ranks that die are in kill_test.sh.
#include <chrono>
#include <cstdlib>
#include <memory>
#include <optional>
#include <thread>

#include "support/api/sleep_world.h"
#include "support/base/mappings.h"
#include "support/base/process_limit.h"
#include "support/base/temporary_folder.h"

namespace moe::test {
namespace {

class SleepCalls : public OnSleepers {};

void stepWith(RankContext& context, Calls& calls) {
  MOE_EXPECT_OK(calls.route(), context);
  MOE_EXPECT_OK(calls.dispatch(calls.dispatchArgs()), context);
  MOE_EXPECT_OK(calls.combine(calls.combineArgs()), context);
  context.arena.synchronize();
  moeResult_t error = moeSuccess;
  EXPECT_EQ(moeCommGetAsyncError(context.comm, &error), moeSuccess);
  EXPECT_EQ(error, moeSuccess) << context.error();
}

moeHandleConfig_t shapeFor(const RankContext& context, int mode) {
  moeHandleConfig_t shape = handleOf(mode, moeLayoutFlat);
  shape.experts = 4 * context.nranks;
  return shape;
}

TEST_P(SleepCalls, ThatNeedTheWindowAreRefusedWhileAsleep) {
  world(ranks(2), config(), [&](RankContext& context) {
    moeHandleConfig_t alone = shapeFor(context, moeModeHt);
    alone.localOnly = 1;
    std::vector<std::unique_ptr<Calls>> handles;
    for (const auto& shape : {shapeFor(context, moeModeHt), shapeFor(context, moeModeLl), alone}) {
      handles.push_back(std::make_unique<Calls>(context, shape));
    }
    MOE_ASSERT_OK(moeMemPoolUse(context.comm), context);
    MOE_ASSERT_OK(moeCommSuspend(context.comm), context);
    const auto refused = [&](moeResult_t result, const char* call) {
      EXPECT_EQ(result, moeInvalidUsage) << call;
      EXPECT_TRUE(says(context.error(), std::string(call) + ": the communicator is suspended (moeCommSuspend)"));
    };
    for (const auto& calls : handles) {
      refused(calls->route(), "moeRoute");
      refused(calls->dispatch(calls->dispatchArgs()), "moeDispatch");
      refused(calls->combine(calls->combineArgs()), "moeCombine");
      refused(moeRouteDispatch(calls->handle(), nullptr, nullptr, moeTokensRefused, nullptr, context.stream()),
              "moeRouteDispatch");
      refused(moeComplete(calls->handle(), context.stream()), "moeComplete");
      DispatchFields late = calls->dispatchArgs();
      refused(moeCompleteDispatch(calls->handle(), late.linked(), context.stream()), "moeCompleteDispatch");
    }
    moeHandle_t none = nullptr;
    const moeHandleConfig_t shape = shapeFor(context, moeModeHt);
    refused(moeHandleCreate(&none, context.comm, &shape), "moeHandleCreate");
    EXPECT_EQ(none, nullptr);
    void* memory = nullptr;
    EXPECT_EQ(moeMemAlloc(context.comm, 64, &memory), moeInvalidUsage);
    EXPECT_TRUE(says(context.error(), "the communicator is suspended"));
    EXPECT_EQ(moeMemPoolAlloc(64, deviceUsed(context.comm), nullptr), nullptr);
    EXPECT_TRUE(says(moeGetLastError(nullptr), "moeMemPoolAlloc: the communicator is suspended"));
    moeMemPoolUse(nullptr);
    MOE_EXPECT_OK(moeCommResume(context.comm), context);
    for (const auto& calls : handles) stepWith(context, *calls);
  });
}

TEST_P(SleepCalls, ThatNeedNoWindowWorkWhileAsleep) {
  const TemporaryFolder folder;
  world(ranks(2), config(), [&](RankContext& context) {
    void* before = nullptr;
    MOE_ASSERT_OK(moeMemAlloc(context.comm, 64, &before), context);
    auto shape = shapeFor(context, moeModeLl);
    shape.statistics = 1;
    Calls calls(context, shape);
    MOE_EXPECT_OK(calls.route(), context);
    context.arena.synchronize();
    MOE_ASSERT_OK(moeCommSuspend(context.comm), context);
    moeCounts_t counts = MOE_COUNTS_INITIALIZER;
    MOE_EXPECT_OK(moeHandleGetCounts(calls.handle(), &counts), context);
    EXPECT_EQ(counts.rowsPerRank[context.rank] >= 0, true);
    moeDeviceCounts_t deviceCounts = MOE_DEVICE_COUNTS_INITIALIZER;
    MOE_EXPECT_OK(moeHandleGetDeviceCounts(calls.handle(), &deviceCounts), context);
    moeHandleStatus_t status = MOE_HANDLE_STATUS_INITIALIZER;
    MOE_EXPECT_OK(moeHandleGetStatus(calls.handle(), &status), context);
    moeStatistics_t statistics = MOE_STATISTICS_INITIALIZER;
    MOE_EXPECT_OK(moeHandleGetStatistics(calls.handle(), &statistics), context);
    moeLimits_t limits = MOE_LIMITS_INITIALIZER;
    MOE_EXPECT_OK(moeGetLimits(context.comm, &limits), context);
    moePeerInfo_t peer = MOE_PEER_INFO_INITIALIZER;
    MOE_EXPECT_OK(moeCommGetPeerInfo(context.comm, 0, &peer), context);
    MOE_EXPECT_OK(moeCommSetTimeout(context.comm, 15000), context);
    const std::string path = folder.at("rank" + std::to_string(context.rank));
    MOE_EXPECT_OK(moeCommDump(context.comm, path.c_str()), context);
    moeResult_t error = moeSuccess;
    MOE_EXPECT_OK(moeCommGetAsyncError(context.comm, &error), context);
    EXPECT_EQ(error, moeSuccess);
    MOE_EXPECT_OK(moeMemFree(context.comm, before), context);
    MOE_EXPECT_OK(moeHandleDestroy(calls.handle()), context);
    MOE_EXPECT_OK(moeCommResume(context.comm), context);
  });
}

TEST_P(SleepCalls, OfTheWrongStateAreRefused) {
  world(ranks(2), config(), [](RankContext& context) {
    EXPECT_EQ(moeCommResume(context.comm), moeInvalidUsage);
    EXPECT_TRUE(says(context.error(), "moeCommResume: the communicator is not suspended"));
    MOE_EXPECT_OK(moeCommSuspend(context.comm), context);
    EXPECT_EQ(moeCommSuspend(context.comm), moeInvalidUsage);
    EXPECT_TRUE(says(context.error(), "moeCommSuspend: the communicator is suspended already"));
    MOE_EXPECT_OK(moeCommResume(context.comm), context);
    EXPECT_EQ(moeCommResume(context.comm), moeInvalidUsage);
  });
  EXPECT_EQ(moeCommSuspend(nullptr), moeInvalidArgument);
  EXPECT_EQ(moeCommResume(nullptr), moeInvalidArgument);
}

TEST_P(SleepCalls, WithAnOperationThatAwaitsCompletionAreRefusedOnAllRanks) {
  for (int mode : {moeModeHt, moeModeLl}) {
    world(ranks(3), config(), [&](RankContext& context) {
      const int late = context.nranks - 1;
      Calls calls(context, shapeFor(context, mode));
      MOE_ASSERT_OK(calls.route(), context);
      DispatchFields begun = calls.dispatchArgs();
      begun.flags = context.rank == late ? moeSendOnly : 0;
      MOE_ASSERT_OK(calls.dispatch(begun), context);
      for (int i = 0; i < 2; ++i) {
        EXPECT_EQ(moeCommSuspend(context.comm), moeInvalidUsage);
        EXPECT_TRUE(says(context.error(), "rank " + std::to_string(late) +
                                              ": moeCommSuspend: 1 of this rank's operations awaits moeComplete"));
      }
      if (context.rank == late) {
        MOE_EXPECT_OK(moeComplete(calls.handle(), context.stream()), context);
      }
      MOE_EXPECT_OK(calls.combine(calls.combineArgs()), context);
      sleepOnce(context);
      stepWith(context, calls);
    });
  }
}

TEST(SleepCallsOnHost, AreRefusedForWindowsOfTheCallersAllocator) {
  if (startedRanks() > 0) GTEST_SKIP() << "such windows are for ranks of one process";
  moeConfig_t own = testConfig(moeBackendHost);
  own.allocate = [](void*, std::size_t bytes, std::int32_t) {
    return std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  };
  own.free = [](void*, void* memory, std::size_t, std::int32_t) { std::free(memory); };
  world(2, own, [](RankContext& context) {
    EXPECT_EQ(moeCommSuspend(context.comm), moeUnsupported);
    EXPECT_TRUE(says(context.error(), "rank 0: moeCommSuspend: the window is memory of config.allocate"));
    Calls calls(context, shapeFor(context, moeModeLl));
    stepWith(context, calls);
  });
}

// Only rank 1 has the allocator.
TEST(SleepCallsOnHost, NameTheOneRankWhoseWindowIsFixed) {
  if (startedRanks() > 0) GTEST_SKIP() << "such windows are for ranks of one process";
  const moeConfig_t config = testConfig(moeBackendHost);
  const Join join = [](moeComm_t* comm, std::int32_t nranks, std::int32_t rank, const moeUniqueId_t* id,
                       const moeConfig_t* given) {
    moeConfig_t own = *given;
    if (rank == 1) {
      own.allocate = [](void*, std::size_t bytes, std::int32_t) {
        return std::aligned_alloc(256, (bytes + 255) / 256 * 256);
      };
      own.free = [](void*, void* memory, std::size_t, std::int32_t) { std::free(memory); };
    }
    return moeCommInit(comm, nranks, rank, id, &own);
  };
  world(
      3, config,
      [](RankContext& context) {
        EXPECT_EQ(moeCommSuspend(context.comm), moeUnsupported);
        EXPECT_TRUE(says(context.error(), "rank 1: moeCommSuspend: the window is memory of config.allocate"));
      },
      join);
}

// Threads of one process share their windows on GPUs by CUDA IPC.
TEST(SleepCallsOnGpus, AreRefusedForWindowsThatCudaIpcShares) {
  if (cudaDeviceCount() == 0) GTEST_SKIP() << "no GPU here";
  if (startedRanks() > 0) GTEST_SKIP() << "ranks are processes";
  world(2, testConfig(moeBackendCuda), [](RankContext& context) {
    EXPECT_EQ(moeCommSuspend(context.comm), moeUnsupported);
    EXPECT_TRUE(says(context.error(), "rank 0: moeCommSuspend: the window is shared by CUDA IPC"));
  });
}

// ---- Failures ----

// A limit on the size of files keeps rank 1 from making a window. It is that of a process, so of threads rank 0 says
// it.
TEST(SleepCallsOnHost, ThatGetNoMemoryLeaveAllRanksAsleepAndMayBeRepeated) {
  const int poor = startedRanks() > 0 ? 1 : 0;
  world(3, testConfig(moeBackendHost), [&](RankContext& context) {
    Calls calls(context, shapeFor(context, moeModeHt));
    MOE_EXPECT_OK(calls.route(), context);
    MOE_ASSERT_OK(moeCommSuspend(context.comm), context);
    for (int i = 0; i < 3; ++i) {
      context.meet();
      {
        std::optional<ProcessLimit> limit;
        if (context.rank == poor) limit.emplace(RLIMIT_FSIZE, 4096);
        context.meet();
        EXPECT_EQ(moeCommResume(context.comm), moeSystemError);
        EXPECT_TRUE(says(context.error(), "rank " + std::to_string(poor) + ": cannot size the window to "));
        context.meet();
      }
      EXPECT_EQ(calls.route(), moeInvalidUsage);
      EXPECT_TRUE(says(context.error(), "the communicator is suspended"));
      EXPECT_EQ(windowsHeld(), 0) << "a rank that got memory keeps it";
    }
    context.meet();
    MOE_EXPECT_OK(moeCommResume(context.comm), context);
    stepWith(context, calls);
    sleepOnce(context);
  });
}

// Ranks that take part wait for the timeout that is in force, then name the rank that did not come.
void oneRankStaysAway(const moeConfig_t& config, int nranks, bool resume) {
  world(nranks, config, [&](RankContext& context) {
    MOE_ASSERT_OK(moeCommSetTimeout(context.comm, 700), context);
    if (resume) {
      MOE_ASSERT_OK(moeCommSuspend(context.comm), context);
    }
    const auto begin = std::chrono::steady_clock::now();
    if (context.rank == 1) {
      while (std::chrono::steady_clock::now() - begin < std::chrono::seconds(2)) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
      EXPECT_EQ(moeCommSuspend(context.comm), moeTimeout) << context.error();
      return;
    }
    EXPECT_EQ(resume ? moeCommResume(context.comm) : moeCommSuspend(context.comm), moeTimeout) << context.error();
    EXPECT_TRUE(says(context.error(), resume ? "rank 1 did not complete moeCommResume within 700 ms"
                                             : "rank 1 did not complete moeCommSuspend within 700 ms"));
    const auto took = std::chrono::steady_clock::now() - begin;
    EXPECT_GE(took, std::chrono::milliseconds(600));
    EXPECT_LT(took, std::chrono::milliseconds(5000));
    EXPECT_EQ(moeCommSuspend(context.comm), moeTimeout) << "the communicator has failed";
  });
}

TEST_P(SleepCalls, NameARankThatDoesNotCome) {
  if (ranks(3) == 1) GTEST_SKIP() << "one rank waits for nobody";
  oneRankStaysAway(config(), 3, false);
  oneRankStaysAway(config(), 3, true);
}

TEST_P(SleepCalls, LetARankBeDestroyedWhileAsleep) {
  moeConfig_t config = this->config();
  for (int domainSize : {0, 1}) {
    config.domainSize = domainSize;
    config.transport = domainSize == 1 ? moeTransportTcp : 0;
    world(ranks(2), config, [](RankContext& context) {
      Calls calls(context, shapeFor(context, moeModeLl));
      stepWith(context, calls);
      MOE_EXPECT_OK(moeCommSuspend(context.comm), context);
    });
  }
}

TEST_P(SleepCalls, LearnThatARankHasLeftMeanwhile) {
  if (ranks(3) == 1) GTEST_SKIP() << "one rank waits for nobody";
  if (startedRanks() > 0) GTEST_SKIP() << "ranks meet by a barrier of their process";
  for (int domainSize : {0, 1}) {
    moeConfig_t config = this->config();
    config.domainSize = domainSize;
    config.transport = domainSize == 1 ? moeTransportTcp : 0;
    moeUniqueId_t id;
    ASSERT_EQ(moeGetUniqueId(&id), moeSuccess);
    world(3, config, [&](RankContext& context) {
      moeComm_t own = nullptr;
      ASSERT_EQ(moeCommInit(&own, context.nranks, context.rank, &id, &config), moeSuccess);
      EXPECT_EQ(moeCommSuspend(own), moeSuccess) << moeGetLastError(own);
      context.meet();
      if (context.rank != 1) {
        EXPECT_EQ(moeCommResume(own), moeRemoteError);
        EXPECT_TRUE(says(moeGetLastError(own), "rank 1 left the group before moeCommResume was done"));
      }
      EXPECT_EQ(moeCommDestroy(own), moeSuccess);
    });
  }
}

TEST_P(SleepCalls, LetARankAbortWhileAsleep) {
  if (ranks(2) == 1) GTEST_SKIP() << "one rank has nobody to tell";
  world(2, config(), [](RankContext& context) {
    // Between processes, a slower rank may hear of the abort before its call returns.
    const moeResult_t asleep = moeCommSuspend(context.comm);
    EXPECT_TRUE(asleep == moeSuccess || (context.rank != 0 && asleep == moeAborted)) << context.error();
    context.meet();
    if (context.rank == 0) {
      MOE_EXPECT_OK(moeCommAbort(context.comm), context);
    }
    EXPECT_EQ(moeCommResume(context.comm), moeAborted);
    EXPECT_TRUE(says(context.error(), "rank 0: moeCommAbort was called"));
  });
}

// The block keeps the addresses reserved, and the communicator ends without its memory.
TEST_P(SleepCalls, LetBlocksOfThePoolOutliveASleepingCommunicator) {
  if (startedRanks() > 0) GTEST_SKIP() << "a world of one rank";
  moeUniqueId_t id;
  ASSERT_EQ(moeGetUniqueId(&id), moeSuccess);
  const moeConfig_t own = config();
  moeComm_t comm = nullptr;
  ASSERT_EQ(moeCommInit(&comm, 1, 0, &id, &own), moeSuccess) << moeGetLastError(nullptr);
  ASSERT_EQ(moeMemPoolUse(comm), moeSuccess);
  void* block = moeMemPoolAlloc(4096, deviceUsed(comm), nullptr);
  ASSERT_NE(block, nullptr);
  ASSERT_EQ(moeCommSuspend(comm), moeSuccess) << moeGetLastError(comm);
  ASSERT_EQ(moeCommDestroy(comm), moeSuccess);
  moeMemPoolFree(block, 4096, 0, nullptr);
  moeMemPoolUse(nullptr);
}

MOE_INSTANTIATE_BACKENDS(SleepCalls);

}  // namespace
}  // namespace moe::test
