// The simulator's policy. A warp is one fiber with one lane. Between any two operations, and inside long ones, time
// passes and other warps run. Time passes every 8 items of forEach, and in collect between looking items up and taking
// them.
//
// laneStore: the store lands later, in any order.
// streamRows: pieces of 64 bytes, read one after another while time passes.
// reduceRows: 16 bytes at a time.
// put: carried later, piece by piece, and read when it arrives.
// publishAll, announce: the warp's stores land first, then the flags or shares land in any order.
// A landing word lands by itself, without a release. The store that empties it may wait for the end of the step.
// waitAll: sleeps in virtual time.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "device/policy/contract.h"
#include "device/queue/landing.h"
#include "device/queue/mlx5/put_queue.h"
#include "device/rows/cast_row.h"
#include "support/simulator/simulator.h"

namespace moe::sim {

// The Memory of queue_wait.h. A store is visible at once, but posters may run between each other's steps.
class SimQueueMemory {
 public:
  explicit SimQueueMemory(Simulator& simulator) : sim_(simulator) {}

  std::uint64_t add(std::uint64_t* counter, std::uint64_t n) const {
    sim_.pause();
    return std::exchange(*counter, *counter + n);
  }
  template <class Word>
  Word load(const Word* word) const {
    return *word;
  }
  template <class Word>
  void publish(Word* word, Word value) const {
    sim_.pause();
    *word = value;
  }
  bool take(std::uint32_t* lock) const { return std::exchange(*lock, 1) == 0; }
  void storeSegment(Quad* to, const Quad& segment) const { *to = segment; }
  void storeRecord(std::uint32_t* to, std::uint32_t value) const { publish(to, value); }
  void ring(std::uint64_t*, std::uint64_t value) const { sim_.ring(value); }
  std::uint64_t nanoseconds() const { return sim_.now(); }
  void pause() const { sim_.nap(naps_++); }

 private:
  Simulator& sim_;
  mutable int naps_ = 0;
};

class SimWarp {
 public:
  static constexpr int kLanes = 1;
  static constexpr bool kPuts = true, kPicks = true, kLandsRows = false;
  static constexpr int kScratchBytes = 0;
  static constexpr bool kWholeTokens = false;

  explicit SimWarp(Simulator& simulator) : sim_(simulator) {}

  using Wide = SimWarp;
  static int warpsOfBlock() { return 1; }
  const Wide& wide() const { return *this; }

  template <class Body>
  void forEach(int n, Body body) const {
    if (n > 0) sim_.countLookUp();
    each(n, body);
  }

  template <class FlagOf>
  Flag* laneTarget(int, FlagOf) const {
    return nullptr;
  }
  void beginPublish() const { sim_.drain(); }
  template <class FlagOf>
  void endPublish(int n, FlagOf flagOf, Flag word, Flag*) const {
    publishAll(n, flagOf, word);
  }

  std::uint64_t follow() const {
    sim_.beginLookUps();
    return 0;
  }
  void noteStart(std::uint64_t) const {}

  template <class Body>
  void each(int n, Body body) const {
    for (int i = 0; i < n; ++i) {
      if (i % kPauseEach == kPauseEach - 1) sim_.pause();
      body(i);
    }
    sim_.pause();
  }

  // A value may be up to kAtOnce items old when it is taken.
  template <int kAtOnce, class ValueOf, class Take>
  void collect(int n, ValueOf valueOf, Take take) const {
    sim_.countLookUp();
    for (int begin = 0; begin < n; begin += kAtOnce) {
      const int count = std::min(kAtOnce, n - begin);
      std::array<decltype(valueOf(0)), kAtOnce> values{};
      for (int i = 0; i < count; ++i) values[static_cast<std::size_t>(i)] = valueOf(begin + i);
      sim_.pause();
      for (int i = 0; i < count; ++i) take(begin + i, values[static_cast<std::size_t>(i)]);
    }
    sim_.pause();
  }

