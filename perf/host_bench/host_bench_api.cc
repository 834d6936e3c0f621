// The calls of a training or inference loop, with one rank. On a GPU the calls are asynchronous. Only the call itself
// is timed. Between timings the benchmark waits for the stream, often enough that the launch queue never fills. On the
// host backend a call runs its steps. Without tokens, only the overhead of the call remains.
#include <array>
#include <functional>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "device/view/views.h"
#include "moecomm.h"
#include "perf/host_bench/host_bench.h"
#include "perf/payload/device.h"

namespace moe::perf {
namespace {

constexpr int kExperts = 8, kTopk = 2, kTokens = 64, kTokensMax = 4096, kHidden = 256;
constexpr int kCallsPerSync = 32;  // each call is one launch; a stream queues about 1000

// The handles of the benchmarks. Whatever their tokensMax, at most kTokens tokens are routed.
struct Shape {
  const char* name;
  int mode, layout, tokensMax;
};
constexpr Shape kShapes[] = {{"ht", moeModeHt, moeLayoutFlat, kTokens},
                             {"ht_4096", moeModeHt, moeLayoutFlat, kTokensMax},
                             {"ht_4096_expert_major", moeModeHt, moeLayoutExpertMajor, kTokensMax},
                             {"ll", moeModeLl, moeLayoutRankMajor, kTokens},
                             {"ll_expert_major", moeModeLl, moeLayoutExpertMajor, kTokens}};
constexpr std::size_t kShapeCount = std::size(kShapes), kHt = 0, kLl = 3;
static_assert(kShapes[kHt].mode == moeModeHt && kShapes[kLl].layout == moeLayoutRankMajor);

// A communicator of one rank, a handle of each shape, and operands for every call.
class OneRank {
 public:
  OneRank(int backend, int tokens) : tokens_(tokens) {
    const bool cuda = backend == moeBackendCuda;
    device_ = cuda ? makeGpuDevice(0) : makeHostDevice();
    moeConfig_t config = MOE_CONFIG_INITIALIZER;
    config.backend = backend;
    config.device = cuda ? 0 : -1;
    config.tokensMax = kTokensMax;
    config.llTokensMax = kTokens;
    config.rowBytesMax = kHidden * 2;
    config.topkMax = kTopk;
    config.expertsMax = kExperts;
    config.stagingRows = kTokens;
    config.heapBytes = 1 << 20;
    moeUniqueId_t id;
    need(moeGetUniqueId(&id), "moeGetUniqueId");
    moeComm_t comm = nullptr;
    need(moeCommInit(&comm, 1, 0, &id, &config), "moeCommInit");
    comm_.reset(comm);
    need(moeMemAlloc(comm, kTopk * kRowsBytes, &arrived_), "moeMemAlloc");
    rows_ = Buffer<std::byte>(*device_, kRowsBytes);
    sums_ = Buffer<std::byte>(*device_, kRowsBytes);
    std::vector<std::int32_t> experts;
    for (int i = 0; i < kTokens * kTopk; ++i) experts.push_back(i % kExperts);
    experts_ = toDevice(*device_, experts);
    for (std::size_t shape = 0; shape < kShapeCount; ++shape) createHandle(shape, &handles_[shape]);
  }

  moeComm_t comm() const { return comm_.get(); }
  moeHandle_t handle(std::size_t shape) const { return handles_[shape]; }
  void wait() { device_->wait(); }

  // Brings all handles into a state with a route and arrived rows, whatever ran before. Nothing stays queued.
  void prepare() {
    for (std::size_t shape = 0; shape < kShapeCount; ++shape) route(shape), dispatch(shape, 0);
    wait();
  }

  void createHandle(std::size_t shape, moeHandle_t* handle) {
    moeHandleConfig_t config = MOE_HANDLE_CONFIG_INITIALIZER;
    config.experts = kExperts;
    config.topk = kTopk;
    config.mode = kShapes[shape].mode;
    config.layout = kShapes[shape].layout;
    config.tokensMax = kShapes[shape].tokensMax;
    need(moeHandleCreate(handle, comm(), &config), "moeHandleCreate");
  }
  void route(std::size_t shape) {
    need(moeRoute(handle(shape), experts_.get(), nullptr, tokens_, device_->stream()), "moeRoute");
  }
  void dispatch(std::size_t shape, int flags) {
    moeDispatchArgs_t args = MOE_DISPATCH_ARGS_INITIALIZER;
    args.rows = rows_.get();
    args.rowType = moeRowBf16;
    args.hidden = kHidden;
    args.flags = flags;
    args.outRows = arrived_;
    args.outRowsMax = kTopk * kTokens;
    need(moeDispatch(handle(shape), &args, device_->stream()), "moeDispatch");
  }
  void combine(std::size_t shape, int flags) {
    moeCombineArgs_t args = MOE_COMBINE_ARGS_INITIALIZER;
    args.rows = arrived_;
    args.rowType = moeRowBf16;
    args.hidden = kHidden;
    args.flags = flags;
    args.out = sums_.get();
    need(moeCombine(handle(shape), &args, device_->stream()), "moeCombine");
  }
  void launchNothing() { device_->run(nothing_); }
  void complete(std::size_t shape) { need(moeComplete(handle(shape), device_->stream()), "moeComplete"); }

