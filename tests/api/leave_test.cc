// A rank destroys its communicator, while others still need it and while they do not. Under moerun with three ranks,
// only the tests run whose ranks need not meet outside the library.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <latch>
#include <thread>

#include "support/api/api_world.h"

namespace moe::test {
namespace {

using Clock = std::chrono::steady_clock;

// No wait here reaches its timeout. One that did would exceed kSoon.
constexpr int kTimeoutMs = 60000;
constexpr double kSoon = 10.0;  // seconds, for a busy machine; an idle one takes some 30 ms
constexpr int kRanks = 3, kLeaverTokens = 4, kLeaverTopk = 2, kLeaverHidden = 64;

// One rank's handle and what its steps need.
class Member {
 public:
  using Join = std::function<moeResult_t(moeComm_t*, const moeConfig_t*)>;

  Member(int rank, moeConfig_t config, int mode, const Join& join) : rank_(rank) {
    if (config.backend == moeBackendCuda) config.device = rank % cudaDeviceCount();
    arena_ = config.backend == moeBackendCuda ? makeCudaArena(config.device) : makeHostArena();
    EXPECT_EQ(join(&comm_, &config), moeSuccess) << moeGetLastError(nullptr);
    moeHandleConfig_t shape = MOE_HANDLE_CONFIG_INITIALIZER;
    shape.experts = kRanks;
    shape.topk = kLeaverTopk;
    shape.mode = mode;
    shape.tokensMax = kLeaverTokens;
    EXPECT_EQ(moeHandleCreate(&handle_, comm_, &shape), moeSuccess) << error();
    std::vector<std::int32_t> experts;
    for (int t = 0; t < kLeaverTokens; ++t) {
      for (int k = 0; k < kLeaverTopk; ++k) experts.push_back((rank + t + k) % kRanks);
    }
    experts_ = arena_->put<std::int32_t>(experts);
    rows_ = arena_->put<float>(std::vector<float>(kLeaverTokens * kLeaverHidden, 1.0f));
    arrived_ = static_cast<float*>(arena_->take(kRanks * kLeaverTokens * kLeaverHidden * sizeof(float)));
    sums_ = static_cast<float*>(arena_->take(kLeaverTokens * kLeaverHidden * sizeof(float)));
  }
  ~Member() { destroy(); }

  moeResult_t route() { return ended(moeRoute(handle_, experts_, nullptr, kLeaverTokens, stream())); }
  moeResult_t dispatch() {
    moeDispatchArgs_t args = MOE_DISPATCH_ARGS_INITIALIZER;
    args.rows = rows_;
    args.rowType = moeRowFp32;
    args.hidden = kLeaverHidden;
    args.outRows = arrived_;
    args.outRowsMax = kRanks * kLeaverTokens;
    return ended(moeDispatch(handle_, &args, stream()));
  }
  moeResult_t combine(int flags = 0) {
    moeCombineArgs_t args = MOE_COMBINE_ARGS_INITIALIZER;
    args.flags = flags;
    args.rows = arrived_;
    args.rowType = moeRowFp32;
    args.hidden = kLeaverHidden;
    args.out = sums_;
    return ended(moeCombine(handle_, &args, stream()));
  }
  moeResult_t complete() { return ended(moeComplete(handle_, stream())); }
  void step() {
    EXPECT_EQ(route(), moeSuccess) << error();
    EXPECT_EQ(dispatch(), moeSuccess) << error();
    EXPECT_EQ(combine(), moeSuccess) << error();
  }
  moeResult_t failure() {
    moeResult_t result = moeSuccess;
    EXPECT_EQ(moeCommGetAsyncError(comm_, &result), moeSuccess);
    return result;
  }
  void destroy() { EXPECT_EQ(moeCommDestroy(std::exchange(comm_, nullptr)), moeSuccess); }

  int rank() const { return rank_; }
  std::string error() const { return moeGetLastError(comm_); }
  float sum(int i) { return arena_->get<float>(sums_, kLeaverTokens * kLeaverHidden)[static_cast<std::size_t>(i)]; }

 private:
  moeStream_t stream() { return arena_->stream(); }
  moeResult_t ended(moeResult_t called) {
    arena_->synchronize();
    return called != moeSuccess ? called : failure();
  }

  int rank_;
  std::unique_ptr<Arena> arena_;
  moeComm_t comm_ = nullptr;
  moeHandle_t handle_ = nullptr;
  std::int32_t* experts_ = nullptr;
  float *rows_ = nullptr, *arrived_ = nullptr, *sums_ = nullptr;
};

class Leave : public OnBackend {
 protected:
  moeConfig_t patient() const {
    moeConfig_t config = this->config();
    config.timeoutMs = kTimeoutMs;
    return config;
  }
};

void inRanks(const moeConfig_t& config, int mode, const std::function<void(Member&)>& body) {
  if (startedRanks() > 0) {
    Member member(std::atoi(std::getenv("MOECOMM_RANK")), config, mode, moeCommInitFromEnv);
    return body(member);
  }
  moeUniqueId_t id;
  ASSERT_EQ(moeGetUniqueId(&id), moeSuccess) << moeGetLastError(nullptr);
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      Member member(rank, config, mode,
                    [&](moeComm_t* comm, const moeConfig_t* own) { return moeCommInit(comm, kRanks, rank, &id, own); });
      body(member);
    });
  }
}

