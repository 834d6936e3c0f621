// The simulator's policy: a warp is one fiber with one lane. Between any two operations, and inside long ones, time
// passes and other warps run. Loops are plain; time passes every 8 items of forEach, and between looking up and taking
// in collect.
//
// laneStore: the store lands later, in any order. streamRows: pieces of 64 bytes, read one after another while time
// passes. reduceRows: 16 bytes at a time. put: carried later, piece by piece, and read when it arrives. publishAll,
// announce: the warp's stores land, then the flags or shares land in any order. A landing word lands by itself, without
// a release, and the store that empties it may wait for the end of the step. waitAll sleeps in virtual time.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "device/policy/contract.h"
#include "device/queue/landing.h"
#include "device/rows/fp8_row.h"
#include "support/simulator.h"

namespace moe::sim {

// The Memory of queue_wait.h. A store is there at once, but posters come between each other's steps.
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
  static constexpr bool kPuts = true;
  static constexpr int kNearBytes = 0;
  static constexpr bool kWholeTokens = false;

  explicit SimWarp(Simulator& simulator) : sim_(simulator) {}

  template <class Body>
  void forEach(int n, Body body) const {
    for (int i = 0; i < n; ++i) {
      if (i % kPauseEach == kPauseEach - 1) sim_.pause();
      body(i);
    }
    sim_.pause();
  }

  // What is looked up is up to kAtOnce items old when it is taken.
  template <int kAtOnce, class ValueOf, class Take>
  void collect(int n, ValueOf valueOf, Take take) const {
    for (int begin = 0; begin < n; begin += kAtOnce) {
      const int count = std::min(kAtOnce, n - begin);
      std::array<decltype(valueOf(0)), kAtOnce> values{};
      for (int i = 0; i < count; ++i) values[static_cast<std::size_t>(i)] = valueOf(begin + i);
      sim_.pause();
      for (int i = 0; i < count; ++i) take(begin + i, values[static_cast<std::size_t>(i)]);
    }
    sim_.pause();
  }

  std::uint8_t* nearMemory() const { return nullptr; }

  template <class ValueOf, class Emit>
  int scanInOrder(int n, ValueOf valueOf, Emit emit) const {
    int sum = 0;
    for (int i = 0; i < n; ++i) {
      const int value = valueOf(i);
      emit(i, sum);
      sum += value;
      if (i % kPauseEach == kPauseEach - 1) sim_.pause();
    }
    return sum;
  }

  void laneOr(std::uint32_t* word, std::uint32_t bits) const { *word |= bits; }

  template <class T>
  T laneLoad(const T* from) const {
    return *from;
  }
  template <class T>
  void laneStore(T* to, T value) const {
    sim_.store(to, &value, sizeof value);
  }

  // Pieces are read one after another while time passes, so that a change under the reader becomes a wrong result.
  template <bool kLanding = false, class JobOf, class SinkOf>
  void streamRows(int n, int, JobOf jobOf, SinkOf sinkOf) const {
    for (int i = 0; i < n; ++i) {
      const CopyJob job = jobOf(i);
      for (std::uint32_t begin = 0; begin < job.bytes; begin += kPiece) {
        const std::uint32_t bytes = job.bytes - begin < kPiece ? job.bytes - begin : kPiece;
        for (int sink = 0; sink < job.sinks; ++sink) {
          std::uint8_t* to = sinkOf(i, sink).row;
          if (to != nullptr) store<kLanding>(to + begin, job.source + begin, bytes);
        }
        if (begin / kPiece % 4 == 0) sim_.pause();
      }
    }
  }

  template <class JobOf, class SinkOf>
  void streamPairs(int n, int sinksMax, JobOf jobOf, SinkOf sinkOf) const {
    streamOneByOne(*this, n, sinksMax, jobOf, sinkOf);
  }

  template <class JobOf, class SinkOf>
  void castRows(int n, int rowType, int cast, JobOf jobOf, SinkOf sinkOf) const {
    withRowType(rowType, [&](auto type) {
      for (int i = 0; i < n; ++i) {
        const CastJob job = jobOf(i);
        for (int tile = 0; tile < castTiles(job.elements); ++tile) {
          castTile<decltype(type)>(
              job, cast, tile, [&](int sink) { return sinkOf(i, sink); },
              [&](std::uint8_t* to, const void* from, std::size_t bytes) {
                sim_.store(to, from, static_cast<std::uint32_t>(bytes));
              });
          sim_.pause();
        }
      }
    });
  }

  template <bool kWeighted, bool kLanding = false, class MayRead, class JobOf, class TermOf, class WeightOf>
  bool reduceRows(int n, int rowType, int, MayRead mayRead, JobOf jobOf, TermOf termOf, WeightOf weightOf) const {
    if (!mayRead()) return false;
    withRowType(rowType, [&](auto type) {
      for (int i = 0; i < n; ++i) {
        const SumJob job = jobOf(i);
        for (std::uint32_t begin = 0; begin < job.bytes; begin += sizeof(Quad)) {
          Accumulator<decltype(type)> sum;
          for (int term = 0; term < job.terms; ++term) {
            const Quad piece = *reinterpret_cast<const Quad*>(termOf(i, term) + begin);
            sum.template add<kWeighted>(piece, kWeighted ? weightOf(i, term) : 1.0f);
          }
          const Quad rounded = sum.rounded();
          store<kLanding>(job.out + begin, reinterpret_cast<const std::uint8_t*>(&rounded), sizeof rounded);
          if (begin % 64 == 0) sim_.pause();
        }
      }
    });
    return true;
  }

