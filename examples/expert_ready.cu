// A combine that sends rows while the experts still make them. A kernel stands for the experts' second GEMM as it is
// when few tokens come to each expert: it is as slow as it reads the weights. It makes tiles of 128 rows and 128
// columns and adds 1 to the word of its 128 rows behind each. Like the GEMMs of engines it takes no more
// multiprocessors than its waves of tiles need. On a second stream, the first part of moeCombine runs beside it on the
// others and sends rows when all tiles of theirs have counted. moeComplete sums on all multiprocessors, when the kernel
// has ended. The program compares the bits of both ways with each other and with the right sums, and prints what the
// second way saves.
//   moerun -n 4 ./expert_ready [tokens [hidden [sms [inner [topk [ht]]]]]]
// `sms`: multiprocessors of the part that runs beside; 0: those that the kernel leaves idle, at least 16. `inner`:
// bytes of weights per column. A row leaves when all experts of its token that are on this rank have made it, so a
// large `topk` on few ranks leaves little to do beside the kernel. Low latency, in which each row leaves by itself,
// unless the last argument is ht.
#include <cuda_runtime.h>
#include <moecomm.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <cuda_bf16.h>

#include "expert_example.h"

namespace {

constexpr int kExpertsPerRank = 16, kBlockRows = 128, kTileColumns = 128, kRuns = 20, kWarmUp = 3, kSkipped = 77;
constexpr int kPieceValues = 8;                // bf16 of a uint4
constexpr int kTeams = 2, kTeamThreads = 512;  // of a thread block: while one team stores rows, the other reads weights
constexpr int kFewestSms = 16;                 // of the combine beside the kernel, unless an argument says how many

struct Options {
  int tokens = 1024, hidden = 7168, sms = 0, inner = 4096, topk = 2;
  int mode = moeModeLl;
};

// The weights of a tile's columns are zeros here: what they add to the rows changes no bit.
__device__ unsigned bitsOfWeights(const uint4* weights, int64_t first, int count, int thread) {
  unsigned bits = 0;
#pragma unroll 8
  for (int i = thread; i < count; i += kTeamThreads) {
    const uint4 piece = weights[first + i];
    bits |= piece.x | piece.y | piece.z | piece.w;
  }
  return bits;
}

__device__ uint4 multiplied(uint4 piece, __nv_bfloat162 factor) {
  const auto product = [factor](unsigned& word) {
    auto& pair = reinterpret_cast<__nv_bfloat162&>(word);
    pair = __hmul2(pair, factor);
  };
  product(piece.x), product(piece.y), product(piece.z), product(piece.w);
  return piece;
}

// Teams take tiles in turn, those of a block of rows one behind the other.
__global__ void makeRows(const uint4* rows, uint4* made, const int32_t* offsets, const uint4* weights, int inner,
                         int firstExpert, int hidden, uint32_t* ready) {
  constexpr int kTilePieces = kTileColumns / kPieceValues;
  const int tiles = hidden / kTileColumns, blocks = (offsets[kExpertsPerRank] + kBlockRows - 1) / kBlockRows;
  const int tileWeights = kTileColumns * inner / static_cast<int>(sizeof(uint4));
  const int team = static_cast<int>(threadIdx.x) / kTeamThreads, thread = static_cast<int>(threadIdx.x) % kTeamThreads;
  for (int tile = static_cast<int>(blockIdx.x) * kTeams + team; tile < blocks * tiles;
       tile += static_cast<int>(gridDim.x) * kTeams) {
    const int block = tile / tiles, column = tile % tiles, row = block * kBlockRows;
    int expert = 0;
    while (expert + 1 < kExpertsPerRank && offsets[expert + 1] <= row) ++expert;
    const unsigned zero = bitsOfWeights(weights, (int64_t{expert} * tiles + column) * tileWeights, tileWeights, thread);
    const __nv_bfloat162 factor = __float2bfloat162_rn(factorOf(firstExpert + expert));
    const int64_t rowPieces = hidden / kPieceValues, begin = row * rowPieces + column * kTilePieces;
#pragma unroll
    for (int i = thread; i < kBlockRows * kTilePieces; i += kTeamThreads) {
      const int64_t at = begin + i / kTilePieces * rowPieces + i % kTilePieces;
      uint4 piece = multiplied(rows[at], factor);
      piece.x |= zero;
      made[at] = piece;
    }
    asm volatile("bar.sync %0, %1;" ::"r"(team + 1), "n"(kTeamThreads) : "memory");  // the whole tile is stored ...
    if (thread == 0) {
      asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(ready + block) : "memory");  // ... before this
    }
  }
}

