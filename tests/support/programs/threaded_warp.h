// The policy that shows lanes to tests. A warp is several OS threads, one per lane. It orders memory between lanes
// where the contract says so, and nowhere else. So ThreadSanitizer finds a lane that reads what another lane wrote
// without a collective in between. Each meeting compares the arguments that must be the same on every lane.
//
// Lanes meet at a barrier and stride over items. scanInOrder has a shared box for 64 entries. Lanes store flags with
// release, and add shares with a releasing fetch_add. In streamRows and reduceRows, each lane does 16 bytes per turn.
// In castRows, each lane does whole tiles. waitAll is a barrier with the votes of the lanes. Scratch memory has 1 KiB,
// so that some tables of a route fit and others do not.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <latch>

#include "device/policy/contract.h"
#include "device/policy/host/landing.h"
#include "device/policy/host/patience.h"
#include "device/policy/host/queue_memory.h"
#include "device/policy/host/record.h"
#include "device/rows/cast_row.h"
#include "device/view/views.h"
#include "support/programs/lane_barrier.h"

namespace moe::test {

// Shared by the lanes of one warp.
template <int kLanes>
struct LaneGroup {
  static constexpr int kBatch = 64;  // entries of scanInOrder per round
  LaneBarrier<kLanes> barrier;
  std::array<std::int32_t, kBatch> values{};
  alignas(16) std::array<std::uint8_t, 1024> near{};  // some tables of a route fit, others do not
  std::uint64_t putIndex = 0;                         // index of the puts that the lanes post next
  bool putsFit = false;
  std::latch* predecessor = nullptr;  // of a step that runs beside the one before it
};

template <int kLaneCount>
class ThreadedWarp {
 public:
  static constexpr int kLanes = kLaneCount;
  static constexpr bool kPuts = true, kPicks = true, kLandsRows = false;
  static constexpr int kScratchBytes = 1024;
  static constexpr bool kWholeTokens = false;

  ThreadedWarp(LaneGroup<kLanes>& group, int lane) : group_(group), lane_(lane) {}

  using Wide = ThreadedWarp;
  static int warpsOfBlock() { return 1; }
  const Wide& wide() const { return *this; }

  template <class Body>
  void forEach(int n, Body body) const {
    note(1, n);
    sync();
    for (int i = lane_; i < n; i += kLanes) body(i);
    sync();
  }

  template <class FlagOf>
  Flag* laneTarget(int, FlagOf) const {
    return nullptr;
  }
  void beginPublish() const {}
  template <class FlagOf>
  void endPublish(int n, FlagOf flagOf, Flag word, Flag*) const {
    publishAll(n, flagOf, word);
  }

  std::uint64_t follow() const { return 0; }
  void noteStart(std::uint64_t) const {}

  template <class Body>
  void each(int n, Body body) const {
    for (int i = kLanes - 1 - lane_; i < n; i += kLanes) body(i);
  }

  template <int kAtOnce, class ValueOf, class Take>
  void collect(int n, ValueOf valueOf, Take take) const {
    note(17, n);
    sync();
    for (int begin = lane_; begin < n; begin += kLanes * kAtOnce) {
      std::array<decltype(valueOf(0)), kAtOnce> values{};
      for (int j = 0, i = begin; j < kAtOnce && i < n; ++j, i += kLanes)
        values[static_cast<std::size_t>(j)] = valueOf(i);
      for (int j = 0, i = begin; j < kAtOnce && i < n; ++j, i += kLanes) take(i, values[static_cast<std::size_t>(j)]);
    }
    sync();
  }

  template <class ValueOf, class Take, class Meanwhile>
  void collectBeside(int n, ValueOf valueOf, Take take, Meanwhile meanwhile) const {
    meanwhile();
    collect<1>(n, valueOf, take);
  }
  template <class ValueOf, class Take, class Meanwhile, class... Looked>
  bool collectUnlessStopped(const CommView& comm, int n, ValueOf valueOf, Take take, Meanwhile meanwhile,
                            Looked&...) const {
    collectBeside(n, valueOf, take, meanwhile);
    return !stopped(comm);
  }

