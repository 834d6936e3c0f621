// A combine that sends rows while the experts still make them. The experts' second GEMM (expert_gemm.h) makes tiles of
// 128 rows and adds 1 to the word of its rows behind each. Like the GEMMs of engines it takes no more multiprocessors
// than its waves of tiles need. On a second stream, the first part of moeCombine runs beside it on other
// multiprocessors and sends rows when all tiles of theirs have counted. When the GEMM has ended, moeComplete sends the
// rest and sums, on all multiprocessors. The program compares the bits of both ways with each other and with the right
// sums, and prints what the second way saves of the combine. A rank whose GEMM ends before those of others counts its
// wait for them as part of the combine.
//   moerun -n 4 ./expert_ready [tokens [hidden [sms [inner [topk [ht]]]]]]
// `sms`: multiprocessors of the part that runs beside; 0: those that the GEMM leaves idle, at least 6. A row leaves
// when all experts of its token that are on this rank have made it, so a large `topk` on few ranks leaves little to do
// beside the GEMM. Low latency, in which each row leaves by itself, unless the last argument is ht.
#include <cuda_runtime.h>
#include <moecomm.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <cuda_bf16.h>

#include "expert_example.h"
#include "expert_gemm.h"

namespace {

constexpr int kExpertsPerRank = 16, kRuns = 20, kWarmUp = 3, kSkipped = 77;
constexpr int kFewestSms = 6;  // of the combine beside the GEMM, unless an argument says how many

struct Options {
  int tokens = 2560, hidden = 7168, sms = 0, inner = 2048, topk = 2;
  int mode = moeModeLl;
};

// An expert's weights make column c of a row factorOf(expert) times its column c % inner.
__global__ void setWeights(__nv_bfloat16* weights, int firstExpert, int inner, int hidden) {
  const int depth = static_cast<int>(blockIdx.x), expert = static_cast<int>(blockIdx.y);
  __nv_bfloat16* row = weights + (std::int64_t{expert} * inner + depth) * hidden;
  for (int column = static_cast<int>(threadIdx.x); column < hidden; column += static_cast<int>(blockDim.x)) {
    row[column] = __float2bfloat16(column % inner == depth ? factorOf(firstExpert + expert) : 0.0f);
  }
}

// Rounded up.
int quotient(int value, int by) {
  return (value + by - 1) / by;
}

// A rank with its rows, and the two ways of combining them.
class Rank {
 public:
  Rank(moeComm_t comm, const moeCommInfo_t& info, const Options& options)
      : comm_(comm), info_(info), options_(options) {
    CHECK_CUDA(cudaSetDevice(info.device));
    CHECK_CUDA(cudaStreamCreate(&stream_));
    CHECK_CUDA(cudaStreamCreate(&expertStream_));
    for (cudaEvent_t* event : {&begin_, &made_, &sent_, &end_}) CHECK_CUDA(cudaEventCreate(event));
    cudaDeviceProp properties{};
    CHECK_CUDA(cudaGetDeviceProperties(&properties, info.device));
    multiprocessors_ = properties.multiProcessorCount;
    makeHandle();
    makeMemory();
  }

  int run() {
    dispatch();
    const int idle = multiprocessors_ - fewestBlocks(multiprocessors_);
    const int sms = options_.sms > 0 ? options_.sms : std::max(idle, kFewestSms);
    const double gemm = measure([&] { makeRowsOn(multiprocessors_); }, {&made_})[0];
    const double behind = measure([&] { combineBehind(); }, {&end_})[0];
    const std::vector<__nv_bfloat16> first = sums();
    const std::vector<double> parts = measure([&] { combineBeside(sms); }, {&made_, &sent_, &end_});
    const std::vector<__nv_bfloat16> second = sums();
    const bool same = std::memcmp(first.data(), second.data(), first.size() * sizeof first[0]) == 0;
    const int wrong = wrongElements(first);
    const double combine = behind - gemm, beside = parts[2];
    std::printf(
        "rank %d: %d elements are wrong, bits are %s\n"
        "rank %d: GEMM %.1f us, then combine %.1f us: %.1f us\n"
        "rank %d: GEMM on %d SMs %.1f us, combine on %d beside it: sent after %.1f us, all %.1f us; saves %.0f %%\n",
        info_.rank, wrong, same ? "the same" : "NOT the same", info_.rank, gemm, combine, behind, info_.rank,
        besideBlocks(sms), parts[0], sms, parts[1], beside, 100 * (behind - beside) / combine);
    return same && wrong == 0 ? 0 : 1;
  }

