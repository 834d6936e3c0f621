// The calls that a training or inference loop makes, with one rank. On a GPU they are asynchronous: only the call is
// timed, and the stream is waited for between timings, often enough that the launch queue never fills. On the host
// backend a call runs its steps; with no tokens what is left is the overhead of the call.
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "device.h"
#include "host_bench.h"
#include "moecomm.h"

namespace moe::perf {
namespace {

constexpr int kExperts = 8, kTopk = 2, kTokensMax = 64, kHidden = 256;
constexpr int kCallsPerSync = 32;  // a route is 4 launches; a stream queues about 1000

// A communicator of one rank, a route in each mode, and operands for every call.
class OneRank {
 public:
  OneRank(int backend, int tokens) : tokens_(tokens) {
    const bool cuda = backend == moeBackendCuda;
    device_ = cuda ? makeGpuDevice(0) : makeHostDevice();
    moeConfig_t config = MOE_CONFIG_INITIALIZER;
    config.backend = backend;
    config.device = cuda ? 0 : -1;
    config.tokensMax = config.llTokensMax = kTokensMax;
    config.rowBytesMax = kHidden * 2;
    config.topkMax = kTopk;
    config.expertsMax = kExperts;
    config.stagingRows = -1;
    config.heapBytes = 1 << 20;
    moeUniqueId_t id;
    need(moeGetUniqueId(&id), "moeGetUniqueId");
    moeComm_t comm = nullptr;
    need(moeCommInit(&comm, 1, 0, &id, &config), "moeCommInit");
    comm_.reset(comm);
    need(moeMemAlloc(comm, kRowsBytes, &arrived_), "moeMemAlloc");
    rows_ = Buffer<std::byte>(*device_, kRowsBytes);
    sums_ = Buffer<std::byte>(*device_, kRowsBytes);
    std::vector<std::int32_t> experts;
    for (int i = 0; i < kTokensMax * kTopk; ++i) experts.push_back(i % kExperts);
    experts_ = toDevice(*device_, experts);
    for (const int mode : kModes) createHandle(mode, &handle(mode));
  }

  moeComm_t comm() const { return comm_.get(); }
  moeHandle_t& handle(int mode) { return mode == moeModeHt ? ht_ : ll_; }
  void wait() { device_->wait(); }

  // Routes and arrived rows in both modes, whatever ran before; nothing is queued.
  void prepare() {
    for (const int mode : kModes) route(mode), dispatch(mode, 0);
    wait();
  }

  void createHandle(int mode, moeHandle_t* handle) {
    moeHandleConfig_t shape = MOE_HANDLE_CONFIG_INITIALIZER;
    shape.experts = kExperts;
    shape.topk = kTopk;
    shape.mode = mode;
    shape.layout = mode == moeModeHt ? moeLayoutFlat : moeLayoutRankMajor;
    need(moeHandleCreate(handle, comm(), &shape), "moeHandleCreate");
  }
  void route(int mode) {
    need(moeRoute(handle(mode), experts_.get(), nullptr, tokens_, device_->stream()), "moeRoute");
  }
  void dispatch(int mode, int flags) {
    moeDispatchArgs_t args = MOE_DISPATCH_ARGS_INITIALIZER;
    args.rows = rows_.get();
    args.rowType = moeRowBf16;
    args.hidden = kHidden;
    args.flags = flags;
    args.outRows = arrived_;
    args.outRowsMax = kTokensMax;
    need(moeDispatch(handle(mode), &args, device_->stream()), "moeDispatch");
  }
  void combine(int mode, int flags) {
    moeCombineArgs_t args = MOE_COMBINE_ARGS_INITIALIZER;
    args.rows = arrived_;
    args.rowType = moeRowBf16;
    args.hidden = kHidden;
    args.flags = flags;
    args.out = sums_.get();
    need(moeCombine(handle(mode), &args, device_->stream()), "moeCombine");
  }
  void complete(int mode) { need(moeComplete(handle(mode), device_->stream()), "moeComplete"); }

  void need(moeResult_t result, const char* call) const {
    if (result == moeSuccess) return;
    throw std::runtime_error(std::string(call) + ": " + moeGetErrorString(result) + ": " + moeGetLastError(comm()));
  }
  // Of a call with a wrong argument.
  void needRefusal(moeResult_t result) const {
    if (result != moeInvalidArgument) throw std::runtime_error("a wrong argument was not refused");
  }

 private:
  static constexpr std::size_t kRowsBytes = std::size_t{kTokensMax} * kHidden * 2;  // bf16
  static constexpr int kModes[] = {moeModeHt, moeModeLl};
  struct Leave {
    void operator()(moeComm_t comm) const { moeCommDestroy(comm); }
  };

