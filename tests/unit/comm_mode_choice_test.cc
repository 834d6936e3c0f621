#include <gtest/gtest.h>

#include "comm/handle/mode_choice.h"
#include "device/view/views.h"

namespace moe::test {
namespace {

std::int32_t onGpus(int tokens, Layout layout, int rowBytes, int nranks, int domains, int llTokensMax) {
  const ModeSetup setup = setupOf(false, domains, Processors::spare);
  return chooseMode(modeLimit(untuned(), setup, layout), tokens, rowBytes, nranks, llTokensMax);
}
std::int32_t onHost(int tokens, Layout layout, int rowBytes, int nranks, int domains = 1,
                    Processors processors = Processors::spare) {
  const ModeSetup setup = setupOf(true, domains, processors);
  return chooseMode(modeLimit(untuned(), setup, layout), tokens, rowBytes, nranks, 8192);
}

constexpr Layout kLayouts[] = {Layout::flat, Layout::expertMajor, Layout::expertMajorPadded, Layout::rankMajor};
constexpr int kRowBytes = 14336, kBuffers = 8192;

TEST(ModeChoice, IsLowLatencyWhereItWasMeasured) {
  for (const int tokens : {1, 8, 32, 64, 128}) {
    for (const Layout layout : kLayouts) EXPECT_EQ(onGpus(tokens, layout, kRowBytes, 4, 1, kBuffers), moeModeLl);
  }
  for (const Layout layout : kLayouts) {
    EXPECT_EQ(onGpus(512, layout, kRowBytes, 4, 1, kBuffers), moeModeLl);
    EXPECT_EQ(onGpus(1024, layout, kRowBytes, 2, 1, kBuffers), layout == Layout::rankMajor ? moeModeHt : moeModeLl);
    EXPECT_EQ(onGpus(4096, layout, kRowBytes, 2, 1, kBuffers), moeModeHt);
  }
  EXPECT_EQ(onGpus(2048, Layout::flat, kRowBytes, 2, 1, kBuffers), moeModeHt);
  EXPECT_EQ(onGpus(4096, Layout::rankMajor, kRowBytes, 4, 1, kBuffers), moeModeHt);
  EXPECT_EQ(onGpus(4096, Layout::flat, kRowBytes, 4, 1, kBuffers), moeModeHt);
}

TEST(ModeChoice, OfRankMajorOnGpusDependsOnTokensTooUnlessItIsTuned) {
  EXPECT_EQ(onGpus(512, Layout::rankMajor, 256, 2, 1, kBuffers), moeModeLl);
  EXPECT_EQ(onGpus(513, Layout::rankMajor, 256, 2, 1, kBuffers), moeModeHt);
  ModeLimits tuned = untuned();
  tuned[static_cast<std::size_t>(ModeSetup::gpu)][static_cast<std::size_t>(Layout::rankMajor)] = 1 << 25;
  EXPECT_EQ(chooseMode(modeLimit(tuned, ModeSetup::gpu, Layout::rankMajor), 1024, 256, 2, kBuffers), moeModeLl);
}

TEST(ModeChoice, OfTheHostIsHighThroughputWhereATokenHasOneRow) {
  for (const Layout layout : {Layout::flat, Layout::rankMajor}) {
    for (const int tokens : {1, 8, 128, 512}) EXPECT_EQ(onHost(tokens, layout, 4096, 2), moeModeHt) << tokens;
  }
}

TEST(ModeChoice, OfTheHostIsLowLatencyForFewRowsPerExpert) {
  for (const Layout layout : {Layout::expertMajor, Layout::expertMajorPadded}) {
    for (const int tokens : {1, 16}) EXPECT_EQ(onHost(tokens, layout, 4096, 2), moeModeLl) << tokens;
    for (const int tokens : {32, 512}) EXPECT_EQ(onHost(tokens, layout, 4096, 2), moeModeHt) << tokens;
    EXPECT_EQ(onHost(8, layout, 4096, 4), moeModeLl);
    EXPECT_EQ(onHost(16, layout, 4096, 4), moeModeHt);
  }
}

TEST(ModeChoice, OfRanksThatShareProcessorsIsLowLatencyForFewBytes) {
  for (const Layout layout : kLayouts) {
    for (const int tokens : {1, 16}) EXPECT_EQ(onHost(tokens, layout, 2048, 4, 1, Processors::shared), moeModeLl);
    EXPECT_EQ(onHost(256, layout, 2048, 4, 1, Processors::shared), moeModeHt);
    EXPECT_EQ(onHost(256, layout, kRowBytes, 4, 2, Processors::shared), onHost(256, layout, kRowBytes, 4, 2));
  }
  for (const Layout layout : {Layout::flat, Layout::rankMajor}) {
    EXPECT_EQ(onHost(128, layout, 2048, 4, 1, Processors::shared), moeModeHt);
  }
}

TEST(ModeChoice, WithoutASpareProcessorIsLowLatencyForOneSmallRow) {
  for (const Layout layout : {Layout::flat, Layout::rankMajor}) {
    EXPECT_EQ(onHost(1, layout, 2048, 2, 1, Processors::full), moeModeLl);
    for (const int tokens : {2, 16, 128}) EXPECT_EQ(onHost(tokens, layout, 2048, 2, 1, Processors::full), moeModeHt);
  }
}

TEST(ModeChoice, CountsTheProcessorsOfEachHost) {
  EXPECT_EQ(scarcer(Processors::spare, 4, 16), Processors::spare);
  EXPECT_EQ(scarcer(Processors::spare, 4, 4), Processors::full);
  EXPECT_EQ(scarcer(Processors::spare, 4, 2), Processors::shared);
  EXPECT_EQ(scarcer(Processors::shared, 4, 4), Processors::shared) << "another host has fewer";
  EXPECT_EQ(scarcer(Processors::full, 4, 0), Processors::full) << "not known";
}

TEST(ModeChoice, OfTheHostAcrossDomainsIsLowLatencyForFewBytes) {
  for (const Layout layout : kLayouts) {
    EXPECT_EQ(onHost(128, layout, 2048, 2, 2), moeModeLl);
    EXPECT_EQ(onHost(256, layout, kRowBytes, 2, 2), moeModeHt);
  }
}

TEST(ModeChoice, KeepsToTheBuffers) {
  for (const Layout layout : kLayouts) {
    EXPECT_EQ(onGpus(17, layout, kRowBytes, 4, 1, 16), moeModeHt);
    EXPECT_EQ(onGpus(16, layout, kRowBytes, 4, 1, 16), moeModeLl);
    EXPECT_EQ(onGpus(0, layout, kRowBytes, 4, 1, kBuffers), moeModeHt) << "as many as the communicator takes";
  }
}

TEST(ModeChoice, MoreTokensRowsOrRanksNeverLeadBackToLowLatency) {
  for (const Layout layout : kLayouts) {
    for (const int domains : {1, 4}) {
      const auto highThroughput = [&](int tokens, int rowBytes, int nranks) {
        return onGpus(tokens, layout, rowBytes, nranks, domains, kBuffers) == moeModeHt;
      };
      for (int tokens = 1; tokens < kBuffers; tokens = tokens * 3 / 2 + 1) {
        for (int rowBytes = 16; rowBytes <= 1 << 20; rowBytes *= 4) {
          for (int nranks = domains; nranks <= 1024; nranks *= 2) {
            if (!highThroughput(tokens, rowBytes, nranks)) continue;
            EXPECT_TRUE(highThroughput(tokens + 1, rowBytes, nranks));
            EXPECT_TRUE(highThroughput(tokens, rowBytes * 2, nranks));
            EXPECT_TRUE(highThroughput(tokens, rowBytes, nranks * 2));
          }
        }
      }
    }
  }
}

TEST(ModeChoice, BeyondTheExpertsOfATokenMoreRanksChangeNothing) {
  for (const int tokens : {1, 128, 200, 256, 300}) {
    EXPECT_EQ(onGpus(tokens, Layout::flat, 16384, 8, 1, kBuffers),
              onGpus(tokens, Layout::flat, 16384, 1024, 1, kBuffers));
  }
}

}  // namespace
}  // namespace moe::test
