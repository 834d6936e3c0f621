// moeCommRecover: a group goes on after a failure, in the same communicator. survivor_rank.cc has groups that lose
// ranks.
#include <barrier>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <thread>

#include "support/api/meeting.h"
#include "support/api/refusal_calls.h"

namespace moe::test {
namespace {

constexpr int kPatienceMs = 20000;

class Recover : public Refusal {};

moeHandleConfig_t wideHandle(const RankContext& context, int mode, int layout) {
  moeHandleConfig_t shape = handleOf(mode, layout);
  shape.experts = 2 * context.nranks;
  return shape;
}

// Returns when no rank is in an earlier operation any more.
void awaitOthers(RankContext& context) {
  context.arena.synchronize();
  meetAll(context);
}

void recover(RankContext& context) {
  MOE_ASSERT_OK(moeCommRecover(context.comm, nullptr, kPatienceMs), context);
  moeResult_t error = moeInternalError;
  EXPECT_EQ(moeCommGetAsyncError(context.comm, &error), moeSuccess);
  EXPECT_EQ(error, moeSuccess) << context.error();
}

void runWholeStep(MoeStep& step, int iteration) {
  step.prepare(iteration);
  if (iteration % 2 == 1) {
    step.routeDispatch(iteration % 3 == 0 ? moeSendOnly : 0);
    if (iteration % 3 == 0) step.complete();
  } else {
    step.route();
    step.dispatch();
  }
  step.finish();
}

// Operations up to one that some ranks do not begin, or only begin. They fail at once or in the background. `stop`: how
// many operations this rank makes.
void runUntil(RankContext& context, Calls& calls, int stop) {
  if (stop > 0) calls.route();
  if (stop > 1) {
    DispatchFields args = calls.dispatchArgs();
    args.flags = stop == 2 ? moeSendOnly : 0;
    calls.dispatch(args);
  }
  if (stop > 2) {
    CombineFields args = calls.combineArgs();
    args.flags = stop == 3 ? moeSendOnly : 0;
    calls.combine(args);
  }
  context.arena.synchronize();
}

// In each turn ranks come to different operations of a step, then one aborts. Afterwards whole steps of all handles are
// right, those of handles that were cut off too.
void abortAndGoOn(RankContext& context, int turns) {
  std::vector<std::unique_ptr<MoeStep>> steps;
  std::vector<std::unique_ptr<Calls>> cut;
  for (int mode : {moeModeHt, moeModeLl}) {
    for (int layout = moeLayoutFlat; layout <= moeLayoutRankMajor; ++layout) {
      steps.push_back(std::make_unique<MoeStep>(context, mixedCase(mode, layout)));
      cut.push_back(std::make_unique<Calls>(context, wideHandle(context, mode, layout)));
    }
  }
  for (int turn = 0; turn < turns; ++turn) {
    const auto which = static_cast<std::size_t>(turn) % cut.size();
    awaitOthers(context);
    std::thread aborting;
    if (context.rank == turn % context.nranks) {
      aborting = std::thread([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(turn % 4));
        moeCommAbort(context.comm);
      });
    }
    runUntil(context, *cut[which], (turn * 7 + context.rank * (1 + turn % 3)) % 5);
    if (aborting.joinable()) aborting.join();
    recover(context);
    for (int i = 0; i < 2; ++i) runWholeStep(*steps[(which + static_cast<std::size_t>(i)) % steps.size()], turn + i);
    if (turn % 3 == 0) cut[which]->wholeStep();
  }
}

TEST_P(Recover, StepsOfAllHandlesAreRightAfterAbortsAtAnyOperation) {
  world(4, config(), [](RankContext& context) { abortAndGoOn(context, 64); });
}

// Over TCP, unless MOECOMM_TRANSPORT names another transport. An adapter in software takes a second to connect.
TEST_P(Recover, DomainsGoOnToo) {
  moeConfig_t config = this->config();
  const bool chosen = std::getenv("MOECOMM_TRANSPORT") != nullptr;
  if (!chosen) config.transport = moeTransportTcp;
  for (config.domainSize = 1; config.domainSize <= 2; ++config.domainSize) {
    if (startedRanks() % config.domainSize != 0) continue;
    world(4, config, [&](RankContext& context) { abortAndGoOn(context, chosen ? 4 : 32); });
  }
}

TEST_P(Recover, ARankThatComesTooLateIsNamedAndTheStepIsRepeated) {
  world(3, config(), [](RankContext& context) {
    for (int mode : {moeModeHt, moeModeLl}) {
      MoeStep step(context, mixedCase(mode, moeLayoutExpertMajorPadded));
      Calls calls(context, wideHandle(context, mode, moeLayoutFlat));
      runWholeStep(step, 0);
      awaitOthers(context);
      MOE_EXPECT_OK(moeCommSetTimeout(context.comm, 500), context);
      if (context.rank != 1) runUntil(context, calls, 2);
      expectFailure(context, moeTimeout, "rank 1 did not ");
      recover(context);
      EXPECT_STREQ(context.error(), "");
      MOE_EXPECT_OK(moeCommSetTimeout(context.comm, kPatienceMs), context);
      awaitOthers(context);
      for (int i = 0; i < 3; ++i) runWholeStep(step, i);
    }
  });
}

TEST_P(Recover, RoutesAreVoidUntilTheNextOne) {
  world(2, config(), [](RankContext& context) {
    for (int mode : {moeModeHt, moeModeLl}) {
      Calls calls(context, wideHandle(context, mode, moeLayoutFlat));
      calls.wholeStep();
      awaitOthers(context);
      recover(context);
      EXPECT_EQ(calls.dispatch(calls.dispatchArgs()), moeInvalidUsage);
      EXPECT_TRUE(
          says(context.error(), "moeDispatch: moeCommRecover has voided the route of this handle: call moeRoute"));
      EXPECT_EQ(calls.combine(calls.combineArgs()), moeInvalidUsage);
      moeCounts_t counts = MOE_COUNTS_INITIALIZER;
      EXPECT_EQ(moeHandleGetCounts(calls.handle(), &counts), moeInvalidUsage);
      EXPECT_TRUE(says(context.error(), "moeHandleGetCounts: moeCommRecover has voided the route"));
      calls.expectStatus(moeInvalidUsage, "moeCommRecover has voided the handle's route: call moeRoute");
      calls.wholeStep();
      MOE_EXPECT_OK(moeHandleGetCounts(calls.handle(), &counts), context);
      EXPECT_EQ(counts.rows > 0, context.rank < 2);
      awaitOthers(context);
    }
  });
}

TEST_P(Recover, WhatAwaitedCompletionIsCancelled) {
  world(2, config(), [](RankContext& context) {
    for (int mode : {moeModeHt, moeModeLl}) {
      for (const bool combines : {false, true}) {
        Calls calls(context, wideHandle(context, mode, moeLayoutFlat));
        MOE_EXPECT_OK(calls.route(), context);
        DispatchFields args = calls.dispatchArgs();
        args.flags = combines ? 0 : moeSendOnly;
        MOE_EXPECT_OK(calls.dispatch(args), context);
        CombineFields sum = calls.combineArgs();
        sum.flags = moeSendOnly;
        if (combines) {
          MOE_EXPECT_OK(calls.combine(sum), context);
        }
        awaitOthers(context);
        recover(context);
        EXPECT_EQ(moeComplete(calls.handle(), context.stream()), moeInvalidUsage);
        EXPECT_TRUE(says(context.error(), "nothing of this handle is outstanding"));
        calls.wholeStep();
        awaitOthers(context);
      }
    }
  });
}

TEST_P(Recover, MemoryAndItsContentsStay) {
  world(2, config(), [](RankContext& context) {
    void* memory = nullptr;
    MOE_ASSERT_OK(moeMemAlloc(context.comm, 4096, &memory), context);
    std::vector<std::uint8_t> text(4096);
    for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<std::uint8_t>(i * 7);
    context.arena.upload(memory, text.data(), text.size());
    for (int i = 0; i < 3; ++i) {
      awaitOthers(context);
      recover(context);
    }
    EXPECT_EQ(context.arena.get(static_cast<std::uint8_t*>(memory), text.size()), text);
    MOE_EXPECT_OK(moeMemFree(context.comm, memory), context);
  });
}

TEST_P(Recover, HandlesOfThisRankAloneGoOnToo) {
  world(2, config(), [](RankContext& context) {
    moeHandleConfig_t alone = wideHandle(context, moeModeHt, moeLayoutExpertMajor);
    alone.localOnly = 1;
    Calls calls(context, alone);
    for (int i = 0; i < 3; ++i) {
      runUntil(context, calls, 1 + i);
      awaitOthers(context);
      recover(context);
      MOE_EXPECT_OK(calls.route(), context);
      MOE_EXPECT_OK(calls.dispatch(calls.dispatchArgs()), context);
      MOE_EXPECT_OK(calls.combine(calls.combineArgs()), context);
      calls.expectStatus(moeSuccess, "");
    }
  });
}

// A graph that routes goes on as it is. One that only dispatches delivers nothing until there is a route.
void replayAndRecover(RankContext& context) {
  Calls calls(context, wideHandle(context, moeModeLl, moeLayoutFlat));
  calls.wholeStep();
  awaitOthers(context);
  const auto step = [&] {
    MOE_EXPECT_OK(calls.routeDispatch(calls.dispatchArgs()), context);
    MOE_EXPECT_OK(calls.combine(calls.combineArgs()), context);
  };
  const auto pair = [&] {
    MOE_EXPECT_OK(calls.dispatch(calls.dispatchArgs()), context);
    MOE_EXPECT_OK(calls.combine(calls.combineArgs()), context);
  };
  const auto graph = context.arena.record(step), known = context.arena.record(pair);
  if (!graph) return;
  awaitOthers(context);  // a rank that recovers would end calls of others that are recorded
  for (int i = 0; i < 5; ++i) {
    graph->replay();
    if (context.rank == i % 2) graph->replay();  // the other rank never comes
    recover(context);
    known->replay();
    calls.expectSums(0.0f);
    calls.expectStatus(moeInvalidUsage, "voided");
    graph->replay();
    calls.expectSums(2.0f);
    known->replay();
    calls.expectSums(2.0f);
    calls.expectStatus(moeSuccess, "");
    awaitOthers(context);
  }
}

TEST_P(Recover, CapturedGraphsGoOn) {
  moeConfig_t config = this->config();
  world(2, config, replayAndRecover);
  config.domainSize = 1;
  config.transport = moeTransportTcp;
  world(2, config, replayAndRecover);
}

// ---- Refusals and failures ----

// Whether domains go on without a rank: LL does, and HT says that it cannot.
TEST_P(Recover, SeveralDomainsGoOnWithoutARankInLl) {
  if (startedRanks() > 0) GTEST_SKIP() << "ranks meet by a barrier of their process";
  moeUniqueId_t id;
  ASSERT_EQ(moeGetUniqueId(&id), moeSuccess);
  moeConfig_t config = this->config();
  config.domainSize = 1;
  config.transport = moeTransportTcp;
  world(4, config, [&](RankContext& context) {
    std::barrier<> alone(1);
    RankContext own{context.rank, context.nranks, nullptr, context.arena, alone};
    ASSERT_EQ(moeCommInit(&own.comm, own.nranks, own.rank, &id, &config), moeSuccess);
    moeUniqueId_t next{};
    EXPECT_EQ(moeCommReplace(own.comm, (own.rank + 1) % own.nranks, &next), moeUnsupported);
    EXPECT_TRUE(says(own.error(), "moeCommReplace: there are several domains"));
    {
      std::vector<std::unique_ptr<MoeStep>> steps;
      for (int layout = moeLayoutFlat; layout <= moeLayoutRankMajor; ++layout)
        steps.push_back(std::make_unique<MoeStep>(own, mixedCase(moeModeLl, layout)));
      Calls overRails(own, wideHandle(own, moeModeHt, moeLayoutFlat));
      for (const int leaver : {1, 3}) {
        for (const auto& step : steps) runWholeStep(*step, leaver);
        awaitOthers(context);
        if (own.rank == leaver) break;
        awaitOthers(context);
        own.lost.push_back(leaver);
        moeRecovery_t recovery = MOE_RECOVERY_INITIALIZER;
        recovery.lossesMax = static_cast<std::int32_t>(own.lost.size());
        ASSERT_EQ(moeCommRecover(own.comm, &recovery, kPatienceMs), moeSuccess) << own.error();
        EXPECT_EQ(recovery.losses, recovery.lossesMax);
        EXPECT_EQ(overRails.route(), moeUnsupported);
        EXPECT_TRUE(says(own.error(), "moeRoute: rank"));
        EXPECT_TRUE(says(own.error(), "lost, and HT across several domains needs all ranks: use an LL handle"));
        MOE_EXPECT_OK(moeCommSuspend(own.comm), own);
        MOE_EXPECT_OK(moeCommResume(own.comm), own);
      }
      if (own.lost.size() == 2) {
        for (int i = 0; i < 3; ++i) {
          for (const auto& step : steps) runWholeStep(*step, i);
        }
        awaitOthers(context);
      }
    }
    EXPECT_EQ(moeCommDestroy(own.comm), moeSuccess);
    if (own.rank % 2 == 1) {  // the others wait for its end, and then go on
      for (int meetings = own.rank == 1 ? 4 : 2; meetings > 0; --meetings) context.meet();
    }
  });
}

TEST_P(Recover, TimesOutOfRangeChangeNothing) {
  world(2, config(), [](RankContext& context) {
    Calls calls(context, wideHandle(context, moeModeHt, moeLayoutFlat));
    for (const int wrong : {0, -1, 86400001}) {
      EXPECT_EQ(moeCommRecover(context.comm, nullptr, wrong), moeInvalidArgument);
      EXPECT_TRUE(says(context.error(), "timeoutMs is " + std::to_string(wrong) + ", must be 1..86400000"));
    }
    calls.wholeStep();
    awaitOthers(context);
    MOE_EXPECT_OK(moeCommAbort(context.comm), context);
    EXPECT_EQ(moeCommRecover(context.comm, nullptr, 0), moeInvalidArgument);
    EXPECT_TRUE(says(context.error(), "timeoutMs is 0, must be 1..86400000"));
    EXPECT_EQ(calls.route(), moeAborted);
    recover(context);
    calls.wholeStep();
  });
  EXPECT_EQ(moeCommRecover(nullptr, nullptr, 1000), moeInvalidArgument);
}

TEST_P(Recover, ARankThatDoesNotComeIsNamedAndTheCallMayBeRepeated) {
  if (startedRanks() > 0) GTEST_SKIP() << "ranks meet by a barrier of their process";
  world(3, config(), [](RankContext& context) {
    Calls calls(context, wideHandle(context, moeModeHt, moeLayoutFlat));
    awaitOthers(context);
    for (int i = 0; i < 2; ++i) {
      if (context.rank != 2) {
        EXPECT_EQ(moeCommRecover(context.comm, nullptr, 2500), moeTimeout);
        EXPECT_TRUE(says(context.error(), "rank 2 did not complete moeCommRecover within 2500 ms"));
        EXPECT_EQ(calls.route(), moeTimeout);
      }
      awaitOthers(context);
    }
    recover(context);
    MOE_EXPECT_OK(calls.route(), context);
    calls.roundTrip();
  });
}

TEST_P(Recover, ARankThatHasLeftIsNamed) {
  if (startedRanks() > 0) GTEST_SKIP() << "ranks meet by a barrier of their process";
  moeUniqueId_t id;
  ASSERT_EQ(moeGetUniqueId(&id), moeSuccess);
  const moeConfig_t config = this->config();
  world(3, config, [&](RankContext& context) {
    moeConfig_t own = config;
    moeComm_t comm = nullptr;
    ASSERT_EQ(moeCommInit(&comm, context.nranks, context.rank, &id, &own), moeSuccess);
    awaitOthers(context);
    if (context.rank == 1) {
      EXPECT_EQ(moeCommDestroy(comm), moeSuccess);
      comm = nullptr;
    }
    awaitOthers(context);
    if (comm == nullptr) return;
    EXPECT_EQ(moeCommRecover(comm, nullptr, kPatienceMs), moeRemoteError);
    EXPECT_TRUE(says(moeGetLastError(comm), "rank 1 left the group before moeCommRecover was done"));
    EXPECT_EQ(moeCommDestroy(comm), moeSuccess);
  });
}

moeResult_t recoverWithout(moeComm_t comm, int lossesMax) {
  moeRecovery_t recovery = MOE_RECOVERY_INITIALIZER;
  recovery.lossesMax = lossesMax;
  return moeCommRecover(comm, &recovery, kPatienceMs);
}

TEST_P(Recover, MoreLossesThanAnyRankAllowsAreRefusedAndSoAreThreads) {
  if (startedRanks() > 0) GTEST_SKIP() << "ranks meet by a barrier of their process";
  moeUniqueId_t id;
  ASSERT_EQ(moeGetUniqueId(&id), moeSuccess);
  const moeConfig_t config = this->config();
  world(4, config, [&](RankContext& context) {
    moeConfig_t own = config;
    moeComm_t comm = nullptr;
    ASSERT_EQ(moeCommInit(&comm, context.nranks, context.rank, &id, &own), moeSuccess);
    awaitOthers(context);
    if (context.rank % 2 == 1) {
      EXPECT_EQ(moeCommDestroy(comm), moeSuccess);
      comm = nullptr;
    }
    awaitOthers(context);
    if (comm != nullptr) {
      EXPECT_EQ(recoverWithout(comm, 1 + context.rank / 2), moeRemoteError);
      EXPECT_TRUE(says(moeGetLastError(comm),
                       "moeCommRecover: the group has lost ranks 1, 3, and recovery.lossesMax "
                       "of rank 0 is 1"));
      EXPECT_EQ(recoverWithout(comm, 3), moeUnsupported);
      EXPECT_TRUE(says(moeGetLastError(comm), "moeCommRecover: rank 1 was a thread of rank 0's process"));
    }
    awaitOthers(context);
    EXPECT_EQ(moeCommDestroy(comm), moeSuccess);
  });
}

TEST_P(Recover, AThreadOfASurvivorsProcessIsNotEvicted) {
  if (startedRanks() > 0) GTEST_SKIP() << "ranks meet by a barrier of their process";
  world(3, config(), [](RankContext& context) {
    Calls calls(context, wideHandle(context, moeModeHt, moeLayoutFlat));
    awaitOthers(context);
    const std::int32_t evicted = 1;
    moeRecovery_t recovery = MOE_RECOVERY_INITIALIZER;
    recovery.lossesMax = 1;
    if (context.rank != evicted) {
      recovery.evicted = &evicted;
      recovery.evictedCount = 1;
      EXPECT_EQ(moeCommRecover(context.comm, &recovery, kPatienceMs), moeUnsupported);
      EXPECT_TRUE(says(context.error(), "moeCommRecover: rank 1 was a thread of rank 0's process"));
    }
    awaitOthers(context);
    if (context.rank != evicted) return;
    EXPECT_EQ(moeCommRecover(context.comm, &recovery, kPatienceMs), moeRemoteError);
    EXPECT_TRUE(says(context.error(), "rank 1 was given up by rank "));
  });
}

TEST_P(Recover, WrongRecoveriesChangeNothing) {
  world(2, config(), [](RankContext& context) {
    Calls calls(context, wideHandle(context, moeModeHt, moeLayoutFlat));
    const std::string most = std::to_string(context.nranks - 1);
    for (const int wrong : {-1, context.nranks}) {
      EXPECT_EQ(recoverWithout(context.comm, wrong), moeInvalidArgument);
      EXPECT_TRUE(says(context.error(), "recovery.lossesMax is " + std::to_string(wrong) + ", must be 0.." + most));
    }
    const std::vector<std::int32_t> self{context.rank}, none{9}, both{0, 1};
    const auto refused = [&](const std::vector<std::int32_t>& evicted, const std::string& sentence) {
      moeRecovery_t recovery = MOE_RECOVERY_INITIALIZER;
      recovery.lossesMax = 1;
      recovery.evicted = evicted.empty() ? nullptr : evicted.data();
      recovery.evictedCount = evicted.empty() ? 1 : static_cast<std::int32_t>(evicted.size());
      EXPECT_EQ(moeCommRecover(context.comm, &recovery, kPatienceMs), moeInvalidArgument);
      EXPECT_TRUE(says(context.error(), sentence));
    };
    refused(self, ", this rank itself");
    refused(none, "recovery.evicted[0] is 9, must be 0.." + most);
    refused(both, "recovery.evictedCount is 2, must be 0..1");
    refused({}, "recovery.evicted is NULL");
    moeRecovery_t sizeless{};
    EXPECT_EQ(moeCommRecover(context.comm, &sizeless, kPatienceMs), moeInvalidArgument);
    EXPECT_TRUE(says(context.error(), "recovery.size is 0"));
    calls.wholeStep();
    awaitOthers(context);
    std::vector<std::int32_t> lost(static_cast<std::size_t>(context.nranks), -7);
    moeRecovery_t recovery = MOE_RECOVERY_INITIALIZER;
    recovery.lossesMax = 1;
    recovery.losses = 9;
    recovery.lost = lost.data();
    MOE_EXPECT_OK(moeCommRecover(context.comm, &recovery, kPatienceMs), context);
    EXPECT_EQ(recovery.losses, 0);
    EXPECT_EQ(lost[0], -7);
    calls.wholeStep();
  });
}

TEST_P(Recover, RanksWithDifferentLlHandlesAreRefusedAlike) {
  world(3, config(), [](RankContext& context) {
    Calls calls(context, wideHandle(context, moeModeLl, moeLayoutFlat));
    moeHandle_t more = nullptr;
    const moeHandleConfig_t shape = wideHandle(context, moeModeLl, moeLayoutRankMajor);
    if (context.rank == 1) {
      MOE_ASSERT_OK(moeHandleCreate(&more, context.comm, &shape), context);
    }
    awaitOthers(context);
    EXPECT_EQ(moeCommRecover(context.comm, nullptr, kPatienceMs), moeInvalidUsage);
    EXPECT_TRUE(says(context.error(), "moeCommRecover: rank 0 has 0 LL handles of set 1 and rank 1 has 1"));
    if (more != nullptr) {
      MOE_EXPECT_OK(moeHandleDestroy(more), context);
    }
    recover(context);
    calls.wholeStep();
  });
}

// replace_rank.cc has groups whose ranks are replaced.
TEST_P(Recover, OnlyLostRanksAreReplaced) {
  world(2, config(), [](RankContext& context) {
    const auto refused = [&](int rank, moeResult_t result, const std::string& sentence) {
      moeUniqueId_t id{};
      EXPECT_EQ(moeCommReplace(context.comm, rank, &id), result);
      EXPECT_TRUE(says(context.error(), sentence));
    };
    const std::string most = std::to_string(context.nranks - 1);
    refused(-1, moeInvalidArgument, "moeCommReplace: rank is -1, must be 0.." + most);
    refused(context.nranks, moeInvalidArgument, "must be 0.." + most);
    refused(context.rank, moeInvalidArgument, ", this rank itself");
    EXPECT_EQ(moeCommReplace(context.comm, 0, nullptr), moeInvalidArgument);
    EXPECT_TRUE(says(context.error(), "id is NULL"));
    const int other = 1 - std::min(context.rank, 1);
    if (startedRanks() == 0) {
      refused(other, moeUnsupported, "cannot be mapped anew here: it is shared by CUDA IPC, or that of a thread");
    } else if (GetParam() == moeBackendHost) {
      refused(other, moeInvalidUsage, "rank " + std::to_string(other) + " has neither died nor left");
    }
    Calls(context, wideHandle(context, moeModeHt, moeLayoutFlat)).wholeStep();
  });
  moeUniqueId_t id{};
  EXPECT_EQ(moeCommReplace(nullptr, 0, &id), moeInvalidArgument);
}

TEST_P(Recover, ASuspendedCommunicatorIsWoken) {
  if (GetParam() == moeBackendCuda && startedRanks() == 0) GTEST_SKIP() << "threads cannot suspend on GPUs";
  world(2, config(), [](RankContext& context) {
    Calls calls(context, wideHandle(context, moeModeLl, moeLayoutFlat));
    for (int turn = 0; turn < 3; ++turn) {
      calls.wholeStep();
      awaitOthers(context);
      MOE_ASSERT_OK(moeCommSuspend(context.comm), context);
      awaitOthers(context);
      const bool aborts = turn == 1 && context.rank == 1;
      EXPECT_EQ(aborts ? moeCommAbort(context.comm) : moeSuccess, moeSuccess);
      moeRecovery_t recovery = MOE_RECOVERY_INITIALIZER;
      MOE_ASSERT_OK(moeCommRecover(context.comm, &recovery, kPatienceMs), context);
      EXPECT_EQ(recovery.memoryFresh, 1);
      calls.wholeStep();
      EXPECT_EQ(moeCommResume(context.comm), moeInvalidUsage) << "it is awake";
    }
  });
}

MOE_INSTANTIATE_BACKENDS(Recover);

}  // namespace
}  // namespace moe::test
