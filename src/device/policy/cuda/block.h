// The GPU policy for the route, and for steps of few rows: a warp of the contract is a whole block, with a lane per
// thread.
//
// forEach strides over all threads between two __syncthreads. collect keeps up to kAtOnce loads in flight per thread.
// streamRows and reduceRows handle one row after the other, each with all threads. In copies a thread has four pieces
// of 16 bytes in flight, in sums eight (block_sums.h). Each CUDA warp looks up the places of a row for itself. The last
// threads look up the rows of a sum, which are kept in shared memory. scanInOrder scans each CUDA warp by shuffles,
// then the sums of the CUDA warps in shared memory. publishAll, announce, put and waitAll begin or end with
// __syncthreads, and the block's first CUDA warp does the work as CudaWarp does. In mark and stopped the second CUDA
// warp does it, because the first one waits for its fence and the last one looks rows up. stopped and waitAll vote with
// __syncthreads_or and __syncthreads_and.
#pragma once

#include "device/policy/cuda/block_sums.h"
#include "device/policy/cuda/block_wire.h"
#include "device/policy/cuda/warp.h"
#include "device/view/ll_tables.h"

namespace moe {

// The word of side payload that a thread holds. It loads further words, of very long rows, when it stores them.
template <class List>
struct SideWords {
  static_assert(!HasSides<List>, "a block stores side payload as words");
  MOE_LANES void load(const CopyJob&, int) {}
  MOE_LANES void store(const List&, const CopyJob&, std::uint64_t, int, int) const {}
};
template <ScattersSides List>
struct SideWords<List> {
  static constexpr unsigned kAll = 0xffffffffu;
  std::uint32_t word = 0;

  // `first`: this thread's first word.
  MOE_LANES void load(const CopyJob& job, int first) {
    if (first * 4 < static_cast<int>(job.sideBytes)) word = reinterpret_cast<const std::uint32_t*>(job.side)[first];
  }
  // Stores them to all places of the job. `place`: the place that this lane has found, or 0. `step`: threads of the
  // block.
  MOE_LANES void store(const List& list, const CopyJob& job, std::uint64_t place, int first, int step) const {
    const int own = static_cast<int>(job.sideBytes / 4), words = own < list.sideWords() ? own : list.sideWords();
    const std::int64_t stride = list.sideStride();
    const auto* from = reinterpret_cast<const std::uint32_t*>(job.side);
    if (__ballot_sync(kAll, first < words) == 0) return;  // most CUDA warps have no word
#pragma unroll 1
    for (unsigned left = __ballot_sync(kAll, place != 0); left != 0; left &= left - 1) {
      auto* to = reinterpret_cast<std::uint32_t*>(__shfl_sync(kAll, place, __ffs(static_cast<int>(left)) - 1));
      if (first < words) to[first * stride] = word;
#pragma unroll 1
      for (int at = first + step; at < words; at += step) to[at * stride] = from[at];
    }
  }
};

class CudaBlock : public CudaWarp {
 public:
  // The tables of 128 tokens with top-8 of 256 experts need 32 KiB. A block has 48 KiB unless the host asks for more.
  static constexpr int kScratchBytes = 40 << 10;
  static constexpr bool kWholeTokens = false;

  template <class Body>
  MOE_LANES void forEach(int n, Body body) const {
    __syncthreads();
    for (int i = thread(); i < n; i += threads()) body(i);
    __syncthreads();
  }

  // Kernels with this policy follow their predecessor and begin their record before anything else, so nothing is left
  // to do. Other kernels use RecordedBlock.
  MOE_LANES std::uint64_t follow() const { return 0; }
  MOE_LANES void noteStart(std::uint64_t) const {}

