// The GPU policy for any architecture. A warp is one CUDA warp of 32 lanes, and rows move through registers in 16-byte
// pieces. forEach strides over the lanes between two __syncwarp; scanInOrder uses shuffles, 32 items at a time. The
// files flags.h (memory order), sums.h, cast.h and landing.h (landing words) explain the rest.
//
// streamRows: a lane has 7 loads in flight. Meanwhile lane s looks up sink s, then all lanes store. A side payload is
// loaded together with the first loads of its row and stored after the last.
#pragma once

#include "device/policy/contract.h"
#include "device/policy/cuda/cast.h"
#include "device/policy/cuda/landing.h"
#include "device/policy/cuda/patience.h"
#include "device/policy/cuda/pick.h"
#include "device/policy/cuda/row_types.h"
#include "device/policy/cuda/sums.h"
#include "device/policy/cuda/wire.h"
#include "device/policy/cuda/wire_few.h"
#include "device/view/views.h"

namespace moe {

class CudaBlock;

class CudaWarp {
 public:
  // The policy for all warps of a block: block.h.
  using Wide = CudaBlock;
  static MOE_LANES int warpsOfBlock() { return static_cast<int>(blockDim.x) / kLanes; }
  MOE_LANES Wide wide() const;

  static constexpr int kLanes = 32, kBlockWarpsMax = 32;
  static constexpr bool kPuts = false, kPicks = true, kLandsRows = true;
  static constexpr RowTypes kRowTypes = RowTypes::all;
  static constexpr int kWire = kWireRow;  // of a kernel for rows in one wire format, that format