  int tokens_;
  std::unique_ptr<Device> device_;
  Buffer<std::byte> rows_, sums_;
  Buffer<std::int32_t> experts_;
  std::unique_ptr<moeComm, Leave> comm_;
  void* arrived_ = nullptr;
  moeHandle_t ht_ = nullptr, ll_ = nullptr;
};

// Where a benchmark runs.
struct Place {
  const char* name;
  int backend, tokens;
};
constexpr Place kPlaces[] = {{"host", moeBackendHost, 0}, {"cuda", moeBackendCuda, kTokensMax}};

using Action = std::function<void(OneRank&)>;

// Registers the benchmarks of one place. They share a rank, which is made when one runs and lives until all are gone.
class Registrar {
 public:
  explicit Registrar(const Place& place) : place_(place) {}

  // A call that leaves nothing behind.
  void addPlain(const std::string& name, const Action& call) const {
    add(name, [=](benchmark::State& state, OneRank& rank) {
      for (auto _ : state) call(rank);
    });
  }

  // A call that queues work: only it is timed, not `prepare`, `finish` and the waiting.
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
    std::unique_ptr<OneRank> rank = std::move(shared);  // and not given back if anything fails
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

void addOperations(const Registrar& place, int mode) {
  const std::string suffix = mode == moeModeHt ? "/ht" : "/ll";
  const Action send = [=](OneRank& rank) { rank.dispatch(mode, moeSendOnly); };
  const Action sendSums = [=](OneRank& rank) { rank.combine(mode, moeSendOnly); };
  const Action complete = [=](OneRank& rank) { rank.complete(mode); };
  place.addQueued("moeRoute" + suffix, [=](OneRank& rank) { rank.route(mode); });
  place.addQueued("moeDispatch" + suffix, [=](OneRank& rank) { rank.dispatch(mode, 0); });
  place.addQueued("moeCombine" + suffix, [=](OneRank& rank) { rank.combine(mode, 0); });
  place.addQueued("moeDispatch_sendOnly" + suffix, send, {}, complete);
  place.addQueued("moeComplete_dispatch" + suffix, complete, send);
  place.addQueued("moeCombine_sendOnly" + suffix, sendSums, {}, complete);
  place.addQueued("moeComplete_combine" + suffix, complete, sendSums);
  place.addPlain("moeHandleGetDeviceCounts" + suffix, [=](OneRank& rank) {
    moeDeviceCounts_t counts = MOE_DEVICE_COUNTS_INITIALIZER;
    rank.need(moeHandleGetDeviceCounts(rank.handle(mode), &counts), "moeHandleGetDeviceCounts");
    benchmark::DoNotOptimize(counts);
  });
  place.addPlain("moeHandleGetCounts" + suffix, [=](OneRank& rank) {  // of a route that has run
    moeCounts_t counts = MOE_COUNTS_INITIALIZER;
    rank.need(moeHandleGetCounts(rank.handle(mode), &counts), "moeHandleGetCounts");
    benchmark::DoNotOptimize(counts);
  });
  place.addPlain("moeHandleCreate_Destroy" + suffix, [=](OneRank& rank) {
    moeHandle_t handle = nullptr;
    rank.createHandle(mode, &handle);
    rank.need(moeHandleDestroy(handle), "moeHandleDestroy");
  });
}

void addQueries(const Registrar& place) {
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
  place.addPlain("moeMemAlloc_Free", [](OneRank& rank) {
    void* memory = nullptr;
    rank.need(moeMemAlloc(rank.comm(), 4096, &memory), "moeMemAlloc");
    rank.need(moeMemFree(rank.comm(), memory), "moeMemFree");
  });
}

// Refusals make a sentence.
void addRefusals(const Registrar& place) {
  place.addPlain("Refused_null", [](OneRank& rank) { rank.needRefusal(moeDispatch(nullptr, nullptr, nullptr)); });
  place.addPlain("Refused_tokens", [](OneRank& rank) {
    rank.needRefusal(moeRoute(rank.handle(moeModeHt), nullptr, nullptr, kTokensMax + 1, nullptr));
  });
  place.addPlain("Refused_hidden", [](OneRank& rank) {
    moeDispatchArgs_t args = MOE_DISPATCH_ARGS_INITIALIZER;
    args.hidden = 7;
    rank.needRefusal(moeDispatch(rank.handle(moeModeHt), &args, nullptr));
  });
}

}  // namespace

void addApiBenchmarks() {
  for (const Place& where : kPlaces) {
    const Registrar place(where);
    addOperations(place, moeModeHt);
    addOperations(place, moeModeLl);
    addQueries(place);
  }
  addRefusals(Registrar(kPlaces[0]));  // the same on both
}

}  // namespace moe::perf
