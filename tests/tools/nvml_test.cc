// The library's conclusions from NVML's answers, which come from a fake library of that name.
#include "topology/nvml.h"

#include <gtest/gtest.h>

#include "tools/fake_nvml.h"

namespace moe::test {
namespace {

double megabytesOf(const FakeNvlinks& links) {
  setNvlinks(links);
  const auto nvml = topology::Nvml::open();
  return nvml ? nvml->nvlinkMegabytes("0000:01:00.0") : -1;
}

TEST(Nvml, AddsUpTheSpeedOfTheActiveLinks) {
  EXPECT_EQ(megabytesOf({18, -1, 26562, 4}), 18 * 26562);
  EXPECT_EQ(megabytesOf({18, 3, 26562, 4}), 17 * 26562);
  EXPECT_EQ(topology::Nvml::open()->activeNvlinks("0000:01:00.0"), 17);
}

TEST(Nvml, TakesTheSpeedOfALinksVersionIfTheDriverDoesNotTell) {
  EXPECT_EQ(megabytesOf({12, -1, 0, 3}), 12 * 25000.0);
  EXPECT_EQ(megabytesOf({18, -1, 0, 4}), 18 * 26562.5);
  EXPECT_EQ(megabytesOf({18, -1, 0, 5}), 18 * 53125.0);
}

TEST(Nvml, SaysNothingOfLinksThatItDoesNotKnow) {
  EXPECT_EQ(megabytesOf({0, -1, 0, 0}), 0) << "no links";
  EXPECT_EQ(megabytesOf({18, -1, 0, 0}), 0) << "no version";
  EXPECT_EQ(megabytesOf({18, -1, 0, 9}), 0) << "a version to come";
  setNvlinks({18, -1, 26562, 4});
  EXPECT_EQ(topology::Nvml::open()->nvlinkMegabytes("0000:02:00.0"), 0) << "another GPU";
}

}  // namespace
}  // namespace moe::test