  template <class ValueOf, class Take, class Meanwhile>
  void collectBeside(int n, ValueOf valueOf, Take take, Meanwhile meanwhile) const {
    meanwhile();
    collect<1>(n, valueOf, take);
  }
  template <class ValueOf, class Take, class Meanwhile, class... Looked>
  bool collectUnlessStopped(const CommView& comm, int n, ValueOf valueOf, Take take, Meanwhile meanwhile,
                            Looked&...) const {
    const bool stops = laneStopped(comm) != 0;
    collectBeside(n, valueOf, take, meanwhile);
    return !stops;
  }

  std::uint8_t* scratchMemory() const { return nullptr; }

  template <class ValueOf, class Emit>
  int scanInOrder(int n, ValueOf valueOf, Emit emit) const {
    sim_.countLookUp();
    int sum = 0;
    for (int i = 0; i < n; ++i) {
      const int value = valueOf(i);
      emit(i, sum);
      sum += value;
      if (i % kPauseEach == kPauseEach - 1) sim_.pause();
    }
    return sum;
  }

  void laneAdd(std::uint32_t* word, std::uint32_t value) const { *word += value; }
  void laneOr(std::uint32_t* word, std::uint32_t bits) const { *word |= bits; }

  template <class T>
  T laneLoad(const T* from) const {
    return *from;
  }
  template <class T>
  void laneStore(T* to, T value) const {
    sim_.store(to, &value, sizeof value);
  }

  // Moves the rows, then their side payloads.
  template <CopyList List>
  bool streamRows(const List& list) const {
    if (!mayPlace(list)) return false;
    for (int i = 0; i < list.count(); ++i) {
      const CopyJob job = list.job(i);
      copyPieces<MadeToLand<List>>(job.source, job.bytes, job.sinks, [&](int sink) { return list.sink(i, sink).row; });
    }
    if constexpr (HasSides<List>) {
      for (int i = 0; i < list.count(); ++i) {
        const CopyJob job = list.job(i);
        const auto placeOf = [&](int sink) { return list.sink(i, sink).side; };
        if constexpr (ScattersSides<List>) {
          scatterSides(list, job, placeOf);
        } else {
          copyPieces<false>(job.side, job.sideBytes, job.sinks, placeOf);
        }
      }
    }
    return true;
  }

  template <CastList Casts>
  bool castRows(const Casts& casts) const {
    if (!mayPlace(casts)) return false;
    const CastFactors factors = CastFactors::of(casts.rule());
    withRowType(casts.rowType(), [&](auto type) {
      for (int i = 0; i < casts.count(); ++i) {
        const CastJob job = casts.job(i);
        for (int tile = 0; tile < castTiles(job.elements); ++tile) {
          castTile<decltype(type), ScattersScales<Casts>>(
              job, factors.forRow(job.weight), tile, [&](int sink) { return casts.sink(i, sink); },
              [&](std::uint8_t* to, const void* from, std::size_t bytes) {
                sim_.store(to, from, static_cast<std::uint32_t>(bytes));
              });
          sim_.pause();
        }
      }
    });
    return true;
  }

  template <SumList List>
  bool reduceRows(const CommView& comm, const List& list) const {
    if (!mayRead(list)) return false;
    bool good = true;
    withRowType(list.rowType(), [&](auto type) {
      if constexpr (WireList<List>) {
        for (int i = 0; i < list.count() && good; ++i) good = reduceWire<decltype(type)>(comm, list, i);
      } else {
        good = reducePlain<decltype(type)>(comm, list);
      }
    });
    return good;
  }

