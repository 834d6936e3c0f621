// The GPU policy for any architecture: a warp is 32 lanes of one CUDA warp, rows move through registers in 16-byte
// pieces. All synchronisation is at system scope: one place to change. Contract: docs/architecture.md, "Policies".
#pragma once

#include "device/row_jobs.h"
#include "device/views.h"

namespace moe {

// The flag instructions. Pinned by tests/codegen.
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
    return good;
  }

  MOE_LANES bool arrive(std::uint32_t* counter, int count) const {
    __syncwarp();
    std::uint32_t before = 0;
    if (lane() == 0) {
      before = cuda_flags::addAcquireRelease(counter, 1);
      if (before + 1 == static_cast<std::uint32_t>(count)) *counter = 0;
    }
    return __shfl_sync(kAll, before, 0) + 1 == static_cast<std::uint32_t>(count);
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
  static constexpr int kBatch = 7;  // 16-byte loads in flight per lane
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
    constexpr int kTerms = 4;
    const int quads = static_cast<int>(job.bytes / sizeof(Quad));
    auto* out = reinterpret_cast<Quad*>(job.out);
    for (int tile = 0; tile < quads; tile += kLanes) {
      const int at = tile + lane();
      Accumulator<Type> sum;
      for (int first = 0; first < job.terms; first += kTerms) {
        Quad piece[kTerms];
#pragma unroll
        for (int j = 0; j < kTerms; ++j) {
          const int term = first + j < job.terms ? first + j : job.terms - 1;
          const Quad* row = rowAt(term);
          if (first + j < job.terms && at < quads) piece[j] = row[at];
        }
#pragma unroll
        for (int j = 0; j < kTerms; ++j) {
          const float weight = weightAt(first + j);
          if (first + j < job.terms && at < quads) sum.template add<kWeighted>(piece[j], weight);
        }
      }
      if (at < quads) out[at] = sum.rounded();
    }
  }

  MOE_LANES bool waitOne(const CommView& comm, const Flag* flag, std::uint64_t epoch, Phase phase, int peer) const {
    std::uint64_t end = 0;
    for (unsigned polls = 1; flagEpoch(cuda_flags::loadAcquire(flag)) < epoch; ++polls) {
      if (polls % kPollsPerLook != 0) continue;
      const std::uint64_t now = cuda_flags::nanoseconds();
      if (end == 0) end = now + comm.timeoutNs;
      if (cuda_flags::loadRelaxed(&comm.state->failuresClaimed) != 0) return false;
      if (cuda_flags::loadRelaxed(comm.abort) != 0) {
        atomicAdd(&comm.state->failuresClaimed, 1u);  // the host knows why; later steps stop at once
        return false;
      }
      if (now < end) continue;
      laneFail(comm, {0, Fault::timeout, phase, peer, 0, 0, static_cast<std::int64_t>(epoch),
                      static_cast<std::int64_t>(flagEpoch(cuda_flags::loadAcquire(flag)))});
      return false;
    }
    return true;
  }

  static constexpr unsigned kPollsPerLook = 256;
};

}  // namespace moe
