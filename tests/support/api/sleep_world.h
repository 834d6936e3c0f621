// What the tests of moeCommSuspend and moeCommResume share.
#pragma once

#include "support/api/refusal_calls.h"

namespace moe::test {

// Ranks of one process share GPU memory by CUDA IPC, which cannot sleep: there a world has one rank.
class OnSleepers : public OnBackend {
 protected:
  int ranks(int wanted) const { return GetParam() == moeBackendCuda && startedRanks() == 0 ? 1 : wanted; }
};

inline void stepOnce(MoeStep& step, int iteration) {
  step.begin(iteration);
  step.finish();
}

inline void sleepOnce(RankContext& context) {
  MOE_EXPECT_OK(moeCommSuspend(context.comm), context);
  MOE_EXPECT_OK(moeCommResume(context.comm), context);
}

inline int deviceUsed(moeComm_t comm) {
  moeCommInfo_t info = MOE_COMM_INFO_INITIALIZER;
  EXPECT_EQ(moeCommGetInfo(comm, &info), moeSuccess);
  return info.device;
}
inline std::size_t windowBytesOf(moeComm_t comm) {
  moeCommInfo_t info = MOE_COMM_INFO_INITIALIZER;
  EXPECT_EQ(moeCommGetInfo(comm, &info), moeSuccess);
  return info.windowBytes;
}
inline moeHandleView_t viewOf(moeHandle_t handle) {
  moeHandleView_t view = MOE_HANDLE_VIEW_INITIALIZER;
  EXPECT_EQ(moeHandleGetView(handle, &view), moeSuccess);
  return view;
}

// A step whose experts return what they get, so that all of it can be captured.
class GraphStep {
 public:
  static constexpr int kHiddenWide = 256;

  GraphStep(RankContext& context, int mode, int layout) : context_(context) {
    moeHandleConfig_t shape = handleOf(mode, layout);
    shape.experts = kExperts;
    MOE_EXPECT_OK(moeHandleCreate(&handle_, context.comm, &shape), context);
    ids_ = static_cast<std::int32_t*>(context.arena.take(kTokens * kTopk * sizeof(std::int32_t)));
    rows_ = static_cast<float*>(context.arena.take(kTokens * kHiddenWide * sizeof(float)));
    arrived_ = static_cast<float*>(context.arena.take(std::size_t{kArrivedMax} * kHiddenWide * sizeof(float)));
    sums_ = static_cast<float*>(context.arena.take(kTokens * kHiddenWide * sizeof(float)));
    upload(0);
  }

  // Other ids and rows for each seed.
  void upload(int seed) {
    std::vector<std::int32_t> ids;
    std::vector<float> rows;
    for (int t = 0; t < kTokens; ++t) {
      const int first = (seed * 5 + t * 3 + context_.rank) % kExperts;
      ids.push_back(first);
      ids.push_back((first + 1 + (seed + t) % (kExperts - 1)) % kExperts);
      for (int i = 0; i < kHiddenWide; ++i) {
        rows.push_back(static_cast<float>((seed + 1) * (t * 7 + i) % 113 + context_.rank) / 3.0f);
      }
    }
    context_.arena.upload(ids_, ids.data(), ids.size() * sizeof ids[0]);
    context_.arena.upload(rows_, rows.data(), rows.size() * sizeof rows[0]);
  }

  void queue() {
    moeDispatchArgs_t dispatch = MOE_DISPATCH_ARGS_INITIALIZER;
    dispatch.rows = rows_;
    dispatch.rowType = moeRowFp32;
    dispatch.hidden = kHiddenWide;
    dispatch.outRows = arrived_;
    dispatch.outRowsMax = kArrivedMax;
    MOE_EXPECT_OK(moeRouteDispatch(handle_, ids_, nullptr, kTokens, &dispatch, context_.stream()), context_);
    moeCombineArgs_t combine = MOE_COMBINE_ARGS_INITIALIZER;
    combine.rows = arrived_;
    combine.rowType = moeRowFp32;
    combine.hidden = kHiddenWide;
    combine.out = sums_;
    MOE_EXPECT_OK(moeCombine(handle_, &combine, context_.stream()), context_);
  }
  void run() {
    queue();
    context_.arena.synchronize();
  }
  std::vector<float> sums() { return context_.arena.get(sums_, kTokens * kHiddenWide); }

 private:
  static constexpr int kExperts = 8, kArrivedMax = 1024;

  RankContext& context_;
  moeHandle_t handle_ = nullptr;
  std::int32_t* ids_ = nullptr;
  float *rows_ = nullptr, *arrived_ = nullptr, *sums_ = nullptr;
};

}  // namespace moe::test
