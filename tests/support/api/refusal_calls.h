// A small world of right calls, whose arguments a test may spoil. Rank 0 has experts 0 and 1, rank 1 has 2 and 3.
#pragma once

#include <chrono>
#include <string>
#include <thread>

#include "support/api/moe_step.h"

namespace moe::test {
inline constexpr int kTokens = 8, kHidden = 8, kTopk = 2, kRowsMax = 64;
inline constexpr std::size_t kRowBytes = kHidden * 4;  // of fp32

inline ::testing::AssertionResult says(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "\"" << text << "\" does not say \"" << part << "\"";
}

// The ranks that moeCommGetPeerInfo says are lost.
inline std::vector<int> lostPeers(moeComm_t comm, int nranks) {
  std::vector<int> lost;
  for (int rank = 0; rank < nranks; ++rank) {
    moePeerInfo_t peer = MOE_PEER_INFO_INITIALIZER;
    EXPECT_EQ(moeCommGetPeerInfo(comm, rank, &peer), moeSuccess);
    if (peer.lost != 0) lost.push_back(rank);
  }
  return lost;
}

inline moeHandleConfig_t handleOf(int mode, int layout) {
  moeHandleConfig_t config = MOE_HANDLE_CONFIG_INITIALIZER;
  config.experts = 4;
  config.topk = kTopk;
  config.mode = mode;
  config.layout = layout;
  config.tokensMax = 8;
  return config;
}

// A handle, and right calls whose arguments a test may spoil.
class Calls {
 public:
  Calls(RankContext& context, const moeHandleConfig_t& config) : context_(context) {
    EXPECT_EQ(moeHandleCreate(&handle_, context.comm, &config), moeSuccess) << context.error();
    for (int t = 0; t < kTokens; ++t) {  // a token goes to one expert on each rank
      ids_.push_back(t % 2);
      ids_.push_back(2 + t % 2);
    }
    rows_ = take(kTokens * kRowBytes);
    arrived_ = take(kRowsMax * kRowBytes);
    out_ = take(kTokens * kRowBytes);
    side_ = take(kTokens * 16);
    outSide_ = take(kRowsMax * 16);
    grads_ = static_cast<float*>(take(kRowsMax * kTopk * 4)),
    outGrads_ = static_cast<float*>(take(kTokens * kTopk * 4));
    const std::vector<float> ones(kTokens * kHidden, 1.0f), more(kRowsMax * kTopk, 0.5f);
    context.arena.upload(rows_, ones.data(), ones.size() * 4);
    context.arena.upload(grads_, more.data(), more.size() * 4);
    idsThere_ = context.arena.put<std::int32_t>(ids_);
  }

  void* take(std::size_t bytes) { return context_.arena.take(bytes); }
  moeHandle_t handle() const { return handle_; }
  void* arrived() const { return arrived_; }
  void* out() const { return out_; }
  float* grads() const { return grads_; }
  float* outGrads() const { return outGrads_; }
  void* sideIn() const { return side_; }
  void* sideOut() const { return outSide_; }

  moeResult_t route(int tokens = kTokens) {
    return moeRoute(handle_, tokens > 0 ? idsThere_ : nullptr, nullptr, tokens, context_.stream());
  }
  DispatchFields dispatchArgs() const {
    DispatchFields args;
    args.rows = rows_;
    args.rowType = moeRowFp32;
    args.hidden = kHidden;
    args.outRows = arrived_;
    args.outRowsMax = kRowsMax;
    return args;
  }
  CombineFields combineArgs() const {
    CombineFields args;
    args.rows = arrived_;
    args.rowType = moeRowFp32;
    args.hidden = kHidden;
    args.out = out_;
    return args;
  }
  // The same with ids that the test passes.
  moeResult_t routeBy(const std::vector<std::int32_t>& ids) {
    return moeRoute(handle_, context_.arena.put<std::int32_t>(ids), nullptr, kTokens, context_.stream());
  }
  const std::vector<std::int32_t>& ids() const { return ids_; }
  moeResult_t routeDispatch(DispatchFields args, int tokens = kTokens) {
    return moeRouteDispatch(handle_, idsThere_, nullptr, tokens, args.linked(), context_.stream());
  }
  moeResult_t dispatch(DispatchFields args) { return moeDispatch(handle_, args.linked(), context_.stream()); }
  moeResult_t combine(CombineFields args) { return moeCombine(handle_, args.linked(), context_.stream()); }

