// moerun's host list, the distribution of ranks over it, and the script for other hosts.
#include "tools/moerun_plan.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.h"
#include "tools/moerun_bind.h"
#include "tools/moerun_job.h"
#include "tools/watch_folder.h"

namespace moe::test {
namespace {

using namespace moe::tools;

// Gives "host:localRank/localCount" for each rank.
std::vector<std::string> describe(const std::vector<Placement>& placements) {
  std::vector<std::string> lines;
  for (const Placement& place : placements) {
    lines.push_back(place.host + ":" + std::to_string(place.localRank) + "/" + std::to_string(place.localCount));
  }
  return lines;
}

using Lines = std::vector<std::string>;

TEST(MoerunPlan, SpreadsEvenlyWithoutSlots) {
  EXPECT_EQ(describe(placeRanks(5, parseHosts("a,b"), "")), (Lines{"a:0/3", "a:1/3", "a:2/3", "b:0/2", "b:1/2"}));
}

TEST(MoerunPlan, FillsSlotsInOrder) {
  EXPECT_EQ(describe(placeRanks(3, parseHosts("a:2,b:4"), "")), (Lines{"a:0/2", "a:1/2", "b:0/1"}));
  EXPECT_EQ(describe(placeRanks(2, parseHosts("a,b:4"), "")), (Lines{"a:0/1", "b:0/1"}));
}

TEST(MoerunPlan, RunsHereWithoutHosts) {
  const auto placements = placeRanks(2, {}, "me");
  EXPECT_EQ(describe(placements), (Lines{"localhost:0/2", "localhost:1/2"}));
  EXPECT_TRUE(placements[1].local);
}

TEST(MoerunPlan, KnowsThisHost) {
  const auto placements = placeRanks(2, parseHosts("me,other"), "me");
  EXPECT_TRUE(placements[0].local);
  EXPECT_FALSE(placements[1].local);
}

TEST(MoerunPlan, TakesAnAddressWithColonsInBrackets) {
  const auto hosts = parseHosts("[fe80::1]:4,[::2]");
  EXPECT_EQ(hosts[0].name, "fe80::1");
  EXPECT_EQ(hosts[0].slots, 4);
  EXPECT_EQ(hosts[1].name, "::2");
  EXPECT_EQ(hosts[1].slots, 0);
}

TEST(MoerunPlan, RefusesMalformedHosts) {
  for (const char* text : {"", "a,", "a:", "a:0", "a:-1", "a:x", "a:1x", ":4", "[a", "[a]4", "-oProxyCommand=x"}) {
    EXPECT_THROW(parseHosts(text), Error) << text;
  }
}

TEST(MoerunPlan, RefusesMoreRanksThanSlots) {
  EXPECT_THROW(placeRanks(5, parseHosts("a:2,b:2"), ""), Error);
}

// Two packages of two cores of two threads. Processors 0 and 4 are a core, so are 1 and 5, and so on. The packages are
// 0 1 4 5 and 2 3 6 7.
const std::vector<Processor> kEight = {{0, 0, 0}, {4, 0, 0}, {1, 0, 1}, {5, 0, 1},
                                       {2, 1, 2}, {6, 1, 2}, {3, 1, 3}, {7, 1, 3}};
using Shares = std::vector<std::vector<int>>;

TEST(MoerunBind, GivesEachRankACore) {
  EXPECT_EQ(shareProcessors(kEight, Bind::core, 3), (Shares{{0, 4}, {1, 5}, {2, 6}}));
}

TEST(MoerunBind, SharesCoresThatLieTogether) {
  EXPECT_EQ(shareProcessors(kEight, Bind::share, 1), (Shares{{0, 4, 1, 5, 2, 6, 3, 7}}));
  EXPECT_EQ(shareProcessors(kEight, Bind::share, 2), (Shares{{0, 4, 1, 5}, {2, 6, 3, 7}}));
  EXPECT_EQ(shareProcessors(kEight, Bind::share, 3), (Shares{{0, 4}, {1, 5}, {2, 6, 3, 7}}));
}

TEST(MoerunBind, SharesProcessorsWhereCoresAreTooFew) {
  EXPECT_EQ(shareProcessors(kEight, Bind::share, 5), (Shares{{0}, {4, 1}, {5}, {2, 6}, {3, 7}}));
}

TEST(MoerunBind, RefusesMoreRanksThanThereIsRoomFor) {
  const auto refusal = [](Bind bind, int ranks) -> std::string {
    try {
      shareProcessors(kEight, bind, ranks);
    } catch (const Error& error) {
      return error.what();
    }
    return "not refused";
  };
  EXPECT_EQ(refusal(Bind::core, 5), "--bind core: 5 ranks on this host, but moerun may use only 4 cores");
  EXPECT_EQ(refusal(Bind::share, 9), "--bind share: 9 ranks on this host, but moerun may use only 8 processors");
  std::vector<Placement> elsewhere = {{0, 0, 1, "far", false, {}}};
  EXPECT_THROW(bindRanks(Bind::core, &elsewhere), Error);
}

TEST(MoerunBind, MakesMasksOfAnyLength) {
  EXPECT_EQ(affinityMask({}), std::vector<unsigned long>());
  EXPECT_EQ(affinityMask({0, 3, 65}), (std::vector<unsigned long>{9, 2}));
}

TEST(MoerunRemote, OnlyRanksOfThisMachineGetItsFolder) {
  Job job{2, "a:1", "0123456789abcdef0123456789abcdef", {"program"}, {"ssh"}, {}};
  const auto folders = [&](bool local) {
    const std::vector<std::string> variables = rankVariables(job, {0, 0, 1, "a", local, {}});
    return std::count(variables.begin(), variables.end(), "MOECOMM_WATCH_FOLDER=/tmp/x");
  };
  EXPECT_EQ(folders(true), 0);
  job.watchFolder = "/tmp/x";
  EXPECT_EQ(folders(true), 1);
  EXPECT_EQ(folders(false), 0);
  EXPECT_EQ(remoteScript(job).find("MOECOMM_WATCH_FOLDER"), std::string::npos);
  job.watchedElsewhere = true;
  EXPECT_NE(remoteScript(job).find("export MOECOMM_WATCH_FOLDER="), std::string::npos);
}

TEST(WatchFolder, IsThisUsersAloneOrNotTaken) {
  const std::string folder = testing::TempDir() + "watch-" + std::to_string(::getpid());
  EXPECT_TRUE(prepareWatchFolder(folder));
  EXPECT_TRUE(prepareWatchFolder(folder));
  ::chmod(folder.c_str(), 0755);
  EXPECT_FALSE(prepareWatchFolder(folder)) << "others may look";
  ::rmdir(folder.c_str());
  const std::string elsewhere = folder + "-elsewhere";
  ::mkdir(elsewhere.c_str(), 0700);
  ASSERT_EQ(::symlink(elsewhere.c_str(), folder.c_str()), 0);
  EXPECT_FALSE(prepareWatchFolder(folder)) << "a link may be somebody else's";
  ::unlink(folder.c_str());
  ::rmdir(elsewhere.c_str());
  EXPECT_FALSE(prepareWatchFolder(folder + "/none/such"));
}

TEST(MoerunRemote, QuotesForTheShell) {
  EXPECT_EQ(shellQuote("it's $HOME"), "'it'\\''s $HOME'");
}

TEST(MoerunRemote, LeavesEveryValueOutOfTheScript) {
  const Job job{2, "a:1", "0123456789abcdef0123456789abcdef", {"program", "an argument"}, {"ssh"}, {}};
  const std::string script = remoteScript(job);
  EXPECT_EQ(script.find(job.secret), std::string::npos);
  EXPECT_EQ(script.find("MOECOMM_RANK"), std::string::npos);
  EXPECT_NE(script.find("'an argument'"), std::string::npos);
  const std::string input = remoteInput(job, {1, 0, 1, "b", false, {}});
  EXPECT_NE(input.find("MOECOMM_RANK='1'\n"), std::string::npos);
  EXPECT_NE(input.find("MOECOMM_SECRET='" + job.secret + "'\n"), std::string::npos);
}

TEST(MoerunRemote, RefusesNamesThatAShellWouldRun) {
  for (const char* name : {"", "1A", "A B", "A;ls", "A=B", "A-B", "$(ls)", "A\nB"}) {
    try {
      checkExports({"GOOD_1", name});
      ADD_FAILURE() << "not refused: " << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.what(), "--export: invalid variable name '" + std::string(name) +
                                  "': use letters, digits and _, and begin with no digit");
    }
  }
  checkExports({"_", "a", "A1_b"});
}

}  // namespace
}  // namespace moe::test
