// Domains of ranks that reach each other in part.
#include <gtest/gtest.h>

#include <string>

#include "comm/communicator/domains.h"

namespace moe::test {
namespace {

// Ranks with the same letter reach each other.
ReachTable groups(const std::string& letters) {
  ReachTable reach;
  for (const char from : letters) {
    auto& row = reach.emplace_back();
    for (const char to : letters) row.push_back(from == to ? 1 : 0);
  }
  return reach;
}

TEST(Domains, AreAsLargeAsRanksReachEachOther) {
  EXPECT_EQ(largestDomains(groups("a")), 1);
  EXPECT_EQ(largestDomains(groups("aaaa")), 4);
  EXPECT_EQ(largestDomains(groups("aabb")), 2);
  EXPECT_EQ(largestDomains(groups("aaabbb")), 3);
  EXPECT_EQ(largestDomains(groups("abab")), 1) << "domains are consecutive ranks";
  EXPECT_EQ(largestDomains(groups("aaaabb")), 2) << "and all of one size";
  EXPECT_EQ(largestDomains(groups("aaabb")), 1);
  EXPECT_EQ(largestDomains(groups(std::string(72, 'a') + std::string(72, 'b'))), 72);
}

TEST(Domains, DoNotHaveRanksOfWhichOneDoesNotReachTheOther) {
  ReachTable reach = groups("aaaa");
  reach[3][2] = 0;
  EXPECT_EQ(largestDomains(reach), 1);
  reach = groups("aaaa");
  reach[3][0] = 0;
  EXPECT_EQ(largestDomains(reach), 2);
}

TEST(Domains, ThatAreTooLargeNameTwoRanks) {
  EXPECT_EQ(apartInDomains(groups("aabb"), 2), std::nullopt);
  EXPECT_EQ(apartInDomains(groups("aabb"), 4), std::pair(0, 2));
  EXPECT_EQ(apartInDomains(groups("aaab"), 2), std::pair(2, 3));
}

}  // namespace
}  // namespace moe::test
