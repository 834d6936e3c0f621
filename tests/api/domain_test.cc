// Whole steps across domains. The tests cut one machine into several domains, whose ranks reach each other over sockets
// or over the transport that MOECOMM_TRANSPORT names. Under moerun, a test leaves out or skips the cases that need
// another number of ranks.
#include <algorithm>
#include <cstdlib>
#include <string>

#include "support/api/moe_step.h"

namespace moe::test {
namespace {

class Domains : public OnBackend {
 protected:
  moeConfig_t cut(int domainSize) const {
    moeConfig_t config = this->config();
    config.domainSize = domainSize;
    config.transport = std::getenv("MOECOMM_TRANSPORT") != nullptr ? 0 : moeTransportTcp;
    return config;
  }
};

bool canHave(int nranks) {
  return startedRanks() == 0 || startedRanks() == nranks;
}

StepCase randomCase(Rng& rng, int mode) {
  StepCase c;
  c.describes = true;
  c.mode = mode;
  c.layout = rng.between(moeLayoutFlat, moeLayoutRankMajor);
  c.rowType = rng.between(moeRowBf16, moeRowFp32);
  c.hidden = 8 * rng.between(1, 24);
  c.experts = rng.between(1, 40);
  c.topk = rng.between(1, 8);
  c.tokensMax = rng.between(1, 12);
  c.sideBytes = 16 * rng.below(3);
  c.window = rng.coin();
  c.weighted = (c.layout == moeLayoutExpertMajor || c.layout == moeLayoutExpertMajorPadded) && rng.coin();
  c.biases = rng.below(3);
  c.weightGrads = rng.coin();
  c.seed = rng.next();
  c.lateWeights = c.weighted && c.seed % 2 == 0;
  if (c.seed % 3 == 0) {
    c.cast = static_cast<int>(1 + c.seed / 3 % moeCastNvfp4);
    c.hidden = 128;
    c.exact = rng.coin();
  }
  if (c.cast != moeCastNone && rng.coin()) c.scales = moeScalesTokenContiguous;
  if (c.cast == moeCastFp8Ue8m0 || c.cast > moeCastFp8Pow2) c.scales = rng.below(3);
  c.placed = c.seed % 5 < 2;
  return c;
}

// A token's experts lie in few domains, as they do where routing is limited to some groups of experts.
void limitToDomains(StepCase& c, int domains, Rng& rng) {
  c.placed = false;  // groups of experts are on the ranks of their numbers
  c.groups = std::min(c.experts, domains);
  c.groupsPerToken = rng.between(1, std::max(c.groups - 1, 1));
}

void runStep(MoeStep& step, int iteration) {
  step.prepare(iteration);
  step.route();
  step.dispatch();
  step.finish();
}

// Several handles on one communicator, one step after the other. Both modes run with free routing and with routing that
// is limited to some domains.
void runCases(int nranks, const moeConfig_t& config, int cases, std::uint64_t seed) {
  world(nranks, config, [&](RankContext& context) {
    Rng rng(seed);
    for (int i = 0; i < cases; ++i) {
      StepCase c = randomCase(rng, i % 2 == 0 ? moeModeHt : moeModeLl);
      if (i / 2 % 2 != 0) limitToDomains(c, context.nranks / context.domainSize(), rng);
      SCOPED_TRACE(c.name());
      MoeStep step(context, c);
      for (int iteration = 0; iteration < 3; ++iteration) runStep(step, iteration);
    }
  });
}

TEST_P(Domains, OfEverySizeAreRight) {
  for (const auto& [nranks, domainSize] : {std::pair{2, 1}, {4, 2}, {4, 1}, {6, 2}, {6, 3}, {8, 4}}) {
    if (!canHave(nranks)) continue;
    SCOPED_TRACE(std::to_string(nranks) + " ranks in domains of " + std::to_string(domainSize));
    runCases(nranks, cut(domainSize), 8, static_cast<std::uint64_t>(nranks * 16 + domainSize));
  }
}

// Ranks that share a GPU wait in kernels for each other's kernels and copies. Work queued behind a waiting kernel in
// the same hardware queue does not run, so each stream needs a queue of its own. A rank has one stream for its steps
// and some for the copies of TCP. A device has at most 32 queues (CUDA_DEVICE_MAX_CONNECTIONS).
constexpr int kRanksPerGpu = 8;

TEST_P(Domains, OfManyRanksAreRight) {
  const int nranks = GetParam() == moeBackendCuda ? std::min(16, kRanksPerGpu * cudaDeviceCount()) : 16;
  if (!canHave(nranks)) GTEST_SKIP() << "moerun has started another number of ranks";
  for (int domainSize : {nranks / 2, 1}) {
    SCOPED_TRACE(domainSize);
    runCases(nranks, cut(domainSize), 4, 5);
  }
}

// Forwarding belongs to the sending phase: the second dispatch starts only after the first one's rows were forwarded.
TEST_P(Domains, SplitPhasesOfTwoHandlesMayBeInterleaved) {
  if (!canHave(4)) GTEST_SKIP() << "moerun has started another number of ranks";
  for (int mode : {moeModeHt, moeModeLl}) {
    world(4, cut(2), [&](RankContext& context) {
      StepCase a, b;
      a.mode = b.mode = mode;
      b.layout = moeLayoutExpertMajor;
      b.seed = 99;
      MoeStep first(context, a), second(context, b);
      for (int i = 0; i < 4; ++i) {
        for (MoeStep* step : {&first, &second}) {
          step->prepare(i);
          step->route();
          step->dispatch(moeSendOnly);
        }
        for (MoeStep* step : {&first, &second}) {
          step->complete();
          step->checkDispatch();
          step->runExperts();
          step->combine();
          step->checkCombine();
        }
      }
    });
  }
}

TEST_P(Domains, DescribeThemselves) {
  if (!canHave(6)) GTEST_SKIP() << "moerun has started another number of ranks";
  world(6, cut(2), [](RankContext& context) {
    moeCommInfo_t info = MOE_COMM_INFO_INITIALIZER;
    MOE_ASSERT_OK(moeCommGetInfo(context.comm, &info), context);
    EXPECT_EQ(info.domainCount, 3);
    EXPECT_EQ(info.domainSize, 2);
    EXPECT_EQ(info.domain, context.rank / 2);
    EXPECT_EQ(info.domainRank, context.rank % 2);
    for (int peer = 0; peer < 6; ++peer) {
      moePeerInfo_t other = MOE_PEER_INFO_INITIALIZER;
      MOE_ASSERT_OK(moeCommGetPeerInfo(context.comm, peer, &other), context);
      EXPECT_EQ(other.domain, peer / 2);
      EXPECT_EQ(other.transport == moeTransportTcp, peer / 2 != context.rank / 2);
    }
  });
}

TEST_P(Domains, OfASizeThatDoesNotDivideTheRanksAreRefused) {
  moeConfig_t config = cut(3);
  moeUniqueId_t id;
  ASSERT_EQ(moeGetUniqueId(&id), moeSuccess);
  moeComm_t comm = nullptr;
  EXPECT_EQ(moeCommInit(&comm, 4, 0, &id, &config), moeInvalidArgument);
  EXPECT_STREQ(moeGetLastError(nullptr), "config.domainSize is 3, which does not divide the 4 ranks");
  EXPECT_EQ(comm, nullptr);
}

MOE_INSTANTIATE_BACKENDS(Domains);

}  // namespace
}  // namespace moe::test