  template <class JobOf, class TermOf, class LateOf>
  bool takeRows(const CommView& comm, int n, int rowType, int, JobOf jobOf, TermOf termOf, LateOf lateOf) const {
    bool good = true;
    withRowType(rowType, [&](auto type) {
      for (int i = 0; i < n; ++i) {
        const TakeJob job = jobOf(i);
        for (std::uint32_t begin = 0; begin < job.sum.bytes && good; begin += sizeof(Quad)) {
          Accumulator<decltype(type)> sum;
          for (int term = 0; term < job.sum.terms && good; ++term) {
            Quad piece{};
            const std::uint8_t* from = termOf(i, term) + begin;
            if (term >= job.landing) std::memcpy(&piece, from, sizeof piece);
            if (term < job.landing) good = takePiece(comm, &piece, from, [&] { return lateOf(i, term); });
            sum.template add<false>(piece, 1.0f);
          }
          const Quad rounded = sum.rounded();
          sim_.store(job.sum.out + begin, &rounded, sizeof rounded);
          if (begin % 64 == 0) sim_.pause();
        }
      }
    });
    return good;
  }

  // One release for all; then the flags land in any order.
  template <class FlagOf>
  void publishAll(int n, FlagOf flagOf, Flag word) const {
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
    const WaitLimit limit{memory.nanoseconds() + comm.timeoutNs, comm.abort};
    const RemoteView& remote = comm.far->remote;
    const auto indexOf = [&](const Put& put) { return remote.connectionOf(put); };
    int late = 0;
    if (mlx5::postPuts(memory, remote.queues, indexOf, n, putOf, limit, &late) || stopped(comm)) return;
    laneFail(comm, {0, Fault::timeout, Phase::puts, late, 0, 0, 0, 0});
  }

  // The shares land in any order, and add up.
  template <class FlagOf>
  void announce(int n, FlagOf flagOf, Meeting, WarpIndex team) const {
    sim_.drain();
    const Flag share = announcementShare(team.index == 0, team.count);
    for (int i = 0; i < n; ++i) {
      sim_.note("announce", flagOf(i), share);
      sim_.addToFlag(flagOf(i), share);
      sim_.pause();
    }
  }

  void mark(Flag* word, Meeting meeting, WarpIndex team) const {
    announce(
        1, [&](int) { return word; }, meeting, team);
  }

  bool waitAll(const CommView& comm, Flag* flags, int n, std::uint64_t epoch, Awaited awaited) const {
    sim_.note("wait", flags, epoch);
    int missing = -1;
    const Simulator::RankOf rankOf = [&] { return awaited.rank(missing); };
    const Simulator::WaitEnd end = sim_.wait(comm, flags, n, epoch, rankOf, &missing);
    if (isInVain(end)) {
      const auto seen = static_cast<std::int64_t>(flagEpoch(flags[missing]));
      laneFail(comm, {0, faultOf(end), awaited.phase, rankOf(), 0, 0, static_cast<std::int64_t>(epoch), seen});
    }
    return end == Simulator::WaitEnd::reached;
  }

  bool stopped(const CommView& comm) const { return comm.state->failuresClaimed != 0 || *comm.abort != 0; }

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

  template <bool kLanding>
  void store(std::uint8_t* to, const std::uint8_t* from, std::uint32_t bytes) const {
    if (!kLanding) return sim_.store(to, from, bytes);
    for (std::uint32_t at = 0; at < bytes; at += sizeof(std::uint32_t)) {
      std::uint32_t value;
      std::memcpy(&value, from + at, sizeof value);
      sim_.storeLanding(reinterpret_cast<std::uint32_t*>(to + at), toLanding(value));
    }
  }

  // The place is empty again when the store of that lands: at the end of the step at the latest.
  template <class Late>
  bool takePiece(const CommView& comm, Quad* piece, const std::uint8_t* from, Late late) const {
    auto* place = reinterpret_cast<std::uint32_t*>(const_cast<std::uint8_t*>(from));
    const Simulator::RankOf rankOf = [&] { return late().peer; };
    const Simulator::WaitEnd end = sim_.waitLanding(comm, place, sizeof(Quad) / sizeof *place, rankOf);
    if (isInVain(end)) {
      Failure failure = late();
      failure.fault = faultOf(end);
      laneFail(comm, failure);
    }
    if (end != Simulator::WaitEnd::reached) return false;
    std::memcpy(piece, place, sizeof *piece);
    *piece = fromLanding(*piece);
    const Quad nothing{};
    sim_.store(place, &nothing, sizeof nothing);
    return true;
  }

  static constexpr int kPauseEach = 8;
  static constexpr std::uint32_t kPiece = 64;

  Simulator& sim_;
};

static_assert(Computes<SimWarp> && Lands<SimWarp>);

}  // namespace moe::sim
