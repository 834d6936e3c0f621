// Refusals of the C API: each has a result and a sentence with the argument and the value, and leaves nothing half
// done.
#include <sched.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "support/api/moe_step.h"

namespace moe::test {
namespace {

class Usage : public OnBackend {};

::testing::AssertionResult says(const char* text, const char* part) {
  if (std::strstr(text, part) != nullptr) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "\"" << text << "\" does not say \"" << part << "\"";
}

// The communicator's failure. Polls for at most `patience`.
moeResult_t asyncError(moeComm_t comm, std::chrono::seconds patience) {
  const auto end = std::chrono::steady_clock::now() + patience;
  moeResult_t error = moeSuccess;
  while (error == moeSuccess && std::chrono::steady_clock::now() < end) {
    moeCommGetAsyncError(comm, &error);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return error;
}

moeHandleConfig_t smallHandle() {
  moeHandleConfig_t config = MOE_HANDLE_CONFIG_INITIALIZER;
  config.experts = 4;
  config.topk = 2;
  config.mode = moeModeHt;
  config.tokensMax = 8;
  return config;
}

TEST_P(Usage, OnlyHandlesWithArrivalWordsShowThem) {
  world(1, config(), [](RankContext& context) {
    moeHandle_t with = nullptr, without = nullptr;
    moeHandleConfig_t shape = smallHandle();
    shape.layout = moeLayoutExpertMajor;
    MOE_ASSERT_OK(moeHandleCreate(&without, context.comm, &shape), context);
    shape.arrivals = 1;
    MOE_ASSERT_OK(moeHandleCreate(&with, context.comm, &shape), context);
    moeArrivals_t arrivals = MOE_ARRIVALS_INITIALIZER;
    EXPECT_EQ(moeHandleGetArrivals(without, &arrivals), moeInvalidUsage);
    EXPECT_TRUE(says(context.error(), "made without config.arrivals"));
    EXPECT_EQ(arrivals.words, nullptr);
    EXPECT_EQ(moeHandleGetArrivals(with, nullptr), moeInvalidArgument);
    EXPECT_EQ(moeHandleGetArrivals(nullptr, &arrivals), moeInvalidArgument);
    MOE_EXPECT_OK(moeHandleGetArrivals(with, &arrivals), context);
    EXPECT_EQ(context.arena.get(arrivals.words, 4), (std::vector<std::uint64_t>(4, 0)));
    EXPECT_EQ(context.arena.get(arrivals.failed, 1)[0], 0u);
  });
}

TEST_P(Usage, HandlesRefuseWhatTheCommunicatorIsNotBuiltFor) {
  world(1, config(), [](RankContext& context) {
    moeHandle_t handle = nullptr;
    moeHandleConfig_t bad = smallHandle();
    bad.topk = 9;
    EXPECT_EQ(moeHandleCreate(&handle, context.comm, &bad), moeInvalidArgument);
    EXPECT_TRUE(says(context.error(), "config.topk is 9, must be 1..8"));
    bad = smallHandle();
    bad.experts = 65;
    EXPECT_EQ(moeHandleCreate(&handle, context.comm, &bad), moeInvalidArgument);
    EXPECT_TRUE(says(context.error(), "config.experts is 65"));
    bad = smallHandle();
    bad.tokensMax = 65;
    EXPECT_EQ(moeHandleCreate(&handle, context.comm, &bad), moeInvalidArgument);
    EXPECT_TRUE(says(context.error(), "config.tokensMax is 65"));
    bad = smallHandle();
    bad = smallHandle();
    bad.arrivals = 1;
    EXPECT_EQ(moeHandleCreate(&handle, context.comm, &bad), moeInvalidArgument);
    EXPECT_TRUE(says(context.error(), "config.arrivals is 1, which needs an EXPERT_MAJOR layout"));
    bad.arrivals = -1;
    EXPECT_EQ(moeHandleCreate(&handle, context.comm, &bad), moeInvalidArgument);
    EXPECT_TRUE(says(context.error(), "config.arrivals is -1, must be 0..1"));
    bad = smallHandle();
    bad.duplicates = 7;
    EXPECT_EQ(moeHandleCreate(&handle, context.comm, &bad), moeInvalidArgument);
    EXPECT_TRUE(says(context.error(), "config.duplicates is 7, must be 0..1"));
    bad = smallHandle();
    bad.statistics = 7;
    EXPECT_EQ(moeHandleCreate(&handle, context.comm, &bad), moeInvalidArgument);
    EXPECT_TRUE(says(context.error(), "config.statistics is 7"));
    bad = smallHandle();
    bad.size = 3;
    EXPECT_EQ(moeHandleCreate(&handle, context.comm, &bad), moeInvalidArgument);
    EXPECT_EQ(moeHandleCreate(nullptr, context.comm, &bad), moeInvalidArgument);
    EXPECT_EQ(moeHandleCreate(&handle, nullptr, &bad), moeInvalidArgument);
    EXPECT_TRUE(says(moeGetLastError(nullptr), "comm is NULL"));
    EXPECT_EQ(handle, nullptr);
  });
}

TEST_P(Usage, CallsOutOfOrderAreRefused) {
  world(1, config(), [](RankContext& context) {
    moeHandle_t handle = nullptr;
    const moeHandleConfig_t good = smallHandle();
    MOE_ASSERT_OK(moeHandleCreate(&handle, context.comm, &good), context);
    moeDispatchArgs_t dispatch = MOE_DISPATCH_ARGS_INITIALIZER;
    dispatch.rowType = moeRowBf16;
    dispatch.hidden = 8;
    EXPECT_EQ(moeDispatch(handle, &dispatch, context.stream()), moeInvalidUsage);
    EXPECT_TRUE(says(context.error(), "moeRoute has not been called"));
    EXPECT_EQ(moeComplete(handle, context.stream()), moeInvalidUsage);
    moeCounts_t counts = MOE_COUNTS_INITIALIZER;
    EXPECT_EQ(moeHandleGetCounts(handle, &counts), moeInvalidUsage);
    MOE_EXPECT_OK(moeRoute(handle, nullptr, nullptr, 0, context.stream()), context);
    dispatch.flags = moeSendOnly;
    MOE_EXPECT_OK(moeDispatch(handle, &dispatch, context.stream()), context);
    EXPECT_EQ(moeDispatch(handle, &dispatch, context.stream()), moeInvalidUsage);
    EXPECT_TRUE(says(context.error(), "awaits moeComplete"));
    MOE_EXPECT_OK(moeComplete(handle, context.stream()), context);
    MOE_EXPECT_OK(moeHandleDestroy(handle), context);
  });
}

TEST_P(Usage, AHandleSaysWhichModeItUses) {
  world(1, config(), [](RankContext& context) {
    const auto modeOf = [&](int mode, int tokensMax) {
      moeHandle_t handle = nullptr;
      moeHandleConfig_t config = smallHandle();
      config.mode = mode;
      config.tokensMax = tokensMax;
      EXPECT_EQ(moeHandleCreate(&handle, context.comm, &config), moeSuccess) << context.error();
      moeDeviceCounts_t counts = MOE_DEVICE_COUNTS_INITIALIZER;
      MOE_EXPECT_OK(moeHandleGetDeviceCounts(handle, &counts), context);
      moeDeviceCounts_t older = MOE_DEVICE_COUNTS_INITIALIZER;
      older.size = offsetof(moeDeviceCounts_t, mode);
      older.mode = -1;
      MOE_EXPECT_OK(moeHandleGetDeviceCounts(handle, &older), context);
      EXPECT_EQ(older.expertOffsets, counts.expertOffsets);
      EXPECT_EQ(older.mode, -1) << "a program that does not know the field";
      MOE_EXPECT_OK(moeHandleDestroy(handle), context);
      return counts.mode;
    };
    EXPECT_EQ(modeOf(moeModeHt, 8), moeModeHt);
    EXPECT_EQ(modeOf(moeModeLl, 8), moeModeLl);
    EXPECT_EQ(modeOf(moeModeAuto, 8), GetParam() == moeBackendHost ? moeModeHt : moeModeLl);
    EXPECT_EQ(modeOf(moeModeAuto, 17), moeModeHt) << "the communicator takes 16 in LL";
    EXPECT_EQ(modeOf(moeModeAuto, 0), moeModeHt);
  });
}

// The calling thread may run on one processor alone while this object lives, and so may the threads that it starts.
class OneProcessor {
 public:
  OneProcessor() {
    EXPECT_EQ(::sched_getaffinity(0, sizeof before_, &before_), 0);
    int cpu = 0;
    while (!CPU_ISSET(cpu, &before_)) ++cpu;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    EXPECT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
  }
  ~OneProcessor() { ::sched_setaffinity(0, sizeof before_, &before_); }

 private:
  cpu_set_t before_;
};

TEST_P(Usage, ModeAutoOfRanksThatShareAProcessorIsLowLatencyForFewBytes) {
  const OneProcessor shared;
  world(2, config(), [](RankContext& context) {
    const auto modeOf = [&](int tokensMax, int localOnly) {
      moeHandle_t handle = nullptr;
      moeHandleConfig_t config = smallHandle();
      config.mode = moeModeAuto;
      config.tokensMax = tokensMax;
      config.localOnly = localOnly;
      EXPECT_EQ(moeHandleCreate(&handle, context.comm, &config), moeSuccess) << context.error();
      moeDeviceCounts_t counts = MOE_DEVICE_COUNTS_INITIALIZER;
      MOE_EXPECT_OK(moeHandleGetDeviceCounts(handle, &counts), context);
      MOE_EXPECT_OK(moeHandleDestroy(handle), context);
      return counts.mode;
    };
    EXPECT_EQ(modeOf(8, 0), moeModeLl);
    EXPECT_EQ(modeOf(17, 0), moeModeHt) << "the communicator takes 16 in LL";
    EXPECT_EQ(modeOf(8, 1), GetParam() == moeBackendHost ? moeModeHt : moeModeLl) << "it waits for nobody";
  });
}

TEST_P(Usage, CountsComeWithTheRouteInBothModes) {
  world(1, config(), [](RankContext& context) {
    for (const int mode : {moeModeHt, moeModeLl}) {
      moeHandle_t handle = nullptr;
      moeHandleConfig_t config = smallHandle();
      config.mode = mode;
      MOE_ASSERT_OK(moeHandleCreate(&handle, context.comm, &config), context);
      moeCounts_t counts = MOE_COUNTS_INITIALIZER;
      EXPECT_EQ(moeHandleGetCounts(handle, &counts), moeInvalidUsage);
      MOE_EXPECT_OK(moeRoute(handle, nullptr, nullptr, 0, context.stream()), context);
      MOE_EXPECT_OK(moeHandleGetCounts(handle, &counts), context);
      EXPECT_EQ(counts.rows, 0);
      MOE_EXPECT_OK(moeHandleDestroy(handle), context);
    }
  });
}

TEST_P(Usage, BadArgumentsAreNamed) {
  world(1, config(), [](RankContext& context) {
    moeHandle_t handle = nullptr;
    const moeHandleConfig_t good = smallHandle();
    MOE_ASSERT_OK(moeHandleCreate(&handle, context.comm, &good), context);
    EXPECT_EQ(moeRoute(handle, nullptr, nullptr, 9, context.stream()), moeInvalidArgument);
    EXPECT_TRUE(says(context.error(), "tokens is 9, must be 0..8 (config.tokensMax of the handle bounds it)"));
    EXPECT_EQ(moeRoute(handle, nullptr, nullptr, 1, context.stream()), moeInvalidArgument);
    EXPECT_TRUE(says(context.error(), "topkIdx is NULL"));
    MOE_EXPECT_OK(moeRoute(handle, nullptr, nullptr, 0, context.stream()), context);
    moeDispatchArgs_t dispatch = MOE_DISPATCH_ARGS_INITIALIZER;
    dispatch.rowType = moeRowBf16;
    dispatch.hidden = 7;
    EXPECT_EQ(moeDispatch(handle, &dispatch, context.stream()), moeInvalidArgument);
    EXPECT_TRUE(says(context.error(), "args.hidden is 7"));
    dispatch.hidden = 8;
    dispatch.outRowsMax = 4;
    EXPECT_EQ(moeDispatch(handle, &dispatch, context.stream()), moeInvalidArgument);
    EXPECT_TRUE(says(context.error(), "args.outRows is NULL"));
    dispatch.outRows = static_cast<char*>(context.arena.take(256)) + 8;
    EXPECT_EQ(moeDispatch(handle, &dispatch, context.stream()), moeInvalidArgument);
    EXPECT_TRUE(says(context.error(), "not aligned to 16 bytes"));
    moeCombineArgs_t combine = MOE_COMBINE_ARGS_INITIALIZER;
    combine.rowType = moeRowBf16;
    combine.hidden = 8;
    combine.weights = 2;
    EXPECT_EQ(moeCombine(handle, &combine, context.stream()), moeInvalidArgument);
    EXPECT_TRUE(says(context.error(), "args.weights is 2, must be a moeWeights value"));
    combine.weights = moeWeightsApply;
    combine.rowType = moeRowBytes;
    EXPECT_EQ(moeCombine(handle, &combine, context.stream()), moeInvalidArgument);
    MOE_EXPECT_OK(moeHandleDestroy(handle), context);
  });
}

void refuseDispatch(RankContext& context, int mode, DispatchFields args, const char* sentence) {
  moeHandle_t handle = nullptr;
  moeHandleConfig_t shape = smallHandle();
  shape.mode = mode;
  MOE_ASSERT_OK(moeHandleCreate(&handle, context.comm, &shape), context);
  MOE_EXPECT_OK(moeRoute(handle, nullptr, nullptr, 0, context.stream()), context);
  EXPECT_EQ(moeDispatch(handle, args.linked(), context.stream()), moeInvalidArgument) << sentence;
  EXPECT_TRUE(says(context.error(), sentence)) << context.error();
  MOE_EXPECT_OK(moeHandleDestroy(handle), context);
}

// A cast of rows of 256 bf16. `memory` has room for four of them, and for their scales from byte 2048 on.
DispatchFields goodCast(std::uint8_t* memory) {
  DispatchFields args;
  args.rowType = moeRowBf16;
  args.hidden = 256;
  args.outRows = memory;
  args.outRowsMax = 4;
  args.cast.type = moeCastFp8;
  args.cast.outScales = memory + 2048;
  return args;
}

TEST_P(Usage, BadCastsAreNamed) {
  moeConfig_t wide = config();
  wide.rowBytesMax = 1024;
  world(1, wide, [](RankContext& context) {
    const auto refuses = [&](int mode, const DispatchFields& args, const char* sentence) {
      refuseDispatch(context, mode, args, sentence);
    };
    auto* memory = static_cast<std::uint8_t*>(context.arena.take(4096));
    const DispatchFields good = goodCast(memory);
    DispatchFields bad = good;
    void* window = nullptr;
    MOE_ASSERT_OK(moeMemAlloc(context.comm, 1024, &window), context);
    bad.outRows = window;
    refuses(moeModeHt, bad, "args.outRows and args.cast.outScales must both be window memory (moeMemAlloc) or neither");
    bad = good;
    bad.cast.outScales = window;
    refuses(moeModeHt, bad, "args.outRows and args.cast.outScales must both be window memory (moeMemAlloc) or neither");
    bad.outRows = memory;
    bad.cast.outScales = static_cast<std::uint8_t*>(window) + 1008;
    bad.outRowsMax = 4;
    refuses(moeModeHt, bad,
            "args.cast.outScales needs 32 bytes, but the block of moeMemAlloc has only 16 from there on");
    MOE_EXPECT_OK(moeMemFree(context.comm, window), context);
    bad = good;
    bad.cast.type = 7;
    refuses(moeModeLl, bad, "args.cast.type is 7, must be a moeCast value");
    bad = good;
    bad.hidden = 200;
    refuses(moeModeLl, bad, "args.hidden is 200, must be a multiple of 128");
    bad = good;
    bad.rowType = moeRowBytes;
    refuses(moeModeLl, bad, "opaque bytes, which cannot be cast");
    bad = good;
    bad.cast.outScales = nullptr;
    refuses(moeModeLl, bad, "args.cast.outScales is NULL");
    bad = good;
    bad.cast.outScales = memory + 2;
    refuses(moeModeLl, bad, "not aligned to 4 bytes");
    bad = good;
    bad.cast.scaleLayout = 3;
    refuses(moeModeLl, bad, "args.cast.scaleLayout is 3");
    bad = good;
    bad.cast.scaleLayout = moeScales128x4;
    refuses(moeModeLl, bad,
            "args.cast.scaleLayout is 2 (moeScales128x4), but a scale of args.cast.type 1 has 4 bytes, not one");
    bad.cast.type = moeCastFp8Pow2;
    refuses(moeModeHt, bad,
            "args.cast.scaleLayout is 2 (moeScales128x4), but a scale of args.cast.type 3 has 4 bytes, not one");
    bad.cast.type = moeCastMxfp8;
    bad.describe.outBlockOffsets = reinterpret_cast<std::int32_t*>(memory + 3072);
    refuses(moeModeLl, bad, "args.describe.outBlockOffsets is ");
    bad = good;
    bad.describe.outBlockOffsets = reinterpret_cast<std::int32_t*>(memory + 3072);
    refuses(moeModeLl, bad, "but neither args.cast.scaleLayout nor a payload's outLayout is moeScales128x4");
    bad.cast.type = moeCastNone;
    bad.cast.outScales = nullptr;
    refuses(moeModeLl, bad, "args.describe.outBlockOffsets is ");
    bad = good;
    bad.cast.type = moeCastNone;
    refuses(moeModeLl, bad, "but args.cast.type is none");
  });
}

TEST_P(Usage, BadFactorsOfCastsAreNamed) {
  moeConfig_t wide = config();
  wide.rowBytesMax = 1024;
  world(1, wide, [](RankContext& context) {
    const auto refuses = [&](int mode, const DispatchFields& args, const char* sentence) {
      refuseDispatch(context, mode, args, sentence);
    };
    auto* memory = static_cast<std::uint8_t*>(context.arena.take(4096));
    const auto* factor = reinterpret_cast<const float*>(memory + 3072);
    const DispatchFields good = goodCast(memory);
    DispatchFields bad = good;
    bad.cast.inputScale = reinterpret_cast<const float*>(memory + 3074);
    refuses(moeModeLl, bad, "args.cast.inputScale is ");
    bad = good;
    bad.cast.globalScale = factor;
    refuses(moeModeLl, bad, "but args.cast.type is not moeCastNvfp4");
    bad.cast.type = moeCastNvfp4;
    bad.cast.globalScale = reinterpret_cast<const float*>(memory + 3073);
    refuses(moeModeLl, bad, "args.cast.globalScale is ");
    bad = good;
    bad.cast.inputScale = reinterpret_cast<const float*>(memory);
    refuses(moeModeLl, bad, "overlaps args.cast.inputScale (");
    bad = good;
    bad.cast.type = moeCastNone;
    bad.cast.outScales = nullptr;
    bad.cast.inputScale = factor;
    refuses(moeModeLl, bad, "args.cast.inputScale is ");
    bad.cast.inputScale = nullptr;
    bad.cast.globalScale = factor;
    refuses(moeModeLl, bad, "args.cast.globalScale is ");
  });
}

TEST_P(Usage, AnAbortEndsAWaitOnEveryRank) {
  world(2, config(), [](RankContext& context) {
    moeHandle_t handle = nullptr;
    const moeHandleConfig_t shape = smallHandle();
    MOE_ASSERT_OK(moeHandleCreate(&handle, context.comm, &shape), context);
    context.meet();
    if (context.rank == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      EXPECT_EQ(moeCommAbort(context.comm), moeSuccess);
      EXPECT_EQ(moeRoute(handle, nullptr, nullptr, 0, context.stream()), moeAborted);
      return;
    }
    moeRoute(handle, nullptr, nullptr, 0, context.stream());  // rank 0 never joins the route
    context.arena.synchronize();
    EXPECT_EQ(asyncError(context.comm, std::chrono::seconds(5)), moeAborted);
    EXPECT_TRUE(says(context.error(), "rank 0"));
  });
}

TEST_P(Usage, ARankThatDoesNotComeIsNamedWithinTheTimeout) {
  moeConfig_t quick = config();
  quick.timeoutMs = 400;
  world(2, quick, [](RankContext& context) {
    moeHandle_t handle = nullptr;
    const moeHandleConfig_t shape = smallHandle();
    MOE_ASSERT_OK(moeHandleCreate(&handle, context.comm, &shape), context);
    context.meet();
    const auto begin = std::chrono::steady_clock::now();
    if (context.rank == 1) moeRoute(handle, nullptr, nullptr, 0, context.stream());
    EXPECT_EQ(asyncError(context.comm, std::chrono::seconds(10)), moeTimeout);
    EXPECT_TRUE(says(context.error(), "rank 0 did not"));
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(3));
  });
}

TEST_P(Usage, WindowMemoryRunsOutWithASentence) {
  world(1, config(), [](RankContext& context) {
    void* memory = nullptr;
    EXPECT_EQ(moeMemAlloc(context.comm, std::size_t{1} << 40, &memory), moeInvalidArgument);
    EXPECT_TRUE(says(context.error(), "the largest free block"));
    MOE_EXPECT_OK(moeMemAlloc(context.comm, 1000, &memory), context);
    EXPECT_EQ(moeMemFree(context.comm, static_cast<char*>(memory) + 16), moeInvalidArgument);
    MOE_EXPECT_OK(moeMemFree(context.comm, memory), context);
    EXPECT_EQ(moeMemFree(context.comm, memory), moeInvalidArgument);
    MOE_EXPECT_OK(moeMemFree(context.comm, nullptr), context);
  });
}

TEST_P(Usage, QueriesDescribeTheCommunicator) {
  world(3, config(), [](RankContext& context) {
    moeCommInfo_t info = MOE_COMM_INFO_INITIALIZER;
    MOE_EXPECT_OK(moeCommGetInfo(context.comm, &info), context);
    EXPECT_EQ(info.nranks, 3);
    EXPECT_EQ(info.rank, context.rank);
    EXPECT_EQ(info.timeoutMs, 20000);
    moePeerInfo_t peer = MOE_PEER_INFO_INITIALIZER;
    MOE_EXPECT_OK(moeCommGetPeerInfo(context.comm, (context.rank + 1) % 3, &peer), context);
    EXPECT_EQ(peer.transport, moeTransportDirect);
    EXPECT_EQ(moeCommGetPeerInfo(context.comm, 3, &peer), moeInvalidArgument);
    moeLimits_t limits = MOE_LIMITS_INITIALIZER;
    MOE_EXPECT_OK(moeGetLimits(context.comm, &limits), context);
    EXPECT_EQ(limits.tokensMax, 64);
  });
}

TEST(ApiUsage, RanksThatDisagreeAreToldSo) {
  moeUniqueId_t id;
  ASSERT_EQ(moeGetUniqueId(&id), moeSuccess);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      moeConfig_t config = testConfig(moeBackendHost);
      config.topkMax = 4 + rank;
      moeComm_t comm = nullptr;
      EXPECT_EQ(moeCommInit(&comm, 2, rank, &id, &config), moeInvalidUsage);
      EXPECT_TRUE(says(moeGetLastError(nullptr), "topkMax is 4 on rank 0 and 5 on rank 1"));
      EXPECT_EQ(comm, nullptr);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(ApiUsage, TheMemoryOfLowLatencyIsSmall) {
  moeConfig_t config = MOE_CONFIG_INITIALIZER;
  config.modes = moeModeLl;
  config.llTokensMax = 128;
  config.rowBytesMax = 7168 * 2;
  moeMemorySize_t size = MOE_MEMORY_SIZE_INITIALIZER;
  ASSERT_EQ(moeCommGetMemorySize(8, &config, &size), moeSuccess) << moeGetLastError(nullptr);
  EXPECT_LE(size.windowBytes, 64u * 1000 * 1000);
  EXPECT_EQ(size.htBytes, 0u);
  EXPECT_EQ(moeCommGetMemorySize(0, &config, &size), moeInvalidArgument);
  EXPECT_TRUE(says(moeGetLastError(nullptr), "nranks is 0, must be 1..1024"));
}

MOE_INSTANTIATE_BACKENDS(Usage);

}  // namespace
}  // namespace moe::test