  // A correct route and dispatch on all ranks, so that the combine is next.
  void untilCombine() {
    context_.meet();
    MOE_EXPECT_OK(route(), context_);
    MOE_EXPECT_OK(dispatch(dispatchArgs()), context_);
    context_.arena.synchronize();
    context_.meet();
  }

  // A correct dispatch and combine. Every token's ones come back from two experts.
  void roundTrip(float sum = 2.0f) {
    MOE_EXPECT_OK(dispatch(dispatchArgs()), context_);
    MOE_EXPECT_OK(combine(combineArgs()), context_);
    expectSums(sum);
  }
  void expectSums(float sum) {
    for (float value : context_.arena.get(static_cast<float*>(out_), kTokens * kHidden)) ASSERT_EQ(value, sum);
  }
  // A correct step, which ends an earlier fault.
  void wholeStep() {
    MOE_EXPECT_OK(route(), context_);
    roundTrip();
    expectStatus(moeSuccess, "");
  }
  // Expects this status of the handle, for the host and for kernels, and that the communicator is good.
  void expectStatus(moeResult_t result, const std::string& sentence) {
    context_.arena.synchronize();
    moeHandleStatus_t status = MOE_HANDLE_STATUS_INITIALIZER;
    MOE_EXPECT_OK(moeHandleGetStatus(handle_, &status), context_);
    EXPECT_EQ(status.result, result) << status.sentence;
    EXPECT_EQ(status.rank < 0, result == moeSuccess);
    EXPECT_TRUE(says(status.sentence, sentence));
    moeDeviceCounts_t counts = MOE_DEVICE_COUNTS_INITIALIZER;
    MOE_EXPECT_OK(moeHandleGetDeviceCounts(handle_, &counts), context_);
    EXPECT_EQ(context_.arena.get(counts.fault, 1)[0], static_cast<std::uint32_t>(result));
    moeResult_t failure = moeInternalError;
    EXPECT_EQ(moeCommGetAsyncError(context_.comm, &failure), moeSuccess);
    EXPECT_EQ(failure, moeSuccess) << context_.error();
  }

 private:
  RankContext& context_;
  moeHandle_t handle_ = nullptr;
  std::vector<std::int32_t> ids_;
  const std::int32_t* idsThere_ = nullptr;
  void *rows_, *arrived_, *out_, *side_, *outSide_;
  float *grads_, *outGrads_;
};

class Refusal : public OnBackend {
 protected:
  // The configuration of a small world. `stagingRows`, if given, makes the staging area just large enough for them.
  moeConfig_t small(std::int64_t stagingRows = 0) const {
    moeConfig_t wide = config();
    wide.stagingRows = stagingRows;
    return wide;
  }
  // Expects that every rank gets this failure and sentence.
  static void expectFailure(RankContext& context, moeResult_t result, const std::string& sentence) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    moeResult_t error = moeSuccess;
    while (error == moeSuccess && std::chrono::steady_clock::now() < end) {
      moeCommGetAsyncError(context.comm, &error);
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    EXPECT_EQ(error, result) << context.error();
    EXPECT_TRUE(says(context.error(), sentence));
  }
  template <class Body>
  static void inEveryLayout(Body body) {
    for (int mode : {moeModeHt, moeModeLl}) {
      for (int layout : {moeLayoutFlat, moeLayoutExpertMajor, moeLayoutExpertMajorPadded, moeLayoutRankMajor}) {
        SCOPED_TRACE(std::string(mode == moeModeHt ? "HT" : "LL") + " layout " + std::to_string(layout));
        body(handleOf(mode, layout));
      }
    }
  }
};

}  // namespace moe::test