 private:
  void makeHandle() {
    moeHandleConfig_t shape = MOE_HANDLE_CONFIG_INITIALIZER;
    shape.experts = kExpertsPerRank * info_.nranks;
    shape.topk = options_.topk;
    shape.layout = moeLayoutExpertMajor;
    shape.expertAlignment = expert_gemm::kTileRows;
    shape.mode = options_.mode;
    CHECK(comm_, moeHandleCreate(&handle_, comm_, &shape));
    CHECK(comm_, moeHandleGetDeviceCounts(handle_, &counts_));
    routing_ = drawRouting(info_.rank, options_.tokens, options_.topk, shape.experts);
  }
  void makeMemory() {
    const auto hidden = static_cast<std::size_t>(options_.hidden);
    const std::size_t arriving =
        static_cast<std::size_t>(options_.tokens) * options_.topk * static_cast<std::size_t>(info_.nranks);
    rowsMax_ = arriving + kExpertsPerRank * expert_gemm::kTileRows;
    input_.resize(static_cast<std::size_t>(options_.tokens) * hidden);
    for (std::size_t i = 0; i < input_.size(); ++i) {
      input_[i] = __float2bfloat16(static_cast<float>((i + static_cast<std::size_t>(info_.rank)) % 4 + 1));
    }
    experts_ = onDevice<int32_t>(routing_.experts.size());
    rows_ = onDevice<__nv_bfloat16>(input_.size());
    out_ = onDevice<__nv_bfloat16>(input_.size());
    arrived_ = onDevice<__nv_bfloat16>(rowsMax_ * hidden);
    results_ = onDevice<__nv_bfloat16>(rowsMax_ * hidden);
    ready_ = onDevice<uint32_t>(rowsMax_ / expert_gemm::kTileRows + 1);
    weights_ = onDevice<__nv_bfloat16>(kExpertsPerRank * hidden * static_cast<std::size_t>(options_.inner));
    setWeights<<<dim3(options_.inner, kExpertsPerRank), 256>>>(weights_, kExpertsPerRank * info_.rank, options_.inner,
                                                               options_.hidden);
    CHECK_CUDA(cudaGetLastError());
    CHECK_CUDA(cudaFuncSetAttribute(expert_gemm::makeRows, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    expert_gemm::kSharedBytes));
    CHECK_CUDA(cudaMemcpy(experts_, routing_.experts.data(), routing_.experts.size() * 4, cudaMemcpyHostToDevice));
    CHECK_CUDA(cudaMemcpy(rows_, input_.data(), input_.size() * sizeof input_[0], cudaMemcpyHostToDevice));
  }

  void dispatch() {
    moeDispatchArgs_t args = MOE_DISPATCH_ARGS_INITIALIZER;
    args.rows = rows_;
    args.rowType = moeRowBf16;
    args.hidden = options_.hidden;
    args.outRows = arrived_;
    args.outRowsMax = static_cast<int64_t>(rowsMax_);
    CHECK(comm_, moeRoute(handle_, experts_, nullptr, options_.tokens, stream_));
    CHECK(comm_, moeDispatch(handle_, &args, stream_));
    moeCounts_t counts = MOE_COUNTS_INITIALIZER;
    CHECK(comm_, moeHandleGetCounts(handle_, &counts));
    CHECK_CUDA(cudaStreamSynchronize(stream_));
    tiles_ = quotient(counts.layoutRows, expert_gemm::kTileRows) * columnTiles();
  }