  // A kernel that was launched as a dependent one may begin before the kernel ahead of it in the stream has ended. This
  // waits for that kernel, and then lets this kernel's own successor begin. All threads call it before anything else.
  static MOE_LANES void followPredecessor() {
    awaitPredecessor();
    letSuccessorBegin();
  }
  static MOE_LANES void awaitPredecessor() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
  }
  static MOE_LANES void letSuccessorBegin() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
  }

  // Called once per kernel by all threads of the block, before any warp's first operation. `beside`: the step waits for
  // its predecessor later.
  static MOE_LANES void prepareBlock(bool beside = false) {
    if (!beside) awaitPredecessor();
    letSuccessorBegin();
    static_assert(static_cast<int>(Meeting::count) <= kLanes, "a thread for each, as a block may be one warp");
    if (threadIdx.x < static_cast<unsigned>(Meeting::count)) blockMeetings()[threadIdx.x] = 0;
#pragma unroll 1  // few turns, so not worth code that counts them
    for (int i = static_cast<int>(threadIdx.x); i <= kBlockWaits; i += static_cast<int>(blockDim.x)) {
      blockWaits()[i] = {0, kWaiting, 0};
    }
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
    MOE_ROLLED
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

  MOE_LANES void laneOr(std::uint32_t* word, std::uint32_t bits) const {
    atomicOr(word, bits);
  }
  MOE_LANES void laneAdd(std::uint32_t* word, std::uint32_t value) const {
    atomicAdd(word, value);
  }

  template <class T>
  MOE_LANES T laneLoad(const T* from) const {
    return *from;
  }
  template <class T>
  MOE_LANES void laneStore(T* to, T value) const {
    *to = value;
  }

  template <CopyList List>
  MOE_LANES bool streamRows(const List& list) const {
    const int n = list.count();
    __syncwarp();
    if constexpr (AsksPlaces<List>) {
      if (!streamWhenPlaced(list, n)) return false;
    } else {
      for (int i = 0; i < n; ++i) streamRow(list, i);
    }
    __syncwarp();
    return true;
  }

  template <CastList Casts>
  MOE_LANES void castRows(const Casts& casts) const {
    __syncwarp();
    withRowType(casts.rowType(), [&](auto type) { cuda_cast::rows<decltype(type)>(casts, lane()); });
    __syncwarp();
  }

  template <SumList List>
  MOE_LANES bool reduceRows(const CommView& comm, const List& list) const {
    return reduceRowsOf<CudaWarp>(comm, list);
  }
  // `Kernel`: the policy of the kernel, with its kRowTypes and kWire.
  template <class Kernel, SumList List>
  MOE_LANES bool reduceRowsOf(const CommView& comm, const List& list) const {
    const int n = list.count(), termsMax = list.termsMax(), batch = cuda_sums::sumsAtOnce(termsMax);
    cuda_sums::Desk* desk = sumDesk();
    bool good = true;
    for (int begin = 0; begin < n && good; begin += batch) {
      lookUpSums(list, begin, batch, desk);
      if (begin == 0 && !mayRead(list)) return false;
      const int count = n - begin < batch ? n - begin : batch;
      withTypeOf<Kernel::kRowTypes>(list.rowType(), [&](auto type) {
        using Type = decltype(type);
#pragma unroll 1
        for (int i = 0; i < count; ++i) {
          if constexpr (TakesLanded<List>) {
            const auto late = [&](int at) { return list.late(begin + i, at - i * termsMax); };
            const Landing<decltype(late)> wait{comm, late};
            good = makeSum<Kernel::kWire, Type>(list, begin + i, *desk, i, i * termsMax, wait) && good;
          } else {
            makeSum<Kernel::kWire, Type>(list, begin + i, *desk, i, i * termsMax, cuda_sums::NoLanding{});
          }
        }
      });
      if constexpr (TakesLanded<List>) good = __all_sync(kAll, good) != 0;
    }
    __syncwarp();
    return n > 0 ? good : mayRead(list);
  }

  template <ReadyList List>
  MOE_LANES ReadyPick pickReady(const CommView& comm, const List& list, ReadyScan& scan) const {
    BlockWait* wait = blockWaits() + kBlockWaits;
    return cuda_pick::pickReady(comm, list, scan, {&wait->flags, &wait->state}, lane());
  }

  template <class FlagOf>
  MOE_LANES void publishAll(int n, FlagOf flagOf, Flag word) const {
    __syncwarp();
    cuda_flags::fence();
    for (int i = lane(); i < n; i += kLanes) cuda_flags::storeRelaxed(flagOf(i), word);
  }

  // Kernels for one domain have no code for puts: see CudaPuts.
  template <class PutOf>
  MOE_LANES void put(const CommView&, int, PutOf) const {}

  // The warps of a block count themselves in shared memory, and the last of them announces for the block. A fence at
  // system scope waits for all stores on their way to peers, so there is one per block and not one per warp.
  template <class FlagOf>
  MOE_LANES void announce(int n, FlagOf flagOf, Meeting meeting, WarpIndex team) const {
    if (!speaksForBlock(meeting, team)) return;
    cuda_flags::fence();
    const Flag share = announcementShare(team.index % team.blocks == 0, team.blocks);
    for (int i = lane(); i < n; i += kLanes) cuda_flags::addRelaxed(flagOf(i), share);
  }

  template <class FlagOf, class MoreOf>
  MOE_LANES void announceRows(int n, FlagOf flagOf, MoreOf moreOf, Meeting meeting, WarpIndex team) const {
    if (!speaksForBlock(meeting, team)) return;
    cuda_flags::fence();
    const Flag share = rowsShare(team.index % team.blocks == 0, team.blocks);
    for (int i = lane(); i < n; i += kLanes) {
      cuda_flags::addRelaxed(flagOf(i), share + static_cast<Flag>(std::int64_t{moreOf(i)}));
    }
  }

  MOE_LANES void mark(Flag* word, Meeting meeting, WarpIndex team) const {
    __syncwarp();
    if (lane() != 0) return;
    if (cuda_flags::addInBlock(blockMeetings() + static_cast<int>(meeting), 1) + 1 != teamWarps(team)) return;
    cuda_flags::addReleaseOnDevice(word, announcementShare(team.index % team.blocks == 0, team.blocks));
  }

  // One warp of a block polls, and the others read its result in shared memory, because polls of many warps congest the
  // path that rows share with flags. A block waits for one set of flags per phase, or for those of an operation's
  // waves, one set after the other. If the slot is taken by other flags, the warp polls on its own.
  MOE_LANES bool waitAll(const CommView& comm, Flag* flags, int n, std::uint64_t epoch, Awaited awaited) const {
    const auto key = reinterpret_cast<std::uint64_t>(flags);
    const auto set = static_cast<int>(static_cast<std::uint32_t>(key / sizeof(Flag)) / static_cast<std::uint32_t>(n));
    BlockWait* shared = blockWaits() + static_cast<int>(awaited.phase) * kHtWaves + set % kHtWaves;
    std::uint64_t holder = 0;
    if (lane() == 0) holder = cuda_flags::claimInBlock(&shared->flags, key);
    holder = __shfl_sync(kAll, holder, 0);
    if (holder == key) return followWait(shared);
    const bool good = pollAll(comm, flags, n, epoch, awaited);
    if (holder == 0 && lane() == 0) cuda_flags::storeInBlock(&shared->state, good ? kGood : kBad);
    return good;
  }

  MOE_LANES std::uint32_t laneStopped(const CommView& comm) const {
    return cuda_flags::loadRelaxed(&comm.state->failuresClaimed);
  }
  template <class... Looked>
  MOE_LANES void hold(Looked&... looked) const {
    (..., holdOne(looked));
  }

  // The abort word is in host memory, so it is read only while waiting.
  template <class... Looked>
  MOE_LANES bool stopped(const CommView& comm, Looked&... looked) const {
    std::uint32_t failures = 0;
    if (lane() == 0) failures = cuda_flags::loadRelaxed(&comm.state->failuresClaimed);
    hold(looked...);
    return __shfl_sync(kAll, failures, 0) != 0;
  }

  MOE_LANES void laneFail(const CommView& comm, const Failure& failure) const {
    cuda_waits::fail(comm, failure);
  }

 protected:
  // Whether this warp is the last of its block at a meeting. If so, it announces for the block.
  static MOE_LANES bool speaksForBlock(Meeting meeting, WarpIndex team) {
    __syncwarp();
    std::uint32_t before = 0;
    if (lane() == 0) before = cuda_flags::addInBlock(blockMeetings() + static_cast<int>(meeting), 1);
    if (__shfl_sync(kAll, before, 0) + 1 != teamWarps(team)) return false;
    __syncwarp();  // now every lane has what lane 0 acquired
    return true;
  }
  static MOE_LANES void holdOne(std::uint32_t& word) {
    asm volatile("" : "+r"(word));
  }
  static MOE_LANES void holdOne(std::uint64_t& word) {
    asm volatile("" : "+l"(word));
  }

  // All lanes call it when their stores are done. True: this CUDA warp does the rest of the operation for all lanes.
  MOE_LANES bool gather() const {
    __syncwarp();
    return true;
  }

  static constexpr unsigned kAll = 0xffffffffu;
  static constexpr int kBatch = 7;  // 16-byte loads in flight per lane, in copies
  // A wait that the warps of this block share.
  struct BlockWait {
    std::uint64_t flags;  // address of the awaited flags; 0: unused
    std::uint32_t state, reserved;
  };
  static constexpr int kBlockWaits = static_cast<int>(Phase::puts) * kHtWaves;  // later phases do not wait for flags
  static constexpr std::uint32_t kWaiting = 0, kGood = 1, kBad = 2;
  static MOE_LANES BlockWait* blockWaits() {
    __shared__ BlockWait waits[kBlockWaits + 1];  // the last one is that of pickReady
    return waits;
  }
  static MOE_LANES cuda_sums::Desk* sumDesk() {
    __shared__ cuda_sums::Desk desks[kBlockWarpsMax];
    return &desks[threadIdx.x / kLanes];
  }
  // For each meeting, the number of warps of this block that have reached it.
  static MOE_LANES std::uint32_t* blockMeetings() {
    __shared__ std::uint32_t arrived[static_cast<int>(Meeting::count)];
    return arrived;
  }
  static MOE_LANES std::uint32_t teamWarps(WarpIndex team) {
    return team.perBlock != 0 ? static_cast<std::uint32_t>(team.perBlock) : blockDim.x / kLanes;
  }
  static MOE_LANES int lane() {
    return static_cast<int>(threadIdx.x % kLanes);
  }

  MOE_LANES bool pollAll(const CommView& comm, const Flag* flags, int n, std::uint64_t epoch, Awaited awaited) const {
    return pollAll(comm, flags, n, epoch, awaited, [](int, Flag) {});
  }
  template <class Take>
  MOE_LANES bool pollAll(const CommView& comm, const Flag* flags, int n, std::uint64_t epoch, Awaited awaited,
                         Take take) const {
    const bool watches = comm.waits != nullptr && awaited.phase != Phase::ownWarps;
    if (watches && !cuda_waits::watch(comm, flags, n, epoch, awaited)) return false;
    bool good = true;
    for (int begin = 0; begin < n && good; begin += kLanes) {
      const int i = begin + lane();
      Flag word = 0;
      good = __all_sync(kAll, i >= n || waitOne(comm, flags + i, epoch, awaited, i, &word));
      if (good && i < n) take(i, word);
    }
    __syncwarp();  // now every lane has what one lane acquired
    return good;
  }

  // Loads the first row, or its beginning, while places are looked up.
  template <class List>
  MOE_LANES bool streamWhenPlaced(const List& list, int n) const {
    CopyJob job = n > 0 ? list.job(0) : CopyJob{nullptr, 0, 0};
    for (int i = 0;; ++i) {
      const auto* from = reinterpret_cast<const Quad*>(job.source);
      const int quads = static_cast<int>(job.bytes / sizeof(Quad));
      Quad piece[kBatch];
      loadBatch(piece, from, lane(), quads);
      if (i == 0 && !list.mayPlace()) return false;
      if (i >= n) return true;
      const Sink sink = lane() < job.sinks ? list.sink(i, lane()) : Sink{nullptr, nullptr, false};
      const auto mine = reinterpret_cast<std::uint64_t>(sink.row);
      for (int begin = lane();;) {
        storeBatch<MadeToLand<List>>(piece, begin, quads, job.sinks, mine);
        begin += kLanes * kBatch;
        if (begin - lane() >= quads) break;
        loadBatch(piece, from, begin, quads);
      }
      if (i + 1 >= n) return true;
      job = list.job(i + 1);
    }
  }

  template <class List>
  MOE_LANES void streamRow(const List& list, int i) const {
    const CopyJob job = list.job(i);
    const auto* from = reinterpret_cast<const Quad*>(job.source);
    const auto* side = reinterpret_cast<const Quad*>(job.side);
    const int quads = static_cast<int>(job.bytes / sizeof(Quad)), sinks = job.sinks;
    const int sideQuads = HasSides<List> && quads > 0 ? static_cast<int>(job.sideBytes / sizeof(Quad)) : 0;
    Quad sidePiece{};
    std::uint64_t mine = 0, mySide = 0;
    for (int begin = lane(); begin - lane() < quads; begin += kLanes * kBatch) {
      Quad piece[kBatch];
      loadBatch(piece, from, begin, quads);
      // While the row is being loaded, lane s looks up sink s. A token has at most 32 destinations.
      if (begin == lane()) {
        if (lane() < sideQuads) sidePiece = side[lane()];
        const Sink sink = lane() < sinks ? list.sink(i, lane()) : Sink{nullptr, nullptr, false};
        mine = reinterpret_cast<std::uint64_t>(sink.row);
        mySide = reinterpret_cast<std::uint64_t>(sink.side);
      }
      storeBatch<MadeToLand<List>>(piece, begin, quads, sinks, mine);
    }
    for (int begin = lane(); begin - lane() < sideQuads; begin += kLanes) {
      if (begin >= kLanes && begin < sideQuads) sidePiece = side[begin];
      storeSide(sidePiece, begin, sideQuads, sinks, mySide);
    }
  }

  // Pauses in a lane's wait for landing words of term `at`. False: the wait is over.
  template <class LateOf>
  struct LandingPause {
    const CommView& comm;
    const LateOf& lateOf;
    CudaPatience patience = {};
    unsigned polls = 0;

    MOE_LANES bool operator()(int at) {
      __nanosleep(landingNap(++polls));
      const CudaPatience::End end = patience.look(comm, polls, lateOf(at).phase, [&] { return lateOf(at).peer; });
      if (end == CudaPatience::End::notYet) return true;
      if (end != CudaPatience::End::stopped) cuda_waits::fail(comm, cuda_waits::inVain(lateOf(at), end));
      return false;
    }
  };
  // Waits for one piece of landing words.
  template <class LateOf>
  struct Landing {
    static constexpr bool kTakes = true;
    const CommView& comm;
    const LateOf& lateOf;

    template <class Piece>
    MOE_LANES bool operator()(const Piece* place, Piece* piece, int at) const {
      LandingPause<LateOf> goesOn{comm, lateOf};
      do {
        *piece = cuda_landing::load(place);
        if (hasLanded(*piece)) return true;
      } while (goesOn(at));
      return false;
    }
  };

  static constexpr unsigned kPollsAtOnce = 16;
  MOE_LANES bool waitOne(const CommView& comm, const Flag* flag, std::uint64_t epoch, Awaited awaited, int index,
                         Flag* word) const {
    CudaPatience patience;
    // The first polls acquire, so that a short wait ends with its last poll. Later polls do not, because an acquiring
    // load invalidates the first-level cache of a multiprocessor whose other warps still move rows.
    for (unsigned polls = 1;; ++polls) {
      if (polls <= kPollsAtOnce && flagEpoch(*word = cuda_flags::loadAcquire(flag)) >= epoch) return true;
      if (polls > kPollsAtOnce && flagEpoch(cuda_flags::loadRelaxed(flag)) >= epoch) break;
      if (polls > kPollsAtOnce) __nanosleep(kNapNs);
      const CudaPatience::End end = patience.look(comm, polls, awaited.phase, [&] { return awaited.rank(index); });
      if (end == CudaPatience::End::notYet) continue;
      if (end != CudaPatience::End::stopped) {
        cuda_waits::fail(comm, cuda_waits::inVain(cuda_waits::lateFlag(flag, epoch, awaited, index), end));
      }
      return false;
    }
    *word = cuda_flags::loadAcquire(flag);
    return true;
  }

 private:
  static MOE_LANES void loadBatch(Quad (&piece)[kBatch], const Quad* from, int begin, int quads) {
#pragma unroll
    for (int j = 0; j < kBatch; ++j) {
      if (begin + j * kLanes < quads) piece[j] = from[begin + j * kLanes];
    }
  }
  template <bool kLanding>
  static MOE_LANES void storeBatch(const Quad (&piece)[kBatch], int begin, int quads, int sinks, std::uint64_t mine) {
    for (int sink = 0; sink < sinks; ++sink) {
      auto* to = reinterpret_cast<Quad*>(__shfl_sync(kAll, mine, sink));
      if (to == nullptr) continue;
#pragma unroll
      for (int j = 0; j < kBatch; ++j) {
        if (begin + j * kLanes < quads) cuda_landing::put<kLanding>(to + begin + j * kLanes, piece[j]);
      }
    }
  }
  static MOE_LANES void storeSide(const Quad& piece, int begin, int quads, int sinks, std::uint64_t mine) {
    for (int sink = 0; sink < sinks; ++sink) {
      auto* to = reinterpret_cast<Quad*>(__shfl_sync(kAll, mine, sink));
      if (to != nullptr && begin < quads) to[begin] = piece;
    }
  }

  // lane(), computed again, so that values derived from it need not stay in registers while rows are summed.
  static MOE_LANES int laneAgain() {
    int lane;
    asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
    return lane;
  }
  // The lanes divide the sums from `begin` on, at most `batch`. Each lane looks up some terms of one sum.
  template <class List>
  static MOE_LANES void lookUpSums(const List& list, int begin, int batch, cuda_sums::Desk* desk) {
    const int lane = laneAgain(), lanesEach = kLanes / batch, own = lane / lanesEach, first = lane % lanesEach;
    const int i = begin + own;
    __syncwarp();
    if constexpr (OwnsRows<List>) {
      if (lane < cuda_sums::kDeskJobs) desk->own[lane] = -1;
      __syncwarp();
    }
    if (own < batch && i < list.count()) {
      const SumJob job = list.job(i);
      if (first == 0) {
        desk->jobs[own] = job;
        if constexpr (TakesLanded<List>) desk->landing[own] = list.landed(i);
      }
      for (int term = first; term < job.terms; term += lanesEach) {
        desk->rows[own * list.termsMax() + term] = list.term(i, term);
        if constexpr (Weighted<List>) desk->weights[own * list.termsMax() + term] = list.weight(i, term);
        if constexpr (OwnsRows<List>) {
          if (list.isOwn(i, term)) desk->own[own] = term;
        }
      }
    }
    __syncwarp();
  }

  // Makes sum i of a list. It is `item` of the desk, where its terms begin at `first`.
  template <int kWire, class Type, class List, class Wait>
  static MOE_LANES bool makeSum(const List& list, int i, const cuda_sums::Desk& desk, int item, int first,
                                const Wait& wait) {
    if constexpr (WireList<List>) {
      if constexpr (cuda_wire::kHasFew<kWire> && !Wait::kTakes) {
        if (cuda_wire::hasFewTerms<kWire>(list)) {
          cuda_wire::FewSum<kWire, List>(list, i, desk, item, first, lane()).make();
          return true;
        }
      }
      return cuda_wire::Sum<kWire, Type, List, Wait>(list, i, desk, item, first, lane(), wait).make();
    } else {
      return cuda_sums::reduceRow<Type, List>(desk, item, first, lane(), wait);
    }
  }

  // Pauses grow during the wait. In a long wait the polls of all warps would otherwise take the second-level cache from
  // the kernel that makes the rows.
  static MOE_LANES unsigned landingNap(unsigned polls) {
    const unsigned late = polls < kShortPolls ? 1 : polls - kShortPolls + 1;
    return kLandingNapNs * (late < kLandingNapsMax ? late : kLandingNapsMax);
  }
  // This wait always ends, because the polling warp's wait does.
  static MOE_LANES bool followWait(BlockWait* shared) {
    std::uint32_t state = kWaiting;
    while (lane() == 0 && (state = cuda_flags::loadInBlock(&shared->state)) == kWaiting) __nanosleep(kFollowNs);
    state = __shfl_sync(kAll, state, 0);
    __syncwarp();
    return state == kGood;
  }

  static constexpr unsigned kNapNs = 64, kFollowNs = 20, kLandingNapNs = 20;
  static constexpr unsigned kShortPolls = 32, kLandingNapsMax = 100;
};

static_assert(Lands<CudaWarp> && Codes<CudaWarp>);

}  // namespace moe
