#include "device/rows/row_math.h"
#include "perf/ceiling/ceiling_bulk.h"
#include "perf/ceiling/ceiling_kernels.h"

namespace moe::perf {
namespace {

constexpr int kPushBatch = 7;                 // 16-byte loads in flight per lane, from one row
constexpr int kPullRows = 4, kPullBatch = 3;  // the same, from kPullRows rows

MOE_LANES int warpCount() {
  return static_cast<int>(gridDim.x * (blockDim.x / kLanes));
}
// Neighbouring warps run on different multiprocessors.
MOE_LANES int warpIndex() {
  return static_cast<int>(blockIdx.x + threadIdx.x / kLanes * gridDim.x);
}

// The piece of a row that a warp moves.
struct Part {
  int row;
  std::uint32_t offset;
  int quads;

  MOE_LANES Part(int item, const Parts& parts, std::uint32_t rowBytes)
      : row(item / parts.count), offset(static_cast<std::uint32_t>(item % parts.count) * parts.bytes) {
    quads = static_cast<int>(min(rowBytes - offset, parts.bytes) / sizeof(Quad));
  }
};

// ---- Plain loads and stores of 16 bytes ----

MOE_LANES void pushBatch(const Quad* from, std::uint64_t mine, std::uint32_t offset, int begin, int quads, int width) {
  Quad piece[kPushBatch];
#pragma unroll
  for (int j = 0; j < kPushBatch; ++j) {
    if (begin + j * kLanes < quads) piece[j] = from[begin + j * kLanes];
  }
  for (int sink = 0; sink < width; ++sink) {
    const std::uint64_t row = __shfl_sync(kAll, mine, sink);
    if (row == 0) break;
    auto* to = reinterpret_cast<Quad*>(row + offset);
#pragma unroll
    for (int j = 0; j < kPushBatch; ++j) {
      if (begin + j * kLanes < quads) to[begin + j * kLanes] = piece[j];
    }
  }
}

// Lane s looks up sink s while the row's first loads are in flight. The two do not depend on each other.
__global__ void __launch_bounds__(1024, 1) pushRows(const __grid_constant__ PushJobs jobs) {
  for (int item = warpIndex(); item < jobs.rows * jobs.parts.count; item += warpCount()) {
    const Part part(item, jobs.parts, jobs.rowBytes);
    const auto row = static_cast<std::int64_t>(part.row);
    const std::uint64_t mine = lane() < jobs.width ? __ldg(jobs.sinks + row * jobs.width + lane()) : 0;
    const auto* from = reinterpret_cast<const Quad*>(jobs.source + row * jobs.rowBytes + part.offset);
    for (int begin = 0; begin < part.quads; begin += kLanes * kPushBatch) {
      pushBatch(from, mine, part.offset, begin + lane(), part.quads, jobs.width);
    }
  }
}

// Up to kPullRows rows of a token, from row `first` on. All their loads are in flight together.
struct PullTile {
  Quad piece[kPullRows][kPullBatch];

