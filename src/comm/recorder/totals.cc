#include "comm/recorder/totals.h"

namespace moe {
namespace {

// A record's words may be read by other threads, so this thread has stored them as atomics.
std::uint64_t wordOf(const std::uint64_t& word) {
  return std::atomic_ref(const_cast<std::uint64_t&>(word)).load(std::memory_order_relaxed);
}

// An operation in two parts counts with its first part.
bool begins(const StepRow& row, const StepParams& params) {
  return row.kind == StepKind::route || (params.phases & kSendPhase) != 0;
}

}  // namespace

void CallTotals::add(Step step, const StepParams& params, const StepRecord* ended) noexcept {
  const StepRow row = rowOf(step);
  if (!row.waits()) return;
  if (ended != nullptr) {
    grow(inSteps_, wordOf(ended->end) - wordOf(ended->begin));
    grow(waited_, timeOfWait(wordOf(ended->worst)));
  }
  if (!begins(row, params)) return;
  if (row.kind == StepKind::route) return grow(routes_, 1);
  grow(row.combines() ? combines_ : dispatches_, 1);
  const std::uint64_t size = sizeOf(row, params);
  const std::uint64_t rows = static_cast<std::uint32_t>(size);
  grow(rows_, rows);
  grow(bytes_, rows * (size >> 32));
}

Totals CallTotals::now() const noexcept {
  const auto read = [](const Counter& counter) { return counter.load(std::memory_order_relaxed); };
  Totals totals;
  totals.sinceWallNs = sinceWallNs_;
  totals.routes = read(routes_);
  totals.dispatches = read(dispatches_);
  totals.combines = read(combines_);
  totals.calls = totals.dispatches + totals.combines;
  totals.rows = read(rows_);
  totals.bytes = read(bytes_);
  totals.stepNs = read(inSteps_);
  totals.waitNs = read(waited_);
  return totals;
}

void tellNanoseconds(Totals* totals, const TickScale& scale) {
  for (auto* time : {&totals->stepNs, &totals->waitNs}) {
    if (*time) *time = static_cast<std::uint64_t>(static_cast<double>(**time) * scale.nsPerTick);
  }
}

void countFrom(const CommState& state, Totals* totals) {
  totals->routes = state.epoch[kRouteChannel];
  totals->dispatches = state.epoch[kHtDispatchChannel];
  totals->combines = state.epoch[kHtCombineChannel];
  for (int set = 0; set < kLlSetsMax; ++set) {
    totals->dispatches += state.epoch[llChannel(kLlDispatchChannel, set)];
    totals->combines += state.epoch[llChannel(kLlCombineChannel, set)];
  }
}

}  // namespace moe
