// The host backend with several threads per rank, and with each build of its steps, through the C API.
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <thread>

#include "support/api/moe_step.h"
#include "support/base/variable.h"

namespace moe::test {
namespace {

// Large enough that most dispatches and combines use several threads.
moeConfig_t largeConfig() {
  moeConfig_t config = testConfig(moeBackendHost);
  config.tokensMax = config.llTokensMax = 600;
  config.rowBytesMax = 8192;
  config.heapBytes = 16 << 20;
  return config;
}

void runOnThreads(int nranks, const moeConfig_t& config, const StepCase& c, int iterations) {
  world(nranks, config, [&](RankContext& context) {
    MoeStep step(context, c);
    for (int i = 0; i < iterations; ++i) {
      const int flags = i % 2 == 0 ? 0 : moeSendOnly;
      step.prepare(i);
      step.route();
      step.dispatch(flags);
      if (flags != 0) step.complete();
      step.checkDispatch();
      step.runExperts();
      step.combine(flags);
      if (flags != 0) step.complete();
      step.checkCombine();
    }
  });
}

long threadsNow() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return std::distance(begin(tasks), end(tasks));
}

StepCase largeCase(int mode, int layout) {
  StepCase c;
  c.mode = mode;
  c.layout = layout;
  c.hidden = 1024;
  c.tokensMax = 600;
  c.experts = 4;
  c.weighted = layout == moeLayoutExpertMajor;
  c.weightGrads = true;
  c.biases = 1;
  c.seed = static_cast<std::uint64_t>(17 * mode + layout);
  return c;
}

TEST(HostThreads, ShareTheWorkOfARank) {
  const Variable threads("MOECOMM_HOST_THREADS", "3");
  for (const int mode : {moeModeHt, moeModeLl}) {
    for (const int layout : {moeLayoutFlat, moeLayoutExpertMajor}) {
      runOnThreads(2, largeConfig(), largeCase(mode, layout), 2);
    }
  }
}

// The number of threads of this process at the end of a step of one rank.
long threadsWith(const char* number) {
  const Variable threads("MOECOMM_HOST_THREADS", number);
  long count = 0;
  world(1, largeConfig(), [&](RankContext& context) {
    StepCase c = largeCase(moeModeHt, moeLayoutFlat);
    c.hidden = 4096;
    MoeStep step(context, c);
    int iteration = 0;
    do step.prepare(iteration++);
    while (step.reference().inputs[0].tokens < 300);  // rows of 8 KiB each: enough work for four threads
    step.route();
    step.dispatch();
    step.checkDispatch();
    count = threadsNow();
  });
  return count;
}

TEST(HostThreads, AreAsManyAsAskedForAndEndWithTheirCommunicator) {
  if (startedRanks() > 0) GTEST_SKIP() << "ranks are threads in this test";
  EXPECT_GE(threadsWith("4"), threadsWith("1") + 2);  // three more; the rendezvous thread may have ended meanwhile
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (threadsNow() > 1 + 1 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  EXPECT_LE(threadsNow(), 2) << "this one, and at most the rendezvous";
}

TEST(HostSimd, IsRefusedWhereTheProcessorHasNone) {
  for (const char* simd : {"none", "avx2", "avx512"}) {
    const Variable variable("MOECOMM_HOST_SIMD", simd);
    moeUniqueId_t id;
    ASSERT_EQ(moeGetUniqueId(&id), moeSuccess);
    const moeConfig_t config = testConfig(moeBackendHost);
    moeComm_t comm = nullptr;
    const moeResult_t result = moeCommInit(&comm, 1, 0, &id, &config);
    if (result == moeUnsupported) {
      EXPECT_NE(std::string(moeGetLastError(nullptr))
                    .find(std::string("MOECOMM_HOST_SIMD is ") + simd +
                          ", but this processor, or this build of the library, has "
                          "no such instructions"),
                std::string::npos)
          << moeGetLastError(nullptr);
      EXPECT_STRNE(simd, "none");
    } else {
      EXPECT_EQ(result, moeSuccess) << moeGetLastError(nullptr);
    }
    moeCommDestroy(comm);
  }
}

}  // namespace
}  // namespace moe::test