  // Looks again and again, less and less often.
  template <ReadyList List>
  ReadyPick pickReady(const CommView& comm, const List& list, ReadyScan& scan) const {
    const auto load = [](const std::uint32_t* word) { return *word; };
    sim_.pause();
    constexpr int kTickShift = 10;
    if (scan.since == 0) scan.since = std::max(static_cast<std::uint32_t>(sim_.now() >> kTickShift), 1u);
    const std::uint64_t timeout = comm.orders->timeoutNs;
    const std::uint64_t end = (std::uint64_t{scan.since} << kTickShift) + longestWait(Phase::expertRows, timeout);
    for (int naps = 0;; ++naps) {
      if (scan.open == 0 && scan.atEnd(list.count())) return {list.count(), 0};
      if (maySkipRest(list, load)) return {ReadyPick::kLeft, 0};
      if (scan.open == 0) scan.openWindow(list.count(), kLanes, 0);
      if (const int i = pickOne(list, scan, load); i >= 0) return {i, 1};
      const bool late = sim_.now() >= end;
      if (late) laneFail(comm, lateItem(list, scan.firstOpen(kLanes, 0), load));
      if (late || stopped(comm)) return {ReadyPick::kInVain, 0};
      sim_.nap(naps);
    }
  }

  // One release for all flags. Then they land in any order.
  template <class FlagOf>
  void publishAll(int n, FlagOf flagOf, Flag word) const {
    sim_.endLookUps();
    sim_.drain();
    for (int i = 0; i < n; ++i) {
      sim_.note("publish", flagOf(i), word);
      sim_.storeFlag(flagOf(i), word);
      sim_.pause();
    }
  }

  template <class PutOf>
  void put(const CommView& comm, int n, PutOf putOf) const {
    sim_.drain();
    const SimQueueMemory memory(sim_);
    const WaitLimit limit{memory.nanoseconds(), comm.orders};
    const RemoteView& remote = comm.far->remote;
    const auto indexOf = [&](const Put& put) { return remote.connectionOf(put); };
    int late = 0;
    if (mlx5::postPuts(memory, remote.queues, indexOf, n, putOf, limit, &late) || stopped(comm)) return;
    laneFail(comm, {0, Fault::timeout, Phase::puts, late, 0, 0, 0, 0});
  }

  // The shares land in any order and add up.
  template <class FlagOf>
  void announce(int n, FlagOf flagOf, Meeting, WarpIndex team) const {
    sim_.endLookUps();
    sim_.drain();
    const Flag share = announcementShare(team.index == 0, team.count);
    for (int i = 0; i < n; ++i) {
      sim_.note("announce", flagOf(i), share);
      sim_.addToFlag(flagOf(i), share);
      sim_.pause();
    }
  }

  template <class FlagOf, class MoreOf>
  void announceRows(int n, FlagOf flagOf, MoreOf moreOf, Meeting, WarpIndex team) const {
    sim_.endLookUps();
    sim_.drain();
    const Flag share = rowsShare(team.index == 0, team.count);
    for (int i = 0; i < n; ++i) {
      const Flag more = share + static_cast<Flag>(std::int64_t{moreOf(i)});
      sim_.note("announce rows", flagOf(i), more);
      sim_.addToFlag(flagOf(i), more);
      sim_.pause();
    }
  }

  void awaitPredecessor() const { sim_.awaitRoute(); }

  void mark(Flag* word, Meeting meeting, WarpIndex team) const {
    announce(
        1, [&](int) { return word; }, meeting, team);
  }

  bool waitAll(const CommView& comm, Flag* flags, int n, std::uint64_t epoch, Awaited awaited) const {
    return waitAll(comm, flags, n, epoch, awaited, [](int, Flag) {});
  }
  template <class Take>
  bool waitAll(const CommView& comm, Flag* flags, int n, std::uint64_t epoch, Awaited awaited, Take take) const {
    sim_.note("wait", flags, epoch);
    int missing = -1;
    const Simulator::Purpose purpose{awaited.phase, [&] { return awaited.rank(missing); }};
    const bool timed = comm.waits != nullptr && awaited.phase != Phase::ownWarps;
    const auto cameIn = [&](int i, std::uint64_t ns) {
      if (timed) comm.waits[awaited.rank(i)] = std::max(comm.waits[awaited.rank(i)], ns);
    };
    const Simulator::WaitEnd end = sim_.wait(comm, flags, n, epoch, purpose, &missing, std::cref(cameIn));
    if (isInVain(end)) {
      const auto seen = static_cast<std::int64_t>(flagEpoch(flags[missing]));
      laneFail(comm, {0, faultOf(end), awaited.phase, purpose.rankOf(), 0, 0, static_cast<std::int64_t>(epoch), seen});
    }
    if (end != Simulator::WaitEnd::reached) return false;
    for (int i = 0; i < n; ++i) take(i, flags[i]);
    return true;
  }

