// Arrays about arriving rows that few callers ask for. It is a separate step, so that it costs other callers nothing.
// Everything follows from the state that the route has left in the handle: it reads no window and never waits. See
// docs/decisions/0068-arrays-by-a-step-of-their-own.md.
#pragma once

#include "device/protocol/core/deliver.h"

namespace moe {

template <Computes Warp>
class Describe {
 public:
  MOE_LANES Describe(const Warp& policy, const StepParams& p, WarpIndex w)
      : warp(policy), p_(p), c_(p.comm), h_(p.handle), d_(p.dispatch), a_(p.describe), w_(w) {}

  MOE_LANES void run() const {
    if (warp.stopped(c_)) return;
    if (h_.state->fault != 0) return describeNoRows();
    if (a_.rowsPerExpert != nullptr && w_.index == 0) {
      warp.forEach(h_.map.count(c_.rank), [&](int e) { a_.rowsPerExpert[e] = h_.arriving.rowsPerExpert[e]; });
    }
    if (a_.layoutRange != nullptr) {
      forMine(h_.map.count(c_.rank), [&](int expert) { findRanges(expert); });
    }
    if (a_.rowExperts != nullptr) {
      forMine(h_.map.count(c_.rank), [&](int expert) { nameExpert(expert); });
    }
    if ((d_.padding & kPadIndices) != 0) padGaps();
  }

 private:
  // Calls take(i) for this warp's items of n, one after the other.
  template <class Take>
  MOE_LANES void forMine(int n, Take take) const {
    MOE_ROLLED
    for (int i = w_.index; i < n; i += w_.count) take(i);
  }

  // ---- Rows that have arrived. A handle with a fault has none until its next route.

  MOE_LANES bool isFor(int row, int expert) const {
    const Quad* header = keptHeader(h_, row);
    const int entries = headEntries(*header);
    bool is = false;
    for (int n = 0; n < entries; ++n) is = is || entryExpert(header[1 + n]) == expert;
    return is;
  }

  // Finds where the rows of each source begin in an expert's group, and how many there are. The halves of a word are
  // stored separately, because the count of a source needs the beginning of the next one.
  MOE_LANES void findRanges(int expert) const {
    const int nranks = h_.map.nranks, rows = *h_.arriving.rows;
    const std::int32_t* starts = h_.arriving.rankOffsets;
    auto* halves = reinterpret_cast<std::int32_t*>(a_.layoutRange + std::int64_t{expert} * nranks);
    const int all = warp.scanInOrder(
        rows, [&](int row) { return isFor(row, expert) ? 1 : 0; },
        [&](int row, int before) {
          int from = headSource(*keptHeader(h_, row));
          // A source without rows begins where the next one does.
          for (; from >= 0 && starts[from] == row; --from) halves[2 * from + 1] = before;
        });
    warp.forEach(nranks, [&](int from) {
      if (starts[from] == rows) halves[2 * from + 1] = all;
    });
    warp.forEach(nranks, [&](int from) {
      const int begin = 2 * from, end = from + 1 < nranks ? halves[begin + 3] : all;
      halves[begin] = end - halves[begin + 1];
    });
  }

  MOE_LANES void nameExpert(int expert) const {
    const int each = h_.map.nranks * h_.tokensMax;
    const int first = h_.layout == Layout::expertMajor ? h_.arriving.expertOffsets[expert] : expert * each;
    warp.forEach(h_.arriving.rowsPerExpert[expert],
                 [&](int row) { a_.rowExperts[std::int64_t{first} + row] = d_.idBase + expert; });
  }

  MOE_LANES void padGaps() const {
    const Filled filled = filledRows(h_, c_.rank);
    const Gaps gaps{h_, c_.rank, filled, d_.capacity};
    MOE_ROLLED
    for (int i = 0; i < gaps.count(); ++i) pad(gaps.share(i, w_));
  }
  MOE_LANES void pad(Range rows) const {
    warp.forEach(rows.end - rows.begin, [&](int n) {
      if (a_.rowExperts != nullptr) a_.rowExperts[rows.begin + n] = d_.invalidId;
    });
  }

  // The dispatch has delivered nothing. The route may have more rows than the arrays have room for.
  MOE_LANES void describeNoRows() const {
    if (w_.index == 0) describeNoArrivals(warp, p_);
    if ((d_.padding & kPadIndices) == 0) return;
    const Filled filled = filledRows(h_, c_.rank);
    pad(Gaps{h_, c_.rank, filled, d_.capacity}.shareOfAll(w_));
  }

  const Warp& warp;
  const StepParams& p_;
  const CommView& c_;
  const HandleView& h_;
  const DispatchArgs& d_;
  const DescribeArgs& a_;
  WarpIndex w_;
};

}  // namespace moe
