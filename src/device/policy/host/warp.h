// The policy of the CPU backend: a warp is one lane, on one thread. Loops are plain loops. Rows are copied by memcpy,
// summed in tiles of 1024 bytes, and cast tile by tile.
//
// publishAll stores each flag with release; announce and mark add each share with a releasing fetch_add. waitAll loads
// with acquire (wait.h says how it waits). laneFail claims the record with fetch_add and releases it. Each order is
// part of the operation on a flag itself, so ThreadSanitizer sees errors in it.
#pragma once

#include <atomic>
#include <cstring>

#include "device/policy/contract.h"
#include "device/policy/host/landing.h"
#include "device/policy/host/patience.h"
#include "device/policy/host/queue_memory.h"
#include "device/policy/host/record.h"
#include "device/policy/host/wait.h"
#include "device/queue/mlx5/put_queue.h"
#include "device/rows/cast_row.h"
#include "device/view/views.h"

namespace moe {

// Posts puts over a QueueMemory (queue_wait.h).
template <class QueueMemory>
class HostWarpOver {
 public:
  static constexpr int kLanes = 1;
  static constexpr bool kPuts = true, kPicks = true, kLandsRows = false;
  static constexpr int kScratchBytes = 0;
  static constexpr bool kWholeTokens = true;

  using Wide = HostWarpOver;
  static int warpsOfBlock() { return 1; }
  const Wide& wide() const { return *this; }

  // `pace` belongs to the calling thread: see HostPatience.
  explicit HostWarpOver(const QueueMemory& queueMemory = QueueMemory(), HostPace* pace = nullptr)
      : queueMemory_(queueMemory), pace_(pace) {}

  template <class Body>
  void forEach(int n, Body body) const {
    for (int i = 0; i < n; ++i) body(i);
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
    forEach(n, body);
  }

  template <int, class ValueOf, class Take>
  void collect(int n, ValueOf valueOf, Take take) const {
    for (int i = 0; i < n; ++i) take(i, valueOf(i));
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
    return !HostPatience::stopped(comm);
  }

  std::uint8_t* scratchMemory() const { return nullptr; }

  // Calls emit(i, the sum of valueOf(0..i-1)) for i = 0..n-1. Returns the whole sum.
  template <class ValueOf, class Emit>
  int scanInOrder(int n, ValueOf valueOf, Emit emit) const {
    int sum = 0;
    for (int i = 0; i < n; ++i) {
      const int value = valueOf(i);
      emit(i, sum);
      sum += value;
    }
    return sum;
  }

  // Sets bits that several lanes of this warp set, but no other warp.
  void laneOr(std::uint32_t* word, std::uint32_t bits) const { *word |= bits; }
  void laneAdd(std::uint32_t* word, std::uint32_t value) const { *word += value; }

  template <class T>
  T laneLoad(const T* from) const {
    return *from;
  }
  template <class T>
  void laneStore(T* to, T value) const {
    *to = value;
  }

  template <CopyList List>
  bool streamRows(const List& list) const {
    if (!mayPlace(list)) return false;
    for (int i = 0; i < list.count(); ++i) {
      const CopyJob job = list.job(i);
      for (int sink = 0; sink < job.sinks; ++sink) {
        const Sink to = list.sink(i, sink);
        if (to.row != nullptr) copy<MadeToLand<List>>(to.row, job.source, job.bytes);
        if constexpr (HasSides<List>) {
          if (to.side != nullptr) storeSide(list, job, to.side, 0, 1, std::memcpy);
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
              job, factors.forRow(job.weight), tile, [&](int sink) { return casts.sink(i, sink); }, std::memcpy);
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
        good = reduceWire<decltype(type)>(comm, list);
      } else if constexpr (TakesLanded<List>) {
        good = takeRows<decltype(type)>(comm, list);
      } else {
        for (int i = 0; i < list.count(); ++i) {
          reduceRow<decltype(type)>(
              list, i, [&](int term, std::uint32_t begin, std::uint32_t) { return list.term(i, term) + begin; });
        }
      }
    });
    return good;
  }

  template <ReadyList List>
  ReadyPick pickReady(const CommView& comm, const List& list, ReadyScan& scan) const {
    const auto load = [](const std::uint32_t* word) {
      return std::atomic_ref(*const_cast<std::uint32_t*>(word)).load(std::memory_order_acquire);
    };
    const auto report = [&](const Failure& failure) { laneFail(comm, failure); };
    HostWait patience(comm, pace_, &scan.since);
    for (;;) {
      if (scan.open == 0 && scan.atEnd(list.count())) return {list.count(), 0};
      if (maySkipRest(list, load)) return {ReadyPick::kLeft, 0};
      if (scan.open == 0) scan.openWindow(list.count(), kLanes, 0);
      if (const int i = pickOne(list, scan, load); i >= 0) return {i, 1};
      const auto late = [&] { return lateItem(list, scan.firstOpen(kLanes, 0), load); };
      if (!patience.goesOn(late, report)) return {ReadyPick::kInVain, 0};
    }
  }

