// The receiver's side of dispatch: rows that lie in a slot or in the staging area go to their places in the caller's
// output, and the caller's arrays of indices, weights and sources are filled from the kept headers.
#pragma once

#include "device/protocol/waves.h"
#include "device/rows/row_header.h"
#include "device/rows/row_jobs.h"

namespace moe {

MOE_LANES const Quad* keptHeader(const HandleView& h, int row) {
  return h.headers + static_cast<std::int64_t>(row) * h.headerStride();
}

// Row of the layout where arriving row `row` (FLAT order) has its copy number `copy`.
MOE_LANES int layoutRow(const HandleView& h, int row, int copy) {
  if (h.layout == Layout::flat) return row;
  if (expertRows(h)) return entryRow(keptHeader(h, row)[1 + copy]);
  const int from = headSource(*keptHeader(h, row));
  return from * h.tokensMax + (row - h.rankOffsets[from]);
}

MOE_LANES int layoutCopies(const HandleView& h, int row) {
  return expertRows(h) ? headEntries(*keptHeader(h, row)) : 1;
}

// Copies some rows from where they arrived, `sourceOf(row)`, to `copiesOf(row)` places (at most topk), the rows
// `placeOf(row, copy)` of `out`.
template <Moves Warp, class Rows, class SourceOf, class CopiesOf, class PlaceOf>
MOE_LANES void deliverRows(const Warp& warp, const Rows& rows, std::uint8_t* out, std::uint32_t rowBytes,
                           const Parts& parts, WarpIndex w, SourceOf sourceOf, CopiesOf copiesOf, PlaceOf placeOf) {
  const auto items = partsOf(rows, parts, rowBytes, w);
  warp.streamRows(
      items.mine.count, rows.h.topk,
      [&](int i) {
        const PartOf part = items.at(i);
        const int copies = copiesOf(part.row);
        return CopyJob{sourceOf(part.row) + part.begin, copies > 0 ? part.bytes : 0, copies};
      },
      [&](int i, int copy) {
        const PartOf part = items.at(i);
        return Sink{out + static_cast<std::int64_t>(placeOf(part.row, copy)) * rowBytes + part.begin, nullptr, true};
      });
}

// Of layouts with a row per token: an element of the caller's topkIdx.
MOE_LANES void laneNameExpert(const HandleView& h, const DispatchArgs& d, std::int64_t place, int expert) {
  if (d.outTopkIdx == nullptr) return;
  if (h.wideIndex != 0) static_cast<std::int64_t*>(d.outTopkIdx)[place] = expert;
  if (h.wideIndex == 0) static_cast<std::int32_t*>(d.outTopkIdx)[place] = expert;
}

// Entry `n` of a row, if it has so many, in the caller's arrays. One lane. All loads that may be needed are
// independent.
MOE_LANES void laneDescribeEntry(const HandleView& h, const DispatchArgs& d, int row, int n) {
  const Quad* header = keptHeader(h, row);
  const Quad head = header[0], entry = header[1 + n];
  if (n >= headEntries(head)) return;
  const std::int64_t at = layoutRow(h, row, n);
  if (d.outSourceIndex != nullptr && (n == 0 || expertRows(h))) {
    d.outSourceIndex[at] = headSource(head) * h.tokensMax + headToken(head);
  }
  const std::int64_t place = expertRows(h) ? at : at * h.topk + entryTopk(entry);
  if (d.outTopkWeights != nullptr) d.outTopkWeights[place] = entryWeight(entry);
  if (!expertRows(h)) laneNameExpert(h, d, place, entryExpert(entry));
}

MOE_LANES bool describes(const DispatchArgs& d) {
  return d.outSourceIndex != nullptr || d.outTopkIdx != nullptr || d.outTopkWeights != nullptr;
}

template <Moves Warp>
MOE_LANES void copyExpertOffsets(const Warp& warp, const CommView& c, const HandleView& h, const DispatchArgs& d,
                                 WarpIndex w) {
  if (w.index != 0 || d.outExpertOffsets == nullptr) return;
  warp.forEach(h.map.count(c.rank) + 1, [&](int e) { d.outExpertOffsets[e] = h.expertOffsets[e]; });
}

// Each warp describes whole rows. Numbers begin at the middle warp: warp 0 already does the control work.
template <Moves Warp>
MOE_LANES void describeRows(const Warp& warp, const CommView& c, const HandleView& h, const DispatchArgs& d,
                            WarpIndex w) {
  copyExpertOffsets(warp, c, h, d, w);
  if (!describes(d)) return;
  const Slice slice = sliceOf(*h.rows, {(w.index + w.count / 2) % w.count, w.count, w.blocks});
  const int first = slice.begin, items = slice.count * h.topk;
  if (!expertRows(h)) {
    warp.forEach(items, [&](int i) {
      const std::int64_t place = std::int64_t{layoutRow(h, first + i / h.topk, 0)} * h.topk + i % h.topk;
      if (d.outTopkWeights != nullptr) d.outTopkWeights[place] = 0.0f;
      laneNameExpert(h, d, place, -1);
    });
  }
  warp.forEach(items, [&](int i) { laneDescribeEntry(h, d, first + i / h.topk, i % h.topk); });
}

}  // namespace moe
