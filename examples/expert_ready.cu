// A combine that sends rows while the experts still make them. A kernel stands for the experts' second GEMM as it is
// when few tokens come to each expert: it is as slow as it reads the weights. It makes tiles of 128 rows and 128
// columns and adds 1 to the word of its 128 rows behind each. On a second stream, the first part of moeCombine runs
// beside it on a few multiprocessors and sends rows when all tiles of theirs have counted. moeComplete sums on all of
// them, when the kernel has ended. The program compares the bits of both ways with each other and with the right sums,
// and prints what the second way saves.
//   moerun -n 4 ./expert_ready [tokens [hidden [sms [inner [topk [ht]]]]]]
// `sms`: multiprocessors of the part that runs beside. `inner`: weights of a column, a byte each. A row leaves when all
// experts of its token that are on this rank have made it, so a large `topk` on few ranks leaves little to do beside
// the kernel. Low latency, in which each row leaves by itself, unless the last argument is ht.
#include <cuda_runtime.h>
#include <moecomm.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "expert_example.h"

namespace {

constexpr int kExpertsPerRank = 16, kBlockRows = 128, kTileColumns = 128, kRuns = 20, kWarmUp = 3, kSkipped = 77;
constexpr int kTeams = 2, kTeamThreads = 512;  // of a thread block: while one team stores rows, the other reads weights

struct Options {
  int tokens = 512, hidden = 4096, sms = 16, inner = 2048, topk = 2;
  int mode = moeModeLl;
};

// The weights of a tile's columns are zeros here: what they add to the rows changes no bit.
__device__ float sumOfWeights(const uint4* weights, int64_t first, int count, int thread) {
  unsigned sum = 0;
#pragma unroll 8
  for (int i = thread; i < count; i += kTeamThreads) {
    const uint4 piece = weights[first + i];
    sum |= piece.x | piece.y | piece.z | piece.w;
  }
  return static_cast<float>(sum);
}

// Teams take tiles in turn, those of a block of rows one behind the other.
__global__ void makeRows(const float* rows, float* made, const int32_t* offsets, const uint4* weights, int inner,
                         int firstExpert, int hidden, uint32_t* ready) {
  const int tiles = hidden / kTileColumns, blocks = (offsets[kExpertsPerRank] + kBlockRows - 1) / kBlockRows;
  const int tileWeights = kTileColumns * inner / static_cast<int>(sizeof(uint4));
  const int team = static_cast<int>(threadIdx.x) / kTeamThreads, thread = static_cast<int>(threadIdx.x) % kTeamThreads;
  for (int tile = static_cast<int>(blockIdx.x) * kTeams + team; tile < blocks * tiles;
       tile += static_cast<int>(gridDim.x) * kTeams) {
    const int block = tile / tiles, column = tile % tiles, row = block * kBlockRows;
    int expert = 0;
    while (expert + 1 < kExpertsPerRank && offsets[expert + 1] <= row) ++expert;
    const float zero = sumOfWeights(weights, (int64_t{expert} * tiles + column) * tileWeights, tileWeights, thread);
    const float factor = static_cast<float>(firstExpert + expert + 1);
    const int64_t begin = int64_t{row} * hidden + column * kTileColumns;
#pragma unroll 8
    for (int i = thread; i < kBlockRows * kTileColumns; i += kTeamThreads) {
      const int64_t at = begin + int64_t{i / kTileColumns} * hidden + i % kTileColumns;
      made[at] = factor * rows[at] + zero;
    }
    asm volatile("bar.sync %0, %1;" ::"r"(team + 1), "n"(kTeamThreads) : "memory");  // the whole tile is stored ...
    if (thread == 0) {
      asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(ready + block) : "memory");  // ... before this
    }
  }
}

// A rank with its rows, and the two ways of combining them.
class Rank {
 public:
  Rank(moeComm_t comm, const moeCommInfo_t& info, const Options& options)
      : comm_(comm), info_(info), options_(options) {
    CHECK_CUDA(cudaSetDevice(info.device));
    CHECK_CUDA(cudaStreamCreate(&stream_));
    CHECK_CUDA(cudaStreamCreate(&expertStream_));
    for (cudaEvent_t* event : {&begin_, &made_, &end_}) CHECK_CUDA(cudaEventCreate(event));
    cudaDeviceProp properties{};
    CHECK_CUDA(cudaGetDeviceProperties(&properties, info.device));
    multiprocessors_ = properties.multiProcessorCount;
    makeHandle();
    makeMemory();
  }

