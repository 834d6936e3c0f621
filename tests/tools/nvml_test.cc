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

TEST(Nvml, SaysWhichGpusHaveNoAccess) {
  const auto nvml = topology::Nvml::open();
  const auto apart = [&](const FakeAccess& access, const char* other = "0000:03:00.0") {
    setAccess(access);
    return nvml->cannotAccess("0000:01:00.0", other);
  };
  EXPECT_FALSE(apart({0, 0}));
  EXPECT_TRUE(apart({1, 0})) << "no reads";
  EXPECT_TRUE(apart({0, 5})) << "no writes";
  EXPECT_FALSE(apart({6, 6})) << "unknown";
  EXPECT_FALSE(apart({1, 1}, "0000:02:00.0")) << "a GPU of which NVML does not know";
}

TEST(Nvml, SaysWhichCliqueOfAFabricAGpuIsIn) {
  const auto nvml = topology::Nvml::open();
  const auto clique = [&](const FakeFabric& fabric, const char* gpu = "0000:01:00.0") {
    setFabric(fabric);
    return nvml->fabricClique(gpu);
  };
  const auto found = clique({0x2a, 32766});
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(describe(*found), "2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a.32766");
  EXPECT_EQ(found, clique({0x2a, 32766}));
  EXPECT_NE(found, clique({0x2a, 32765}));
  EXPECT_NE(found, clique({0x2b, 32766}));
  EXPECT_FALSE(clique({0, 1})) << "a fabric of one host, whose UUID is zero";
  EXPECT_FALSE(clique({0x2a, 1, 2})) << "the registration is in progress";
  EXPECT_FALSE(clique({0x2a, 1, 3, 999})) << "it has failed";
  EXPECT_FALSE(clique({0x2a, 1, 3, 0, false})) << "an old driver";
  EXPECT_FALSE(clique({0x2a, 1}, "0000:02:00.0")) << "another GPU";
}

}  // namespace
}  // namespace moe::test
