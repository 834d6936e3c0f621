// The scaling model. The test compares its expectations with counts over all cases, its times with arithmetic by hand,
// and docs/internals/scaling.md with its tables. MOECOMM_UPDATE_DOCS=1 rewrites those tables.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <numeric>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "device/view/shape.h"
#include "perf/model/destinations.h"
#include "perf/model/estimate.h"
#include "perf/model/footprint.h"
#include "perf/model/published.h"
#include "perf/model/tables.h"

namespace moe::test {
namespace {

using namespace moe::model;

// Calls `see` with every choice of k of n experts.
template <class See>
void forEachChoice(int n, int k, const See& see) {
  std::vector<int> chosen(static_cast<std::size_t>(n), 0);
  std::fill(chosen.end() - k, chosen.end(), 1);
  do {
    std::vector<int> experts;
    for (int i = 0; i < n; ++i) {
      if (chosen[static_cast<std::size_t>(i)] != 0) experts.push_back(i);
    }
    see(experts);
  } while (std::next_permutation(chosen.begin(), chosen.end()));
}

// Chooses as DeepEP's test does: the `limit` groups with the best single experts, then the k best experts in them.
// `ranking` holds the experts, best first.
std::vector<int> bestInBestGroups(const std::vector<int>& ranking, int size, int k, int limit) {
  std::vector<int> chosen;
  std::set<int> groups;
  for (const int expert : ranking) {
    if (static_cast<int>(groups.size()) < limit) groups.insert(expert / size);
    if (groups.count(expert / size) != 0 && static_cast<int>(chosen.size()) < k) chosen.push_back(expert);
  }
  return chosen;
}

struct Averages {
  double ranks = 0, neighbours = 0, remoteRanks = 0, domains = 0, remoteDomains = 0;
};

// The same averages as destinationsOf, counted over all choices and all sources.
Averages countAll(const Workload& w, int domainRanks) {
  const ExpertMap map{w.expertCount(), w.ranks};
  Averages sum;
  double cases = 0;
  forEachChoice(w.expertCount(), w.topk, [&](const std::vector<int>& experts) {
    std::set<int> ranks, domains;
    for (const int expert : experts) {
      ranks.insert(map.rankOf(expert));
      domains.insert(map.rankOf(expert) / domainRanks);
    }
    for (int source = 0; source < w.ranks; ++source, ++cases) {
      const int own = source / domainRanks;
      sum.ranks += static_cast<double>(ranks.size());
      sum.domains += static_cast<double>(domains.size());
      sum.remoteDomains += static_cast<double>(domains.size() - domains.count(own));
      for (const int rank : ranks) {
        if (rank / domainRanks != own) ++sum.remoteRanks;
        if (rank / domainRanks == own && rank != source) ++sum.neighbours;
      }
    }
  });
  for (double* value : {&sum.ranks, &sum.neighbours, &sum.remoteRanks, &sum.domains, &sum.remoteDomains})
    *value /= cases;
  return sum;
}

Workload small(int ranks, int experts, int topk) {
  Workload w;
  w.ranks = ranks;
  w.experts = experts;
  w.topk = topk;
  w.tokens = 100;
  w.hidden = 1024;
  return w;
}

TEST(ScalingModel, ExpectsAsManyDestinationsAsCountingAllChoicesGives) {
  struct Case {
    int ranks, experts, topk, domainRanks;
  };
  for (const Case c : {Case{4, 8, 3, 2}, {6, 12, 4, 2}, {6, 14, 3, 3}, {4, 7, 2, 2}, {4, 10, 5, 4}, {3, 5, 5, 1}}) {
    const Workload w = small(c.ranks, c.experts, c.topk);
    const Destinations model = destinationsOf(w, c.domainRanks);
    const Averages counted = countAll(w, c.domainRanks);
    EXPECT_NEAR(model.ranks, counted.ranks, 1e-12) << c.ranks << " " << c.experts;
    EXPECT_NEAR(model.neighbours, counted.neighbours, 1e-12);
    EXPECT_NEAR(model.remoteRanks, counted.remoteRanks, 1e-12);
    EXPECT_NEAR(model.domains, counted.domains, 1e-12);
    EXPECT_NEAR(model.remoteDomains, counted.remoteDomains, 1e-12);
  }
}

TEST(ScalingModel, ExpectsTheDomainsOfGroupLimitedRoutingAsAllRankingsGive) {
  constexpr int kExperts = 8, kSize = 2, kTopk = 3;
  for (const int limit : {1, 2, 3, 4}) {
    if (limit * kSize < kTopk) continue;
    std::vector<int> ranking(kExperts);
    std::iota(ranking.begin(), ranking.end(), 0);
    double groupsSum = 0, cases = 0;
    do {
      std::set<int> groups;
      for (const int expert : bestInBestGroups(ranking, kSize, kTopk, limit)) groups.insert(expert / kSize);
      groupsSum += static_cast<double>(groups.size());
      ++cases;
    } while (std::next_permutation(ranking.begin(), ranking.end()));
    EXPECT_NEAR(groupsHit(kExperts / kSize, kSize, kTopk, limit), groupsSum / cases, 1e-12) << limit;
  }
}

TEST(ScalingModel, ExpectsAtMostATenthFewerRanksThanGroupLimitedRoutingHas) {
  Workload w = small(4, 8, 2);
  w.domainLimit = 2;
  std::vector<int> ranking(8);
  std::iota(ranking.begin(), ranking.end(), 0);
  double sum = 0, cases = 0;
  do {
    std::set<int> ranks;
    for (const int expert : bestInBestGroups(ranking, 2, w.topk, w.domainLimit)) ranks.insert(expert / 2);
    sum += static_cast<double>(ranks.size());
    ++cases;
  } while (std::next_permutation(ranking.begin(), ranking.end()));
  const double model = destinationsOf(w, 1).ranks;
  EXPECT_LE(model, sum / cases);
  EXPECT_GE(model, 0.89 * sum / cases);
}

TEST(ScalingModel, AgreesWithTheStandardCaseOfThePerformanceDocument) {
  Workload w = small(4, 256, 8);
  w.tokens = 4096;
  w.hidden = 7168;
  const Destinations to = destinationsOf(w, 8);
  EXPECT_NEAR(to.ranks, 3.614, 5e-4);
  EXPECT_NEAR(to.neighbours, 2.711, 5e-4);
  EXPECT_NEAR(estimate(nodesOf8(), w, Copies::perDomain, Operation::dispatch, RowType::bf16).nvlinkBytes, 159.2e6, 5e4);
  EXPECT_EQ(rowBytes(RowType::fp8, 7168), 7392);
}

// 4 ranks in domains of 2, one expert each, top-1. A token stays, goes to the neighbour, or goes to one of two remote
// ranks, with 25 % each.
TEST(ScalingModel, AddsUpTimesAsByHand) {
  Workload w = small(4, 4, 1);
  Machine machine;
  machine.domainRanks = 2;
  machine.nvlinkGBs = 10;
  machine.railGBs = 1;
  machine.startUs = 5;
  machine.railLatencyUs = 3;
  machine.forwardLatencyUs = 2;
  machine.postUs = 0.5;
  const Estimate direct = estimate(machine, w, Copies::perRank, Operation::combine);
  EXPECT_DOUBLE_EQ(direct.railBytes, 50 * 2048);
  EXPECT_DOUBLE_EQ(direct.nvlinkBytes, 25 * 2048);
  EXPECT_DOUBLE_EQ(direct.traffic.messages(), 50 + 2);
  EXPECT_DOUBLE_EQ(direct.us, 5 + 3 + 102.4);
  EXPECT_EQ(direct.bound, Bound::rail);
  // A dispatch has one more word for each of the two remote ranks: the sizes.
  const Estimate dispatch = estimate(machine, w, Copies::perRank, Operation::dispatch, RowType::bf16);
  EXPECT_DOUBLE_EQ(dispatch.traffic.messages(), 50 + 2 * 2);
  EXPECT_DOUBLE_EQ(dispatch.postUs, 27);

  // Each row crosses the rail once, and half of them go on to the neighbour: NVLink carries 25 + 25 rows. 50 rows are
  // two chunks. The last one, of 32 rows, is forwarded at 10 GB/s.
  const Estimate forwarded = estimate(machine, w, Copies::perDomain, Operation::combine);
  EXPECT_DOUBLE_EQ(forwarded.railBytes, 50 * 2048);
  EXPECT_DOUBLE_EQ(forwarded.nvlinkBytes, 50 * 2048);
  EXPECT_DOUBLE_EQ(forwarded.traffic.words, 2);
  EXPECT_DOUBLE_EQ(forwarded.us, 5 + 3 + 2 + 32 * 2048 / 10e3 + 102.4);
}

TEST(ScalingModel, NamesTheResourceThatBounds) {
  Workload w = small(4, 4, 1);
  Machine machine = withoutCalls(nodesOf8());
  // with rows of 2 KB and less, posting takes longer than the rail
  machine.domainRanks = 2;
  w.hidden = 7168;
  const auto bound = [&] { return estimate(machine, w, Copies::perRank, Operation::combine).bound; };
  EXPECT_EQ(bound(), Bound::latency);
  w.tokens = 10000;
  EXPECT_EQ(bound(), Bound::rail);
  machine.railGBs = 10000;
  EXPECT_EQ(bound(), Bound::posting);
  machine.postUs = 0;
  EXPECT_EQ(bound(), Bound::nvlink);
}

// 60 rows go to each of two remote ranks. A dispatch makes two calls for rows and one for the words, which rings the
// doorbell. A combine makes one call for the rows and one for the flag.
TEST(ScalingModel, CountsCallsAndDoorbellsOfOurPostersAsByHand) {
  Workload w = small(4, 4, 1);
  w.tokens = 240;
  Machine machine = withoutCalls(nodesOf8());
  machine.domainRanks = 2;
  machine.calls = {3, 10, 2};
  const auto posting = [&](Copies copies, Operation operation) {
    return estimate(machine, w, copies, operation).postUs;
  };
  EXPECT_DOUBLE_EQ(posting(Copies::perRank, Operation::dispatch), 3 * 3 + 10);
  EXPECT_DOUBLE_EQ(posting(Copies::perRank, Operation::combine), 2 * 3 + 10);
  machine.calls.warps = 1;
  EXPECT_DOUBLE_EQ(posting(Copies::perRank, Operation::dispatch), 2 * (3 * 3 + 10));
  // 1200 rows cross the one rail, 150 in each of 8 waves, with 5 calls per wave. The doorbell rings when 128 rows wait,
  // and for each of 10 words.
  w.tokens = 2400;
  EXPECT_DOUBLE_EQ(posting(Copies::perDomain, Operation::dispatch), (8 * 5 + 10) * 3 + (8 + 10) * 10);
  EXPECT_DOUBLE_EQ(posting(Copies::perDomain, Operation::combine), (8 + 10) * 3 + 10 * 10);
}

// A kernel's number in the table of scripts/check_kernels.py.
int codegenNumber(const std::string& name) {
  std::ifstream table(MOECOMM_SOURCE_DIR "/tests/codegen/kernels.toml");
  std::string line;
  while (line != "[\"stepKernel<Step::llDispatch, CudaPuts<CudaWarp>>\".sm_90]" && std::getline(table, line)) continue;
  while (std::getline(table, line) && !line.empty()) {
    if (line.rfind(name + " = ", 0) == 0) return std::stoi(line.substr(name.size() + 3));
  }
  ADD_FAILURE() << "no " << name;
  return 0;
}

TEST(ScalingModel, PostsWithTheInstructionsThatTheCompilerHasMade) {
  const int call = codegenNumber("post_call"), waits = codegenNumber("post_call_waits");
  const Calls calls = nodesOf8().calls;
  EXPECT_NEAR(calls.callUs, (codegenNumber("post_loop") + call) * 0.005 + waits * 0.64, 1e-9);
  EXPECT_NEAR(calls.ringUs,
              (codegenNumber("post_ring") - call) * 0.005 + (codegenNumber("post_ring_waits") - waits) * 0.64, 1e-9);
}

TEST(ScalingModel, SendsPerExpertWhereOthersDo) {
  const Workload w = small(16, 64, 8);  // half of all experts are remote, 28 of 64 with neighbours
  const Traffic t = trafficOf(w, 8, Copies::perExpert, Operation::dispatch);
  EXPECT_DOUBLE_EQ(t.railRows, 400);
  EXPECT_DOUBLE_EQ(t.nvlinkRows, 350);
  EXPECT_DOUBLE_EQ(t.words, 32);
}

TEST(ScalingModel, TakesWindowsFromTheLibrarysLayout) {
  Workload ll = small(2048, 0, 8), ht = ll;
  ll.hidden = ht.hidden = 7168;
  ll.tokens = 128;
  ht.tokens = 4096;
  const Footprint f = footprintOf(ll, ht, 8);
  // docs/reference/memory.md: 2 R t (3 B + S), 3 R t h, 2 R t K 4 thrice, twice 2 R (4 d + t h), 2 R 4 c, 3 N t 16 (1 +
  // K) and little else; HT's staging G (B + S), its rails 3 N T B. E is 2048, S is 224, N 256, d is 16, c = 2048 + 2048
  // + 256 + 1, rounded up, and 8.
  const double slots = 2. * 2048 * 128 * (3 * 14336 + 224 + 3 * 8 * 4), headers = 3. * 2048 * 128 * 144;
  const double told = 2. * 2 * 2048 * (4 * 16 + 128 * 144), counts = 2. * 2048 * 4360 * 4,
               tables = 3. * 256 * 128 * 16 * 9;
  EXPECT_NEAR(static_cast<double>(f.llWindow), slots + headers + told + counts + tables, 16 << 20);
  EXPECT_EQ(f.htWindow - f.htWindowUnstaged, 2048ULL * 4096 * (14336 + 224));
  EXPECT_GT(f.htWindowUnstaged, 3ULL * 256 * 4096 * 14336);
  EXPECT_EQ(f.routeCountsArrive, 2047ULL * 4360 * 4);
  Workload eight = ht;
  eight.ranks = 8;
  EXPECT_EQ(footprintOf(eight, eight, 8).htHandle, 6'140'416U);  // as in docs/reference/memory.md
  EXPECT_EQ(f.queuePairs, 2040);  // one per remote rank; four per remote rank in small groups
  eight.ranks = 16;
  EXPECT_EQ(footprintOf(eight, eight, 8).queuePairs, 4 * 8);
  EXPECT_EQ(footprintOf(eight, eight, 8).queueBytes, 4 * 8 * 65536U);
}

TEST(ScalingModel, RefusesWhatDoesNotFit) {
  EXPECT_THROW(check(nodesOf8(), small(20, 0, 8)), std::invalid_argument);
  EXPECT_THROW(check(nodesOf8(), small(16, 4, 8)), std::invalid_argument);
  Workload limited = small(24, 256, 8);
  limited.domainLimit = 2;
  EXPECT_THROW(check(nodesOf8(), limited), std::invalid_argument);
}

const Comparison& find(const std::vector<Comparison>& all, const std::string& system, int ranks) {
  for (const Comparison& c : all) {
    if (c.system == system && c.ranks == ranks) return c;
  }
  throw std::out_of_range(system);
}

// The expected values were computed outside the program, from the formulas of docs/internals/scaling.md.
TEST(ScalingModel, SaysOfPublishedCasesWhatTheFormulasSay) {
  const std::vector<Comparison> all = comparisons();
  const double v1Start = 77 - 128 * 8 * 7392 * 7 / 8. / 160e3;
  EXPECT_NEAR(find(all, "DeepEP V1", 64).dispatch.modelUs, v1Start + 8.35 + 128 * 8 * 7392 * 7 / 8. / 47e3, 1e-9);
  EXPECT_NEAR(find(all, "DeepEP V1, rails only", 256).combine.modelUs,
              114 - 128 * 8 * 14336 * 7 / 8. / 160e3 + 8.35 + 128 * 8 * 14336 * (255 / 256.) / 47e3, 1e-9);
  EXPECT_NEAR(find(all, "NCCL EP", 16).dispatch.modelUs,
              65.34 - 128 * 8 * 14336 * 7 / 8. / 326e3 + 8.35 + 128 * 8 * 14336 / 2. / 47e3, 1e-9);
  EXPECT_NEAR(find(all, "DeepEP V2", 32).dispatch.us, 8192 * 3.6144 * 7392 / 61e3, 0.5);
}

TEST(ScalingModel, IsNearWhatWasPublished) {
  for (const Comparison& c : comparisons()) {
    const bool twoDomains = c.ranks == 16;
    for (const Measured& m : {c.dispatch, c.combine}) {
      if (m.figure.empty()) continue;
      EXPECT_LT(std::abs(m.offPercent()), twoDomains ? 33 : 15) << c.system << " " << c.ranks;
    }
  }
}

const std::string kPath = MOECOMM_SOURCE_DIR "/docs/internals/scaling.md";

std::string readText(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(ScalingDocument, ShowsTheTablesThatTheProgramPrints) {
  std::string text = readText(kPath);
  const bool update = std::getenv("MOECOMM_UPDATE_DOCS") != nullptr;
  for (const NamedTable& table : documentTables()) {
    const std::string begin =
        fmt::format("<!-- {}: begin; written by the tools tests with MOECOMM_UPDATE_DOCS=1 -->\n", table.name);
    const std::size_t from = text.find(begin) + begin.size();
    const std::size_t end = text.find(fmt::format("<!-- {}: end -->\n", table.name));
    ASSERT_NE(text.find(begin), std::string::npos) << kPath << " lacks the line " << begin;
    ASSERT_NE(end, std::string::npos) << kPath << " lacks the end of " << table.name;
    const std::string expected = "\n" + table.text + "\n";
    if (update) {
      text.replace(from, end - from, expected);
    } else {
      EXPECT_EQ(text.substr(from, end - from), expected)
          << "Run: MOECOMM_UPDATE_DOCS=1 ctest --preset dev -R 'ScalingDocument|MoeModel'";
    }
  }
  if (update) std::ofstream(kPath) << text;
}

}  // namespace
}  // namespace moe::test