int quotient(int value, int by) {
  return (value + by - 1) / by;
}  // rounded up

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
    const int idle = multiprocessors_ - fewestBlocks(multiprocessors_);
    const int sms = options_.sms > 0 ? options_.sms : std::max(idle, kFewestSms);
    const double kernel = measure([&] { makeRowsOn(multiprocessors_); });
    const double behind = measure([&] { combineBehind(); });
    const std::vector<__nv_bfloat16> first = sums();
    const double beside = measure([&] { combineBeside(sms); });
    const std::vector<__nv_bfloat16> second = sums();
    const bool same = std::memcmp(first.data(), second.data(), first.size() * sizeof first[0]) == 0;
    const int wrong = wrongElements(first);
    const double combine = behind - kernel;
    std::printf(
        "rank %d: %d elements are wrong, bits are %s; kernel %.1f us, then combine %.1f us: %.1f us; kernel on %d SMs "
        "with combine on %d beside it: %.1f us, which saves %.0f %% of the combine\n",
        info_.rank, wrong, same ? "the same" : "NOT the same", kernel, combine, behind, besideBlocks(sms), sms, beside,
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
      input_[i] = __float2bfloat16(static_cast<float>((i + static_cast<std::size_t>(info_.rank)) % 4 + 1));
    }
    experts_ = onDevice<int32_t>(routing_.experts.size());
    rows_ = onDevice<__nv_bfloat16>(input_.size()), out_ = onDevice<__nv_bfloat16>(input_.size());
    const std::size_t pieces = rowsMax_ * hidden / kPieceValues;
    arrived_ = onDevice<uint4>(pieces), results_ = onDevice<uint4>(pieces);
    ready_ = onDevice<uint32_t>(rowsMax_ / kBlockRows + 1);
    weights_ = onDevice<uint4>(kExpertsPerRank * hidden * static_cast<std::size_t>(options_.inner) / sizeof(uint4));
    CHECK_CUDA(cudaMemcpy(experts_, routing_.experts.data(), routing_.experts.size() * 4, cudaMemcpyHostToDevice));
    CHECK_CUDA(cudaMemcpy(rows_, input_.data(), input_.size() * sizeof input_[0], cudaMemcpyHostToDevice));
  }

  void dispatch() {
    moeDispatchArgs_t args = MOE_DISPATCH_ARGS_INITIALIZER;
    args.rows = rows_, args.rowType = moeRowBf16, args.hidden = options_.hidden;
    args.outRows = arrived_, args.outRowsMax = static_cast<int64_t>(rowsMax_);
    CHECK(comm_, moeRoute(handle_, experts_, nullptr, options_.tokens, stream_));
    CHECK(comm_, moeDispatch(handle_, &args, stream_));
    moeCounts_t counts = MOE_COUNTS_INITIALIZER;
    CHECK(comm_, moeHandleGetCounts(handle_, &counts));
    CHECK_CUDA(cudaStreamSynchronize(stream_));
    tiles_ = quotient(counts.layoutRows, kBlockRows) * (options_.hidden / kTileColumns);
  }

  // The fewest thread blocks, one per multiprocessor, that make the tiles in as many waves as `most` of them.
  int fewestBlocks(int most) const {
    const int waves = std::max(quotient(tiles_, most * kTeams), 1);
    return std::max(quotient(tiles_, waves * kTeams), 1);
  }
  int besideBlocks(int sms) const { return fewestBlocks(std::max(multiprocessors_ - sms, 1)); }
  // Each run counts every block's word up by as many as it has tiles, so the next one has a higher target.
  void makeRowsOn(int blocks) {
    ++runs_;
    const std::size_t bytes = rowsMax_ * static_cast<std::size_t>(options_.hidden) * sizeof(__nv_bfloat16);
    CHECK_CUDA(cudaMemsetAsync(results_, 0xff, bytes, expertStream_));
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
    args.rows = results_, args.rowType = moeRowBf16, args.hidden = options_.hidden, args.out = out_;
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
  void combineBeside(int sms) {
    moeCombineArgs_t args = combineArgs();
    args.flags = moeSendOnly, args.sms = sms, args.completeSms = multiprocessors_;
    args.ready = ready_, args.readyRows = kBlockRows;
    makeRowsOn(besideBlocks(sms));
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
  std::vector<__nv_bfloat16> sums() const {
    std::vector<__nv_bfloat16> values(input_.size());
    CHECK_CUDA(cudaMemcpy(values.data(), out_, values.size() * sizeof values[0], cudaMemcpyDeviceToHost));
    return values;
  }
  int wrongElements(const std::vector<__nv_bfloat16>& values) const {
    int wrong = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const float sum = routing_.sums[i / static_cast<std::size_t>(options_.hidden)] * __bfloat162float(input_[i]);
      wrong += __bfloat162float(values[i]) != sum;
    }
    return wrong;
  }

  moeComm_t comm_;
  moeCommInfo_t info_;
  Options options_;
  int multiprocessors_ = 0, tiles_ = 0;
  cudaStream_t stream_ = nullptr, expertStream_ = nullptr;
  cudaEvent_t begin_ = nullptr, made_ = nullptr, end_ = nullptr, last_ = nullptr;
  moeHandle_t handle_ = nullptr;
  moeDeviceCounts_t counts_ = MOE_DEVICE_COUNTS_INITIALIZER;
  Routing routing_;
  std::size_t rowsMax_ = 0;
  std::vector<__nv_bfloat16> input_;
  int32_t* experts_ = nullptr;
  __nv_bfloat16 *rows_ = nullptr, *out_ = nullptr;
  uint4 *arrived_ = nullptr, *results_ = nullptr, *weights_ = nullptr;
  uint32_t *ready_ = nullptr, runs_ = 0;
};

Options optionsOf(int argc, char** argv) {
  Options options;
  int* fields[] = {&options.tokens, &options.hidden, &options.sms, &options.inner, &options.topk};
  for (int i = 1; i < argc && i <= 5; ++i) {
    *fields[i - 1] = std::atoi(argv[i]);
    if (*fields[i - 1] >= (i == 3 ? 0 : 1) && options.hidden % kTileColumns == 0) continue;
    std::fprintf(stderr, "argument %d is %s, must be a number above 0 (sms: or 0), and hidden a multiple of %d\n", i,
                 argv[i], kTileColumns);
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
