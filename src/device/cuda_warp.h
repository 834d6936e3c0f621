// The GPU policy for any architecture: a warp is 32 lanes of one CUDA warp, rows move through registers in 16-byte
// pieces. All synchronisation is at system scope: one place to change. Contract: docs/architecture.md, "Policies".
#pragma once

#include "device/row_jobs.h"
#include "device/views.h"

namespace moe {

// The flag instructions.
namespace cuda_flags {

MOE_LANES void storeRelease(Flag* flag, Flag word) {
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(flag), "l"(word) : "memory");
}
MOE_LANES void storeRelaxed(Flag* flag, Flag word) {
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(flag), "l"(word) : "memory");
}
MOE_LANES Flag loadAcquire(const Flag* flag) {
  Flag word;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(word) : "l"(flag) : "memory");
  return word;
}
MOE_LANES std::uint64_t loadRelaxed(const std::uint64_t* from) {
  std::uint64_t word;
  asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(word) : "l"(from) : "memory");
  return word;
}
MOE_LANES std::uint32_t loadRelaxed(const std::uint32_t* from) {
  std::uint32_t word;
  asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(word) : "l"(from) : "memory");
  return word;
}
MOE_LANES std::uint32_t addAcquireRelease(std::uint32_t* counter, std::uint32_t value) {
  std::uint32_t before;
  asm volatile("atom.acq_rel.sys.global.add.u32 %0, [%1], %2;" : "=r"(before) : "l"(counter), "r"(value) : "memory");
  return before;
}
MOE_LANES std::uint32_t addOnDevice(std::uint32_t* counter, std::uint32_t value) {
  std::uint32_t before;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;" : "=r"(before) : "l"(counter), "r"(value) : "memory");
  return before;
}
// In shared memory, ordering within the block.
MOE_LANES std::uint32_t addInBlock(std::uint32_t* counter, std::uint32_t value) {
  std::uint32_t before;
  asm volatile("atom.acq_rel.cta.shared.add.u32 %0, [%1], %2;"
               : "=r"(before)
               : "r"(static_cast<std::uint32_t>(__cvta_generic_to_shared(counter))), "r"(value)
               : "memory");
  return before;
}
MOE_LANES void fence() {
  asm volatile("fence.acq_rel.sys;" ::: "memory");
}
MOE_LANES std::uint64_t nanoseconds() {
  std::uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

}  // namespace cuda_flags

class CudaWarp {
 public:
  static constexpr int kLanes = 32;

  // Once per kernel, before any warp's first operation: all threads of the block.
  static MOE_LANES void prepareBlock() {
    if (threadIdx.x < static_cast<unsigned>(Meeting::count)) blockMeetings()[threadIdx.x] = 0;
    __syncthreads();
  }

  template <class Body>
  MOE_LANES void forEach(int n, Body body) const {
    __syncwarp();
    for (int i = lane(); i < n; i += kLanes) body(i);
    __syncwarp();
  }

  template <class ValueOf, class Emit>
  MOE_LANES int scanInOrder(int n, ValueOf valueOf, Emit emit) const {
    int sum = 0;
    for (int begin = 0; begin < n; begin += kLanes) {
      const int i = begin + lane(), value = i < n ? valueOf(i) : 0;
      int inclusive = value;
      for (int distance = 1; distance < kLanes; distance *= 2) {
        const int below = __shfl_up_sync(kAll, inclusive, distance);
        inclusive += lane() >= distance ? below : 0;
      }
      if (i < n) emit(i, sum + inclusive - value);
      sum += __shfl_sync(kAll, inclusive, kLanes - 1);
    }
    __syncwarp();
    return sum;
  }

  template <class BucketOf, class Emit>
  MOE_LANES void countInOrder(std::int32_t* table, int n, BucketOf bucketOf, Emit emit) const {
    __syncwarp();
    for (int begin = 0; begin < n; begin += kLanes) {
      const int i = begin + lane(), bucket = i < n ? bucketOf(i) : -1;
      const unsigned same = __match_any_sync(kAll, bucket), below = same & ((1u << lane()) - 1);
      const std::int32_t before = bucket >= 0 ? table[bucket] : 0;
      __syncwarp();
      if (bucket >= 0 && below == 0) table[bucket] = before + __popc(same);
      if (bucket >= 0) emit(i, before + __popc(below));
      __syncwarp();
    }
  }

  template <class T>
  MOE_LANES T laneLoad(const T* from) const {
    return *from;
  }
  template <class T>
  MOE_LANES void laneStore(T* to, T value) const {
    *to = value;
  }