  template <class FlagOf>
  void publishAll(int n, FlagOf flagOf, Flag word) const {
    for (int i = 0; i < n; ++i) std::atomic_ref(*flagOf(i)).store(word, std::memory_order_release);
  }

  // Posts puts to ranks of other domains: see put.h.
  template <class PutOf>
  void put(const CommView& comm, int n, PutOf putOf) const {
    const QueueMemory& memory = queueMemory_;
    const WaitLimit limit{memory.nanoseconds(), comm.orders};
    const RemoteView& remote = comm.far->remote;
    int late = 0;
    if (remote.queues != nullptr) {
      const auto indexOf = [&](const Put& put) { return remote.connectionOf(put); };
      if (!mlx5::postPuts(memory, remote.queues, indexOf, n, putOf, limit, &late)) lanePutFailed(comm, late);
      return;
    }
    std::uint64_t posted = 0;
    for (int i = 0; i < n; ++i) {
      const Put put = putOf(i);
      if (!post(memory, remote.ring[remote.ringOf(put)], put, limit)) return lanePutFailed(comm, put.to);
      posted += kPutCost + put.bytes;
      if (remote.helper == nullptr || posted < kPutsAtOnce) continue;
      remote.helper->flush();
      posted = 0;
    }
  }

  // Every warp of `team` calls it once in a step. When the last warp has called, each of the n words has grown by one
  // epoch. A reader that finds this sees everything that the whole team has written before.
  template <class FlagOf>
  void announce(int n, FlagOf flagOf, Meeting, WarpIndex team) const {
    const Flag share = announcementShare(team.index == 0, team.count);
    for (int i = 0; i < n; ++i) std::atomic_ref(*flagOf(i)).fetch_add(share, std::memory_order_release);
  }

  // The same for flags that count rows.
  template <class FlagOf, class MoreOf>
  void announceRows(int n, FlagOf flagOf, MoreOf moreOf, Meeting, WarpIndex team) const {
    const Flag share = rowsShare(team.index == 0, team.count);
    for (int i = 0; i < n; ++i) {
      const Flag more = share + static_cast<Flag>(std::int64_t{moreOf(i)});
      std::atomic_ref(*flagOf(i)).fetch_add(more, std::memory_order_release);
    }
  }

  // A processor runs one step after the other.
  void awaitPredecessor() const {}

  // The same for one private word of this rank.
  void mark(Flag* word, Meeting meeting, WarpIndex team) const {
    announce(
        1, [&](int) { return word; }, meeting, team);
  }

  // True once every flag has reached `epoch`; then everything that was published before is readable. False after a
  // timeout or if a rank has left, which is reported, or after an abort.
  bool waitAll(const CommView& comm, Flag* flags, int n, std::uint64_t epoch, Awaited awaited) const {
    return waitAll(comm, flags, n, epoch, awaited, [](int, Flag) {});
  }
  // Does the same, and calls take(i, word) with the value of each flag.
  template <class Take>
  bool waitAll(const CommView& comm, Flag* flags, int n, std::uint64_t epoch, Awaited awaited, Take take) const {
    HostWait patience(comm, pace_);
    const HostStopwatch watch(comm, awaited, epoch);
    HostWaitRecord record(comm, awaited);
    for (int i = 0; i < n; ++i) {
      const auto look = [&] {
        watch.look(flags, i, n);
        record.look(i);
      };
      const bool came = waitOne(comm, flags + i, epoch, awaited, i, patience, look);
      record.over(i, came);
      if (!came) return false;
      take(i, std::atomic_ref(flags[i]).load(std::memory_order_relaxed));
    }
    return true;
  }

  // True if this rank has failed or was told to stop: the step has nothing to do any more.
  std::uint32_t laneStopped(const CommView& comm) const { return HostPatience::stopped(comm) ? 1 : 0; }
  template <class... Looked>
  void hold(Looked&...) const {}
  template <class... Looked>
  bool stopped(const CommView& comm, Looked&...) const {
    return HostPatience::stopped(comm);
  }

  // Any lane may call it. The first failure of the rank is kept.
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

 private:
  void lanePutFailed(const CommView& comm, int to) const {
    if (!stopped(comm)) laneFail(comm, lateRank(Phase::puts, to, 0, 0));
  }

  template <class Look>
  bool waitOne(const CommView& comm, Flag* flag, std::uint64_t epoch, Awaited awaited, int index, HostWait& patience,
               Look look) const {
    const std::atomic_ref ref(*flag);
    while (flagEpoch(ref.load(std::memory_order_acquire)) < epoch) {
      look();
      const auto late = [&] {
        return lateRank(awaited.phase, awaited.rank(index), epoch, flagEpoch(ref.load(std::memory_order_relaxed)));
      };
      if (!patience.goesOn(late, [&](const Failure& failure) { laneFail(comm, failure); })) return false;
    }
    patience.anew();
    return true;
  }

