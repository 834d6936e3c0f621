// The routes of moe_perf have the distributions that their names promise.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <set>
#include <vector>

#include "perf/moe_perf/routing.h"

namespace moe::test {
namespace {

using namespace moe::perf;

constexpr int kRanks = 4;
constexpr int kTokens = 40000;

Options makeOptions(Routing routing, int experts, int topk) {
  Options options;
  options.routing = routing;
  options.experts = experts;
  options.topk = topk;
  return options;
}

std::vector<std::vector<std::int32_t>> tokensOf(const Options& options) {
  const Route route = makeRoute(options, 3, kRanks, 1, kTokens);
  std::vector<std::vector<std::int32_t>> tokens;
  for (auto at = route.experts.begin(); at != route.experts.end(); at += options.topk) {
    tokens.emplace_back(at, at + options.topk);
  }
  return tokens;
}

using Shares = std::vector<double>;

// The share of tokens whose entry number `entry` is each expert.
Shares sharesOf(const std::vector<std::vector<std::int32_t>>& tokens, int experts, int entry) {
  Shares shares(static_cast<std::size_t>(experts));
  for (const auto& token : tokens) {
    shares[static_cast<std::size_t>(token[static_cast<std::size_t>(entry)])] += 1.0 / kTokens;
  }
  return shares;
}

// The tolerance is five standard deviations of a share.
void expectNear(const Shares& actual, const Shares& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    EXPECT_NEAR(actual[i], expected[i], 5 * std::sqrt(expected[i] * (1 - expected[i]) / kTokens)) << "number " << i;
  }
}

void expectDistinct(const std::vector<std::vector<std::int32_t>>& tokens) {
  for (const auto& token : tokens) ASSERT_EQ(std::set<std::int32_t>(token.begin(), token.end()).size(), token.size());
}

TEST(PerfRouting, ZipfIsZipfWithoutReplacement) {
  constexpr int kExperts = 8;
  const auto tokens = tokensOf(makeOptions(Routing::zipf, kExperts, 2));
  expectDistinct(tokens);
  Shares first = sharesOf(tokens, kExperts, 0), second = sharesOf(tokens, kExperts, 1);
  std::vector<std::size_t> byPopularity(kExperts);
  std::iota(byPopularity.begin(), byPopularity.end(), 0);
  std::sort(byPopularity.begin(), byPopularity.end(),
            [&](std::size_t a, std::size_t b) { return first[a] > first[b]; });
  Shares one, other, p;
  double sum = 0;
  for (int i = 0; i < kExperts; ++i) sum += 1.0 / (i + 1);
  for (int i = 0; i < kExperts; ++i) p.push_back(1.0 / (i + 1) / sum);
  for (std::size_t i = 0; i < kExperts; ++i) {
    one.push_back(first[byPopularity[i]]), other.push_back(second[byPopularity[i]]);
  }
  Shares expected(kExperts);
  for (std::size_t b = 0; b < kExperts; ++b) {
    for (std::size_t a = 0; a < kExperts; ++a) expected[b] += a == b ? 0 : p[a] * p[b] / (1 - p[a]);
  }
  expectNear(one, p);
  expectNear(other, expected);
}

TEST(PerfRouting, UniformFavoursNoNeighbour) {
  constexpr int kExperts = 10;
  const auto tokens = tokensOf(makeOptions(Routing::uniform, kExperts, 4));
  expectDistinct(tokens);
  for (int entry = 0; entry < 4; ++entry) {
    expectNear(sharesOf(tokens, kExperts, entry), Shares(kExperts, 1.0 / kExperts));
  }
  Shares distance(kExperts);
  for (const auto& token : tokens) {
    distance[static_cast<std::size_t>((token[1] - token[0] + kExperts) % kExperts)] += 1.0 / kTokens;
  }
  Shares expected(kExperts, 1.0 / (kExperts - 1));
  expected[0] = 0;
  expectNear(distance, expected);
}

TEST(PerfRouting, GroupLimitedTakesTheBestExpertsOfFewGroups) {
  constexpr int kExperts = 32, kTopk = 6;
  Options options = makeOptions(Routing::groupLimited, kExperts, kTopk);
  options.groups = 8;
  options.groupsPerToken = 3;
  const auto tokens = tokensOf(options);
  expectDistinct(tokens);
  std::vector<int> tokensWith(4);
  Shares used(kExperts);
  for (const auto& token : tokens) {
    std::set<int> groups;
    for (const std::int32_t expert : token) {
      groups.insert(expert / 4);
      used[static_cast<std::size_t>(expert)] += 1.0 / kTokens;
    }
    ASSERT_LE(groups.size(), 3U);
    tokensWith[groups.size()] += 1;
  }
  expectNear(used, Shares(kExperts, 1.0 * kTopk / kExperts));
  EXPECT_EQ(tokensWith[1], 0);  // a group has four experts
  EXPECT_GT(tokensWith[3], kTokens / 2);
}

TEST(PerfRouting, GroupLimitedLeavesEntriesUnusedWhereGroupsAreSmall) {
  Options options = makeOptions(Routing::groupLimited, 11, 6);
  options.groups = 4;
  options.groupsPerToken = 1;
  std::set<std::size_t> sizes;
  for (const auto& token : tokensOf(options)) {
    std::set<int> groups;
    std::size_t used = 0;
    for (const std::int32_t expert : token) {
      if (expert < 0) continue;
      groups.insert(Experts{11, 4}.rankOf(expert));
      ++used;
    }
    EXPECT_EQ(groups.size(), 1U);
    sizes.insert(used);
  }
  EXPECT_EQ(sizes, (std::set<std::size_t>{2, 3}));
}

TEST(PerfRouting, OneRankHasAllTokens) {
  for (const auto& token : tokensOf(makeOptions(Routing::oneRank, 13, 6))) {
    for (int entry = 0; entry < 6; ++entry) {
      const std::int32_t expert = token[static_cast<std::size_t>(entry)];
      EXPECT_EQ(expert >= 0 && expert < 4, entry < 4) << "rank 0 has four of 13 experts";
    }
  }
}

}  // namespace
}  // namespace moe::test