  template <class JobOf, class SinkOf>
  MOE_LANES void streamRows(int n, JobOf jobOf, SinkOf sinkOf) const {
    __syncwarp();
    for (int i = 0; i < n; ++i) {
      const CopyJob job = jobOf(i);
      if (job.sinks <= 0) continue;
      // A token has at most 32 destinations: lane s finds sink s.
      const auto mine = reinterpret_cast<std::uint64_t>(lane() < job.sinks ? sinkOf(i, lane()) : nullptr);
      const auto* from = reinterpret_cast<const Quad*>(job.source);
      const int quads = static_cast<int>(job.bytes / sizeof(Quad));
      for (int begin = 0; begin < quads; begin += kLanes * kBatch) {
        copyBatch(from, begin + lane(), quads, job.sinks, mine);
      }
    }
    __syncwarp();
  }

  template <bool kWeighted, class JobOf, class TermOf, class WeightOf>
  MOE_LANES void reduceRows(int n, int rowType, JobOf jobOf, TermOf termOf, WeightOf weightOf) const {
    __syncwarp();
    withRowType(rowType, [&](auto type) {
      for (int i = 0; i < n; ++i) {
        const SumJob job = jobOf(i);
        const auto mine = reinterpret_cast<std::uint64_t>(lane() < job.terms ? termOf(i, lane()) : nullptr);
        const float weight = kWeighted && lane() < job.terms ? weightOf(i, lane()) : 1.0f;
        const auto rowAt = [&](int term) {  // more than 32 terms: 32 destinations and the biases
          const std::uint64_t shared = __shfl_sync(kAll, mine, term % kLanes);
          return reinterpret_cast<const Quad*>(term < kLanes ? shared
                                                             : reinterpret_cast<std::uint64_t>(termOf(i, term)));
        };
        const auto weightAt = [&](int term) { return kWeighted ? __shfl_sync(kAll, weight, term % kLanes) : 1.0f; };
        reduceRow<decltype(type), kWeighted>(job, rowAt, weightAt);
      }
    });
    __syncwarp();
  }

  MOE_LANES void publish(Flag* flag, Flag word) const {
    __syncwarp();
    if (lane() == 0) cuda_flags::storeRelease(flag, word);
  }

  template <class FlagOf>
  MOE_LANES void publishAll(int n, FlagOf flagOf, Flag word) const {
    __syncwarp();
    cuda_flags::fence();
    for (int i = lane(); i < n; i += kLanes) cuda_flags::storeRelaxed(flagOf(i), word);
  }

  MOE_LANES bool waitAll(const CommView& comm, Flag* flags, int n, std::uint64_t epoch, Phase phase) const {
    bool good = true;
    for (int begin = 0; begin < n && good; begin += kLanes) {
      const int i = begin + lane();
      good = __all_sync(kAll, i >= n || waitOne(comm, flags + i, epoch, phase, i));
    }
    __syncwarp();  // what one lane acquired is now every lane's
    return good;
  }

  // Warps of a block count themselves in shared memory, and the last of them counts the block in: a fence at system
  // scope waits for all stores on their way to peers, so there is one per block and not one per warp.
  MOE_LANES bool arrive(const CommView& comm, Meeting meeting, int count) const {
    __syncwarp();
    bool last = false;
    if (lane() == 0) last = laneArrive(comm, static_cast<int>(meeting), count);
    last = __shfl_sync(kAll, last ? 1 : 0, 0) != 0;
    __syncwarp();  // a shuffle orders no memory: what lane 0 acquired is now every lane's
    return last;
  }

  // The abort word is in host memory: it is looked at while waiting, not here.
  MOE_LANES bool stopped(const CommView& comm) const {
    std::uint32_t failures = 0;
    if (lane() == 0) failures = cuda_flags::loadRelaxed(&comm.state->failuresClaimed);
    return __shfl_sync(kAll, failures, 0) != 0;
  }

  MOE_LANES void laneFail(const CommView& comm, const Failure& failure) const {
    if (atomicAdd(&comm.state->failuresClaimed, 1u) != 0) return;
    Failure* to = comm.failure;
    to->fault = failure.fault, to->phase = failure.phase, to->peer = failure.peer;
    to->index = failure.index, to->expected = failure.expected, to->actual = failure.actual;
    cuda_flags::storeRelease(&to->ready, 1);
  }

 protected:
  static constexpr unsigned kAll = 0xffffffffu;
  static constexpr int kBatch = 7;               // 16-byte loads in flight per lane: copies
  static constexpr int kTerms = 4, kPieces = 3;  // the same: sums, of so many rows at once
  // Warps of this block at each meeting.
  static MOE_LANES std::uint32_t* blockMeetings() {
    __shared__ std::uint32_t arrived[static_cast<int>(Meeting::count)];
    return arrived;
  }
  static MOE_LANES int lane() { return static_cast<int>(threadIdx.x % kLanes); }

