// Mishaps between processes. Either the adapters make up for a mishap, or the program sees a failure with the right
// reason.
#include <gtest/gtest.h>

#include <cstdio>

#include "rdma/process_world.h"

namespace moe::test {
namespace {

// ---- Mishaps that nobody notices

struct Mishap {
  const char* name;
  const char* scenario;
  const char* faults;
  const char* counted;  // the mishap that must have happened
};
constexpr Mishap kMishaps[] = {
    {"PacketsGetLost", "short-rounds", "seed=1 drop=20", "drop"},
    {"LostPacketsAreSentAgain", "short-rounds", "seed=2 drop=20", "resent"},
    {"PacketsComeTwice", "short-rounds", "seed=3 duplicate=100", "duplicate"},
    {"PacketsComeLate", "short-rounds", "seed=4 delay=100", "delay"},
    {"QueuePairsOvertakeEachOther", "short-rounds", "seed=5 reorder=200", "reorder"},
    {"CompletionsComeLate", "short-rounds", "seed=6 slow_cqe=200", "slow_cqe"},
    {"DoorbellsGoUnnoticed", "short-rounds", "seed=7 ignore_doorbell=5", "ignore_doorbell"},
    {"ReceiversAreNotReady", "immediates", "seed=8 rnr=50", "rnr"},
    {"AtomicsHappenOnceAlthoughPacketsGetLost", "atomics", "seed=9 drop=10 duplicate=50", "drop"},
    {"ReadsAreAskedAgain", "reads", "seed=10 drop=100", "drop"},
    {"AllAtOnce", "short-rounds", "seed=11 drop=10 duplicate=50 delay=30 reorder=50 slow_cqe=50 ignore_doorbell=2",
     "drop"},
};

class ProcessMishap : public ::testing::TestWithParam<Mishap> {};
void PrintTo(const Mishap& mishap, std::ostream* out) {
  *out << mishap.name;
}
INSTANTIATE_TEST_SUITE_P(, ProcessMishap, ::testing::ValuesIn(kMishaps),
                         [](const auto& test) { return test.param.name; });

TEST_P(ProcessMishap, DoesNotChangeTheData) {
  WorldSettings settings;
  settings.scenario = GetParam().scenario;
  settings.faults = GetParam().faults;
  settings.words = {"timeout=13", "retries=7"};
  if (settings.scenario == "short-rounds") settings.processes = 3;  // gives a packet other queue pairs to overtake
  const WorldResult result = runWorld(settings);
  EXPECT_TRUE(result.allEndedWell()) << result.describe();
  EXPECT_EQ(result.violations, "");
  EXPECT_GT(result.count(GetParam().counted), 0) << result.describe();
  std::printf("%-70s data right, %ld %s, %ld sent again\n", GetParam().faults, result.count(GetParam().counted),
              GetParam().counted, result.count("resent"));
}

// ---- Mishaps that the program sees

struct Failure {
  const char* name;
  const char* scenario;
  const char* faults;        // at the poster
  const char* faultsOfPeer;  // at the other process
  std::vector<std::string> words;
  const char* heard;  // the first process's output after "number N: "
  int statusOfPeer = 0;
};

class ProcessFailure : public ::testing::TestWithParam<Failure> {};
void PrintTo(const Failure& failure, std::ostream* out) {
  *out << failure.name;
}

const Failure kFailures[] = {
    {"OfTheSender", "fail-writes", "error=0x04@10", "drop=0", {}, "10: 04 05 05, state 6"},
    {"OfTheSenderByQueues", "fail-writes", "error=0x01@10", "drop=0", {"queues=1"}, "10: 01 05 05, state 6"},
    {"AKeyThatIsRefused", "fail-writes", "", "nak@7", {}, "7: 13 05 05, state 6"},
    {"AKeyThatIsRefusedByQueues", "fail-writes", "", "nak@7", {"queues=1"}, "7: 13 05 05, state 6"},
    {"AReadThatIsRefused", "fail-reads", "", "nak@3", {}, "3: 13 05 05, state 6"},
    {"AnAdditionThatIsRefused", "fail-additions", "", "nak@3", {"queues=1"}, "3: 13 05 05, state 6"},
    {"APeerWithoutReceives", "fail-immediates", "", "drop=0", {"not-ready-retries=3"}, "1: 16 05 05, state 6"},
    {"APeerThatIsStuck", "fail-writes", "", "stuck@5", {"timeout=14", "retries=3"}, "5: 15 05 05, state 6"},
    {"APeerThatIsStuckByQueues",
     "fail-writes",
     "",
     "stuck@5",
     {"timeout=14", "retries=3", "queues=1"},
     "5: 15 05 05, state 6"},
    {"AReadOfAPeerThatIsStuck", "fail-reads", "", "stuck@5", {"timeout=14", "retries=3"}, "5: 15 05 05, state 6"},
    {"APeerThatIsKilled", "lose-peer", "", "drop=0", {"timeout=12", "retries=3"}, ": 15 05 05, state 6", 128 + 9},
    {"APeerThatIsKilledByQueues",
     "lose-peer",
     "",
     "drop=0",
     {"timeout=12", "retries=3", "queues=1"},
     ": 15 05 05, state 6",
     128 + 9},
};
INSTANTIATE_TEST_SUITE_P(, ProcessFailure, ::testing::ValuesIn(kFailures),
                         [](const auto& test) { return test.param.name; });

TEST_P(ProcessFailure, IsHeardOfWithItsReason) {
  const Failure& failure = GetParam();
  WorldSettings settings;
  settings.scenario = failure.scenario;
  settings.words = failure.words;
  settings.faults = failure.faults;
  settings.faultsOfLast = failure.faultsOfPeer;
  const WorldResult result = runWorld(settings);
  EXPECT_EQ(result.status[0], 0) << result.describe();
  EXPECT_EQ(result.status[1], failure.statusOfPeer) << result.describe();
  EXPECT_EQ(result.violations, "");
  EXPECT_NE(result.output[0].find(failure.heard), std::string::npos) << result.describe();
  std::printf("%-28s %s", failure.name, result.output[0].c_str());
}

}  // namespace
}  // namespace moe::test