  // The last threads get the first items.
  template <class Body>
  MOE_LANES void each(int n, Body body) const {
    for (int i = threads() - 1 - thread(); i < n; i += threads()) body(i);
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

  template <class ValueOf, class Take, class Meanwhile>
  MOE_LANES void collectBeside(int n, ValueOf valueOf, Take take, Meanwhile meanwhile) const {
    collectHere(n, valueOf, take, meanwhile);
    __syncthreads();
  }
  template <class ValueOf, class Take, class Meanwhile, class... Looked>
  MOE_LANES bool collectUnlessStopped(const CommView& comm, int n, ValueOf valueOf, Take take, Meanwhile meanwhile,
                                      Looked&... looked) const {
    return collectUnless(lookAtFailures(comm), n, valueOf, take, meanwhile, looked...);
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
#pragma unroll 1
    for (int i = lane(); i < n; i += kLanes) cuda_flags::storeRelaxed(flagOf(i), word);
  }

  template <class FlagOf>
  MOE_LANES void announce(int n, FlagOf flagOf, Meeting, WarpIndex team) const {
    if (!gather()) return;
    cuda_flags::fence();
    const Flag share = announcementShare(team.index == 0, team.count);
#pragma unroll 1
    for (int i = lane(); i < n; i += kLanes) cuda_flags::addRelaxed(flagOf(i), share);
  }

  MOE_LANES void beginPublish() const {
    if (thread() < kLanes) cuda_flags::fence();
  }
  template <class FlagOf>
  MOE_LANES Flag* laneTarget(int n, FlagOf flagOf) const {
    return thread() < kLanes && thread() < n ? flagOf(thread()) : nullptr;
  }
  // `first`: as laneTarget() gave it.
  template <class FlagOf>
  MOE_LANES void endPublish(int n, FlagOf flagOf, Flag word, Flag* first) const {
    if (first != nullptr) cuda_flags::storeRelaxed(first, word);
    if (thread() >= kLanes) return;
#pragma unroll 1
    for (int i = lane() + kLanes; i < n; i += kLanes) cuda_flags::storeRelaxed(flagOf(i), word);
  }

  template <class FlagOf, class MoreOf>
  MOE_LANES void announceRows(int n, FlagOf flagOf, MoreOf moreOf, Meeting, WarpIndex team) const {
    const Flag share = rowsShare(team.index == 0, team.count);
    const auto shareOf = [&](int i) { return share + static_cast<Flag>(std::int64_t{moreOf(i)}); };
    // These are looked up before the lanes meet, because all wait for the fence.
    const bool tells = thread() < kLanes && thread() < n;
    Flag* const flag = tells ? flagOf(lane()) : nullptr;
    const Flag first = tells ? shareOf(lane()) : 0;
    if (!gather()) return;
    cuda_flags::fence();
    if (tells) cuda_flags::addRelaxed(flag, first);
#pragma unroll 1
    for (int i = lane() + kLanes; i < n; i += kLanes) cuda_flags::addRelaxed(flagOf(i), shareOf(i));
  }

  // The first pieces of a row are loaded while its places are found, or while the previous row is stored. Lane s of
  // each CUDA warp finds place s, so that the warps need not meet. The last threads have the words of side payload.
  template <CopyList List>
  MOE_LANES bool streamRows(const List& list) const {
    const int n = list.count();
    CopyJob job = n > 0 ? list.job(0) : CopyJob{nullptr, 0, 0};
    Pieces piece;
    SideWords<List> words;
    const auto start = [&] {
      load(piece, job, 0);
      words.load(job, lastFirst());
    };
    if (!mayPlace(list, start)) return false;
    std::uint64_t place = 0;
    for (int i = 0, begin = 0; i < n;) {
      if (begin == 0) {
        const Sink sink = lane() < job.sinks ? list.sink(i, lane()) : Sink{nullptr, nullptr, true};
        place = reinterpret_cast<std::uint64_t>(sink.row);
        words.store(list, job, reinterpret_cast<std::uint64_t>(sink.side), lastFirst(), threads());
        if (i + 1 < n) words.load(list.job(i + 1), lastFirst());
      }
      const int next = begin + threads() * kPieces;
      if (next >= quadsOf(job.bytes) && i + 1 >= n) {
        store(piece, job, begin, place);
        break;
      }
      const CopyJob current = job;
      const Pieces now = piece;
      const int from = begin;
      begin = next;
      if (next >= quadsOf(job.bytes)) {
        begin = 0;
        job = list.job(++i);
      }
      load(piece, job, begin);
      store(now, current, from, place);
    }
    return true;
  }

  template <CastList Casts>
  MOE_LANES bool castRows(const Casts& casts) const {
    return castRowsOf<RowTypes::all>(casts);
  }
  template <RowTypes kTypes, CastList Casts>
  MOE_LANES bool castRowsOf(const Casts& casts) const {
    const auto withType = [](int rowType, auto body) { withTypeOf<kTypes>(rowType, body); };
    const int rowType = kTypes == RowTypes::bf16 ? int{kBf16} : casts.rowType();
    return cuda_cast::rowsOfBlock(casts, rowType, withType, thread() / kLanes, threads() / kLanes, lane());
  }

  // Sums are looked up one ahead. The last threads look up termsMax rows, because the number of rows is not known yet.
  // A thread of another CUDA warp looks up the rest.
  template <SumList List>
  MOE_LANES bool reduceRows(const CommView& comm, const List& list) const {
    return reduceRowsOf<CudaBlock>(comm, list);
  }
  // `Kernel`: the policy of the kernel, with its kRowTypes and kWire.
  template <class Kernel, SumList List>
  MOE_LANES bool reduceRowsOf(const CommView& comm, const List& list) const {
    __shared__ block_sums::Desk<Weighted<List>> desks[2];
    const int n = list.count(), termsMax = list.termsMax();
    const int last = threads() - 1 - thread();
    const auto lookUp = [&](int i) {
      if (last < termsMax) desks[i % 2].keep(list, i, last);
      if (thread() == thirdWarp()) desks[i % 2].job = list.job(i);
    };
    if (n > 0) lookUp(0);
    if (!mayRead(list)) return false;
    bool good = true;
#pragma unroll 1
    for (int i = 0; i < n; ++i) {
      __syncthreads();
      if (i + 1 < n) lookUp(i + 1);
      const SumJob job = desks[i % 2].job;
      withTypeOf<Kernel::kRowTypes>(list.rowType(), [&](auto type) {
        using Type = decltype(type);
        if constexpr (TakesLanded<List>) {
          const auto late = [&](int term) { return list.late(i, term); };
          const auto pauseOf = [&] { return LandingPause<decltype(late)>{comm, late}; };
          const block_sums::Landed<decltype(pauseOf)> landed{pauseOf, list.landed(i)};
          good = sum<Kernel::kWire, Type>(list, i, desks[i % 2], job, landed) && good;
        } else {
          sum<Kernel::kWire, Type>(list, i, desks[i % 2], job, block_sums::Present{});
        }
      });
    }
    if constexpr (TakesLanded<List>) return __syncthreads_and(good ? 1 : 0) != 0;
    return true;
  }

  MOE_LANES void mark(Flag* word, Meeting, WarpIndex team) const {
    __syncthreads();
    if (thread() == secondWarp()) cuda_flags::addReleaseOnDevice(word, announcementShare(team.index == 0, team.count));
  }

  MOE_LANES bool waitAll(const CommView& comm, Flag* flags, int n, std::uint64_t epoch, Awaited awaited) const {
    return waitAll(comm, flags, n, epoch, awaited, [](int, Flag) {});
  }
  template <class Take>
  MOE_LANES bool waitAll(const CommView& comm, Flag* flags, int n, std::uint64_t epoch, Awaited awaited,
                         Take take) const {
    bool good = true;
    if (thread() < kLanes) good = pollSoon(comm, flags, n, epoch, awaited, take);
    return __syncthreads_and(good ? 1 : 0) != 0;
  }

  template <class... Looked>
  MOE_LANES bool stopped(const CommView& comm, Looked&... looked) const {
    return anyFailures(lookAtFailures(comm), looked...);
  }

  MOE_LANES void laneFail(const CommView& comm, const Failure& why) const {
    failApart(comm, why.fault, why.phase, why.peer, why.index, why.expected, why.actual);
  }

 protected:
  // The number of failures, for the thread that looks; 0 for others.
  MOE_LANES std::uint32_t lookAtFailures(const CommView& comm) const {
    return thread() == secondWarp() ? cuda_flags::loadRelaxed(&comm.state->failuresClaimed) : 0;
  }
  template <class... Looked>
  MOE_LANES bool anyFailures(std::uint32_t failures, Looked&... looked) const {
    hold(looked...);
    return __syncthreads_or(failures != 0 ? 1 : 0) != 0;
  }
  MOE_LANES bool gather() const {
    __syncthreads();
    return thread() < kLanes;
  }
  // collectUnlessStopped with `failures` as lookAtFailures() gave it.
  template <class ValueOf, class Take, class Meanwhile, class... Looked>
  MOE_LANES bool collectUnless(std::uint32_t failures, int n, ValueOf valueOf, Take take, Meanwhile meanwhile,
                               Looked&... looked) const {
    collectHere(n, valueOf, take, meanwhile);
    return !anyFailures(failures, looked...);
  }
  static MOE_LANES int thread() {
    return static_cast<int>(threadIdx.x);
  }
  static MOE_LANES int threads() {
    return static_cast<int>(blockDim.x);
  }

 private:
  // Each lane looks up its next item before it takes the current one.
  template <class ValueOf, class Take, class Meanwhile>
  MOE_LANES void collectHere(int n, ValueOf valueOf, Take take, Meanwhile meanwhile) const {
    __syncthreads();
    int i = thread();
    decltype(valueOf(0)) value;
    if (i < n) value = valueOf(i);
    meanwhile();
#pragma unroll 1
    while (i < n) {
      const auto now = value;
      const int at = i;
      i += threads();
      if (i < n) value = valueOf(i);
      take(at, now);
    }
  }

  // Makes sum `i` of a list. False: a row did not land.
  template <int kWire, class Type, class List, class Desk, class Terms>
  static MOE_LANES bool sum(const List& list, int i, const Desk& desk, const SumJob& job, const Terms& terms) {
    if constexpr (WireList<List>) {
      return cuda_wire::BlockSum<kWire, Type, List, Desk, Terms>(list, i, desk, job, terms).make();
    } else {
      return block_sums::sum<Type, List>(desk, job, terms);
    }
  }

  // Like pollAll. Code for long or failed waits is in functions of its own: a step of few tokens runs each instruction
  // once and waits for its fetch, which takes longer if such code lies between the instructions.
  template <class Take>
  MOE_LANES bool pollSoon(const CommView& comm, const Flag* flags, int n, std::uint64_t epoch, Awaited awaited,
                          Take take) const {
    const bool watches = comm.waits != nullptr && awaited.phase != Phase::ownWarps;
    if (watches && !cuda_waits::watch(comm, flags, n, epoch, awaited)) return false;
    bool good = true;
#pragma unroll 1
    for (int begin = 0; begin < n && good; begin += kLanes) {
      const int i = begin + lane();
      Flag word = 0;
      bool there = i >= n;
#pragma unroll 1
      for (unsigned polls = 0; !there && polls < kPollsAtOnce; ++polls) {
        word = cuda_flags::loadAcquire(flags + i);
        there = flagEpoch(word) >= epoch;
      }
      if (!there) there = (word = pollLong(comm, flags + i, epoch, awaited, i)) != 0;
      good = __all_sync(kAll, there);
      if (good && i < n) take(i, word);
    }
    __syncwarp();  // now every lane has what one lane acquired
    return good;
  }
  // The word of a flag that does not come soon; 0: the wait has failed.
  static MOE_SELDOM Flag pollLong(const CommView& comm, const Flag* flag, std::uint64_t epoch, Awaited awaited,
                                  int index) {
    Flag word = 0;
    return CudaBlock{}.waitOne(comm, flag, epoch, awaited, index, &word) ? word : 0;
  }
  static MOE_SELDOM void failApart(const CommView& comm, Fault fault, Phase phase, int peer, std::int64_t index,
                                   std::int64_t expected, std::int64_t actual) {
    Failure why{};
    why.fault = fault;
    why.phase = phase;
    why.peer = peer;
    why.index = index;
    why.expected = expected;
    why.actual = actual;
    cuda_waits::fail(comm, why);
  }

  static constexpr int kPieces = 4;
  struct Pieces {
    Quad quad[kPieces];
  };
  static MOE_LANES int quadsOf(std::uint32_t bytes) {
    return static_cast<int>(bytes / sizeof(Quad));
  }
  static MOE_LANES void load(Pieces& piece, const CopyJob& job, int begin) {
    const auto* from = reinterpret_cast<const Quad*>(job.source);
#pragma unroll
    for (int u = 0; u < kPieces; ++u) {
      const int quad = begin + thread() + u * threads();
      if (quad < quadsOf(job.bytes)) piece.quad[u] = from[quad];
    }
  }

  // `place`: the place that this lane has found.
  static MOE_LANES void store(const Pieces& piece, const CopyJob& job, int begin, std::uint64_t place) {
    const int quads = quadsOf(job.bytes);
    const bool found = place != 0 && lane() < job.sinks;
#pragma unroll 1
    for (unsigned left = __ballot_sync(kAll, found); left != 0; left &= left - 1) {
      auto* to = reinterpret_cast<Quad*>(__shfl_sync(kAll, place, __ffs(static_cast<int>(left)) - 1));
#pragma unroll
      for (int u = 0; u < kPieces; ++u) {
        const int quad = begin + thread() + u * threads();
        if (quad < quads) to[quad] = piece.quad[u];
      }
    }
  }

  static MOE_LANES int lastFirst() {
    return threads() - 1 - thread();
  }

  // The first thread of the second or third CUDA warp, if there is one. The first warp fences and waits for flags, and
  // the last one looks up rows.
  static MOE_LANES int secondWarp() {
    return threads() > kLanes ? kLanes : 0;
  }
  static MOE_LANES int thirdWarp() {
    return threads() > 2 * kLanes ? 2 * kLanes : 0;
  }
};

MOE_LANES CudaBlock CudaWarp::wide() const {
  return {};
}

static_assert(Blocks<CudaBlock> && Gathers<CudaWarp>);
static_assert(CudaBlock::kScratchBytes >= kLlTableBytesMax, "tables of a dispatch that routes lie in scratch memory");

}  // namespace moe