  void need(moeResult_t result, const char* call) const {
    if (result == moeSuccess) return;
    throw std::runtime_error(std::string(call) + ": " + moeGetErrorString(result) + ": " + moeGetLastError(comm()));
  }
  // Checks that a call with a wrong argument was refused.
  void needRefusal(moeResult_t result) const {
    if (result != moeInvalidArgument) throw std::runtime_error("a wrong argument was not refused");
  }

 private:
  static constexpr std::size_t kRowsBytes = std::size_t{kTokens} * kHidden * 2;  // bf16
  struct Leave {
    void operator()(moeComm_t comm) const { moeCommDestroy(comm); }
  };

  static_assert(Nothing::kBytes == sizeof(StepParams));

  const Work nothing_ = Nothing{};
  int tokens_;
  std::unique_ptr<Device> device_;
  Buffer<std::byte> rows_, sums_;
  Buffer<std::int32_t> experts_;
  std::unique_ptr<moeComm, Leave> comm_;
  void* arrived_ = nullptr;
  std::array<moeHandle_t, kShapeCount> handles_{};
};

// The backend that a benchmark runs on.
struct Place {
  const char* name;
  int backend, tokens;
};
constexpr Place kPlaces[] = {{"host", moeBackendHost, 0}, {"cuda", moeBackendCuda, kTokens}};

using Action = std::function<void(OneRank&)>;

// Registers the benchmarks of one place. They share a rank, which is made when the first one runs and lives until all
// are gone.
class Registrar {
 public:
  explicit Registrar(const Place& place) : place_(place) {}

  // Adds a call that leaves nothing behind.
  void addPlain(const std::string& name, const Action& call) const {
    add(name, [=](benchmark::State& state, OneRank& rank) {
      for (auto _ : state) call(rank);
    });
  }

  // Adds a call that queues work. Only the call is timed, not `prepare`, `finish` and the waits.
  void addQueued(const std::string& name, const Action& call, const Action& prepare = {},
                 const Action& finish = {}) const {
    const Body body = [=](benchmark::State& state, OneRank& rank) {
      int calls = 0;
      for (auto _ : state) {
        if (prepare) prepare(rank);
        state.SetIterationTime(secondsOf([&] { call(rank); }));
        if (finish) finish(rank);
        if (++calls % kCallsPerSync == 0) rank.wait();
      }
    };
    add(name, body)->UseManualTime();
  }

 private:
  using Body = std::function<void(benchmark::State&, OneRank&)>;

  benchmark::internal::Benchmark* add(const std::string& name, const Body& body) const {
    const auto benchmark = [place = place_, rank = rank_, body](benchmark::State& state) {
      if (place.backend == moeBackendCuda && gpuCount() == 0) {
        state.SkipWithError("skipped: no GPU here, or built without CUDA");
      } else {
        runGuarded(state, [&] { run(state, place, *rank, body); });
      }
    };
    return benchmark::RegisterBenchmark((name + "/" + place_.name).c_str(), benchmark);
  }

  static void run(benchmark::State& state, const Place& place, std::unique_ptr<OneRank>& shared, const Body& body) {
    std::unique_ptr<OneRank> rank = std::move(shared);  // not given back if anything fails
    if (!rank) rank = std::make_unique<OneRank>(place.backend, place.tokens);
    rank->prepare();
    body(state, *rank);
    rank->wait();
    moeResult_t error = moeSuccess;
    rank->need(moeCommGetAsyncError(rank->comm(), &error), "moeCommGetAsyncError");
    rank->need(error, "a step");
    shared = std::move(rank);
  }