  std::uint8_t* scratchMemory() const { return group_.near.data(); }

  template <class ValueOf, class Emit>
  int scanInOrder(int n, ValueOf valueOf, Emit emit) const {
    note(2, n);
    int sum = 0;
    for (int begin = 0; begin < n; begin += kBatch) {
      const int end = std::min(n, begin + kBatch);
      for (int i = begin + lane_; i < end; i += kLanes) value(i - begin) = valueOf(i);
      sync();
      for (int i = begin; i < end; ++i) {
        if ((i - begin) % kLanes == lane_) emit(i, sum);
        sum += value(i - begin);
      }
      sync();
    }
    note(2, sum);
    sync();
    return sum;
  }

  void laneOr(std::uint32_t* word, std::uint32_t bits) const {
    std::atomic_ref(*word).fetch_or(bits, std::memory_order_relaxed);
  }

  void laneAdd(std::uint32_t* word, std::uint32_t value) const {
    std::atomic_ref(*word).fetch_add(value, std::memory_order_relaxed);
  }

  template <class T>
  T laneLoad(const T* from) const {
    return *from;
  }
  template <class T>
  void laneStore(T* to, T value) const {
    *to = value;
  }

  // Others may read what is stored after publish or announce, not before. The lanes do not meet at the end.
  template <CopyList List>
  bool streamRows(const List& list) const {
    note(4, list.count());
    sync();
    if (!mayPlace(list)) return false;  // lanes do not meet, as on a GPU: later look-ups must meet first
    for (int i = 0; i < list.count(); ++i) {
      const CopyJob job = list.job(i);
      note(job.bytes, job.sinks, job.source);
      for (int sink = 0; sink < job.sinks; ++sink) {
        const Sink to = list.sink(i, sink);
        note(5, sink, to.row);
        if (to.row != nullptr) copy<MadeToLand<List>>(to.row, job.source, job.bytes);
        if constexpr (HasSides<List>) {
          note(job.sideBytes, job.sinks, job.side);
          note(19, sink, to.side);
          if (to.side == nullptr) continue;
          storeSide(list, job, to.side, lane_, kLanes,
                    [this](std::uint8_t* at, const std::uint8_t* from, std::uint32_t bytes) {
                      copySide<ScattersSides<List>>(at, from, bytes);
                    });
        }
      }
    }
    return true;
  }

  // A lane casts whole tiles.
  template <CastList Casts>
  bool castRows(const Casts& casts) const {
    note(14, casts.count());
    sync();
    if (!mayPlace(casts)) return false;
    const CastFactors factors = CastFactors::of(casts.rule());
    withRowType(casts.rowType(), [&](auto type) {
      for (int i = 0; i < casts.count(); ++i) {
        const CastJob job = casts.job(i);
        note(job.elements, job.sinks, job.source);
        for (int sink = 0; sink < job.sinks; ++sink) note(15, sink, casts.sink(i, sink).codes);
        for (int tile = lane_; tile < castTiles(job.elements); tile += kLanes) {
          castTile<decltype(type), ScattersScales<Casts>>(
              job, factors.forRow(job.weight), tile, [&](int sink) { return casts.sink(i, sink); }, std::memcpy);
        }
      }
    });
    return true;
  }

  template <SumList List>
  bool reduceRows(const CommView& comm, const List& list) const {
    if (!mayRead(list)) return false;
    note(6, list.count());
    sync();
    bool good = true;
    HostPatience patience(comm);
    withRowType(list.rowType(), [&](auto type) {
      for (int i = 0; i < list.count(); ++i) {
        const SumJob job = list.job(i);
        note(job.bytes, job.terms, job.out);
        if constexpr (TakesLanded<List>) note(18, list.landed(i));
        if constexpr (WireList<List>) {
          if (good) good = reduceWire<decltype(type)>(comm, list, i, patience);
          continue;
        }
        for (std::uint32_t at = first(); at < job.bytes && good; at += kStep) {
          Accumulator<decltype(type)> sum;
          for (int term = 0; term < job.terms && good; ++term) good = addTerm(comm, list, i, term, at, sum, patience);
          const Quad rounded = sum.rounded();
          store<MadeToLand<List>>(job.out + at, reinterpret_cast<const std::uint8_t*>(&rounded));
        }
      }
    });
    if constexpr (TakesLanded<List>) return allSay(good);
    return true;
  }

