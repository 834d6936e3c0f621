// The CPU backend's policy: a warp is one lane, on the calling thread. ThreadSanitizer sees its order errors. The
// contract of each operation is in docs/architecture.md, "Policies".
#pragma once

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

#include "device/fp8_row.h"
#include "device/host_queue_memory.h"
#include "device/views.h"

namespace moe {

class HostWarp {
 public:
  static constexpr int kLanes = 1;
  static constexpr bool kPuts = true;

  template <class Body>
  void forEach(int n, Body body) const {
    for (int i = 0; i < n; ++i) body(i);
  }

  // For i = 0..n-1: emit(i, the sum of valueOf(0..i-1)). Returns the whole sum.
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

  template <class T>
  T laneLoad(const T* from) const {
    return *from;
  }
  template <class T>
  void laneStore(T* to, T value) const {
    *to = value;
  }

  template <class JobOf, class SinkOf>
  void streamRows(int n, int, JobOf jobOf, SinkOf sinkOf) const {
    for (int i = 0; i < n; ++i) {
      const CopyJob job = jobOf(i);
      for (int sink = 0; sink < job.sinks; ++sink) {
        std::uint8_t* to = sinkOf(i, sink);
        if (to != nullptr) std::memcpy(to, job.source, job.bytes);
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
              job, cast, tile, [&](int sink) { return sinkOf(i, sink); }, std::memcpy);
        }
      }
    });
  }

  template <bool kWeighted, class MayRead, class JobOf, class TermOf, class WeightOf>
  bool reduceRows(int n, int rowType, int, MayRead mayRead, JobOf jobOf, TermOf termOf, WeightOf weightOf) const {
    if (!mayRead()) return false;
    withRowType(rowType, [&](auto type) {
      for (int i = 0; i < n; ++i) {
        reduceRow<decltype(type), kWeighted>(
            jobOf(i), [&](int term) { return termOf(i, term); }, [&](int term) { return weightOf(i, term); });
      }
    });
    return true;
  }

  template <class FlagOf>
  void publishAll(int n, FlagOf flagOf, Flag word) const {
    for (int i = 0; i < n; ++i) std::atomic_ref(*flagOf(i)).store(word, std::memory_order_release);
  }

  // What goes to ranks of other domains: see put.h.
  template <class PutOf>
  void put(const CommView& comm, int n, PutOf putOf) const {
    const HostQueueMemory memory;
    const WaitLimit limit{memory.nanoseconds() + comm.timeoutNs, comm.abort};
    const RemoteView& remote = comm.far->remote;
    int late = 0;
    if (remote.queues != nullptr) {
      const auto indexOf = [&](const Put& put) { return remote.connectionOf(put); };
      if (!mlx5::postPuts(memory, remote.queues, indexOf, n, putOf, limit, &late)) lanePutFailed(comm, late);
      return;
    }
    for (int i = 0; i < n; ++i) {
      const Put put = putOf(i);
      if (!post(memory, remote.ring[remote.ringOf(put)], put, limit)) return lanePutFailed(comm, put.to);
    }
  }

  // Every warp of `team` calls it once in a step. When the last has, each of the n words has grown by one epoch, and
  // who finds that reads what the whole team has written before.
  template <class FlagOf>
  void announce(int n, FlagOf flagOf, Meeting, WarpIndex team) const {
    const Flag share = announcementShare(team.index == 0, team.count);
    for (int i = 0; i < n; ++i) std::atomic_ref(*flagOf(i)).fetch_add(share, std::memory_order_release);
  }

  // The same for one private word of this rank.
  void mark(Flag* word, Meeting meeting, WarpIndex team) const {
    announce(
        1, [&](int) { return word; }, meeting, team);
  }

  // True once every flag has reached `epoch`; then all that was published before is readable. False after a timeout
  // (reported) or an abort.
  bool waitAll(const CommView& comm, Flag* flags, int n, std::uint64_t epoch, Awaited awaited) const {
    Clock::time_point end{};
    for (int i = 0; i < n; ++i) {
      if (!waitOne(comm, flags + i, epoch, awaited, i, &end)) return false;
    }
    return true;
  }

  // True if this rank has failed or was told to stop: the step has nothing to do any more.
  bool stopped(const CommView& comm) const {
    return std::atomic_ref(comm.state->failuresClaimed).load(std::memory_order_relaxed) != 0 ||
           std::atomic_ref(*comm.abort).load(std::memory_order_relaxed) != 0;
  }

  // Any lane may call it. The first failure of the rank is kept.
  void laneFail(const CommView& comm, const Failure& failure) const {
    if (std::atomic_ref(comm.state->failuresClaimed).fetch_add(1, std::memory_order_relaxed) != 0) return;
    Failure* to = comm.failure;
    to->fault = failure.fault, to->phase = failure.phase, to->peer = failure.peer;
    to->index = failure.index, to->expected = failure.expected, to->actual = failure.actual;
    std::atomic_ref(to->ready).store(1, std::memory_order_release);
  }

 private:
  using Clock = std::chrono::steady_clock;

  void lanePutFailed(const CommView& comm, int to) const {
    if (!stopped(comm)) laneFail(comm, {0, Fault::timeout, Phase::puts, to, 0, 0, 0, 0});
  }

  bool waitOne(const CommView& comm, Flag* flag, std::uint64_t epoch, Awaited awaited, int index,
               Clock::time_point* end) const {
    std::atomic_ref ref(*flag);
    std::chrono::microseconds nap{0};
    for (int spins = 0; flagEpoch(ref.load(std::memory_order_acquire)) < epoch; ++spins) {
      if (spins < kSpins) continue;
      // Ranks may outnumber cores: give the core away, then sleep a little longer each time.
      if (spins < kSpins + kYields) {
        std::this_thread::yield();
        continue;
      }
      if (stopped(comm)) return false;
      const auto now = Clock::now();
      if (*end == Clock::time_point{}) *end = now + std::chrono::nanoseconds(comm.timeoutNs);
      if (now >= *end) {
        const auto epochSeen = static_cast<std::int64_t>(flagEpoch(ref.load(std::memory_order_relaxed)));
        const int late = awaited.rank(index);
        laneFail(comm, {0, Fault::timeout, awaited.phase, late, 0, 0, static_cast<std::int64_t>(epoch), epochSeen});
        return false;
      }
      nap = nap < kNapMax ? nap + kNapStep : kNapMax;
      std::this_thread::sleep_for(nap);
    }
    return true;
  }

  template <class Type, bool kWeighted, class TermOf, class WeightOf>
  static void reduceRow(const SumJob& job, TermOf termOf, WeightOf weightOf) {
    constexpr std::uint32_t kTile = 1024;  // bytes: the sums stay in the first-level cache
    constexpr int kFloats = static_cast<int>(kTile) / 4 * Type::kPerWord;
    float sum[kFloats];
    for (std::uint32_t begin = 0; begin < job.bytes; begin += kTile) {
      const std::uint32_t bytes = job.bytes - begin < kTile ? job.bytes - begin : kTile;
      const int floats = static_cast<int>(bytes) / 4 * Type::kPerWord;
      for (int i = 0; i < floats; ++i) sum[i] = 0.0f;
      for (int term = 0; term < job.terms; ++term) {
        addTile<Type, kWeighted>(sum, termOf(term) + begin, floats, kWeighted ? weightOf(term) : 1.0f);
      }
      storeTile<Type>(job.out + begin, sum, floats);
    }
  }

  // Element loops that a compiler turns into vector code.
  template <class Type>
  using Element = std::conditional_t<Type::kPerWord == 2, std::uint16_t, std::uint32_t>;

  template <class Type, bool kWeighted>
  static void addTile(float* sum, const std::uint8_t* row, int n, float weight) {
    const auto* from = reinterpret_cast<const Element<Type>*>(row);
    for (int i = 0; i < n; ++i) {
      const float value = Type::toFloat(from[i]);
      sum[i] = addRounded(sum[i], kWeighted ? multiplyRounded(value, weight) : value);
    }
  }
  template <class Type>
  static void storeTile(std::uint8_t* row, const float* sum, int n) {
    auto* to = reinterpret_cast<Element<Type>*>(row);
    for (int i = 0; i < n; ++i) to[i] = static_cast<Element<Type>>(Type::fromFloat(sum[i]));
  }

  static constexpr int kSpins = 200, kYields = 50;
  static constexpr std::chrono::microseconds kNapStep{20}, kNapMax{500};
};

}  // namespace moe
