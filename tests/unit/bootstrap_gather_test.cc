// The bookkeeping of all-gathers (bootstrap/group/node.h) where a recovery begins a generation again.
#include <gtest/gtest.h>

#include <array>

#include "bootstrap/group/node.h"

namespace moe::bootstrap {
namespace {

constexpr Generation kGeneration = 2;
const std::vector<bool> kAll{false, false, false}, kWithoutSecond{false, true, false};
constexpr std::array<std::uint8_t, 1> kBlob{7};

// A rank that has asked whether the first operation is complete, before any blob had come, and then learns that a rank
// is lost.
TEST(Gather, KeepsAnOperationWithoutBlobs) {
  Gather gather(3);
  gather.restart(kGeneration, kAll);
  const std::uint16_t first = gather.begin();
  EXPECT_FALSE(gather.complete());
  gather.restart(kGeneration, kWithoutSecond);
  EXPECT_EQ(gather.begin(), first);
  EXPECT_EQ(gather.missing(), (std::vector<int>{0, 2}));
  EXPECT_TRUE(gather.add(first, 0, kBlob));
  EXPECT_FALSE(gather.add(first, 1, kBlob));
  EXPECT_FALSE(gather.complete());
  EXPECT_TRUE(gather.add(first, 2, kBlob));
  EXPECT_TRUE(gather.complete());
}

// The blob of a rank that is lost now is dropped, those of others stay.
TEST(Gather, DropsTheBlobsOfLostRanks) {
  Gather gather(3);
  gather.restart(kGeneration, kAll);
  const std::uint16_t first = gather.begin();
  EXPECT_TRUE(gather.add(first, 0, kBlob));
  EXPECT_TRUE(gather.add(first, 1, kBlob));
  gather.restart(kGeneration, kWithoutSecond);
  EXPECT_EQ(gather.begin(), first);
  EXPECT_EQ(gather.missing(), std::vector<int>{2});
  EXPECT_TRUE(gather.add(first, 2, kBlob));
  EXPECT_TRUE(gather.complete());
  const auto blobs = gather.finish();
  ASSERT_EQ(blobs.size(), 3u);
  EXPECT_TRUE(blobs[1].empty());
  EXPECT_EQ(blobs[2].size(), 1u);
}

}  // namespace
}  // namespace moe::bootstrap
