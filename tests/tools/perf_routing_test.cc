// The routes of moe_perf have the distributions that their names promise.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <memory>
#include <numeric>
#include <set>
#include <stdexcept>
#include <string>
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

// ---- Routes from a file of numpy.save

std::string npy(const std::string& type, const std::string& shape, const std::string& data, bool fortran = false) {
  std::string text =
      "{'descr': '" + type + "', 'fortran_order': " + (fortran ? "True" : "False") + ", 'shape': " + shape + ", }";
  text.resize((text.size() + 10 + 64) / 64 * 64 - 10, ' ');
  const auto length = static_cast<std::uint16_t>(text.size());
  return std::string("\x93NUMPY\x01\x00", 8) + static_cast<char>(length & 0xff) + static_cast<char>(length >> 8) +
         text + data;
}

template <class Id>
std::string bytesOf(const std::vector<Id>& ids) {
  return {reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(Id)};
}

class RoutingFiles : public ::testing::Test {
 protected:
  ~RoutingFiles() override { std::remove(path_.c_str()); }

  RoutingFile read(const std::string& content) {
    std::ofstream(path_, std::ios::binary) << content;
    return RoutingFile::read(path_);
  }
  std::string refusalOf(const std::string& content) {
    try {
      read(content);
    } catch (const std::runtime_error& error) {
      const std::string sentence = error.what(), start = "--routing-file " + path_ + ": ";
      return sentence.substr(0, start.size()) == start ? sentence.substr(start.size()) : sentence;
    }
    return "";
  }

  const std::string path_ = testing::TempDir() + "moe_perf_routing." + std::to_string(::getpid()) + ".npy";
};

TEST_F(RoutingFiles, HoldStepsOfRanks) {
  std::vector<std::int32_t> ids(2 * 3 * 4 * 2);
  std::iota(ids.begin(), ids.end(), -1);
  const RoutingFile file = read(npy("<i4", "(2, 3, 4, 2)", bytesOf(ids)));
  EXPECT_EQ(file.steps, 2);
  EXPECT_EQ(file.of(0, 0, 0)[0], -1);
  EXPECT_EQ(file.of(0, 2, 1)[1], (2 * 4 + 1) * 2 + 1 - 1);
  EXPECT_EQ(file.of(1, 0, 0)[0], 3 * 4 * 2 - 1);
  EXPECT_EQ(file.of(5, 1, 3), file.of(1, 1, 3));
  const std::vector<std::int64_t> wide(ids.begin(), ids.begin() + 3 * 4 * 2);
  EXPECT_EQ(read(npy("<i8", "(3, 4, 2)", bytesOf(wide))).of(7, 2, 3)[1], file.of(0, 2, 3)[1]);
}

TEST_F(RoutingFiles, GiveAStepItsRoutes) {
  Options options = makeOptions(Routing::file, 40, 2);
  std::vector<std::int32_t> ids(2 * 3 * 4 * 2);
  std::iota(ids.begin(), ids.end(), -1);
  options.routingFile = std::make_shared<const RoutingFile>(read(npy("<i4", "(2, 3, 4, 2)", bytesOf(ids))));
  const Route route = makeRoute(options, 3, 3, 1, 3, 1);
  const auto begin = ids.begin() + (3 + 1) * 4 * 2;
  EXPECT_EQ(route.experts, std::vector<std::int32_t>(begin, begin + 3 * 2));
  EXPECT_EQ(route.weights.size(), 6U);
}

TEST_F(RoutingFiles, NameWhatIsWrongWithThem) {
  const std::string two = bytesOf(std::vector<std::int32_t>{1, 2});
  EXPECT_EQ(refusalOf("text"), "it ends too early");
  EXPECT_EQ(refusalOf("no array of numpy"), "it is no array that numpy.save wrote");
  EXPECT_EQ(refusalOf(npy("<i4", "(1, 1, 3)", two)), "it ends too early");
  EXPECT_EQ(refusalOf(npy("<i4", "(1, 2)", two)),
            "its array is neither [steps, ranks, tokens, topk] nor [ranks, tokens, topk]");
  EXPECT_EQ(refusalOf(npy("<f4", "(1, 1, 2)", two)), "its elements are of type <f4, not <i4 or <i8");
  EXPECT_EQ(refusalOf(npy("<i4", "(1, 1, 2)", two, true)),
            "its array is in Fortran's order; save numpy.ascontiguousarray of it");
  EXPECT_EQ(refusalOf(npy("<i4", "(1, 0, 2)", two)), "its array is empty, or has more than 2^30 elements");
  EXPECT_EQ(refusalOf(npy("<i4", "(999999999, 999999999, 999999999)", two)),
            "its array is empty, or has more than 2^30 elements");
  EXPECT_EQ(refusalOf(npy("<i4", "(1, 1, 2)", bytesOf(std::vector<std::int32_t>{1, -2}))),
            "element 1 is -2, which is no expert and not -1");
}

TEST_F(RoutingFiles, ServeRunsOfTheirSizes) {
  const RoutingFile file = read(npy("<i4", "(1, 1, 2)", bytesOf(std::vector<std::int32_t>{1, 7})));
  EXPECT_NO_THROW(file.require(1, 1, 2, 8));
  const auto refusal = [&](int nranks, int tokens, int topk, int experts) -> std::string {
    try {
      file.require(nranks, tokens, topk, experts);
    } catch (const std::runtime_error& error) {
      const std::string sentence = error.what();
      return sentence.substr(sentence.rfind(": ") + 2);
    }
    return "";
  };
  EXPECT_EQ(refusal(2, 1, 2, 8), "it has routes of 1 ranks, but there are 2");
  EXPECT_EQ(refusal(1, 2, 2, 8), "it has 1 tokens per rank, but --tokens is 2");
  EXPECT_EQ(refusal(1, 1, 3, 8), "its tokens have 2 experts, but --topk is 3");
  EXPECT_EQ(refusal(1, 1, 2, 7), "it names expert 7, but --experts is 7");
}

}  // namespace
}  // namespace moe::test