// Expects that a call fails soon because rank 1 has left, and that every later call fails with the same sentence.
void expectLeft(Member& member, moeResult_t called, Clock::time_point left) {
  EXPECT_EQ(called, moeRemoteError) << member.error();
  EXPECT_LT(std::chrono::duration<double>(Clock::now() - left).count(), kSoon);
  const std::string sentence = member.error();
  EXPECT_NE(sentence.find(": rank 1 has left and did not "), std::string::npos) << sentence;
  EXPECT_EQ(member.route(), moeRemoteError);
  EXPECT_EQ(member.error(), sentence);
}

// A leaving rank waits for all work of its GPU. That includes kernels of other ranks of this process, which wait for
// the leaving rank.
bool shareAGpu(int backend) {
  return backend == moeBackendCuda && startedRanks() == 0 && cudaDeviceCount() < kRanks;
}

// Rank 1 leaves after its part of the route. The data that the others need from it may still be on its way.
void leaveBeforeDispatch(const moeConfig_t& config, int mode, int stepsBefore) {
  inRanks(config, mode, [&](Member& member) {
    for (int i = 0; i < stepsBefore; ++i) member.step();
    EXPECT_EQ(member.route(), moeSuccess) << member.error();
    if (member.rank() == 1) return;
    expectLeft(member, member.dispatch(), Clock::now());
  });
}

TEST_P(Leave, OfARankThatOthersWaitForEndsTheirWaits) {
  if (shareAGpu(GetParam())) GTEST_SKIP() << "ranks are threads that share a GPU";
  leaveBeforeDispatch(patient(), moeModeHt, 0);
  leaveBeforeDispatch(patient(), moeModeLl, 0);
}

// After such combines, rank 1's window stays for a while, because other ranks may still read it.
TEST_P(Leave, AfterCombinesOfRowsThatLandedEndsTheWaitsOfOthersToo) {
  if (shareAGpu(GetParam())) GTEST_SKIP() << "ranks are threads that share a GPU";
  leaveBeforeDispatch(patient(), moeModeLl, 2);
}

TEST_P(Leave, OfARankOfAnotherDomainEndsTheWaitsForIt) {
  if (shareAGpu(GetParam())) GTEST_SKIP() << "ranks are threads that share a GPU";
  moeConfig_t config = patient();
  config.domainSize = 1;
  config.transport = std::getenv("MOECOMM_TRANSPORT") != nullptr ? 0 : moeTransportTcp;
  leaveBeforeDispatch(config, moeModeHt, 1);
  leaveBeforeDispatch(config, moeModeLl, 1);
}

// A wait that begins long after the rank has left ends just as soon.
TEST_P(Leave, IsToldToEveryLaterCallThatNeedsTheRank) {
  if (startedRanks() > 0) GTEST_SKIP() << "ranks meet by a latch of their process";
  std::latch gone(kRanks);
  inRanks(patient(), moeModeHt, [&](Member& member) {
    member.step();
    if (member.rank() == 1) member.destroy();
    gone.arrive_and_wait();
    if (member.rank() == 1) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    expectLeft(member, member.route(), Clock::now());
  });
}

// Ranks that need nothing more from the rank see no failure.
TEST_P(Leave, OfARankThatNobodyWaitsForIsNoFailure) {
  if (startedRanks() > 0) GTEST_SKIP() << "ranks meet by a latch of their process";
  for (const int mode : {moeModeHt, moeModeLl}) {
    std::latch gone(kRanks);
    inRanks(patient(), mode, [&](Member& member) {
      member.step();
      if (member.rank() == 1) member.destroy();
      gone.arrive_and_wait();
      if (member.rank() == 1) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      EXPECT_EQ(member.failure(), moeSuccess) << member.error();
      EXPECT_EQ(member.sum(0), 2.0f);
    });
  }
}

// A slow rank takes the rank's rows after the rank has left, and sees no failure.
TEST_P(Leave, OfARankThatHasDoneItsPartOfAStepLetsOthersEndIt) {
  if (startedRanks() > 0) GTEST_SKIP() << "ranks meet by a latch of their process";
  std::latch gone(kRanks);
  inRanks(patient(), moeModeLl, [&](Member& member) {
    EXPECT_EQ(member.route(), moeSuccess) << member.error();
    EXPECT_EQ(member.dispatch(), moeSuccess) << member.error();
    const bool slow = member.rank() == 2;
    EXPECT_EQ(member.combine(slow ? moeSendOnly : 0), moeSuccess) << member.error();
    if (member.rank() == 1) member.destroy();
    gone.arrive_and_wait();
    if (slow) {
      EXPECT_EQ(member.complete(), moeSuccess) << member.error();
    }
    if (member.rank() == 1) return;
    EXPECT_EQ(member.sum(0), 2.0f);
  });
}

MOE_INSTANTIATE_BACKENDS(Leave);

}  // namespace
}  // namespace moe::test