  std::uint32_t laneStopped(const CommView& comm) const {
    return comm.state->failuresClaimed != 0 || comm.orders->abort != 0 ? 1 : 0;
  }
  template <class... Looked>
  void hold(Looked&...) const {}
  template <class... Looked>
  bool stopped(const CommView& comm, Looked&...) const {
    sim_.countLookUp();
    return laneStopped(comm) != 0;
  }

  void laneFail(const CommView& comm, const Failure& failure) const {
    if (comm.state->failuresClaimed++ != 0) return;
    sim_.note("fail, peer", comm.failure, static_cast<std::uint64_t>(failure.peer));
    *comm.failure = failure;
    comm.failure->ready = 1;
    sim_.wakeStopped(comm);
  }

 private:
  static bool isInVain(Simulator::WaitEnd end) {
    return end == Simulator::WaitEnd::late || end == Simulator::WaitEnd::left;
  }
  static Fault faultOf(Simulator::WaitEnd end) {
    return end == Simulator::WaitEnd::left ? Fault::left : Fault::timeout;
  }

  // Reads pieces one after another while time passes, so a change during the read shows as a wrong result.
  template <bool kLanding, class PlaceOf>
  void copyPieces(const std::uint8_t* from, std::uint32_t size, int sinks, PlaceOf placeOf) const {
    for (std::uint32_t begin = 0; begin < size; begin += kPiece) {
      const std::uint32_t bytes = size - begin < kPiece ? size - begin : kPiece;
      for (int sink = 0; sink < sinks; ++sink) {
        std::uint8_t* to = placeOf(sink);
        if (to != nullptr) store<kLanding>(to + begin, from + begin, bytes);
      }
      if (begin / kPiece % 4 == 0) sim_.pause();
    }
  }

  template <class List, class PlaceOf>
  void scatterSides(const List& list, const CopyJob& job, PlaceOf placeOf) const {
    for (int sink = 0; sink < job.sinks; ++sink) {
      std::uint8_t* to = placeOf(sink);
      if (to == nullptr) continue;
      storeSide(list, job, to, 0, 1, [this](std::uint8_t* at, const std::uint8_t* from, std::uint32_t bytes) {
        store<false>(at, from, bytes);
      });
      sim_.pause();
    }
  }

  template <class Type, class List>
  bool reducePlain(const CommView& comm, const List& list) const {
    bool good = true;
    for (int i = 0; i < list.count() && good; ++i) {
      const SumJob job = list.job(i);
      for (std::uint32_t begin = 0; begin < job.bytes && good; begin += sizeof(Quad)) {
        Accumulator<Type> sum;
        for (int term = 0; term < job.terms && good; ++term) good = addTerm(comm, list, i, term, begin, sum);
        const Quad rounded = sum.rounded();
        store<MadeToLand<List>>(job.out + begin, reinterpret_cast<const std::uint8_t*>(&rounded), sizeof rounded);
        if (begin % 64 == 0) sim_.pause();
      }
    }
    return good;
  }

  template <class Type, class List>
  bool reduceWire(const CommView& comm, const List& list, int i) const {
    const WireMemory<List> memory{*this, comm, list, i};
    const WireSum<Type, List, WireMemory<List>> sum(list, i, memory);
    return sum.make(0, 1) && sum.takeFactors();
  }

  // The memory of a WireSum: words that land are awaited four at a time, and time passes between loads and stores.
  template <class List>
  struct WireMemory {
    const SimWarp& warp;
    const CommView& comm;
    const List& list;
    int i;