  Place place_;
  std::shared_ptr<std::unique_ptr<OneRank>> rank_ = std::make_shared<std::unique_ptr<OneRank>>();
};

void addOperations(const Registrar& place, std::size_t shape) {
  const std::string suffix = std::string("/") + kShapes[shape].name;
  const Action send = [=](OneRank& rank) { rank.dispatch(shape, moeSendOnly); };
  const Action sendSums = [=](OneRank& rank) { rank.combine(shape, moeSendOnly); };
  const Action complete = [=](OneRank& rank) { rank.complete(shape); };
  place.addQueued("moeRoute" + suffix, [=](OneRank& rank) { rank.route(shape); });
  place.addQueued("moeDispatch" + suffix, [=](OneRank& rank) { rank.dispatch(shape, 0); });
  place.addQueued("moeCombine" + suffix, [=](OneRank& rank) { rank.combine(shape, 0); });
  place.addQueued("moeDispatch_sendOnly" + suffix, send, {}, complete);
  place.addQueued("moeComplete_dispatch" + suffix, complete, send);
  place.addQueued("moeCombine_sendOnly" + suffix, sendSums, {}, complete);
  place.addQueued("moeComplete_combine" + suffix, complete, sendSums);
  place.addPlain("moeHandleGetDeviceCounts" + suffix, [=](OneRank& rank) {
    moeDeviceCounts_t counts = MOE_DEVICE_COUNTS_INITIALIZER;
    rank.need(moeHandleGetDeviceCounts(rank.handle(shape), &counts), "moeHandleGetDeviceCounts");
    benchmark::DoNotOptimize(counts);
  });
  place.addPlain("moeHandleGetCounts" + suffix, [=](OneRank& rank) {  // for a route that has run
    moeCounts_t counts = MOE_COUNTS_INITIALIZER;
    rank.need(moeHandleGetCounts(rank.handle(shape), &counts), "moeHandleGetCounts");
    benchmark::DoNotOptimize(counts);
  });
  place.addPlain("moeHandleCreate_Destroy" + suffix, [=](OneRank& rank) {
    moeHandle_t handle = nullptr;
    rank.createHandle(shape, &handle);
    rank.need(moeHandleDestroy(handle), "moeHandleDestroy");
  });
}

void addQueries(const Registrar& place) {
  place.addQueued("BareLaunch", [](OneRank& rank) { rank.launchNothing(); });  // a kernel of the program itself
  place.addPlain("moeGetLimits", [](OneRank& rank) {
    moeLimits_t limits = MOE_LIMITS_INITIALIZER;
    rank.need(moeGetLimits(rank.comm(), &limits), "moeGetLimits");
    benchmark::DoNotOptimize(limits);
  });
  place.addPlain("moeCommGetAsyncError", [](OneRank& rank) {
    moeResult_t error = moeSuccess;
    rank.need(moeCommGetAsyncError(rank.comm(), &error), "moeCommGetAsyncError");
    benchmark::DoNotOptimize(error);
  });
  place.addPlain("moeCommGetInfo", [](OneRank& rank) {
    moeCommInfo_t info = MOE_COMM_INFO_INITIALIZER;
    rank.need(moeCommGetInfo(rank.comm(), &info), "moeCommGetInfo");
    benchmark::DoNotOptimize(info);
  });
  place.addPlain("moeCommGetPeerInfo", [](OneRank& rank) {
    moePeerInfo_t info = MOE_PEER_INFO_INITIALIZER;
    rank.need(moeCommGetPeerInfo(rank.comm(), 0, &info), "moeCommGetPeerInfo");
    benchmark::DoNotOptimize(info);
  });
  place.addPlain("moeHandleGetView", [](OneRank& rank) {
    moeHandleView_t view = MOE_HANDLE_VIEW_INITIALIZER;
    rank.need(moeHandleGetView(rank.handle(kLl), &view), "moeHandleGetView");
    benchmark::DoNotOptimize(view);
  });
  place.addPlain("moeMemAlloc_Free", [](OneRank& rank) {
    void* memory = nullptr;
    rank.need(moeMemAlloc(rank.comm(), 4096, &memory), "moeMemAlloc");
    rank.need(moeMemFree(rank.comm(), memory), "moeMemFree");
  });
}

// Measures refusals, which format a sentence.
void addRefusals(const Registrar& place) {
  place.addPlain("Refused_null", [](OneRank& rank) { rank.needRefusal(moeDispatch(nullptr, nullptr, nullptr)); });
  place.addPlain("Refused_tokens", [](OneRank& rank) {
    rank.needRefusal(moeRoute(rank.handle(kHt), nullptr, nullptr, kTokensMax + 1, nullptr));
  });
  place.addPlain("Refused_hidden", [](OneRank& rank) {
    moeDispatchArgs_t args = MOE_DISPATCH_ARGS_INITIALIZER;
    args.hidden = 7;
    rank.needRefusal(moeDispatch(rank.handle(kHt), &args, nullptr));
  });
}

}  // namespace

void addApiBenchmarks() {
  for (const Place& where : kPlaces) {
    const Registrar place(where);
    for (std::size_t shape = 0; shape < kShapeCount; ++shape) addOperations(place, shape);
    addQueries(place);
  }
  addRefusals(Registrar(kPlaces[0]));  // the same on both backends
}

}  // namespace moe::perf