  template <ReadyList List>
  ReadyPick pickReady(const CommView& comm, const List& list, ReadyScan& scan) const {
    const auto load = [](const std::uint32_t* word) {
      return std::atomic_ref(*const_cast<std::uint32_t*>(word)).load(std::memory_order_acquire);
    };
    const auto late = [&] { return lateItem(list, scan.firstOpen(kLanes, lane_), load); };
    note(20, list.count());
    HostPatience patience(comm, nullptr, &scan.since);
    for (;;) {
      if (lanesThatSay(scan.open != 0) == 0) {
        if (scan.atEnd(list.count())) return {list.count(), 0};
        scan.openWindow(list.count(), kLanes, lane_);
      }
      if (allSay(maySkipRest(list, load))) return {ReadyPick::kLeft, 0};
      for (int look = 0; look < scan.turns(kLanes); ++look) {
        const int turn = scan.turnAt(look, kLanes), i = scan.item(turn, kLanes, lane_);
        const bool ready = scan.isOpen(turn) && missingWord(list, i, load) == list.words(i);
        const std::uint32_t mask = lanesThatSay(ready);
        if (mask == 0) continue;
        if (ready) scan.close(turn);
        scan.lookNextAt(turn, kLanes);
        return {scan.item(turn, kLanes, 0), mask};
      }
      const auto report = [&](const Failure& failure) { laneFail(comm, failure); };
      if (!allSay(scan.open == 0 || patience.goesOn(late, report))) return {ReadyPick::kInVain, 0};
    }
  }

  template <class FlagOf>
  void publishAll(int n, FlagOf flagOf, Flag word) const {
    note(n, word);
    sync();
    for (int i = lane_; i < n; i += kLanes) std::atomic_ref(*flagOf(i)).store(word, std::memory_order_release);
  }

  template <class PutOf>
  void put(const CommView& comm, int n, PutOf putOf) const {
    note(16, n);
    sync();
    const RemoteView& remote = comm.far->remote;
    for (int begin = 0; begin < n; begin += kLanes) {
      const int end = std::min(n, begin + kLanes);
      for (int ring = 0; ring < remote.rings; ++ring) {
        const auto users = [&](int last) {
          int count = 0;
          for (int i = begin; i < last; ++i) count += remote.ringOf(putOf(i)) == ring ? 1 : 0;
          return static_cast<std::uint32_t>(count);
        };
        if (users(end) == 0) continue;
        if (!reserveForAll(comm, remote.ring[ring], users(end), putOf(begin).to)) return;
        const int own = begin + lane_;
        if (own >= end || remote.ringOf(putOf(own)) != ring) continue;
        fillPut(HostQueueMemory(), remote.ring[ring], group_.putIndex + users(own), putOf(own));
      }
    }
  }

  template <class FlagOf>
  void announce(int n, FlagOf flagOf, Meeting meeting, WarpIndex team) const {
    note(n, static_cast<int>(meeting));
    sync();
    const Flag share = announcementShare(team.index == 0, team.count);
    for (int i = lane_; i < n; i += kLanes) std::atomic_ref(*flagOf(i)).fetch_add(share, std::memory_order_release);
  }

  template <class FlagOf, class MoreOf>
  void announceRows(int n, FlagOf flagOf, MoreOf moreOf, Meeting meeting, WarpIndex team) const {
    note(n, static_cast<int>(meeting));
    sync();
    const Flag share = rowsShare(team.index == 0, team.count);
    for (int i = lane_; i < n; i += kLanes) {
      const Flag more = share + static_cast<Flag>(std::int64_t{moreOf(i)});
      std::atomic_ref(*flagOf(i)).fetch_add(more, std::memory_order_release);
    }
  }

