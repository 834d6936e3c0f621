// What a call with a wrong argument leads to: a sentence that names the argument, and, where the host can see it,
// nothing else; the next right call works. What only the step can see all ranks hear. Ranks of a small world: experts 0
// and 1 are on rank 0, 2 and 3 on rank 1.
#include <cstring>
#include <numeric>
#include <thread>

#include "support/moe_step.h"

namespace moe::test {
namespace {

constexpr int kTokens = 8, kHidden = 8, kTopk = 2, kRowsMax = 64;
constexpr std::size_t kRowBytes = kHidden * 4;  // of fp32

::testing::AssertionResult says(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "\"" << text << "\" does not say \"" << part << "\"";
}

moeHandleConfig_t handleOf(int mode, int layout) {
  moeHandleConfig_t config = MOE_HANDLE_CONFIG_INITIALIZER;
  config.experts = 4, config.topk = kTopk, config.mode = mode, config.layout = layout, config.tokensMax = 8;
  return config;
}

// A handle, and calls that are right until a test spoils an argument.
class Calls {
 public:
  Calls(RankContext& context, const moeHandleConfig_t& config) : context_(context), config_(config) {
    EXPECT_EQ(moeHandleCreate(&handle_, context.comm, &config), moeSuccess) << context.error();
    for (int t = 0; t < kTokens; ++t) {  // a token goes to one expert here and one there
      ids_.push_back(t % 2);
      ids_.push_back(2 + t % 2);
    }
    rows_ = take(kTokens * kRowBytes), arrived_ = take(kRowsMax * kRowBytes), out_ = take(kTokens * kRowBytes);
    side_ = take(kTokens * 16), outSide_ = take(kRowsMax * 16);
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
  moeDispatchArgs_t dispatchArgs() const {
    moeDispatchArgs_t args = MOE_DISPATCH_ARGS_INITIALIZER;
    args.rows = rows_, args.rowType = moeRowFp32, args.hidden = kHidden;
    args.outRows = arrived_, args.outRowsMax = kRowsMax;
    return args;
  }
  moeCombineArgs_t combineArgs() const {
    moeCombineArgs_t args = MOE_COMBINE_ARGS_INITIALIZER;
    args.rows = arrived_, args.rowType = moeRowFp32, args.hidden = kHidden, args.out = out_;
    return args;
  }
  moeResult_t dispatch(const moeDispatchArgs_t& args) { return moeDispatch(handle_, &args, context_.stream()); }
  moeResult_t combine(const moeCombineArgs_t& args) { return moeCombine(handle_, &args, context_.stream()); }

  // A dispatch and a combine without fault; every token's ones come back from two experts.
  void roundTrip() {
    MOE_EXPECT_OK(dispatch(dispatchArgs()), context_);
    MOE_EXPECT_OK(combine(combineArgs()), context_);
    for (float value : context_.arena.get(static_cast<float*>(out_), kTokens * kHidden)) ASSERT_EQ(value, 2.0f);
  }

 private:
  RankContext& context_;
  moeHandleConfig_t config_;
  moeHandle_t handle_ = nullptr;
  std::vector<std::int32_t> ids_;
  const std::int32_t* idsThere_ = nullptr;
  void *rows_, *arrived_, *out_, *side_, *outSide_;
  float *grads_, *outGrads_;
};

class Refusal : public OnBackend {
 protected:
  // A small world whose staging area is just large enough, if it is given.
  moeConfig_t small(std::int64_t stagingRows = 0) const {
    moeConfig_t wide = config();
    wide.stagingRows = stagingRows;
    return wide;
  }
  // What every rank hears: the failure and its sentence.
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

TEST_P(Refusal, RowsOfACombineThatAreNull) {
  for (bool everywhere : {false, true}) {
    inEveryLayout([&](const moeHandleConfig_t& shape) {
      world(2, small(), [&](RankContext& context) {
        Calls calls(context, shape);
        context.meet();
        MOE_EXPECT_OK(calls.route(), context);
        MOE_EXPECT_OK(calls.dispatch(calls.dispatchArgs()), context);
        context.arena.synchronize();
        context.meet();
        moeCombineArgs_t args = calls.combineArgs();
        if (everywhere || context.rank == 1) args.rows = nullptr;
        calls.combine(args);
        expectFailure(context, moeInvalidArgument,
                      everywhere ? "moeCombine: args.rows of rank " : "args.rows of rank 1 is NULL or has no room");
      });
    });
  }
}

TEST_P(Refusal, RowsOfACombineInABlockThatIsTooSmall) {
  for (int layout : {moeLayoutFlat, moeLayoutRankMajor, moeLayoutExpertMajor}) {
    world(2, small(), [&](RankContext& context) {
      Calls calls(context, handleOf(moeModeHt, layout));
      void* block = nullptr;
      MOE_ASSERT_OK(moeMemAlloc(context.comm, 3 * kRowBytes, &block), context);
      context.meet();
      MOE_EXPECT_OK(calls.route(), context);
      MOE_EXPECT_OK(calls.dispatch(calls.dispatchArgs()), context);
      context.arena.synchronize();
      context.meet();
      moeCombineArgs_t args = calls.combineArgs();
      if (context.rank == 0) args.rows = block;
      calls.combine(args);
      // Blocks have whole units of 256 bytes; a row has 32.
      expectFailure(context, moeInvalidArgument,
                    layout == moeLayoutFlat ? "args.rows of rank 0 has room for" : "moeCombine: args.rows of rank 0");
    });
  }
}

TEST_P(Refusal, RowTypesThatDiffer) {
  inEveryLayout([&](const moeHandleConfig_t& shape) {
    world(2, small(), [&](RankContext& context) {
      Calls calls(context, shape);
      context.meet();
      MOE_EXPECT_OK(calls.route(), context);
      MOE_EXPECT_OK(calls.dispatch(calls.dispatchArgs()), context);
      context.arena.synchronize();
      context.meet();
      moeCombineArgs_t args = calls.combineArgs();
      args.rowType = context.rank == 0 ? moeRowBf16 : moeRowFp16;
      calls.combine(args);
      expectFailure(context, moeInvalidUsage,
                    "moeCombine: ranks disagree: args.rowType is bf16 on rank 0 and fp16 on rank 1");
    });
  });
}

TEST_P(Refusal, GradientsOnSomeRanksOnly) {
  inEveryLayout([&](const moeHandleConfig_t& shape) {
    world(2, small(), [&](RankContext& context) {
      Calls calls(context, shape);
      context.meet();
      MOE_EXPECT_OK(calls.route(), context);
      MOE_EXPECT_OK(calls.dispatch(calls.dispatchArgs()), context);
      context.arena.synchronize();
      context.meet();
      moeCombineArgs_t args = calls.combineArgs();
      if (context.rank == 1) args.weightGrads = calls.grads(), args.outWeightGrads = calls.outGrads();
      calls.combine(args);
      expectFailure(context, moeInvalidUsage,
                    "gradients of the weights (moeCombineGrads) is without on rank 0 and with on rank 1");
    });
  });
}

TEST_P(Refusal, GradientsThatAreHalfThere) {
  inEveryLayout([&](const moeHandleConfig_t& shape) {
    world(2, small(), [&](RankContext& context) {
      Calls calls(context, shape);
      context.meet();
      MOE_EXPECT_OK(calls.route(), context);
      MOE_EXPECT_OK(calls.dispatch(calls.dispatchArgs()), context);
      moeCombineArgs_t args = calls.combineArgs();
      args.weightGrads = calls.grads();
      EXPECT_EQ(calls.combine(args), moeInvalidArgument);
      EXPECT_TRUE(says(context.error(), "args.outWeightGrads is NULL with 8 tokens routed, but args.weightGrads is"));
      args.weightGrads = nullptr, args.flags = moeCombineGrads;
      EXPECT_EQ(calls.combine(args), moeInvalidArgument);
      EXPECT_TRUE(says(context.error(), "args.outWeightGrads is NULL with 8 tokens routed, but args.flags has"));
      calls.roundTrip();
      context.arena.synchronize();
      context.meet();
      args.flags = 0, args.outWeightGrads = calls.outGrads();
      if (context.rank == 1) args.weightGrads = calls.grads();
      calls.combine(args);
      expectFailure(context, moeInvalidArgument, "args.weightGrads of rank 0 is NULL, but");
    });
  });
}

// Rank 1 routes nothing, and nothing goes to rank 0: neither has all arrays.
TEST_P(Refusal, GradientsOfRanksWithoutRowsOrTokensAreRight) {
  inEveryLayout([&](const moeHandleConfig_t& shape) {
    world(3, small(), [&](RankContext& context) {
      moeHandleConfig_t wide = shape;
      wide.experts = 6;
      Calls calls(context, wide);
      const std::vector<std::int32_t> ids = {2, 3, 3, 2};  // rank 0's two tokens go to rank 1
      const auto* there = context.arena.put<std::int32_t>(ids);
      const int tokens = context.rank == 0 ? 2 : 0;
      context.meet();
      MOE_EXPECT_OK(moeRoute(calls.handle(), tokens > 0 ? there : nullptr, nullptr, tokens, context.stream()), context);
      moeDispatchArgs_t dispatch = calls.dispatchArgs();
      MOE_EXPECT_OK(calls.dispatch(dispatch), context);
      moeCombineArgs_t args = calls.combineArgs();
      if (context.rank != 1) args.rows = nullptr;
      if (context.rank == 0) args.outWeightGrads = calls.outGrads();
      if (context.rank == 1) args.weightGrads = calls.grads();
      if (context.rank == 2) args.flags = moeCombineGrads;
      MOE_EXPECT_OK(calls.combine(args), context);
      context.arena.synchronize();
      MOE_EXPECT_OK(moeRoute(calls.handle(), nullptr, nullptr, 0, context.stream()), context);
      if (context.rank != 0) return;
      for (float grad : context.arena.get(calls.outGrads(), 4)) EXPECT_EQ(grad, 0.5f);
    });
  });
}

TEST_P(Refusal, StagingAreasThatAreTooSmallAreCalledSo) {
  world(2, small(2), [&](RankContext& context) {
    Calls calls(context, handleOf(moeModeHt, moeLayoutFlat));
    context.meet();
    MOE_EXPECT_OK(calls.route(), context);
    context.arena.synchronize();
    context.meet();
    calls.dispatch(calls.dispatchArgs());
    expectFailure(context, moeInvalidArgument, "is 2, but 16 rows arrive for its output outside the window");
    EXPECT_TRUE(says(context.error(), "moeDispatch: config.stagingRows of rank "));
  });
  world(2, small(2), [&](RankContext& context) {
    Calls calls(context, handleOf(moeModeHt, moeLayoutFlat));
    void* window = nullptr;
    MOE_ASSERT_OK(moeMemAlloc(context.comm, kRowsMax * kRowBytes, &window), context);
    context.meet();
    MOE_EXPECT_OK(calls.route(), context);
    moeDispatchArgs_t args = calls.dispatchArgs();
    args.outRows = window;
    MOE_EXPECT_OK(calls.dispatch(args), context);
    context.arena.synchronize();
    context.meet();
    calls.combine(calls.combineArgs());
    expectFailure(context, moeInvalidArgument, "is 2, but 16 rows had arrived there");
  });
}

TEST_P(Refusal, HandlesThatDifferAreNamedByTheField) {
  struct Difference {
    const char* sentence;
    std::int32_t moeHandleConfig_t::*field;
    std::int32_t value;
  };
  const Difference all[] = {
      {"config.experts is 4 on rank 0 and 6 on rank 1", &moeHandleConfig_t::experts, 6},
      {"config.topk is 2 on rank 0 and 1 on rank 1", &moeHandleConfig_t::topk, 1},
      {"config.layout is FLAT on rank 0 and RANK_MAJOR on rank 1", &moeHandleConfig_t::layout, moeLayoutRankMajor},
      {"config.mode is HT on rank 0 and LL on rank 1", &moeHandleConfig_t::mode, moeModeLl},
      {"config.tokensMax is 8 on rank 0 and 7 on rank 1", &moeHandleConfig_t::tokensMax, 7},
      {"config.expertAlignment is 1 on rank 0 and 4 on rank 1", &moeHandleConfig_t::expertAlignment, 4}};
  for (const Difference& difference : all) {
    world(2, small(), [&](RankContext& context) {
      moeHandleConfig_t shape = handleOf(moeModeHt, moeLayoutFlat);
      if (context.rank == 1) shape.*difference.field = difference.value;
      moeHandle_t handle = nullptr;
      MOE_ASSERT_OK(moeHandleCreate(&handle, context.comm, &shape), context);
      context.meet();
      moeRoute(handle, nullptr, nullptr, 0, context.stream());
      expectFailure(context, moeInvalidUsage, std::string("moeRoute: ranks disagree: ") + difference.sentence);
    });
  }
}

TEST_P(Refusal, DispatchesThatDifferAreNamedByTheField) {
  for (int mode : {moeModeHt, moeModeLl}) {
    const auto differs = [&](const char* sentence, const auto& spoil) {
      moeConfig_t wide = small();
      wide.sideBytesMax = 64, wide.rowBytesMax = 1024;
      world(2, wide, [&](RankContext& context) {
        Calls calls(context, handleOf(mode, moeLayoutFlat));
        context.meet();
        MOE_EXPECT_OK(calls.route(), context);
        context.arena.synchronize();
        context.meet();
        moeDispatchArgs_t args = calls.dispatchArgs();
        if (context.rank == 1) spoil(args, calls);
        calls.dispatch(args);
        expectFailure(context, moeInvalidUsage, std::string("moeDispatch: ranks disagree: ") + sentence);
      });
    };
    differs("args.hidden is 8 on rank 0 and 4 on rank 1", [](auto& args, Calls&) { args.hidden = 4; });
    differs("args.rowType is fp32 on rank 0 and bf16 on rank 1", [](auto& args, Calls&) { args.rowType = moeRowBf16; });
    differs("args.sideBytes is 0 on rank 0 and 16 on rank 1", [](auto& args, Calls& calls) {
      args.side = calls.sideIn(), args.sideBytes = 16, args.outSide = calls.sideOut();
    });
  }
}

// What the host sees: each call is refused, and the next one works.
TEST_P(Refusal, WhatTheHostSeesIsRefusedAndTheCommunicatorGoesOn) {
  inEveryLayout([&](const moeHandleConfig_t& shape) {
    moeConfig_t wide = small();
    wide.sideBytesMax = 64;
    world(2, wide, [&](RankContext& context) {
      Calls calls(context, shape);
      const bool perExpert = shape.layout == moeLayoutExpertMajor || shape.layout == moeLayoutExpertMajorPadded;
      auto* bytes = static_cast<std::uint8_t*>(calls.take(4096));
      const auto refusesRoute = [&](const void* ids, const void* weights, const char* sentence) {
        EXPECT_EQ(moeRoute(calls.handle(), ids, static_cast<const float*>(weights), 1, context.stream()),
                  moeInvalidArgument);
        EXPECT_TRUE(says(context.error(), sentence));
      };
      context.meet();
      refusesRoute(bytes + 2, nullptr, "topkIdx is ");
      refusesRoute(bytes, bytes + 2, "topkWeights is ");
      EXPECT_TRUE(says(context.error(), "not aligned to 4 bytes"));
      MOE_EXPECT_OK(calls.route(), context);
      const auto refuses = [&](const char* sentence, const auto& spoil) {
        moeDispatchArgs_t args = calls.dispatchArgs();
        spoil(args);
        EXPECT_EQ(calls.dispatch(args), moeInvalidArgument) << sentence;
        EXPECT_TRUE(says(context.error(), sentence));
      };
      refuses("args.side is ", [&](auto& args) { args.side = bytes; });
      EXPECT_TRUE(says(context.error(), "but args.sideBytes is 0"));
      refuses("args.outSide is ", [&](auto& args) { args.outSide = bytes; });
      refuses("args.reserved is 5", [&](auto& args) { args.reserved = 5; });
      refuses("args.flags is 8, must be made of moeSendOnly and moeCastExact", [](auto& args) { args.flags = 8; });
      refuses("args.flags has moeCastExact, but args.cast is none", [](auto& args) { args.flags = moeCastExact; });
      refuses("args.outTopkWeights is ",
              [&](auto& args) { args.outTopkWeights = reinterpret_cast<float*>(bytes + 1); });
      refuses("args.outSourceIndex is ",
              [&](auto& args) { args.outSourceIndex = reinterpret_cast<std::int32_t*>(bytes + 2); });
      refuses("args.outRows (", [&](auto& args) { args.outRows = const_cast<void*>(args.rows); });
      EXPECT_TRUE(says(context.error(), "overlaps args.rows ("));
      refuses("args.outSourceIndex (",
              [&](auto& args) { args.outSourceIndex = static_cast<std::int32_t*>(calls.arrived()) + 8; });
      EXPECT_TRUE(says(context.error(), "overlaps args.outRows ("));
      refuses("args.outRowsMax is -1, must be 0 or more", [](auto& args) { args.outRowsMax = -1; });
      if (perExpert) {
        refuses("args.outTopkIdx is ", [&](auto& args) { args.outTopkIdx = bytes; });
        EXPECT_TRUE(says(context.error(), "it is for FLAT and RANK_MAJOR"));
      } else {
        refuses("args.outTopkIdx is ", [&](auto& args) { args.outTopkIdx = bytes + 2; });
      }
      if (shape.layout != moeLayoutExpertMajor) {
        refuses("the layout is not EXPERT_MAJOR",
                [&](auto& args) { args.outExpertOffsets = reinterpret_cast<std::int32_t*>(bytes); });
      }
      const auto refusesSum = [&](const char* sentence, const auto& spoil) {
        moeCombineArgs_t args = calls.combineArgs();
        spoil(args);
        EXPECT_EQ(calls.combine(args), moeInvalidArgument) << sentence;
        EXPECT_TRUE(says(context.error(), sentence));
      };
      refusesSum("args.reserved is -1", [](auto& args) { args.reserved = -1; });
      refusesSum("args.flags is 4, must be made of moeSendOnly and moeCombineGrads",
                 [](auto& args) { args.flags = 4; });
      refusesSum("args.out (", [&](auto& args) { args.out = const_cast<void*>(args.rows); });
      EXPECT_TRUE(says(context.error(), "overlaps args.rows ("));
      refusesSum("overlaps args.bias0 (", [&](auto& args) { args.bias0 = static_cast<char*>(args.out) + 16; });
      refusesSum("args.weightGrads is ", [&](auto& args) {
        args.weightGrads = reinterpret_cast<float*>(bytes + 2), args.outWeightGrads = calls.outGrads();
      });
      refusesSum("args.outWeightGrads is ", [&](auto& args) {
        args.weightGrads = calls.grads(), args.outWeightGrads = reinterpret_cast<float*>(bytes + 2);
      });
      calls.roundTrip();
    });
  });
}

TEST_P(Refusal, MoreRowsThanABlockCanHoldAreNotMultipliedAway) {
  world(1, small(), [&](RankContext& context) {
    Calls calls(context, handleOf(moeModeHt, moeLayoutFlat));
    moeHandle_t alone = calls.handle();
    void* block = nullptr;
    MOE_ASSERT_OK(moeMemAlloc(context.comm, 256, &block), context);
    MOE_EXPECT_OK(moeRoute(alone, nullptr, nullptr, 0, context.stream()), context);
    moeDispatchArgs_t args = calls.dispatchArgs();
    args.outRows = block, args.outRowsMax = std::int64_t{1} << 59;  // times 32 bytes: 2^64
    EXPECT_EQ(calls.dispatch(args), moeInvalidArgument);
    EXPECT_TRUE(says(context.error(), "but moeMemAlloc has given only 256 there"));
  });
}

TEST_P(Refusal, ABiasMayBeTheOutput) {
  inEveryLayout([&](const moeHandleConfig_t& shape) {
    world(2, small(), [&](RankContext& context) {
      Calls calls(context, shape);
      context.meet();
      MOE_EXPECT_OK(calls.route(), context);
      calls.roundTrip();
      MOE_EXPECT_OK(calls.dispatch(calls.dispatchArgs()), context);
      moeCombineArgs_t args = calls.combineArgs();
      args.bias0 = args.out;
      MOE_EXPECT_OK(calls.combine(args), context);
      for (float value : context.arena.get(static_cast<float*>(calls.out()), kTokens * kHidden)) {
        ASSERT_EQ(value, 4.0f);
      }
    });
  });
}

TEST_P(Refusal, WindowMemoryAfterAnAbort) {
  world(1, small(), [](RankContext& context) {
    void *before = nullptr, *after = nullptr;
    MOE_ASSERT_OK(moeMemAlloc(context.comm, 256, &before), context);
    EXPECT_EQ(moeCommGetAsyncError(context.comm, nullptr), moeInvalidArgument);
    EXPECT_TRUE(says(context.error(), "error is NULL"));
    EXPECT_EQ(moeCommAbort(context.comm), moeSuccess);
    EXPECT_EQ(moeMemAlloc(context.comm, 256, &after), moeAborted);
    EXPECT_EQ(after, nullptr);
    EXPECT_EQ(moeMemFree(context.comm, before), moeSuccess);
  });
}

TEST_P(Refusal, WhatIsDestroyedIsNotUsed) {
  world(1, small(), [&](RankContext& context) {
    Calls calls(context, handleOf(moeModeHt, moeLayoutFlat));
    const moeHandle_t handle = calls.handle();
    MOE_EXPECT_OK(moeHandleDestroy(handle), context);
    EXPECT_EQ(moeHandleDestroy(handle), moeInvalidArgument);
    EXPECT_TRUE(says(moeGetLastError(nullptr), "handle is none, or has been destroyed"));
    EXPECT_EQ(calls.route(), moeInvalidArgument);
    moeCounts_t counts = MOE_COUNTS_INITIALIZER;
    EXPECT_EQ(moeHandleGetCounts(handle, &counts), moeInvalidArgument);
  });
  if (startedRanks() != 0) return;
  moeUniqueId_t id;
  ASSERT_EQ(moeGetUniqueId(&id), moeSuccess);
  const moeConfig_t alone = small();
  moeComm_t comm = nullptr;
  ASSERT_EQ(moeCommInit(&comm, 1, 0, &id, &alone), moeSuccess);
  ASSERT_EQ(moeCommDestroy(comm), moeSuccess);
  EXPECT_EQ(moeCommDestroy(comm), moeInvalidArgument);
  EXPECT_TRUE(says(moeGetLastError(nullptr), "comm is none, or has been destroyed"));
  EXPECT_TRUE(says(moeGetLastError(comm), "comm is none, or has been destroyed"));
  moeHandle_t handle = nullptr;
  const moeHandleConfig_t shape = handleOf(moeModeHt, moeLayoutFlat);
  EXPECT_EQ(moeHandleCreate(&handle, comm, &shape), moeInvalidArgument);
  EXPECT_EQ(moeCommAbort(comm), moeInvalidArgument);
}

MOE_INSTANTIATE_BACKENDS(Refusal);

}  // namespace
}  // namespace moe::test