    bool load(int term, void* to, const std::uint8_t* from, std::uint32_t bytes) const {
      return read(term, to, from, bytes, true);
    }
    bool look(int term, void* to, const std::uint8_t* from, std::uint32_t bytes) const {
      return read(term, to, from, bytes, false);
    }
    void store(std::uint8_t* to, const void* from, std::size_t bytes) const {
      warp.store<MadeToLand<List>>(to, static_cast<const std::uint8_t*>(from), static_cast<std::uint32_t>(bytes));
      warp.sim_.pause();
    }

   private:
    bool read(int term, void* to, const std::uint8_t* from, std::uint32_t bytes, bool takes) const {
      if constexpr (TakesLanded<List>) {
        if (term < list.landed(i)) {
          const auto late = [&] { return list.late(i, term); };
          if (!warp.awaitWords(comm, from, bytes, late)) return false;
          auto* words = static_cast<std::uint32_t*>(to);
          std::memcpy(words, from, bytes);
          std::transform(words, words + bytes / sizeof *words, words,
                         [](std::uint32_t word) { return fromLanding(word); });
          if (takes) warp.emptyWords(from, bytes);
          return true;
        }
      }
      std::memcpy(to, from, bytes);
      warp.sim_.pause();
      return true;
    }
  };

  // Adds a piece of one row of a sum. False if it should have landed and did not.
  template <class List, class Sum>
  bool addTerm(const CommView& comm, const List& list, int i, int term, std::uint32_t begin, Sum& sum) const {
    const std::uint8_t* from = list.term(i, term) + begin;
    Quad piece{};
    bool lands = false;
    if constexpr (TakesLanded<List>) lands = term < list.landed(i);
    if constexpr (TakesLanded<List>) {
      if (lands && !takePiece(comm, &piece, from, [&] { return list.late(i, term); })) return false;
    }
    if (!lands) std::memcpy(&piece, from, sizeof piece);
    if constexpr (Weighted<List>) {
      sum.template add<true>(piece, list.weight(i, term));
    } else {
      sum.template add<false>(piece, 1.0f);
    }
    return true;
  }

  template <bool kLanding>
  void store(std::uint8_t* to, const std::uint8_t* from, std::uint32_t bytes) const {
    if (!kLanding) return sim_.store(to, from, bytes);
    for (std::uint32_t at = 0; at < bytes; at += sizeof(std::uint32_t)) {
      std::uint32_t value;
      std::memcpy(&value, from + at, sizeof value);
      sim_.storeLanding(reinterpret_cast<std::uint32_t*>(to + at), toLanding(value));
    }
  }

  // The place is empty again when the store that empties it lands, at the latest at the end of the step.
  template <class Late>
  bool takePiece(const CommView& comm, Quad* piece, const std::uint8_t* from, Late late) const {
    if (!awaitWords(comm, from, sizeof *piece, late)) return false;
    std::memcpy(piece, from, sizeof *piece);
    *piece = fromLanding(*piece);
    emptyWords(from, sizeof *piece);
    return true;
  }
  // False if some have not landed, which is reported.
  template <class Late>
  bool awaitWords(const CommView& comm, const std::uint8_t* from, std::uint32_t bytes, Late late) const {
    auto* place = reinterpret_cast<std::uint32_t*>(const_cast<std::uint8_t*>(from));
    const Simulator::Purpose purpose{late().phase, [&] { return late().peer; }};
    const Simulator::WaitEnd end = sim_.waitLanding(comm, place, static_cast<int>(bytes / sizeof *place), purpose);
    if (isInVain(end)) {
      Failure failure = late();
      failure.fault = faultOf(end);
      laneFail(comm, failure);
    }
    return end == Simulator::WaitEnd::reached;
  }
  void emptyWords(const std::uint8_t* place, std::uint32_t bytes) const {
    static constexpr std::array<std::uint8_t, kWireUnit> kNothing{};
    sim_.store(const_cast<std::uint8_t*>(place), kNothing.data(), bytes);
  }

  static constexpr int kPauseEach = 8;
  static constexpr std::uint32_t kPiece = 64;

  Simulator& sim_;
};

static_assert(Computes<SimWarp> && Gathers<SimWarp> && Lands<SimWarp> && Codes<SimWarp>);

}  // namespace moe::sim
