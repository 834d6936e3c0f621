// Experts that start before dispatch has ended. A kernel with one block per local expert is launched right behind
// moeDispatch and runs beside it. Each block waits for its expert's arrival word and then multiplies the expert's rows,
// while rows of other experts are still on their way. The program prints how long before the end of dispatch the
// experts started. Run it on GPUs of compute capability 9.0 or newer: moerun -n 4 ./expert_overlap
#include <cuda_runtime.h>
#include <moecomm.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "expert_example.h"

namespace {

constexpr int kTokens = 4096, kTopk = 8, kHidden = 2048, kExpertsPerRank = 16, kRuns = 5, kSkipped = 77;

__device__ unsigned long long nanoseconds() {
  unsigned long long now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

// Returns true when the word has counted `dispatches`. Gives up after 10 s, and once dispatch has failed.
__device__ bool waitForExpert(const moeArrivals_t& arrivals, int expert, uint64_t dispatches) {
  const unsigned long long begin = nanoseconds();
  while (nanoseconds() - begin < 10'000'000'000ull) {
    uint64_t word;
    asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(word) : "l"(arrivals.words + expert) : "memory");
    if (word >> MOE_ARRIVAL_SHIFT >= dispatches) return true;
    if (*static_cast<const volatile uint32_t*>(arrivals.failed) != 0) return false;
    __nanosleep(100);
  }
  return false;
}

// came[e] is the time when block e started; came[experts] is the end of dispatch.
__global__ void runExperts(moeArrivals_t arrivals, moeDeviceCounts_t counts, int firstExpert, uint64_t dispatches,
                           const float* rows, float* out, unsigned long long* came) {
  __shared__ bool there;
  const int expert = static_cast<int>(blockIdx.x);
  if (threadIdx.x == 0) {
    there = waitForExpert(arrivals, expert, dispatches);
    came[expert] = nanoseconds();
  }
  __syncthreads();
  if (there) {
    const int64_t begin = int64_t{counts.expertOffsets[expert]} * kHidden;
    const int64_t count = int64_t{counts.rowsPerExpert[expert]} * kHidden;
    const float factor = factorOf(firstExpert + expert);
    for (int64_t i = threadIdx.x; i < count; i += blockDim.x) out[begin + i] = factor * rows[begin + i];
  }
  // The next operation in the stream waits for this kernel, so this kernel waits for dispatch.
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
  if (expert == 0 && threadIdx.x == 0) came[gridDim.x] = nanoseconds();
}

// Launches the kernel as a programmatic dependent of the one ahead in the stream: it starts when all blocks of that one
// run.
void launchExperts(int experts, cudaStream_t stream, moeArrivals_t arrivals, moeDeviceCounts_t counts, int firstExpert,
                   uint64_t dispatches, const float* rows, float* out, unsigned long long* came) {
  cudaLaunchAttribute dependent{};
  dependent.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  dependent.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(experts));
  config.blockDim = dim3(256);
  config.stream = stream;
  config.attrs = &dependent;
  config.numAttrs = 1;
  CHECK_CUDA(cudaLaunchKernelEx(&config, runExperts, arrivals, counts, firstExpert, dispatches, rows, out, came));
}