  int columnTiles() const { return options_.hidden / expert_gemm::kTileColumns; }

  // The fewest thread blocks, one per multiprocessor, that make the tiles in as many waves as `most` of them.
  int fewestBlocks(int most) const {
    const int waves = std::max(quotient(tiles_, most), 1);
    return std::max(quotient(tiles_, waves), 1);
  }
  int besideBlocks(int sms) const { return fewestBlocks(std::max(multiprocessors_ - sms, 1)); }
  // Each run counts every block's word up by as many as it has tiles, so the next one has a higher target.
  void makeRowsOn(int blocks) {
    ++runs_;
    const std::size_t bytes = rowsMax_ * static_cast<std::size_t>(options_.hidden) * sizeof(__nv_bfloat16);
    CHECK_CUDA(cudaMemsetAsync(results_, 0xff, bytes, expertStream_));
    CHECK_CUDA(cudaEventRecord(begin_, expertStream_));
    const expert_gemm::Problem problem{arrived_, weights_,        results_,        counts_.expertOffsets,
                                       ready_,   kExpertsPerRank, options_.hidden, options_.inner};
    expert_gemm::makeRows<<<blocks, expert_gemm::kThreads, expert_gemm::kSharedBytes, expertStream_>>>(problem);
    CHECK_CUDA(cudaGetLastError());
    CHECK_CUDA(cudaEventRecord(made_, expertStream_));
  }
  moeCombineArgs_t combineArgs() const {
    moeCombineArgs_t args = MOE_COMBINE_ARGS_INITIALIZER;
    args.rows = results_;
    args.rowType = moeRowBf16;
    args.hidden = options_.hidden;
    args.out = out_;
    return args;
  }
  void combineBehind() {
    const moeCombineArgs_t args = combineArgs();
    makeRowsOn(multiprocessors_);
    CHECK_CUDA(cudaStreamWaitEvent(stream_, made_));
    CHECK(comm_, moeCombine(handle_, &args, stream_));
    CHECK_CUDA(cudaEventRecord(end_, stream_));
  }
  // The GEMM leaves the multiprocessors of the combine's first part free: it must be able to run while that waits.
  // That part starts when the rows of the run before were wiped, the second one when the kernel has ended.
  void combineBeside(int sms) {
    moeCombineArgs_t args = combineArgs();
    args.flags = moeSendOnly;
    args.sms = sms;
    moeReady_t ready = MOE_READY_INITIALIZER;
    ready.words = ready_;
    ready.blockRows = expert_gemm::kTileRows;
    ready.completeSms = multiprocessors_;
    args.ready = &ready;
    makeRowsOn(besideBlocks(sms));
    ready.value = runs_ * static_cast<uint32_t>(columnTiles());
    CHECK_CUDA(cudaStreamWaitEvent(stream_, begin_));
    CHECK(comm_, moeCombine(handle_, &args, stream_));
    CHECK_CUDA(cudaEventRecord(sent_, stream_));
    CHECK_CUDA(cudaStreamWaitEvent(stream_, made_));
    CHECK(comm_, moeComplete(handle_, stream_));
    CHECK_CUDA(cudaEventRecord(end_, stream_));
  }