  MOE_LANES PullTile(std::uint64_t mine, int first, int count, const Part& part, int begin) {
#pragma unroll
    for (int j = 0; j < kPullRows; ++j) {
      const std::uint64_t row = __shfl_sync(kAll, mine, (first + j) % kLanes);
      const auto* from = reinterpret_cast<const Quad*>(row + part.offset);
#pragma unroll
      for (int u = 0; u < kPullBatch; ++u) {
        const int at = begin + u * kLanes;
        if (first + j < count && at < part.quads) piece[j][u] = from[at];
      }
    }
  }
};

// Calls body(part of a token's rows, this lane's source address, number of sources).
template <class Body>
MOE_LANES void forPulledParts(const PullJobs& jobs, Body body) {
  for (int item = warpIndex(); item < jobs.tokens * jobs.parts.count; item += warpCount()) {
    const Part part(item, jobs.parts, jobs.rowBytes);
    const std::uint64_t* sources = jobs.sources + static_cast<std::int64_t>(part.row) * jobs.width;
    const std::uint64_t mine = lane() < jobs.width ? __ldg(sources + lane()) : 0;
    body(part, mine, __popc(__ballot_sync(kAll, mine != 0)));
  }
}

__global__ void __launch_bounds__(512, 1) pullRows(const __grid_constant__ PullJobs jobs) {
  forPulledParts(jobs, [&](const Part& part, std::uint64_t mine, int count) {
    std::uint8_t* slots = jobs.to + static_cast<std::int64_t>(part.row) * jobs.destinationsPerToken * jobs.rowBytes;
    for (int begin = lane(); begin - lane() < part.quads; begin += kLanes * kPullBatch) {
      for (int first = 0; first < count; first += kPullRows) {
        const PullTile tile(mine, first, count, part, begin);
#pragma unroll
        for (int j = 0; j < kPullRows; ++j) {
          auto* to =
              reinterpret_cast<Quad*>(slots + static_cast<std::int64_t>(first + j) * jobs.rowBytes + part.offset);
#pragma unroll
          for (int u = 0; u < kPullBatch; ++u) {
            const int at = begin + u * kLanes;
            if (first + j < count && at < part.quads) to[at] = tile.piece[j][u];
          }
        }
      }
    }
  });
}

template <class Type>
__global__ void __launch_bounds__(512, 1) pullSums(const __grid_constant__ PullJobs jobs) {
  forPulledParts(jobs, [&](const Part& part, std::uint64_t mine, int count) {
    auto* out = reinterpret_cast<Quad*>(jobs.to + static_cast<std::int64_t>(part.row) * jobs.rowBytes + part.offset);
    for (int begin = lane(); begin - lane() < part.quads; begin += kLanes * kPullBatch) {
      Accumulator<Type> sums[kPullBatch];
      for (int first = 0; first < count; first += kPullRows) {
        const PullTile tile(mine, first, count, part, begin);
#pragma unroll
        for (int j = 0; j < kPullRows; ++j) {
          if (first + j >= count) break;
#pragma unroll
          for (int u = 0; u < kPullBatch; ++u) sums[u].template add<false>(tile.piece[j][u], 1.0f);
        }
      }
#pragma unroll
      for (int u = 0; u < kPullBatch; ++u) {
        const int at = begin + u * kLanes;
        if (at < part.quads) out[at] = sums[u].rounded();
      }
    }
  });
}

// ---- Bulk copies ----

template <int kStages>
__global__ void __launch_bounds__(kBulkWarpsMax* kLanes, 1) bulkRows(const __grid_constant__ BulkJobs jobs) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ std::uint8_t shared[];
  __shared__ std::uint64_t full[kBulkWarpsMax * kStages];
  // Stages need an alignment of 128 bytes, which the runtime does not promise.
  auto* aligned = reinterpret_cast<std::uint8_t*>((reinterpret_cast<std::uintptr_t>(shared) + 127) / 128 * 128);
  const int inBlock = static_cast<int>(threadIdx.x) / kLanes;
  const std::int64_t begin = jobs.count * warpIndex() / warpCount(), end = jobs.count * (warpIndex() + 1) / warpCount();
  moveCopies(CopyWindow(jobs.copies + begin, end - begin),
             BulkStages<kStages>(aligned + inBlock * kStages * kBulkStageBytes, full + inBlock * kStages));
#endif
}

// ---- Flags ----

MOE_LANES std::uint64_t* flagAt(std::uint64_t* flags, int index) {
  return flags + index * (kFlagBytes / static_cast<int>(sizeof(std::uint64_t)));
}

// Returns false if the flag did not come in time. It acquires nothing, because the flag announces no data.
MOE_LANES bool waitFor(const std::uint64_t* flag, std::uint64_t value, FlagState* state) {
  constexpr unsigned kPollsPerLook = 1024;
  std::uint64_t begin = 0;
  for (unsigned polls = 1; cuda_flags::loadRelaxed(flag) < value; ++polls) {
    if (polls % kPollsPerLook != 0) continue;
    const std::uint64_t now = cuda_flags::nanoseconds();
    if (begin == 0) begin = now;
    if (now - begin < kFlagWaitNs) continue;
    state->late = 1;
    return false;
  }
  return true;
}

__global__ void __launch_bounds__(kLanes, 1) meetAll(const __grid_constant__ FlagJobs jobs) {
  const std::uint64_t number = jobs.state->barriers + 1;
  if (jobs.state->late != 0) return;
  if (lane() < jobs.nranks) {
    cuda_flags::storeRelaxed(flagAt(jobs.flags[lane()], jobs.rank), number);
    waitFor(flagAt(jobs.flags[jobs.rank], lane()), number, jobs.state);
  }
  __syncwarp();
  if (lane() == 0) jobs.state->barriers = number;
}

__global__ void __launch_bounds__(kLanes, 1) bounceFlag(const __grid_constant__ FlagJobs jobs, int rounds) {
  if (lane() != 0 || jobs.state->late != 0) return;
  const std::uint64_t first = jobs.state->rounds + 1, last = jobs.state->rounds + static_cast<std::uint64_t>(rounds);
  std::uint64_t* here = flagAt(jobs.flags[jobs.rank], kCeilingRanksMax);
  std::uint64_t* there = flagAt(jobs.flags[1 - jobs.rank], kCeilingRanksMax);
  for (std::uint64_t round = first; round <= last; ++round) {
    if (jobs.rank == 0) cuda_flags::storeRelaxed(there, round);
    if (!waitFor(here, round, jobs.state)) return;
    if (jobs.rank == 1) cuda_flags::storeRelaxed(there, round);
  }
  jobs.state->rounds = last;
}

// ---- Launching ----

template <class Jobs, class... More>
cudaError_t launch(void (*kernel)(Jobs, More...), const Jobs& jobs, GridShape shape, std::size_t sharedBytes,
                   cudaStream_t stream, More... more) {
  kernel<<<static_cast<unsigned>(shape.blocks), static_cast<unsigned>(shape.warps * kLanes), sharedBytes, stream>>>(
      jobs, more...);
  return cudaGetLastError();
}

template <class Kernel>
cudaError_t load(Kernel kernel, std::size_t sharedBytes = 0) {
  cudaFuncAttributes attributes;
  const cudaError_t error = cudaFuncGetAttributes(&attributes, kernel);
  if (error != cudaSuccess || sharedBytes == 0) return error;
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(sharedBytes));
}

}  // namespace