 private:
  static MOE_LANES void copyBatch(const Quad* from, int begin, int quads, int sinks, std::uint64_t mine) {
    Quad piece[kBatch];
#pragma unroll
    for (int j = 0; j < kBatch; ++j) {
      if (begin + j * kLanes < quads) piece[j] = from[begin + j * kLanes];
    }
    for (int sink = 0; sink < sinks; ++sink) {
      auto* to = reinterpret_cast<Quad*>(__shfl_sync(kAll, mine, sink));
#pragma unroll
      for (int j = 0; j < kBatch; ++j) {
        if (begin + j * kLanes < quads) to[begin + j * kLanes] = piece[j];
      }
    }
  }

  template <class Type, bool kWeighted, class RowAt, class WeightAt>
  static MOE_LANES void reduceRow(const SumJob& job, RowAt rowAt, WeightAt weightAt) {
    const int quads = static_cast<int>(job.bytes / sizeof(Quad));
    auto* out = reinterpret_cast<Quad*>(job.out);
    for (int tile = lane(); tile - lane() < quads; tile += kLanes * kPieces) {
      Accumulator<Type> sum[kPieces];
      for (int first = 0; first < job.terms; first += kTerms) {
        Quad piece[kTerms][kPieces];
#pragma unroll
        for (int j = 0; j < kTerms; ++j) {
          const Quad* row = rowAt(first + j < job.terms ? first + j : job.terms - 1);
#pragma unroll
          for (int u = 0; u < kPieces; ++u) {
            const int at = tile + u * kLanes;
            if (first + j < job.terms && at < quads) piece[j][u] = row[at];
          }
        }
#pragma unroll
        for (int j = 0; j < kTerms; ++j) {
          const float weight = weightAt(first + j);
          if (first + j >= job.terms) break;
#pragma unroll
          for (int u = 0; u < kPieces; ++u) sum[u].template add<kWeighted>(piece[j][u], weight);
        }
      }
#pragma unroll
      for (int u = 0; u < kPieces; ++u) {
        const int at = tile + u * kLanes;
        if (at < quads) out[at] = sum[u].rounded();
      }
    }
  }

  static MOE_LANES bool laneArrive(const CommView& comm, int meeting, int count) {
    const auto warps = blockDim.x / kLanes;
    std::uint32_t* inBlock = blockMeetings() + meeting;
    if (cuda_flags::addInBlock(inBlock, 1) + 1 != warps) return false;
    *inBlock = 0;
    std::uint32_t* counter = &comm.state->arrived[meeting];
    // Rows are on their way to other GPUs when they are sent; whoever leaves has only read, and written its own memory.
    const std::uint32_t before = meeting == static_cast<int>(Meeting::rowsSent)
                                     ? cuda_flags::addAcquireRelease(counter, warps)
                                     : cuda_flags::addOnDevice(counter, warps);
    if (before + warps != static_cast<std::uint32_t>(count)) return false;
    *counter = 0;
    return true;
  }

  // The abort word is in host memory, where thousands of waiting lanes would crowd the bus: the first warp of a block
  // looks, all warps of a step wait for the same flags.
  MOE_LANES bool laneMayWait(const CommView& comm) const {
    if (cuda_flags::loadRelaxed(&comm.state->failuresClaimed) != 0) return false;
    if (threadIdx.x >= kLanes || cuda_flags::loadRelaxed(comm.abort) == 0) return true;
    atomicAdd(&comm.state->failuresClaimed, 1u);  // the host knows why; later steps stop at once
    return false;
  }

  MOE_LANES bool waitOne(const CommView& comm, const Flag* flag, std::uint64_t epoch, Phase phase, int peer) const {
    std::uint64_t begin = 0, lookAt = 0;
    for (unsigned polls = 1; flagEpoch(cuda_flags::loadRelaxed(flag)) < epoch; ++polls) {
      // Polls are relaxed and spaced: an acquiring load empties the first-level cache of a multiprocessor whose other
      // warps still move rows.
      if (polls > kPollsAtOnce) __nanosleep(kNapNs);
      if (polls % kPollsPerLook != 0) continue;
      const std::uint64_t now = cuda_flags::nanoseconds();
      if (begin == 0) begin = now, lookAt = now + kLookNs;
      if (now < lookAt) continue;
      lookAt = now + kLookNs;
      if (!laneMayWait(comm)) return false;
      if (now - begin < comm.timeoutNs) continue;
      laneFail(comm,
               {0, Fault::timeout, phase, lateRank(phase, peer, comm.rank), 0, 0, static_cast<std::int64_t>(epoch),
                static_cast<std::int64_t>(flagEpoch(cuda_flags::loadRelaxed(flag)))});
      return false;
    }
    cuda_flags::loadAcquire(flag);
    return true;
  }

  static constexpr unsigned kPollsAtOnce = 16, kPollsPerLook = 64, kNapNs = 64;
  static constexpr std::uint64_t kLookNs = 1000000;
};

}  // namespace moe