  template <bool kLanding>
  static void copy(std::uint8_t* to, const std::uint8_t* from, std::uint32_t bytes) {
    if constexpr (kLanding) {
      host_landing::send(to, from, bytes);
    } else {
      std::memcpy(to, from, bytes);
    }
  }

  // Makes sums of which some rows land here.
  template <class Type, class List>
  bool takeRows(const CommView& comm, const List& list) const {
    alignas(Quad) std::uint8_t tile[kSumTile];
    HostWait patience(comm, pace_);
    bool good = true;
    for (int i = 0; i < list.count() && good; ++i) {
      const int landed = list.landed(i);
      patience.anew();
      reduceRow<Type>(list, i, [&](int term, std::uint32_t begin, std::uint32_t bytes) -> const std::uint8_t* {
        const std::uint8_t* row = list.term(i, term) + begin;
        if (term >= landed) return row;
        const auto late = [&] { return list.late(i, term); };
        const auto report = [&](const Failure& failure) { laneFail(comm, failure); };
        good = good && host_landing::take(tile, row, bytes, [&] { return patience.goesOn(late, report); });
        return tile;
      });
    }
    return good;
  }

  // Makes sums in a wire format.
  template <class Type, class List>
  bool reduceWire(const CommView& comm, const List& list) const {
    HostWait patience(comm, pace_);
    const auto report = [&](const Failure& failure) { laneFail(comm, failure); };
    for (int i = 0; i < list.count(); ++i) {
      patience.anew();
      const host_landing::WireMemory memory{list, i, patience, report};
      const WireSum<Type, List, decltype(memory)> sum(list, i, memory);
      if (!sum.make(0, 1) || !sum.takeFactors()) return false;
    }
    return true;
  }

  // `tileOf(term, begin, bytes)`: those bytes of a row.
  template <class Type, class List, class TileOf>
  static void reduceRow(const List& list, int i, TileOf tileOf) {
    constexpr bool kWeighted = Weighted<List>, kLanding = MadeToLand<List>;
    const SumJob job = list.job(i);
    const auto weightOf = [&](int term) {
      if constexpr (kWeighted) return list.weight(i, term);
      return 1.0f;
    };
    constexpr int kFloats = static_cast<int>(kSumTile) / 4 * Type::kPerWord;
    float sum[kFloats];
    alignas(Quad) std::uint8_t rounded[kSumTile];
    for (std::uint32_t begin = 0; begin < job.bytes; begin += kSumTile) {
      const std::uint32_t bytes = job.bytes - begin < kSumTile ? job.bytes - begin : kSumTile;
      const int floats = static_cast<int>(bytes) / 4 * Type::kPerWord;
      const auto add = [&](int term, auto sumSoFar) {
        addTile<Type, kWeighted>(sum, sumSoFar, tileOf(term, begin, bytes), floats, weightOf(term));
      };
      const auto nothing = [](int) { return 0.0f; };  // saves writing zeros and reading them
      if (job.terms > 0) add(0, nothing);
      for (int term = 1; term < job.terms; ++term) add(term, [&](int at) { return sum[at]; });
      for (int at = 0; job.terms == 0 && at < floats; ++at) sum[at] = 0.0f;
      storeTile<Type>(kLanding ? rounded : job.out + begin, sum, floats);
      if (kLanding) host_landing::send(job.out + begin, rounded, bytes);
    }
  }

  // Element loops that a compiler turns into vector code.
  template <class Type>
  using Element = std::conditional_t<Type::kPerWord == 2, std::uint16_t, std::uint32_t>;

  template <class Type, bool kWeighted, class SumSoFar>
  static void addTile(float* sum, SumSoFar sumSoFar, const std::uint8_t* row, int n, float weight) {
    const auto* from = reinterpret_cast<const Element<Type>*>(row);
    for (int i = 0; i < n; ++i) {
      const float value = Type::toFloat(from[i]);
      sum[i] = addRounded(sumSoFar(i), kWeighted ? multiplyRounded(value, weight) : value);
    }
  }
  template <class Type>
  static void storeTile(std::uint8_t* row, const float* sum, int n) {
    auto* to = reinterpret_cast<Element<Type>*>(row);
    for (int i = 0; i < n; ++i) to[i] = static_cast<Element<Type>>(Type::fromFloat(sum[i]));
  }

  // When this much has been posted, the helper starts to send it. Less is sent with what follows, when the step waits
  // or ends.
  static constexpr std::uint64_t kPutsAtOnce = std::uint64_t{256} << 10, kPutCost = 256;
  static constexpr std::uint32_t kSumTile = 1024;  // bytes: the sums stay in the first-level cache

  QueueMemory queueMemory_;
  HostPace* pace_;
};

using HostWarp = HostWarpOver<HostQueueMemory>;

static_assert(Computes<HostWarp> && Gathers<HostWarp> && Lands<HostWarp> && Codes<HostWarp>);

}  // namespace moe
