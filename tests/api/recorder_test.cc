// The flight recorder through the C API: the dumps of steps that went well, that wait, and that fail.
#include <sys/stat.h>

#include <thread>

#include <nlohmann/json.hpp>

#include "support/api/refusal_calls.h"
#include "support/base/temporary_folder.h"
#include "support/base/variable.h"

namespace moe::test {
namespace {

using namespace std::chrono_literals;
using Json = nlohmann::json;

class FlightRecorder : public OnBackend {};

// How late a rank is that the others wait for. Long beside what a loaded machine takes to run a rank again, because the
// others may come late too.
constexpr auto kDelay = 200ms;

Json jsonOf(const std::string& path) {
  const std::string text = contentOf(path);
  const Json json = Json::parse(text, nullptr, false);
  EXPECT_FALSE(json.is_discarded()) << path << ": " << text;
  return json.is_discarded() ? Json::object() : json;
}

Json dumped(RankContext& context, const TemporaryFolder& folder) {
  const std::string path = folder.at("rank" + std::to_string(context.rank));
  MOE_EXPECT_OK(moeCommDump(context.comm, path.c_str()), context);
  return jsonOf(path);
}

// A field of step `index`; from the end if it is negative.
Json field(const Json& dump, int index, const std::string& column) {
  const Json& columns = dump["columns"];
  const auto at = std::find(columns.begin(), columns.end(), column) - columns.begin();
  const auto step =
      index < 0 ? dump["steps"].size() - static_cast<std::size_t>(-index) : static_cast<std::size_t>(index);
  return dump["steps"][step][static_cast<std::size_t>(at)];
}

TEST_P(FlightRecorder, TellsOfEveryStepWhatItWasAndWhen) {
  const TemporaryFolder folder;
  world(2, config(), [&](RankContext& context) {
    const auto asked = std::chrono::steady_clock::now().time_since_epoch();
    Calls first(context, handleOf(moeModeHt, moeLayoutFlat)), second(context, handleOf(moeModeLl, moeLayoutFlat));
    for (Calls* calls : {&first, &second, &first}) {
      MOE_ASSERT_OK(calls->route(), context);
      MOE_ASSERT_OK(calls->dispatch(calls->dispatchArgs()), context);
      MOE_ASSERT_OK(calls->combine(calls->combineArgs()), context);
    }
    context.arena.synchronize();
    const Json dump = dumped(context, folder);
    EXPECT_EQ(dump["rank"], context.rank);
    EXPECT_EQ(dump["nranks"], context.nranks);
    EXPECT_EQ(dump["result"], 0);
    EXPECT_EQ(dump["steps_recorded"], 9);
    ASSERT_EQ(dump["steps"].size(), 9u);
    const char* calls[] = {"moeRoute", "moeDispatch", "moeCombine"};
    const int handles[] = {0, 1, 0}, htEpochs[] = {1, 1, 2};
    std::int64_t before = 0;
    for (int i = 0; i < 9; ++i) {
      EXPECT_EQ(field(dump, i, "number"), i + 1);
      EXPECT_EQ(field(dump, i, "call"), calls[i % 3]);
      EXPECT_EQ(field(dump, i, "handle"), handles[i / 3]);
      EXPECT_EQ(field(dump, i, "epoch"), i % 3 == 0 ? i / 3 + 1 : htEpochs[i / 3]) << "of the channel, step " << i;
      EXPECT_EQ(field(dump, i, "tokens"), kTokens);
      EXPECT_EQ(field(dump, i, "row_bytes"), i % 3 == 0 ? 0 : int{kRowBytes});
      EXPECT_EQ(field(dump, i, "phases"), "both");
      EXPECT_GE(field(dump, i, "begin_ns").get<std::int64_t>(), before);
      EXPECT_GE(field(dump, i, "end_ns"), field(dump, i, "begin_ns"));
      before = field(dump, i, "end_ns");
    }
    const std::int64_t error = dump["clock"]["error_ns"].get<std::int64_t>();
    if (GetParam() == moeBackendHost) {
      EXPECT_GE(field(dump, 0, "begin_ns").get<std::int64_t>() + error, std::chrono::nanoseconds(asked).count());
    }
    // Both are ns, and the reading is newer than the steps.
    EXPECT_GE(dump["clock"]["step_ns"].get<std::int64_t>() + error, before);
    EXPECT_GT(dump["clock"]["wall_ns"].get<std::int64_t>(), 1'600'000'000'000'000'000);
  });
}

// A rank may have more of these handles than others, and ordinary ones have the same numbers everywhere.
TEST_P(FlightRecorder, NumbersHandlesOfThisRankAloneBelowZero) {
  const TemporaryFolder folder;
  world(2, config(), [&](RankContext& context) {
    moeHandleConfig_t shape = handleOf(moeModeHt, moeLayoutFlat);
    shape.localOnly = 1;
    std::vector<std::unique_ptr<Calls>> local;
    for (int i = 0; i <= context.rank; ++i) local.push_back(std::make_unique<Calls>(context, shape));
    Calls ordinary(context, handleOf(moeModeHt, moeLayoutFlat));
    MOE_ASSERT_OK(local.back()->route(), context);
    MOE_ASSERT_OK(ordinary.route(), context);
    context.arena.synchronize();
    const Json dump = dumped(context, folder);
    EXPECT_EQ(field(dump, 0, "handle"), -1 - context.rank);
    EXPECT_EQ(field(dump, 1, "handle"), 0);
    EXPECT_EQ(field(dump, 1, "epoch"), 1) << "local steps have epochs of their own";
  });
}

// Also operations in two parts, and routes inside dispatches. Handles of this rank alone do not count.
TEST_P(FlightRecorder, HasTotalsSinceTheStart) {
  const TemporaryFolder folder;
  world(2, config(), [&](RankContext& context) {
    moeHandleConfig_t shape = handleOf(moeModeHt, moeLayoutFlat);
    Calls ht(context, shape), ll(context, handleOf(moeModeLl, moeLayoutFlat));
    shape.localOnly = 1;
    Calls local(context, shape);
    for (Calls* calls : {&ht, &ht, &ll, &local}) {
      MOE_ASSERT_OK(calls->route(), context);
      DispatchFields args = calls->dispatchArgs();
      args.flags = calls == &ht ? moeSendOnly : 0;
      MOE_ASSERT_OK(calls->dispatch(args), context);
      if (calls == &ht) {
        MOE_ASSERT_OK(moeComplete(calls->handle(), context.stream()), context);
      }
      MOE_ASSERT_OK(calls->combine(calls->combineArgs()), context);
    }
    context.arena.synchronize();
    const Json totals = dumped(context, folder)["totals"];
    EXPECT_EQ(totals["routes"], 3);
    EXPECT_EQ(totals["dispatches"], 3);
    EXPECT_EQ(totals["combines"], 3);
    EXPECT_EQ(totals["calls"], 6);
    EXPECT_EQ(totals["call_rows"], 6 * kTokens);
    EXPECT_EQ(totals["call_bytes"], 6 * kTokens * kRowBytes);
    EXPECT_GT(totals["since_wall_ns"].get<std::int64_t>(), 1'600'000'000'000'000'000);
    const bool host = GetParam() == moeBackendHost;
    EXPECT_EQ(totals.contains("step_ns"), host);
    if (!host) return;
    EXPECT_GT(totals["step_ns"], 0);
    EXPECT_LE(totals["wait_ns"], totals["step_ns"]);
  });
}

TEST_P(FlightRecorder, TellsPhasesApart) {
  const TemporaryFolder folder;
  world(2, config(), [&](RankContext& context) {
    Calls calls(context, handleOf(moeModeHt, moeLayoutFlat));
    MOE_ASSERT_OK(calls.route(), context);
    DispatchFields args = calls.dispatchArgs();
    args.flags = moeSendOnly;
    MOE_ASSERT_OK(moeDispatch(calls.handle(), args.linked(), context.stream()), context);
    MOE_ASSERT_OK(moeComplete(calls.handle(), context.stream()), context);
    context.arena.synchronize();
    const Json dump = dumped(context, folder);
    EXPECT_EQ(field(dump, 1, "phases"), "send");
    EXPECT_EQ(field(dump, 2, "phases"), "receive");
    EXPECT_EQ(field(dump, 2, "epoch"), field(dump, 1, "epoch"));
  });
}

TEST_P(FlightRecorder, KeepsTheLatestSteps) {
  constexpr int kSteps = 2500, kKept = 1024;
  const TemporaryFolder folder;
  world(1, config(), [&](RankContext& context) {
    Calls calls(context, handleOf(moeModeHt, moeLayoutFlat));
    for (int i = 0; i < kSteps; ++i) MOE_ASSERT_OK(calls.route(0), context);
    context.arena.synchronize();
    const Json dump = dumped(context, folder);
    EXPECT_EQ(dump["steps_recorded"], kSteps);
    ASSERT_EQ(dump["steps"].size(), std::size_t{kKept});
    EXPECT_EQ(field(dump, 0, "number"), kSteps - kKept + 1);
    EXPECT_EQ(field(dump, -1, "number"), kSteps);
    EXPECT_EQ(field(dump, -1, "epoch"), kSteps);
  });
}

// Kernels record no waits without statistics.
TEST_P(FlightRecorder, NamesTheRankThatWasAwaitedLongest) {
  if (GetParam() == moeBackendCuda) GTEST_SKIP() << "of kernels a step behind them tells it";
  const TemporaryFolder folder;
  world(4, config(), [&](RankContext& context) {
    moeHandleConfig_t shape = handleOf(moeModeHt, moeLayoutFlat);
    Calls calls(context, shape);
    for (const int late : {2, 0}) {
      context.meet();
      if (context.rank == late) std::this_thread::sleep_for(kDelay);
      MOE_ASSERT_OK(calls.route(0), context);
      if (context.rank == late) continue;
      const Json dump = dumped(context, folder);
      EXPECT_EQ(field(dump, -1, "worst_rank"), late);
      EXPECT_GE(field(dump, -1, "worst_wait_ns").get<std::int64_t>(), 10'000'000);
      EXPECT_GE(field(dump, -1, "first_wait_end_ns"), field(dump, -1, "begin_ns"));
      EXPECT_LE(field(dump, -1, "first_wait_end_ns"), field(dump, -1, "end_ns"));
    }
  });
}

TEST_P(FlightRecorder, OfStatisticsNamesTheRankThatWasAwaitedLongest) {
  const TemporaryFolder folder;
  world(2, config(), [&](RankContext& context) {
    moeHandleConfig_t shape = handleOf(moeModeHt, moeLayoutFlat);
    shape.statistics = 1;
    Calls calls(context, shape);
    MOE_ASSERT_OK(calls.route(), context);
    context.arena.synchronize();
    context.meet();
    if (context.rank == 1) std::this_thread::sleep_for(kDelay);
    MOE_ASSERT_OK(calls.dispatch(calls.dispatchArgs()), context);
    context.arena.synchronize();
    if (context.rank == 1) return;
    const Json dump = dumped(context, folder);
    EXPECT_EQ(field(dump, -1, "worst_rank"), 1);
    EXPECT_GE(field(dump, -1, "worst_wait_ns").get<std::int64_t>(), 10'000'000);
  });
}

// Statistics are in ns, and records of the host backend in ticks.
TEST_P(FlightRecorder, OfStatisticsTellsAsLongAWaitAsItWas) {
  if (GetParam() == moeBackendCuda) GTEST_SKIP() << "of kernels a step behind them tells it";
  const TemporaryFolder folder;
  for (const bool split : {false, true}) {
    world(2, config(), [&](RankContext& context) {
      moeHandleConfig_t shape = handleOf(moeModeHt, moeLayoutFlat);
      shape.statistics = 1;
      Calls calls(context, shape);
      MOE_ASSERT_OK(calls.route(), context);
      context.meet();
      if (context.rank == 1) std::this_thread::sleep_for(kDelay);
      DispatchFields args = calls.dispatchArgs();
      args.flags = split ? moeSendOnly : 0;
      MOE_ASSERT_OK(calls.dispatch(args), context);
      context.meet();  // so that the second part waits for nobody
      if (split) {
        MOE_ASSERT_OK(moeComplete(calls.handle(), context.stream()), context);
      }
      if (context.rank == 1) return;
      const Json dump = dumped(context, folder);
      const int waiting = split ? -2 : -1;
      const auto took =
          field(dump, waiting, "end_ns").get<std::int64_t>() - field(dump, waiting, "begin_ns").get<std::int64_t>();
      const auto waited = [&](int step) { return field(dump, step, "worst_wait_ns").get<std::int64_t>(); };
      EXPECT_LE(waited(waiting), took);
      EXPECT_GE(waited(waiting), took * 6 / 10);
      if (!split) return;
      EXPECT_LT(waited(-1), took / 2) << "that of the first part";
    });
  }
}

TEST_P(FlightRecorder, ShowsAStepThatIsUnderWay) {
  if (startedRanks() > 0) GTEST_SKIP() << "ranks meet by a latch of their process";
  const TemporaryFolder folder;
  world(2, config(), [&](RankContext& context) {
    Calls calls(context, handleOf(moeModeHt, moeLayoutFlat));
    context.meet();
    if (context.rank == 1) {
      context.meet();
      MOE_EXPECT_OK(calls.route(), context);
      return;
    }
    std::thread watcher([&] {
      std::this_thread::sleep_for(100ms);
      const Json dump = dumped(context, folder);
      context.meet();
      ASSERT_EQ(dump["steps"].size(), 1u);
      EXPECT_EQ(field(dump, 0, "end_ns"), 0);
      const int known = GetParam() == moeBackendHost ? 1 : -1;
      EXPECT_EQ(field(dump, 0, "worst_rank"), known);
    });
    MOE_EXPECT_OK(calls.route(), context);
    context.arena.synchronize();
    watcher.join();
  });
}

TEST_P(FlightRecorder, MayBeReadWhileStepsRun) {
  const TemporaryFolder folder;
  world(2, config(), [&](RankContext& context) {
    Calls calls(context, handleOf(moeModeLl, moeLayoutFlat));
    std::atomic<bool> over = false;
    std::thread reader([&] {
      while (!over) {
        const Json dump = dumped(context, folder);
        std::int64_t before = 0;
        for (int i = 0; i < static_cast<int>(dump["steps"].size()); ++i) {
          EXPECT_GE(field(dump, i, "begin_ns").get<std::int64_t>(), before);
          before = field(dump, i, "begin_ns");
        }
      }
    });
    for (int i = 0; i < 600; ++i) {
      MOE_EXPECT_OK(calls.route(), context);
      MOE_EXPECT_OK(calls.dispatch(calls.dispatchArgs()), context);
      MOE_EXPECT_OK(calls.combine(calls.combineArgs()), context);
    }
    context.arena.synchronize();
    over = true;
    reader.join();
  });
}

TEST_P(FlightRecorder, IsDumpedWhenTheCommunicatorFails) {
  const TemporaryFolder folder;
  moeConfig_t asked = config();
  asked.timeoutMs = 500;
  asked.dumpFolder = folder.path().c_str();
  world(2, asked, [&](RankContext& context) {
    Calls calls(context, handleOf(moeModeHt, moeLayoutFlat));
    context.meet();
    if (context.rank == 1) {
      calls.route();
      context.arena.synchronize();
      moeResult_t error = moeSuccess;
      EXPECT_EQ(moeCommGetAsyncError(context.comm, &error), moeSuccess);
      EXPECT_EQ(error, moeTimeout);
    }
    context.meet();
  });
  const std::vector<std::string> files = folder.files("-rank1.json");
  ASSERT_EQ(files.size(), 1u);
  const Json dump = jsonOf(files[0]);
  EXPECT_EQ(dump["reason"], "failure");
  EXPECT_EQ(dump["result"], int{moeTimeout});
  EXPECT_TRUE(says(dump["failure"].get<std::string>(), "rank 0 did not"));
  EXPECT_EQ(field(dump, -1, "call"), "moeRoute");
  if (GetParam() == moeBackendHost) {
    EXPECT_EQ(field(dump, -1, "worst_rank"), 0);
    EXPECT_GE(field(dump, -1, "worst_wait_ns").get<std::int64_t>(), 400'000'000);
  }
  struct stat found {};
  ASSERT_EQ(::stat(files[0].c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777, 0600u);
  EXPECT_TRUE(folder.files(".part").empty());
}

TEST_P(FlightRecorder, RefusesWhatCannotBeWritten) {
  const TemporaryFolder folder;
  world(1, config(), [&](RankContext& context) {
    EXPECT_EQ(moeCommDump(context.comm, nullptr), moeInvalidUsage);
    EXPECT_TRUE(says(context.error(), "MOECOMM_DUMP_FOLDER"));
    const std::string missing = folder.at("missing/dump");
    EXPECT_EQ(moeCommDump(context.comm, missing.c_str()), moeSystemError);
    EXPECT_TRUE(says(context.error(), missing));
    EXPECT_EQ(moeCommDump(nullptr, "dump"), moeInvalidArgument);
  });
  moeConfig_t asked = config();
  const std::string missing = folder.at("missing");
  asked.dumpFolder = missing.c_str();
  moeUniqueId_t id;
  ASSERT_EQ(moeGetUniqueId(&id), moeSuccess);
  moeComm_t none = nullptr;
  EXPECT_EQ(moeCommInit(&none, 1, 0, &id, &asked), moeInvalidArgument);
  EXPECT_TRUE(says(moeGetLastError(nullptr), "config.dumpFolder (MOECOMM_DUMP_FOLDER) is " + missing + ": No such"));
  asked.dumpFolder = folder.path().c_str();
  world(1, asked, [&](RankContext& context) { MOE_EXPECT_OK(moeCommDump(context.comm, nullptr), context); });
  EXPECT_EQ(folder.files("-rank0.json").size(), 1u);
}

TEST_P(FlightRecorder, CanBeTurnedOff) {
  const TemporaryFolder folder;
  const Variable off("MOECOMM_RECORDER", "off");
  world(1, config(), [&](RankContext& context) {
    Calls calls(context, handleOf(moeModeHt, moeLayoutFlat));
    MOE_ASSERT_OK(calls.route(), context);
    const Json dump = dumped(context, folder);
    EXPECT_EQ(dump["steps_recorded"], 0);
    EXPECT_TRUE(dump["steps"].empty());
    EXPECT_FALSE(dump.contains("totals"));
  });
}

MOE_INSTANTIATE_BACKENDS(FlightRecorder);

}  // namespace
}  // namespace moe::test