  // How long after its beginning a way comes to each of some events, in microseconds, the medians of all runs. Ranks
  // run it together, because each combine waits for all.
  template <class Way>
  std::vector<double> measure(Way way, const std::vector<cudaEvent_t*>& events) {
    std::vector<std::vector<float>> times(events.size());
    for (int run = 0; run < kWarmUp + kRuns; ++run) {
      way();
      CHECK_CUDA(cudaEventSynchronize(*events.back()));
      CHECK_CUDA(cudaStreamSynchronize(expertStream_));
      for (std::size_t i = 0; i < events.size() && run >= kWarmUp; ++i) {
        float ms = 0;
        CHECK_CUDA(cudaEventElapsedTime(&ms, begin_, *events[i]));
        times[i].push_back(1000 * ms);
      }
    }
    std::vector<double> medians;
    for (std::vector<float>& each : times) {
      std::sort(each.begin(), each.end());
      medians.push_back(static_cast<double>(each[each.size() / 2]));
    }
    return medians;
  }
  std::vector<__nv_bfloat16> sums() const {
    std::vector<__nv_bfloat16> values(input_.size());
    CHECK_CUDA(cudaMemcpy(values.data(), out_, values.size() * sizeof values[0], cudaMemcpyDeviceToHost));
    return values;
  }
  int wrongElements(const std::vector<__nv_bfloat16>& values) const {
    const auto hidden = static_cast<std::size_t>(options_.hidden), inner = static_cast<std::size_t>(options_.inner);
    int wrong = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::size_t token = i / hidden, from = token * hidden + i % hidden % inner;
      wrong += __bfloat162float(values[i]) != routing_.sums[token] * __bfloat162float(input_[from]);
    }
    return wrong;
  }

  moeComm_t comm_;
  moeCommInfo_t info_;
  Options options_;
  int multiprocessors_ = 0, tiles_ = 0;
  cudaStream_t stream_ = nullptr, expertStream_ = nullptr;
  cudaEvent_t begin_ = nullptr, made_ = nullptr, sent_ = nullptr, end_ = nullptr;
  moeHandle_t handle_ = nullptr;
  moeDeviceCounts_t counts_ = MOE_DEVICE_COUNTS_INITIALIZER;
  Routing routing_;
  std::size_t rowsMax_ = 0;
  std::vector<__nv_bfloat16> input_;
  int32_t* experts_ = nullptr;
  __nv_bfloat16 *rows_ = nullptr, *out_ = nullptr, *arrived_ = nullptr, *results_ = nullptr, *weights_ = nullptr;
  uint32_t *ready_ = nullptr, runs_ = 0;
};

Options optionsOf(int argc, char** argv) {
  Options options;
  int* fields[] = {&options.tokens, &options.hidden, &options.sms, &options.inner, &options.topk};
  for (int i = 1; i < argc && i <= 5; ++i) {
    *fields[i - 1] = std::atoi(argv[i]);
    if (*fields[i - 1] >= (i == 3 ? 0 : 1)) continue;
    std::fprintf(stderr, "argument %d is %s, must be a number above 0 (sms: or 0)\n", i, argv[i]);
    std::exit(2);
  }
  if (options.hidden % expert_gemm::kTileColumns != 0 || options.inner % expert_gemm::kDepth != 0 ||
      options.inner > options.hidden) {
    std::fprintf(stderr, "hidden is %d, must be a multiple of %d; inner is %d, must be a multiple of %d up to hidden\n",
                 options.hidden, expert_gemm::kTileColumns, options.inner, expert_gemm::kDepth);
    std::exit(2);
  }
  if (argc > 6 && std::strcmp(argv[6], "ht") == 0) options.mode = moeModeHt;
  return options;
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = optionsOf(argc, argv);
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::fprintf(stderr, "there is no GPU\n");
    return kSkipped;
  }
  const char* localRank = std::getenv("MOECOMM_LOCAL_RANK"); /* moerun's */
  moeConfig_t config = MOE_CONFIG_INITIALIZER;
  config.backend = moeBackendCuda;
  config.device = localRank != nullptr ? std::atoi(localRank) % devices : 0;
  config.modes = options.mode;
  (options.mode == moeModeHt ? config.tokensMax : config.llTokensMax) = options.tokens;
  config.rowBytesMax = options.hidden * static_cast<int>(sizeof(__nv_bfloat16));
  config.topkMax = options.topk;
  moeComm_t comm = nullptr;
  CHECK(nullptr, moeCommInitFromEnv(&comm, &config));
  moeCommInfo_t info = MOE_COMM_INFO_INITIALIZER;
  CHECK(comm, moeCommGetInfo(comm, &info));
  const int status = Rank(comm, info, options).run();
  CHECK(comm, moeCommDestroy(comm)); /* frees the handle too */
  return status;
}
