// The simulator's policy: a warp is one fiber. Between any two operations, and inside long ones, time passes and other
// warps run. What host_warp.h says about each operation holds here too.
#pragma once

#include "device/fp8_row.h"
#include "support/simulator.h"

namespace moe::sim {

class SimWarp {
 public:
  static constexpr int kLanes = 1;
  static constexpr bool kPuts = true;

  explicit SimWarp(Simulator& simulator) : sim_(simulator) {}

  template <class Body>
  void forEach(int n, Body body) const {
    for (int i = 0; i < n; ++i) {
      if (i % kPauseEach == kPauseEach - 1) sim_.pause();
      body(i);
    }
    sim_.pause();
  }

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

  // Pieces are read one after another while time passes: what changes under the reader becomes a wrong result.
  template <class JobOf, class SinkOf>
  void streamRows(int n, int, JobOf jobOf, SinkOf sinkOf) const {
    for (int i = 0; i < n; ++i) {
      const CopyJob job = jobOf(i);
      for (std::uint32_t begin = 0; begin < job.bytes; begin += kPiece) {
        const std::uint32_t bytes = job.bytes - begin < kPiece ? job.bytes - begin : kPiece;
        for (int sink = 0; sink < job.sinks; ++sink) {
          std::uint8_t* to = sinkOf(i, sink);
          if (to != nullptr) sim_.store(to + begin, job.source + begin, bytes);
        }
        if (begin / kPiece % 4 == 0) sim_.pause();
      }
    }
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

  template <bool kWeighted, class MayRead, class JobOf, class TermOf, class WeightOf>
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
          sim_.store(job.out + begin, &rounded, sizeof rounded);
          if (begin % 64 == 0) sim_.pause();
        }
      }
    });
    return true;
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
    for (int i = 0; i < n; ++i) {
      sim_.put(comm.rank, putOf(i));
      if (i % kPauseEach == 0) sim_.pause();
    }
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
    if (sim_.wait(comm, flags, n, epoch, &missing)) return true;
    if (missing < 0) return false;
    const auto seen = static_cast<std::int64_t>(flagEpoch(flags[missing]));
    const int late = awaited.rank(missing);
    laneFail(comm, {0, Fault::timeout, awaited.phase, late, 0, 0, static_cast<std::int64_t>(epoch), seen});
    return false;
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
  static constexpr int kPauseEach = 8;
  static constexpr std::uint32_t kPiece = 64;

  Simulator& sim_;
};

}  // namespace moe::sim
