// The GPU policy for the route, which computes rather than moves rows: a warp of the contract is a whole block, with a
// lane per thread.
//
// forEach strides over all threads between two __syncthreads. collect keeps up to kAtOnce loads in flight per thread.
// scanInOrder scans each CUDA warp by shuffles, then the sums of the CUDA warps in shared memory. publishAll, announce,
// put and waitAll begin or end with __syncthreads, and the block's first CUDA warp does the work as CudaWarp does; for
// mark that is thread 0. stopped and waitAll vote with __syncthreads_or and __syncthreads_and.
#pragma once

#include "device/policy/cuda/warp.h"
#include "device/view/ll_tables.h"

namespace moe {

class CudaBlock : public CudaWarp {
 public:
  // The tables of 128 tokens with top-8 of 256 experts want 32 KiB; a block has 48 without asking for more.
  static constexpr int kScratchBytes = 40 << 10;
  static constexpr bool kWholeTokens = false;

  template <class Body>
  MOE_LANES void forEach(int n, Body body) const {
    __syncthreads();
    for (int i = thread(); i < n; i += threads()) body(i);
    __syncthreads();
  }

  template <int kAtOnce, class ValueOf, class Take>
  MOE_LANES void collect(int n, ValueOf valueOf, Take take) const {
    __syncthreads();
    for (int begin = thread(); begin < n; begin += threads() * kAtOnce) {
      decltype(valueOf(0)) values[kAtOnce];
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        if (begin + j * threads() < n) values[j] = valueOf(begin + j * threads());
      }
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        if (begin + j * threads() < n) take(begin + j * threads(), values[j]);
      }
    }
    __syncthreads();
  }

  MOE_LANES std::uint8_t* scratchMemory() const {
    __shared__ alignas(16) std::uint8_t memory[kScratchBytes];
    return memory;
  }

  template <class ValueOf, class Emit>
  MOE_LANES int scanInOrder(int n, ValueOf valueOf, Emit emit) const {
    __shared__ int warpSums[kBlockWarpsMax];
    int sum = 0;
    for (int begin = 0; begin < n; begin += threads()) {
      const int i = begin + thread(), value = i < n ? valueOf(i) : 0;
      int inclusive = value;
      for (int distance = 1; distance < kLanes; distance *= 2) {
        const int below = __shfl_up_sync(kAll, inclusive, distance);
        inclusive += lane() >= distance ? below : 0;
      }
      __syncthreads();
      if (lane() == kLanes - 1) warpSums[thread() / kLanes] = inclusive;
      __syncthreads();
      int before = 0, all = 0;
      for (int warp = 0; warp < threads() / kLanes; ++warp) {
        before += warp < thread() / kLanes ? warpSums[warp] : 0;
        all += warpSums[warp];
      }
      if (i < n) emit(i, sum + before + inclusive - value);
      sum += all;
    }
    __syncthreads();
    return sum;
  }

  template <class FlagOf>
  MOE_LANES void publishAll(int n, FlagOf flagOf, Flag word) const {
    if (!gather()) return;
    cuda_flags::fence();
    for (int i = lane(); i < n; i += kLanes) cuda_flags::storeRelaxed(flagOf(i), word);
  }

  template <class FlagOf>
  MOE_LANES void announce(int n, FlagOf flagOf, Meeting, WarpIndex team) const {
    if (!gather()) return;
    cuda_flags::fence();
    const Flag share = announcementShare(team.index == 0, team.count);
    for (int i = lane(); i < n; i += kLanes) cuda_flags::addRelaxed(flagOf(i), share);
  }

  MOE_LANES void mark(Flag* word, Meeting, WarpIndex team) const {
    __syncthreads();
    if (thread() == 0) cuda_flags::addReleaseOnDevice(word, announcementShare(team.index == 0, team.count));
  }

  MOE_LANES bool waitAll(const CommView& comm, Flag* flags, int n, std::uint64_t epoch, Awaited awaited) const {
    return waitAll(comm, flags, n, epoch, awaited, [](int, Flag) {});
  }
  template <class Take>
  MOE_LANES bool waitAll(const CommView& comm, Flag* flags, int n, std::uint64_t epoch, Awaited awaited,
                         Take take) const {
    bool good = true;
    if (thread() < kLanes) good = pollAll(comm, flags, n, epoch, awaited, take);
    return __syncthreads_and(good ? 1 : 0) != 0;
  }

  template <class... Looked>
  MOE_LANES bool stopped(const CommView& comm, Looked&... looked) const {
    const std::uint32_t failures = thread() == 0 ? cuda_flags::loadRelaxed(&comm.state->failuresClaimed) : 0;
    hold(looked...);
    return __syncthreads_or(failures != 0 ? 1 : 0) != 0;
  }

 protected:
  MOE_LANES bool gather() const {
    __syncthreads();
    return thread() < kLanes;
  }

 private:
  static MOE_LANES int thread() {
    return static_cast<int>(threadIdx.x);
  }
  static MOE_LANES int threads() {
    return static_cast<int>(blockDim.x);
  }
};

MOE_LANES CudaBlock CudaWarp::wide() const {
  return {};
}

static_assert(Computes<CudaBlock> && Gathers<CudaWarp>);
static_assert(CudaBlock::kScratchBytes >= kLlTableBytesMax, "tables of a dispatch that routes lie in scratch memory");

}  // namespace moe