  int run() {
    dispatch();
    const double kernel = measure([&] { makeRowsOn(multiprocessors_); });
    const double behind = measure([&] { combineBehind(); });
    const std::vector<float> first = sums();
    const double beside = measure([&] { combineBeside(); });
    const std::vector<float> second = sums();
    const bool same = std::memcmp(first.data(), second.data(), first.size() * 4) == 0;
    const int wrong = wrongElements(first);
    const double combine = behind - kernel;
    std::printf(
        "rank %d: %d elements are wrong, bits are %s; kernel %.1f us, then combine %.1f us: %.1f us; beside on %d SMs: "
        "%.1f us, which saves %.0f %% of the combine\n",
        info_.rank, wrong, same ? "the same" : "NOT the same", kernel, combine, behind, options_.sms, beside,
        100 * (behind - beside) / combine);
    return same && wrong == 0 ? 0 : 1;
  }

 private:
  void makeHandle() {
    moeHandleConfig_t shape = MOE_HANDLE_CONFIG_INITIALIZER;
    shape.experts = kExpertsPerRank * info_.nranks, shape.topk = options_.topk;
    shape.layout = moeLayoutExpertMajor, shape.expertAlignment = kBlockRows, shape.mode = options_.mode;
    CHECK(comm_, moeHandleCreate(&handle_, comm_, &shape));
    CHECK(comm_, moeHandleGetDeviceCounts(handle_, &counts_));
    routing_ = drawRouting(info_.rank, options_.tokens, options_.topk, shape.experts);
  }
  void makeMemory() {
    const auto hidden = static_cast<std::size_t>(options_.hidden);
    const std::size_t arriving =
        static_cast<std::size_t>(options_.tokens) * options_.topk * static_cast<std::size_t>(info_.nranks);
    rowsMax_ = arriving + kExpertsPerRank * kBlockRows;
    input_.resize(static_cast<std::size_t>(options_.tokens) * hidden);
    for (std::size_t i = 0; i < input_.size(); ++i) {
      input_[i] = static_cast<float>(i % 31) + static_cast<float>(info_.rank);
    }
    experts_ = onDevice<int32_t>(routing_.experts.size());
    rows_ = onDevice<float>(input_.size()), out_ = onDevice<float>(input_.size());
    arrived_ = onDevice<float>(rowsMax_ * hidden), results_ = onDevice<float>(rowsMax_ * hidden);
    ready_ = onDevice<uint32_t>(rowsMax_ / kBlockRows + 1);
    weights_ = onDevice<uint4>(kExpertsPerRank * hidden * static_cast<std::size_t>(options_.inner) / sizeof(uint4));
    CHECK_CUDA(cudaMemcpy(experts_, routing_.experts.data(), routing_.experts.size() * 4, cudaMemcpyHostToDevice));
    CHECK_CUDA(cudaMemcpy(rows_, input_.data(), input_.size() * 4, cudaMemcpyHostToDevice));
  }

  void dispatch() {
    moeDispatchArgs_t args = MOE_DISPATCH_ARGS_INITIALIZER;
    args.rows = rows_, args.rowType = moeRowFp32, args.hidden = options_.hidden;
    args.outRows = arrived_, args.outRowsMax = static_cast<int64_t>(rowsMax_);
    CHECK(comm_, moeRoute(handle_, experts_, nullptr, options_.tokens, stream_));
    CHECK(comm_, moeDispatch(handle_, &args, stream_));
    moeCounts_t counts = MOE_COUNTS_INITIALIZER;
    CHECK(comm_, moeHandleGetCounts(handle_, &counts));
    CHECK_CUDA(cudaStreamSynchronize(stream_));
  }

