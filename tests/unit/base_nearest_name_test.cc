// The name that is suggested for an unknown one.
#include <gtest/gtest.h>

#include "base/nearest_name.h"

namespace moe::test {
namespace {

TEST(NearestName, CountsInsertedDroppedChangedAndSwappedLetters) {
  EXPECT_EQ(editDistance("tokens", "tokens"), 0U);
  EXPECT_EQ(editDistance("tokns", "tokens"), 1U);
  EXPECT_EQ(editDistance("tokenss", "tokens"), 1U);
  EXPECT_EQ(editDistance("tokans", "tokens"), 1U);
  EXPECT_EQ(editDistance("toekns", "tokens"), 1U);
  EXPECT_EQ(editDistance("", "ht"), 2U);
}

TEST(NearestName, OffersWhatIsNearAndNothingElse) {
  const std::vector<std::string> known = {"--tokens", "--topk", "--hidden", "--layout"};
  EXPECT_EQ(nearestName("--tokns", known), "--tokens");
  EXPECT_EQ(nearestName("--hiden", known), "--hidden");
  EXPECT_EQ(nearestName("--bandwidth", known), "");
  EXPECT_EQ(nearestName("", known), "");
  EXPECT_EQ(didYouMean("--laoyut", known), "; did you mean --layout?");
  EXPECT_EQ(didYouMean("--bandwidth", known), "");
}

TEST(NearestName, KnowsWhatAnAbbreviationStandsFor) {
  const std::vector<std::string> known = {"--tokens", "--topk", "--compare", "--compare-limit"};
  EXPECT_EQ(nearestName("--tok", known), "--tokens");
  EXPECT_EQ(nearestName("--compare-l", known), "--compare-limit");
  EXPECT_EQ(nearestName("--to", known), "") << "it may be either";
  EXPECT_EQ(nearestName("--compar", known), "--compare") << "the nearest of several";
  EXPECT_EQ(onlyNameWithPrefix("", {"--topk"}), "");
}

}  // namespace
}  // namespace moe::test
