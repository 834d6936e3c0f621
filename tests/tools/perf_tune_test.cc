// moe_perf --tune: where HT begins to be faster, and the file that says so.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "comm/config/tuning_file.h"
#include "moecomm.h"
#include "perf/moe_perf/replaced_file.h"
#include "perf/moe_perf/tune.h"
#include "support/base/temporary_folder.h"

namespace moe::test {
namespace {

using perf::tokensOfLl;
using perf::TunePoint;

TEST(PerfTune, TakesLlUpToTheCrossing) {
  EXPECT_EQ(tokensOfLl({{1, 10, 20}, {2, 12, 20}, {4, 25, 21}, {8, 50, 25}}), 2);
  EXPECT_EQ(tokensOfLl({{1, 10, 20}, {2, 12, 20}}), 2);
  EXPECT_EQ(tokensOfLl({{1, 10, 9}, {2, 12, 10}}), 0);
  EXPECT_EQ(tokensOfLl({{1, 10, 10}}), 0) << "equal";
  EXPECT_EQ(tokensOfLl({}), 0);
}

TEST(PerfTune, IsNotLedAstrayByOnePoint) {
  EXPECT_EQ(tokensOfLl({{1, 10, 20}, {2, 20.5, 20}, {4, 22, 30}, {8, 60, 31}, {16, 99, 98}, {32, 150, 151}}), 4);
}

perf::Machine hostMachine(int ranks, int processors) {
  perf::Machine machine{"host", "host", ranks, 1};
  machine.hostLoad = {ranks, processors};
  return machine;
}

TEST(PerfTune, KnowsTheSetupOfItsRanks) {
  EXPECT_EQ(perf::setupOf(hostMachine(4, 8)), ModeSetup::host);
  EXPECT_EQ(perf::setupOf(hostMachine(4, 4)), ModeSetup::hostFull);
  EXPECT_EQ(perf::setupOf(hostMachine(4, 2)), ModeSetup::hostShared);
  EXPECT_EQ(perf::setupOf(hostMachine(4, 0)), ModeSetup::host) << "not known";
  EXPECT_EQ(perf::setupOf(hostMachine(1, 1)), ModeSetup::host) << "waits for nobody";
  perf::Machine machine = hostMachine(4, 2);
  machine.domains = 2;
  EXPECT_EQ(perf::setupOf(machine), ModeSetup::hostDomains);
  machine.backend = "cuda";
  EXPECT_EQ(perf::setupOf(machine), ModeSetup::gpuDomains);
  machine.domains = 1;
  EXPECT_EQ(perf::setupOf(machine), ModeSetup::gpu);
}

TEST(PerfTune, WritesAFileThatTheLibraryReads) {
  perf::Options options;
  options.layout = moeLayoutRankMajor;
  options.command = "moe_perf --tune a\nb";
  perf::Provenance provenance{"0.1.0", "abc", "node7", "2026-11-29T02:00:00Z", "A processor", ""};
  perf::Machine machine = hostMachine(16, 2);
  const perf::Tuning tuning{options, provenance, machine, 1024, {{1, 10, 20.25}, {2, 12, 20}, {4, 25, 21}}};
  const std::string text = perf::tuningFileText(tuning);
  EXPECT_EQ(text,
            "moecomm-tuning 1\n"
            "# moe_perf --tune a?b\n"
            "# 2026-11-29T02:00:00Z, moecomm 0.1.0 (abc), node7: 16 ranks, A processor\n"
            "# tokens         LL         HT  median us of a step\n"
            "#      1       10.0       20.2\n"
            "#      2       12.0       20.0\n"
            "#      4       25.0       21.0\n"
            "# LL up to 2 tokens, rows of 1024 bytes\n"
            "host-shared rank-major 16384\n");
  EXPECT_EQ(modeLimit(parseTuning("f", text), ModeSetup::hostShared, static_cast<Layout>(moeLayoutRankMajor)).bytes,
            2 * 8 * 1024);
}

std::string refusalOfReplacing(const std::string& path) {
  try {
    perf::replaceFile("--tune", path, "new");
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "written";
}

TEST(PerfTune, ReplacesAFileAsAWhole) {
  const TemporaryFolder folder;
  const std::string path = folder.at("x.tuning");
  perf::requireReplaceable("--tune", path);
  EXPECT_TRUE(folder.files("").empty()) << "a try leaves nothing";
  std::ofstream(path) << "an older and longer text";
  std::ifstream reader(path);
  EXPECT_EQ(refusalOfReplacing(path), "written");
  EXPECT_EQ(contentOf(path), "new");
  std::string old;
  std::getline(reader, old);
  EXPECT_EQ(old, "an older and longer text") << "whoever reads the old file reads all of it";
  EXPECT_EQ(folder.files("").size(), 1U);
  EXPECT_EQ(refusalOfReplacing(folder.path()), "--tune: cannot write " + folder.path() + ": it is not a regular file");
  EXPECT_EQ(refusalOfReplacing("/dev/null"), "--tune: cannot write /dev/null: it is not a regular file");
  EXPECT_EQ(refusalOfReplacing(folder.at("none/x")),
            fmt::format("--tune: cannot write {}.{}: No such file or directory", folder.at("none/x"), ::getpid()));
}

}  // namespace
}  // namespace moe::test