  // Each run counts every block's word up by as many as it has tiles, so the next one has a higher target.
  void makeRowsOn(int blocks) {
    ++runs_;
    CHECK_CUDA(
        cudaMemsetAsync(results_, 0xff, rowsMax_ * static_cast<std::size_t>(options_.hidden) * 4, expertStream_));
    CHECK_CUDA(cudaEventRecord(begin_, expertStream_));
    makeRows<<<blocks, kTeams * kTeamThreads, 0, expertStream_>>>(arrived_, results_, counts_.expertOffsets, weights_,
                                                                  options_.inner, kExpertsPerRank * info_.rank,
                                                                  options_.hidden, ready_);
    CHECK_CUDA(cudaGetLastError());
    CHECK_CUDA(cudaEventRecord(made_, expertStream_));
    last_ = made_;
  }
  moeCombineArgs_t combineArgs() const {
    moeCombineArgs_t args = MOE_COMBINE_ARGS_INITIALIZER;
    args.rows = results_, args.rowType = moeRowFp32, args.hidden = options_.hidden, args.out = out_;
    return args;
  }
  void noteEnd() {
    CHECK_CUDA(cudaEventRecord(end_, stream_));
    last_ = end_;
  }
  void combineBehind() {
    const moeCombineArgs_t args = combineArgs();
    makeRowsOn(multiprocessors_);
    CHECK_CUDA(cudaStreamWaitEvent(stream_, made_));
    CHECK(comm_, moeCombine(handle_, &args, stream_));
    noteEnd();
  }
  // The kernel leaves the multiprocessors of the combine's first part free: it must be able to run while that waits.
  // That part starts when the rows of the run before were wiped, the second one when the kernel has ended.
  void combineBeside() {
    moeCombineArgs_t args = combineArgs();
    args.flags = moeSendOnly, args.sms = options_.sms, args.completeSms = multiprocessors_;
    args.ready = ready_, args.readyRows = kBlockRows;
    makeRowsOn(std::max(multiprocessors_ - options_.sms, 1));
    args.readyValue = runs_ * static_cast<uint32_t>(options_.hidden / kTileColumns);
    CHECK_CUDA(cudaStreamWaitEvent(stream_, begin_));
    CHECK(comm_, moeCombine(handle_, &args, stream_));
    CHECK_CUDA(cudaStreamWaitEvent(stream_, made_));
    CHECK(comm_, moeComplete(handle_, stream_));
    noteEnd();
  }

  // The median time of a way, in microseconds. Ranks run it together, because each combine waits for all.
  template <class Way>
  double measure(Way way) {
    std::vector<float> times;
    for (int run = 0; run < kWarmUp + kRuns; ++run) {
      way();
      CHECK_CUDA(cudaEventSynchronize(last_));
      CHECK_CUDA(cudaStreamSynchronize(expertStream_));
      float ms = 0;
      CHECK_CUDA(cudaEventElapsedTime(&ms, begin_, last_));
      if (run >= kWarmUp) times.push_back(1000 * ms);
    }
    std::sort(times.begin(), times.end());
    return static_cast<double>(times[times.size() / 2]);
  }
  std::vector<float> sums() const {
    std::vector<float> values(input_.size());
    CHECK_CUDA(cudaMemcpy(values.data(), out_, values.size() * 4, cudaMemcpyDeviceToHost));
    return values;
  }
  int wrongElements(const std::vector<float>& values) const {
    int wrong = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      wrong += values[i] != routing_.sums[i / static_cast<std::size_t>(options_.hidden)] * input_[i];
    }
    return wrong;
  }

  moeComm_t comm_;
  moeCommInfo_t info_;
  Options options_;
  int multiprocessors_ = 0;
  cudaStream_t stream_ = nullptr, expertStream_ = nullptr;
  cudaEvent_t begin_ = nullptr, made_ = nullptr, end_ = nullptr, last_ = nullptr;
  moeHandle_t handle_ = nullptr;
  moeDeviceCounts_t counts_ = MOE_DEVICE_COUNTS_INITIALIZER;
  Routing routing_;
  std::size_t rowsMax_ = 0;
  std::vector<float> input_;
  int32_t* experts_ = nullptr;
  float *rows_ = nullptr, *out_ = nullptr, *arrived_ = nullptr, *results_ = nullptr;
  uint4* weights_ = nullptr;
  uint32_t *ready_ = nullptr, runs_ = 0;
};

Options optionsOf(int argc, char** argv) {
  Options options;
  int* fields[] = {&options.tokens, &options.hidden, &options.sms, &options.inner, &options.topk};
  for (int i = 1; i < argc && i <= 5; ++i) {
    *fields[i - 1] = std::atoi(argv[i]);
    if (*fields[i - 1] > 0 && options.hidden % kTileColumns == 0) continue;
    std::fprintf(stderr, "argument %d is %s, must be a number above 0, and hidden a multiple of %d\n", i, argv[i],
                 kTileColumns);
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
  config.rowBytesMax = options.hidden * static_cast<int>(sizeof(float));
  config.topkMax = options.topk;
  moeComm_t comm = nullptr;
  CHECK(nullptr, moeCommInitFromEnv(&comm, &config));
  moeCommInfo_t info = MOE_COMM_INFO_INITIALIZER;
  CHECK(comm, moeCommGetInfo(comm, &info));
  const int status = Rank(comm, info, options).run();
  CHECK(comm, moeCommDestroy(comm)); /* frees the handle too */
  return status;
}
