// Programs that know only libibverbs transfer data between processes, through the software adapter behind
// libfakemlx5.so: floor 2 of docs/internals/rdma.md.
#include <gtest/gtest.h>
#include <signal.h>

#include "rdma/process_world.h"

namespace moe::test {
namespace {

void expectAllWell(const WorldResult& result) {
  EXPECT_TRUE(result.allEndedWell()) << result.describe();
  EXPECT_EQ(result.violations, "");
  EXPECT_TRUE(result.leftBehind.empty()) << result.leftBehind.front();
}

// ---- Transfers, posted by ibv_post_send and by device/queue/mlx5/send_queue.h

struct Transfer {
  const char* name;
  const char* scenario;
  int processes;
  const char* word;
  int devices = 1;
};
constexpr Transfer kTransfers[] = {
    {"RowsAndFlagsByVerbs", "rounds", 2, "queues=0"},
    {"RowsAndFlagsByQueues", "rounds", 2, "queues=1"},
    {"RowsAndFlagsOfFourByVerbs", "short-rounds", 4, "queues=0"},
    {"RowsAndFlagsOfFourByQueues", "short-rounds", 4, "queues=1"},
    {"RowsAndFlagsThroughTwoDevices", "short-rounds", 2, "devices=2", 2},
    {"EveryWrapByVerbs", "stream", 2, "queues=0"},
    {"EveryWrapByQueues", "stream", 2, "queues=1"},
    {"ReadsByVerbs", "reads", 2, "queues=0"},
    {"ReadsByQueues", "reads", 2, "queues=1"},
    {"AtomicsOfThreeByVerbs", "atomics", 3, "queues=0"},
    {"AtomicsOfThreeByQueues", "atomics", 3, "queues=1"},
    {"ImmediatesByVerbs", "immediates", 2, "queues=0"},
    {"ImmediatesByQueues", "immediates", 2, "sender-queues=1"},
};

class Processes : public ::testing::TestWithParam<Transfer> {};
void PrintTo(const Transfer& transfer, std::ostream* out) {
  *out << transfer.name;
}
INSTANTIATE_TEST_SUITE_P(, Processes, ::testing::ValuesIn(kTransfers),
                         [](const auto& test) { return test.param.name; });

TEST_P(Processes, Transfer) {
  const Transfer& transfer = GetParam();
  WorldSettings settings;
  settings.scenario = transfer.scenario;
  settings.processes = transfer.processes;
  settings.words = {transfer.word};
  settings.devices = transfer.devices;
  expectAllWell(runWorld(settings));
}

// ---- Rows in memory that plays a GPU's: the CPU fails if it touches them

class ProcessGpu : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(, ProcessGpu, ::testing::Values("rounds", "reads", "immediates"),
                         [](const auto& test) { return std::string(test.param); });

TEST_P(ProcessGpu, MemoryIsMovedByCopiesAlone) {
  const WorldResult result = runWorld({GetParam(), 2, {"gpu=1"}, "", "", 1});
  expectAllWell(result);
  EXPECT_GT(result.count("gpu-copies"), 0) << result.describe();
}

// ---- A hanging test is killed and reported

TEST(World, KillsWhoTakesLongerThanItHasPatience) {
  WorldSettings settings;
  settings.scenario = "rounds";
  settings.patience = std::chrono::seconds(0);
  EXPECT_EQ(runWorld(settings).status, (std::vector<int>{128 + SIGKILL, 128 + SIGKILL}));
}

// ---- Accesses that nothing orders must go wrong here, so that code which relies on their order is found

long wrongRounds(const WorldSettings& settings) {
  const WorldResult result = runWorld(settings);
  expectAllWell(result);
  const std::size_t at = result.output[1].find("wrong: ");
  return at == std::string::npos ? -1 : std::atol(result.output[1].c_str() + at + 7);
}

// True if at least one of several worlds goes wrong. One is not enough, because on a busy machine late data may arrive
// in order.
bool goesWrong(const WorldSettings& settings) {
  long wrong = 0;
  for (int world = 0; world < 5 && wrong == 0; ++world) wrong = wrongRounds(settings);
  return wrong > 0;
}

TEST(ProcessOrder, AWriteDoesNotWaitForTheReadBeforeIt) {
  EXPECT_TRUE(goesWrong({"read-then-write", 2, {}, "", "", 1}));
}
TEST(ProcessOrder, AFencedWriteDoes) {
  EXPECT_EQ(wrongRounds({"read-then-fenced-write", 2, {}, "", "", 1}), 0);
}
TEST(ProcessOrder, AFlagOvertakesARowOfRelaxedOrder) {
  EXPECT_TRUE(goesWrong({"relaxed-then-write", 2, {"relaxed=1"}, "", "", 1}));
}
TEST(ProcessOrder, AnAdditionDoesNot) {
  EXPECT_EQ(wrongRounds({"relaxed-then-add", 2, {"relaxed=1"}, "", "", 1}), 0);
}

}  // namespace
}  // namespace moe::test
