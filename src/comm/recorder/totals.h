// The numbers that a dump gives since the communicator was made. Calls count what the host knows of them. On a GPU the
// steps count their operations themselves, because a replayed graph makes no calls.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "backend/snapshot.h"
#include "device/view/step_record.h"
#include "device/view/views.h"

namespace moe {

// Operations of handles of localOnly are left out, because no other rank takes part in them.
struct Totals {
  std::int64_t sinceWallNs = 0;  // this host's wall clock when counting began
  std::uint64_t routes = 0, dispatches = 0, combines = 0;
  std::uint64_t calls = 0;              // dispatches and combines that were called; replays of graphs are not
  std::uint64_t rows = 0;               // rows of this rank's tokens in these calls
  std::uint64_t bytes = 0;              // bytes of these rows, before a cast
  std::optional<std::uint64_t> stepNs;  // host backend: time in steps
  std::optional<std::uint64_t> waitNs;  // host backend: the longest noted wait of each step, added up
};

// Counted by the thread that calls, one at a time; read by any thread. The words are stored without locked
// instructions, which would wait for rows that are still on their way to peers.
class CallTotals {
 public:
  // A call has launched the step. `ended`: the step's record if it has ended, else NULL.
  void add(Step step, const StepParams& params, const StepRecord* ended) noexcept;

  // The times are in the unit of the records.
  Totals now() const noexcept;

 private:
  using Counter = std::atomic<std::uint64_t>;
  static void grow(Counter& counter, std::uint64_t by) noexcept {
    counter.store(counter.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
  }

  const std::int64_t sinceWallNs_ = wallClock();
  Counter routes_ = 0, dispatches_ = 0, combines_ = 0, rows_ = 0, bytes_ = 0, inSteps_ = 0, waited_ = 0;
};

// Converts times in ticks to ns.
void tellNanoseconds(Totals* totals, const TickScale& scale);

// Replaces the numbers of operations by those that steps have counted.
void countFrom(const CommState& state, Totals* totals);

}  // namespace moe
