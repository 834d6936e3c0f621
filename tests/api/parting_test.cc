// moeCommDisconnect and moeCommReconnect: a group parts while it is suspended, holds nothing then, and meets again.
// Under moerun ranks are processes, as in sleep_test.cc. checkpoint_test.sh restores processes with CRIU.
#include <chrono>
#include <filesystem>
#include <map>
#include <thread>

#include "support/api/parting_world.h"
#include "support/base/held.h"
#include "support/base/mappings.h"
#include "support/base/sanitizers.h"
#include "support/base/temporary_folder.h"
#include "support/base/variable.h"

namespace moe::test {
namespace {

class Parting : public OnSleepers {};

TEST_P(Parting, StepsAreRightAfterMeetingsInAllLayoutsAndModes) {
  for (int mode : {moeModeHt, moeModeLl}) {
    for (int layout = moeLayoutFlat; layout <= moeLayoutRankMajor; ++layout) {
      world(ranks(3), config(), [&](RankContext& context) {
        MoeStep step(context, mixedCase(mode, layout));
        stepOnce(step, 0);
        for (int i = 0; i < 3; ++i) {
          fallAsleep(context);
          wakeUp(context);
          if (i != 1) stepOnce(step, 1 + i);
        }
      });
    }
  }
}

TEST_P(Parting, AKnownRouteAndSleepGoOn) {
  world(ranks(3), config(), [&](RankContext& context) {
    StepCase c = mixedCase(moeModeHt, moeLayoutExpertMajor);
    c.window = false;
    MoeStep step(context, c);
    stepOnce(step, 0);
    fallAsleep(context);
    wakeUp(context);
    step.dispatch();
    step.checkDispatch();
    step.runExperts();
    sleepOnce(context);
    step.combine();
    step.checkCombine();
  });
}

TEST_P(Parting, DomainsAreJoinedAnew) {
  moeConfig_t config = this->config();
  config.domainSize = 1;
  config.transport = moeTransportTcp;
  world(ranks(3), config, [&](RankContext& context) {
    MoeStep step(context, mixedCase(moeModeHt, moeLayoutFlat));
    for (int i = 0; i < 3; ++i) {
      stepOnce(step, i);
      fallAsleep(context);
      wakeUp(context);
      moePeerInfo_t peer = MOE_PEER_INFO_INITIALIZER;
      MOE_EXPECT_OK(moeCommGetPeerInfo(context.comm, (context.rank + 1) % context.nranks, &peer), context);
      EXPECT_EQ(peer.transport, context.nranks == 1 ? moeTransportSelf : moeTransportTcp);
    }
    stepOnce(step, 9);
  });
}

TEST_P(Parting, CapturedGraphsReplayBitEqual) {
  if (GetParam() == moeBackendHost) GTEST_SKIP() << "the host backend has no graphs";
  for (int mode : {moeModeHt, moeModeLl}) {
    world(ranks(2), config(), [&](RankContext& context) {
      GraphStep step(context, mode, moeLayoutRankMajor);
      step.run();  // loads the kernels
      const auto graph = context.arena.record([&] { step.queue(); });
      ASSERT_NE(graph, nullptr);
      const auto replay = [&] {
        graph->replay();
        return step.sums();
      };
      const std::vector<float> before = replay();
      for (int cycle = 0; cycle < 10; ++cycle) {
        fallAsleep(context);
        wakeUp(context);
        EXPECT_EQ(replay(), before) << "cycle " << cycle;
      }
    });
  }
}

// Others wait for it. They must not take it for one that has left for good.
TEST_P(Parting, ARankMayComeLateToTheNextStep) {
  world(ranks(2), config(), [&](RankContext& context) {
    MoeStep step(context, mixedCase(moeModeLl, moeLayoutFlat));
    stepOnce(step, 0);
    fallAsleep(context);
    wakeUp(context);
    if (context.rank == context.nranks - 1) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    stepOnce(step, 1);
  });
}

// ---- What is left ----

// Descriptors by their kind: "socket", "anon_inode", "memfd", and so on.
std::map<std::string, int> descriptors() {
  std::map<std::string, int> kinds;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(entry.path(), gone).string();
    const bool file = target.starts_with("/") && !target.starts_with("/memfd:");
    if (!gone && !file) ++kinds[target.substr(0, target.find_first_of(":[", 1))];
  }
  kinds.erase("pipe");  // of the test's own streams
  return kinds;
}

// The host backend's threads of steps, sockets of domains and the watch's socket are there before.
void holdNothingWhileDisconnected(moeConfig_t config, const TemporaryFolder& folder, int ranks) {
  const Variable threads("MOECOMM_HOST_THREADS", "3");
  const auto nothing = descriptors();
  const Held before;
  config.watchFolder = folder.path().c_str();
  config.tokensMax = 600;
  config.rowBytesMax = 8192;
  config.heapBytes = 64 << 20;
  StepCase large;  // enough for several threads
  large.hidden = 4096;
  large.tokensMax = config.tokensMax;
  world(ranks, config, [&](RankContext& context) {
    const std::size_t own = startedRanks() > 0 ? 0 : static_cast<std::size_t>(context.nranks);
    MoeStep step(context, large);
    for (int i = 0; i < 2; ++i) {
      stepOnce(step, i);
      context.meet();
      if (context.rank == 0) {
        EXPECT_NE(descriptors(), nothing);
        EXPECT_GT(Held().threads, before.threads + 2 * own) << "steps have run on one thread";
      }
      context.meet();
      fallAsleep(context);
      context.meet();
      if (context.rank == 0) {
        EXPECT_TRUE(holdsNoMoreThan({before.descriptors, before.threads + own}));
        EXPECT_EQ(descriptors(), nothing);
        EXPECT_EQ(windowsHeld(), 0);
      }
      context.meet();
      wakeUp(context);
    }
    stepOnce(step, 5);
  });
}

TEST_P(Parting, LeavesNoThreadSocketOrMapping) {
  if (GetParam() == moeBackendCuda) GTEST_SKIP() << "the CUDA driver has threads and descriptors of its own";
  const TemporaryFolder folder;
  Held::settle();
  moeConfig_t config = this->config();
  holdNothingWhileDisconnected(config, folder, ranks(3));
  config.domainSize = 1;
  config.transport = moeTransportTcp;
  holdNothingWhileDisconnected(config, folder, ranks(3));
}

// ---- Calls ----

TEST_P(Parting, CallsInTheWrongStateAreRefused) {
  world(ranks(2), config(), [&](RankContext& context) {
    const moeUniqueId_t id = newId(context);
    const auto refused = [&](moeResult_t result, const char* sentence) {
      EXPECT_EQ(result, moeInvalidUsage);
      EXPECT_TRUE(says(context.error(), sentence));
    };
    refused(moeCommDisconnect(context.comm), "moeCommDisconnect: the communicator is not suspended");
    refused(moeCommReconnect(context.comm, &id), "moeCommReconnect: the communicator is not disconnected");
    MOE_ASSERT_OK(moeCommSuspend(context.comm), context);
    refused(moeCommReconnect(context.comm, &id), "moeCommReconnect: the communicator is not disconnected");
    MOE_ASSERT_OK(moeCommDisconnect(context.comm), context);
    refused(moeCommDisconnect(context.comm), "moeCommDisconnect: it is disconnected already");
    refused(moeCommResume(context.comm), "moeCommResume: the communicator is disconnected: call moeCommReconnect");
    refused(moeCommSuspend(context.comm), "moeCommSuspend: the communicator is suspended already");
    refused(moeCommRecover(context.comm, nullptr, 1000), "moeCommRecover: the communicator is disconnected");
    EXPECT_EQ(moeCommReconnect(context.comm, nullptr), moeInvalidArgument);
    EXPECT_TRUE(says(context.error(), "id is NULL"));
    moeUniqueId_t damaged = id;
    damaged.bytes[20] ^= 1;
    EXPECT_EQ(moeCommReconnect(context.comm, &damaged), moeInvalidArgument);
    EXPECT_TRUE(says(context.error(), "id is damaged"));
    moeResult_t error = moeSuccess;
    MOE_EXPECT_OK(moeCommGetAsyncError(context.comm, &error), context);
    EXPECT_EQ(error, moeSuccess);
    MOE_EXPECT_OK(moeCommSetTimeout(context.comm, 15000), context);
    moeCommInfo_t info = MOE_COMM_INFO_INITIALIZER;
    MOE_EXPECT_OK(moeCommGetInfo(context.comm, &info), context);
    const TemporaryFolder folder;
    MOE_EXPECT_OK(moeCommDump(context.comm, folder.at("dump").c_str()), context);
    wakeUp(context);
  });
  EXPECT_EQ(moeCommDisconnect(nullptr), moeInvalidArgument);
  EXPECT_EQ(moeCommReconnect(nullptr, nullptr), moeInvalidArgument);
}

TEST_P(Parting, ARankThatDoesNotComeIsNamedAndTheCallRepeated) {
  if (ranks(3) == 1 || startedRanks() == 1) GTEST_SKIP() << "one rank";
  world(ranks(3), config(), [&](RankContext& context) {
    const int late = context.nranks - 1;
    MoeStep step(context, mixedCase(moeModeLl, moeLayoutFlat));
    stepOnce(step, 0);
    fallAsleep(context);
    const moeUniqueId_t first = newId(context);
    if (context.rank != late) {
      MOE_EXPECT_OK(moeCommSetTimeout(context.comm, 500), context);
      EXPECT_EQ(moeCommReconnect(context.comm, &first), moeTimeout);
      EXPECT_TRUE(says(context.error(), "rank " + std::to_string(late)));
      MOE_EXPECT_OK(moeCommSetTimeout(context.comm, 20000), context);
    }
    wakeUp(context);
    stepOnce(step, 1);
  });
}

TEST_P(Parting, RanksOfDifferentPartingsDoNotMeet) {
  if (startedRanks() > 0 || ranks(2) == 1) GTEST_SKIP() << "two communicators of one process";
  moeUniqueId_t id;
  ASSERT_EQ(moeGetUniqueId(&id), moeSuccess);
  world(ranks(2), config(), [&](RankContext& context) {
    RankContext other{context.rank, context.nranks, nullptr, context.arena, context.barrier};
    const moeConfig_t own = config();
    ASSERT_EQ(moeCommInit(&other.comm, context.nranks, context.rank, &id, &own), moeSuccess);
    fallAsleep(context);
    fallAsleep(other);
    const moeUniqueId_t next = newId(context);
    RankContext& brought = context.rank == 0 ? context : other;
    EXPECT_EQ(moeCommReconnect(brought.comm, &next), moeInvalidUsage);
    EXPECT_TRUE(says(brought.error(), "ranks 0 and 1 bring communicators that did not part together"));
    wakeUp(context);
    wakeUp(other);
    EXPECT_EQ(moeCommDestroy(other.comm), moeSuccess);
  });
}

TEST_P(Parting, ADisconnectedCommunicatorCanBeAbortedAndDestroyed) {
  world(ranks(2), config(), [&](RankContext& context) {
    fallAsleep(context);
    MOE_EXPECT_OK(moeCommAbort(context.comm), context);
    const moeUniqueId_t id = newId(context);
    EXPECT_EQ(moeCommReconnect(context.comm, &id), moeAborted);
  });
}

TEST_P(Parting, ADeathIsReportedAfterAMeeting) {
  if (startedRanks() > 0 || ranks(2) == 1) GTEST_SKIP() << "two ranks of one process";
  world(ranks(2), config(), [&](RankContext& context) {
    fallAsleep(context);
    wakeUp(context);
    context.meet();
    if (context.rank == 0) {
      MOE_EXPECT_OK(moeCommAbort(context.comm), context);
    }
    moeResult_t error = moeSuccess;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (error == moeSuccess && std::chrono::steady_clock::now() < end) {
      MOE_EXPECT_OK(moeCommGetAsyncError(context.comm, &error), context);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_EQ(error, moeAborted);
    EXPECT_EQ(moeCommRecover(context.comm, nullptr, 10000), moeSuccess) << context.error();
  });
}

MOE_INSTANTIATE_BACKENDS(Parting);

}  // namespace
}  // namespace moe::test
