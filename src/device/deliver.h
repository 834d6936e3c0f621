// The receiver's side of dispatch: rows that lie in a slot or in the staging area go to their places in the caller's
// output, and the caller's arrays of indices, weights and sources are filled from the kept headers.
#pragma once

#include "device/row_header.h"
#include "device/row_jobs.h"
#include "device/waves.h"

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
template <class Warp, class SourceOf, class CopiesOf, class PlaceOf>
MOE_LANES void deliverRows(const Warp& warp, const ArrivingRows& rows, std::uint8_t* out, std::uint32_t rowBytes,
                           const Parts& parts, WarpIndex w, SourceOf sourceOf, CopiesOf copiesOf, PlaceOf placeOf) {
  const ArrivingParts items = partsOf(rows, parts, rowBytes, w);
  warp.streamRows(
      items.mine.count, rows.h.topk,
      [&](int i) {
        const PartOf part = items.at(i);
        const int copies = copiesOf(part.row);
        return CopyJob{sourceOf(part.row) + part.begin, copies > 0 ? part.bytes : 0, copies};
      },
      [&](int i, int copy) {
        const PartOf part = items.at(i);
        return out + static_cast<std::int64_t>(placeOf(part.row, copy)) * rowBytes + part.begin;
      });
}

// All copies of rows, from `sourceOf(row)`.
template <class Warp, class SourceOf>
MOE_LANES void deliverAll(const Warp& warp, const ArrivingRows& rows, std::uint8_t* out, std::uint32_t rowBytes,
                          const Parts& parts, WarpIndex w, SourceOf sourceOf) {
  deliverRows(
      warp, rows, out, rowBytes, parts, w, sourceOf, [&](int row) { return layoutCopies(rows.h, row); },
      [&](int row, int copy) { return layoutRow(rows.h, row, copy); });
}

// One row's entries in the caller's arrays. One lane.
MOE_LANES void laneDescribeRow(const HandleView& h, const DispatchArgs& d, int row) {
  const Quad* header = keptHeader(h, row);
  const int entries = headEntries(*header), source = headSource(*header) * h.tokensMax + headToken(*header);
  for (int copy = 0; copy < layoutCopies(h, row); ++copy) {
    const std::int64_t at = layoutRow(h, row, copy);
    if (d.outSourceIndex != nullptr) d.outSourceIndex[at] = source;
    if (expertRows(h) && d.outTopkWeights != nullptr) d.outTopkWeights[at] = entryWeight(header[1 + copy]);
  }
  if (expertRows(h)) return;
  const std::int64_t at = static_cast<std::int64_t>(layoutRow(h, row, 0)) * h.topk;
  for (int k = 0, entry = 0; k < h.topk; ++k) {
    const bool here = entry < entries && entryTopk(header[1 + entry]) == k;
    const int expert = here ? entryExpert(header[1 + entry]) : -1;
    if (d.outTopkIdx != nullptr && h.wideIndex != 0) static_cast<std::int64_t*>(d.outTopkIdx)[at + k] = expert;
    if (d.outTopkIdx != nullptr && h.wideIndex == 0) static_cast<std::int32_t*>(d.outTopkIdx)[at + k] = expert;
    if (d.outTopkWeights != nullptr) d.outTopkWeights[at + k] = here ? entryWeight(header[1 + entry]) : 0.0f;
    entry += here ? 1 : 0;
  }
}

MOE_LANES bool describes(const DispatchArgs& d) {
  return d.outSourceIndex != nullptr || d.outTopkIdx != nullptr || d.outTopkWeights != nullptr;
}

template <class Warp>
MOE_LANES void copyExpertOffsets(const Warp& warp, const CommView& c, const HandleView& h, const DispatchArgs& d,
                                 WarpIndex w) {
  if (w.index != 0 || d.outExpertOffsets == nullptr) return;
  warp.forEach(h.map.count(c.rank) + 1, [&](int e) { d.outExpertOffsets[e] = h.expertOffsets[e]; });
}

template <class Warp>
MOE_LANES void describeRows(const Warp& warp, const CommView& c, const HandleView& h, const DispatchArgs& d,
                            WarpIndex w) {
  copyExpertOffsets(warp, c, h, d, w);
  if (!describes(d)) return;
  const int rows = *h.rows, lanes = w.count * Warp::kLanes;
  for (int begin = w.index * Warp::kLanes; begin < rows; begin += lanes) {
    const int count = rows - begin < Warp::kLanes ? rows - begin : Warp::kLanes;
    warp.forEach(count, [&](int i) { laneDescribeRow(h, d, begin + i); });
  }
}

}  // namespace moe
