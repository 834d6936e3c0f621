// Sums that are updated after an operation: rows that a dispatch has delivered, how long its sources were awaited, and
// which of them was late. It is a separate step of one warp, for callers who ask for it. See
// docs/decisions/0069-statistics.md.
#pragma once

#include "device/policy/contract.h"
#include "device/view/step_record.h"

namespace moe {

template <Computes Warp>
class Tally {
 public:
  MOE_LANES Tally(const Warp& policy, const StepParams& p) : warp(policy), c_(p.comm), h_(p.handle), t_(p.tally) {}

  MOE_LANES void run() const {
    if (warp.stopped(c_)) return;
    if (h_.state->fault == 0) countRows();
    if (c_.waits == nullptr) return;
    warp.forEach(1, [&](int) { countLate(); });
    recordWorst();
    warp.forEach(c_.nranks, [&](int rank) {
      const auto waited = static_cast<std::int64_t>(c_.waits[rank]);
      if (t_.waitNs != nullptr) t_.waitNs[rank] += waited;
      if (t_.callWaitNs != nullptr) t_.callWaitNs[rank] += waited;
      c_.waits[rank] = 0;
    });
  }

 private:
  // Counts the rows that the dispatch has delivered. If the handle has a fault, there are none.
  MOE_LANES void countRows() const {
    warp.forEach(h_.map.count(c_.rank), [&](int expert) {
      const int rows = h_.arriving.rowsPerExpert[expert];
      if (t_.rowsPerExpert != nullptr) t_.rowsPerExpert[expert] += rows;
      if (t_.callRows != nullptr) t_.callRows[expert] += rows;
    });
    warp.forEach(c_.nranks, [&](int from) {
      const std::int32_t* starts = h_.arriving.rankOffsets + from;
      if (t_.rowsPerRank != nullptr) t_.rowsPerRank[from] += starts[1] - starts[0];
    });
  }

  // Finds the other rank that was awaited longest, and counts it as late if it was awaited much longer than any third
  // rank. For one lane.
  MOE_LANES void countLate() const {
    if (t_.lateSteps == nullptr) return;
    std::uint64_t longest = 0, next = 0;
    int last = 0;
    for (int rank = 0; rank < c_.nranks; ++rank) {
      const std::uint64_t waited = rank != c_.rank ? c_.waits[rank] : 0;
      if (waited > longest) {
        next = longest;
        longest = waited;
        last = rank;
      } else if (waited > next) {
        next = waited;
      }
    }
    if (longest > next + kLateNs) ++t_.lateSteps[last];
  }

  // Stores the rank that was awaited longest to the operation's record, which is the latest one. Does nothing if steps
  // note their waits themselves.
  MOE_LANES void recordWorst() const {
    if (c_.recorder == nullptr || c_.recorder->notesWaits != 0) return;
    std::uint64_t worst = 0;
    for (int rank = 0; rank < c_.nranks; ++rank) {
      const std::uint64_t wait = c_.waits[rank] != 0 ? waitWord(rank, c_.waits[rank]) : 0;
      worst = wait > worst ? wait : worst;
    }
    if (worst == 0) return;
    warp.publishAll(
        1, [&](int) { return &c_.recorder->of(c_.recorder->steps)->worst; }, worst);
  }

  const Warp& warp;
  const CommView& c_;
  const HandleView& h_;
  const TallyArgs& t_;
};

}  // namespace moe