  void mark(Flag* word, Meeting meeting, WarpIndex team) const {
    announce(
        1, [&](int) { return word; }, meeting, team);
  }

  bool waitAll(const CommView& comm, Flag* flags, int n, std::uint64_t epoch, Awaited awaited) const {
    return waitAll(comm, flags, n, epoch, awaited, [](int, Flag) {});
  }
  template <class Take>
  bool waitAll(const CommView& comm, Flag* flags, int n, std::uint64_t epoch, Awaited awaited, Take take) const {
    note(9, n, flags);
    note(static_cast<int>(awaited.phase) * 4096 + awaited.first, epoch);
    bool good = true;
    HostPatience patience(comm);
    const HostStopwatch watch(comm, awaited, epoch);
    for (int i = lane_; i < n && good; i += kLanes) {
      good = waitOne(comm, flags + i, epoch, awaited, i, patience, [&] { watch.look(flags, i, n, kLanes); });
      if (good) take(i, std::atomic_ref(flags[i]).load(std::memory_order_relaxed));
    }
    return allSay(good);
  }

  std::uint32_t laneStopped(const CommView& comm) const { return HostPatience::stopped(comm) ? 1 : 0; }
  template <class... Looked>
  void hold(Looked&...) const {}
  template <class... Looked>
  bool stopped(const CommView& comm, Looked&...) const {
    note(11, comm.rank);
    const bool stop = lane_ == 0 && HostPatience::stopped(comm);
    return group_.barrier.meet(lane_, digest_, stop ? 1 : 0)[0].value != 0;
  }

  void laneFail(const CommView& comm, const Failure& failure) const {
    if (std::atomic_ref(comm.state->failuresClaimed).fetch_add(1, std::memory_order_relaxed) != 0) return;
    Failure* to = comm.failure;
    to->fault = failure.fault;
    to->phase = failure.phase;
    to->peer = failure.peer;
    to->index = failure.index;
    to->expected = failure.expected;
    to->actual = failure.actual;
    std::atomic_ref(to->ready).store(1, std::memory_order_release);
  }

  // All lanes come to the end of the step together.
  void awaitPredecessor() const { group_.predecessor->wait(); }

  void endStep() const {
    note(12, 0);
    sync();
  }

 private:
  static constexpr int kBatch = LaneGroup<kLanes>::kBatch;
  static constexpr std::uint32_t kPiece = sizeof(Quad), kStep = kLanes * kPiece;

  // One lane takes the entries for all lanes, so that puts stay in order. Each lane fills its own.
  bool reserveForAll(const CommView& comm, const PutRing& ring, std::uint32_t puts, int to) const {
    sync();  // all lanes have read the last index
    if (lane_ == 0) {
      const HostQueueMemory memory;
      const WaitLimit limit{memory.nanoseconds(), comm.orders};
      group_.putsFit = reservePuts(memory, ring, puts, limit, &group_.putIndex);
      if (!group_.putsFit) laneFail(comm, {0, Fault::timeout, Phase::puts, to, 0, 0, 0, 0});
    }
    sync();
    return group_.putsFit;
  }

  void sync() const { group_.barrier.meet(lane_, digest_, 0); }
  std::int32_t& value(int i) const { return group_.values[static_cast<std::size_t>(i)]; }
  std::uint32_t first() const { return static_cast<std::uint32_t>(lane_) * kPiece; }

  template <class A, class B>
  void note(A operation, B argument, const void* address = nullptr) const {
    digest_ = mix(digest_ ^ static_cast<std::uint64_t>(operation),
                  mix(static_cast<std::uint64_t>(argument), reinterpret_cast<std::uintptr_t>(address)));
  }