// A rank's work: `kRuns` steps, the last of which is verified.
int runRank(moeComm_t comm, const moeCommInfo_t& info) {
  CHECK_CUDA(cudaSetDevice(info.device));
  cudaStream_t stream = nullptr;
  CHECK_CUDA(cudaStreamCreate(&stream));
  moeHandleConfig_t shape = MOE_HANDLE_CONFIG_INITIALIZER;
  shape.experts = kExpertsPerRank * info.nranks;
  shape.topk = kTopk;
  shape.layout = moeLayoutExpertMajor;
  shape.mode = moeModeHt;
  shape.arrivals = 1;
  moeHandle_t handle = nullptr;
  CHECK(comm, moeHandleCreate(&handle, comm, &shape));
  moeArrivals_t arrivals = MOE_ARRIVALS_INITIALIZER;
  CHECK(comm, moeHandleGetArrivals(handle, &arrivals));
  moeDeviceCounts_t counts = MOE_DEVICE_COUNTS_INITIALIZER;
  CHECK(comm, moeHandleGetDeviceCounts(handle, &counts));

  const Routing routing = drawRouting(info.rank, kTokens, kTopk, shape.experts);
  std::vector<float> input(std::size_t{kTokens} * kHidden), output(input.size());
  for (std::size_t i = 0; i < input.size(); ++i) input[i] = static_cast<float>(i % 31) + static_cast<float>(info.rank);
  const std::size_t rowsMax = std::size_t{kTokens} * kTopk * static_cast<std::size_t>(info.nranks);
  void* arrived = nullptr;
  CHECK(comm, moeMemAlloc(comm, rowsMax * kHidden * sizeof(float), &arrived));
  auto* experts = onDevice<int32_t>(routing.experts.size());
  auto *rows = onDevice<float>(input.size()), *made = onDevice<float>(rowsMax * kHidden);
  auto* sums = onDevice<float>(output.size());
  auto* came = onDevice<unsigned long long>(kExpertsPerRank + 1);
  CHECK_CUDA(cudaMemcpy(experts, routing.experts.data(), routing.experts.size() * 4, cudaMemcpyHostToDevice));
  CHECK_CUDA(cudaMemcpy(rows, input.data(), input.size() * 4, cudaMemcpyHostToDevice));

  moeDispatchArgs_t dispatch = MOE_DISPATCH_ARGS_INITIALIZER;
  dispatch.rows = rows;
  dispatch.rowType = moeRowFp32;
  dispatch.hidden = kHidden;
  dispatch.outRows = arrived;
  dispatch.outRowsMax = static_cast<int64_t>(rowsMax);
  moeCombineArgs_t combine = MOE_COMBINE_ARGS_INITIALIZER;
  combine.rows = made;
  combine.rowType = moeRowFp32;
  combine.hidden = kHidden;
  combine.out = sums;
  CHECK(comm, moeRoute(handle, experts, nullptr, kTokens, stream));
  for (uint64_t run = 1; run <= kRuns; ++run) {
    CHECK(comm, moeDispatch(handle, &dispatch, stream));
    launchExperts(kExpertsPerRank, stream, arrivals, counts, kExpertsPerRank * info.rank, run,
                  static_cast<const float*>(arrived), made, came);
    CHECK(comm, moeCombine(handle, &combine, stream));
  }
  CHECK_CUDA(cudaStreamSynchronize(stream));

  unsigned long long times[kExpertsPerRank + 1];
  CHECK_CUDA(cudaMemcpy(times, came, sizeof times, cudaMemcpyDeviceToHost));
  CHECK_CUDA(cudaMemcpy(output.data(), sums, output.size() * 4, cudaMemcpyDeviceToHost));
  int wrong = 0;
  for (std::size_t i = 0; i < output.size(); ++i) wrong += output[i] != routing.sums[i / kHidden] * input[i];
  const auto early = [&](int expert) {
    return (static_cast<double>(times[kExpertsPerRank]) - static_cast<double>(times[expert])) / 1000;
  };
  std::printf(
      "rank %d: %d elements are wrong; experts began %.0f (first), %.0f (middle), %.0f (last) us before the end "
      "of dispatch\n",
      info.rank, wrong, early(0), early(kExpertsPerRank / 2), early(kExpertsPerRank - 1));
  return wrong != 0;
}

}  // namespace

int main() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::fprintf(stderr, "there is no GPU\n");
    return kSkipped;
  }
  const char* localRank = std::getenv("MOECOMM_LOCAL_RANK"); /* moerun's */
  moeConfig_t config = MOE_CONFIG_INITIALIZER;
  config.backend = moeBackendCuda;
  config.device = localRank != nullptr ? std::atoi(localRank) % devices : 0;
  config.modes = moeModeHt;
  config.tokensMax = kTokens;
  config.rowBytesMax = kHidden * static_cast<int>(sizeof(float));
  config.topkMax = kTopk;
  config.heapBytes = std::size_t{2} << 30;
  moeComm_t comm = nullptr;
  CHECK(nullptr, moeCommInitFromEnv(&comm, &config));
  moeCommInfo_t info = MOE_COMM_INFO_INITIALIZER;
  CHECK(comm, moeCommGetInfo(comm, &info));
  const int status = runRank(comm, info);
  CHECK(comm, moeCommDestroy(comm)); /* frees the handle and the window memory too */
  return status;
}