std::size_t bulkSharedBytes(int stages, int warps) {
  return static_cast<std::size_t>(stages * warps) * kBulkStageBytes + 128;
}

cudaError_t launchPush(const PushJobs& jobs, GridShape shape, cudaStream_t stream) {
  return launch(pushRows, jobs, shape, 0, stream);
}

cudaError_t launchPull(const PullJobs& jobs, GridShape shape, cudaStream_t stream) {
  return launch(pullRows, jobs, shape, 0, stream);
}

cudaError_t launchPullSums(const PullJobs& jobs, Format format, GridShape shape, cudaStream_t stream) {
  switch (format) {
    case Format::bf16:
      return launch(pullSums<Bf16>, jobs, shape, 0, stream);
    case Format::fp16:
      return launch(pullSums<Fp16>, jobs, shape, 0, stream);
    case Format::fp32:
      return launch(pullSums<Fp32>, jobs, shape, 0, stream);
    case Format::fp8:
      break;  // fp8 rows come back as bf16
  }
  return cudaErrorInvalidValue;
}

cudaError_t launchBulk(const BulkJobs& jobs, int stages, GridShape shape, cudaStream_t stream) {
  const std::size_t sharedBytes = bulkSharedBytes(stages, shape.warps);
  return stages == 3 ? launch(bulkRows<3>, jobs, shape, sharedBytes, stream)
                     : launch(bulkRows<4>, jobs, shape, sharedBytes, stream);
}

cudaError_t launchBarrier(const FlagJobs& jobs, cudaStream_t stream) {
  return launch(meetAll, jobs, {1, 1}, 0, stream);
}

cudaError_t launchRoundTrips(const FlagJobs& jobs, int rounds, cudaStream_t stream) {
  return launch(bounceFlag, jobs, {1, 1}, 0, stream, rounds);
}

cudaError_t loadCeilingKernels(bool bulk) {
  cudaError_t error = cudaSuccess;
  const auto also = [&](auto kernel, std::size_t sharedBytes) {
    if (error == cudaSuccess) error = load(kernel, sharedBytes);
  };
  also(pushRows, 0);
  also(pullRows, 0);
  also(pullSums<Bf16>, 0);
  also(pullSums<Fp16>, 0);
  also(pullSums<Fp32>, 0);
  also(meetAll, 0);
  also(bounceFlag, 0);
  if (bulk) also(bulkRows<3>, bulkSharedBytes(3, kBulkWarpsMax));
  if (bulk) also(bulkRows<4>, bulkSharedBytes(4, kBulkWarpsMax));
  return error;
}

}  // namespace moe::perf