  bool allSay(bool good) const {
    const auto& words = group_.barrier.meet(lane_, digest_, good ? 1 : 0);
    return std::all_of(words.begin(), words.end(), [](const auto& word) { return word.value != 0; });
  }

  std::uint32_t lanesThatSay(bool so) const {
    const auto& words = group_.barrier.meet(lane_, digest_, so ? 1 : 0);
    std::uint32_t mask = 0;
    for (std::uint32_t lane = 0; lane < kLanes; ++lane) mask |= words[lane].value != 0 ? 1u << lane : 0u;
    return mask;
  }

  template <bool kLanding>
  static void store(std::uint8_t* to, const std::uint8_t* from) {
    if constexpr (kLanding) {
      host_landing::send(to, from, kPiece);
    } else {
      std::memcpy(to, from, kPiece);
    }
  }

  template <bool kLanding>
  void copy(std::uint8_t* to, const std::uint8_t* from, std::uint32_t bytes) const {
    for (std::uint32_t at = first(); at < bytes; at += kStep) store<kLanding>(to + at, from + at);
  }

  // Sides that are scattered come in bytes that are this lane's.
  template <bool kScattered>
  void copySide(std::uint8_t* to, const std::uint8_t* from, std::uint32_t bytes) const {
    if constexpr (kScattered) {
      std::memcpy(to, from, bytes);
    } else {
      copy<false>(to, from, bytes);
    }
  }

  // A lane makes whole units. All lanes look at some words, so the lanes meet before one of them takes these words.
  template <class Type, class List>
  bool reduceWire(const CommView& comm, const List& list, int i, HostPatience& patience) const {
    const auto report = [&](const Failure& failure) { laneFail(comm, failure); };
    const host_landing::WireMemory memory{list, i, patience, report};
    const WireSum<Type, List, decltype(memory)> sum(list, i, memory);
    const bool good = allSay(sum.make(lane_, kLanes));
    return allSay(good && (lane_ != 0 || sum.takeFactors()));
  }

  // Adds a piece of one row of a sum. False if it should have landed and did not.
  template <class List, class Sum>
  bool addTerm(const CommView& comm, const List& list, int i, int term, std::uint32_t at, Sum& sum,
               HostPatience& patience) const {
    const std::uint8_t* from = list.term(i, term) + at;
    Quad piece{};
    bool lands = false, good = true;
    if constexpr (TakesLanded<List>) {
      lands = term < list.landed(i);
      const auto late = [&] { return list.late(i, term); };
      const auto report = [&](const Failure& failure) { laneFail(comm, failure); };
      auto* bytes = reinterpret_cast<std::uint8_t*>(&piece);
      if (lands) good = host_landing::take(bytes, from, kPiece, [&] { return patience.goesOn(late, report); });
    }
    if (!lands) std::memcpy(&piece, from, kPiece);
    if constexpr (Weighted<List>) {
      sum.template add<true>(piece, list.weight(i, term));
    } else {
      sum.template add<false>(piece, 1.0f);
    }
    return good;
  }

  template <class Look>
  bool waitOne(const CommView& comm, Flag* flag, std::uint64_t epoch, Awaited awaited, int index,
               HostPatience& patience, Look look) const {
    const std::atomic_ref ref(*flag);
    const auto late = [&]() -> Failure {
      const auto expected = static_cast<std::int64_t>(epoch);
      return {0, Fault::timeout, awaited.phase, awaited.rank(index), 0, 0, expected, 0};
    };
    while (flagEpoch(ref.load(std::memory_order_acquire)) < epoch) {
      look();
      if (!patience.goesOn(late, [&](const Failure& failure) { laneFail(comm, failure); })) return false;
    }
    return true;
  }

  LaneGroup<kLanes>& group_;
  int lane_;
  mutable std::uint64_t digest_ = 0;
};

static_assert(Computes<ThreadedWarp<2>> && Gathers<ThreadedWarp<2>> && Lands<ThreadedWarp<2>> &&
              Codes<ThreadedWarp<2>>);

}  // namespace moe::test
