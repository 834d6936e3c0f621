// The receiver's side of dispatch. Rows that lie in a slot or in the staging area are copied to their places in the
// caller's output. The caller's arrays of indices, weights and sources are filled from the kept headers.
#pragma once

#include "device/protocol/core/handle_fault.h"
#include "device/protocol/core/padding.h"
#include "device/protocol/core/waves.h"
#include "device/rows/row_header.h"
#include "device/rows/row_jobs.h"

namespace moe {

MOE_LANES const Quad* keptHeader(const HandleView& h, int row) {
  return h.arriving.headers + static_cast<std::int64_t>(row) * h.headerStride();
}

// Row of the layout for copy number `copy` of arriving row `row` (FLAT order).
MOE_LANES int layoutRow(const HandleView& h, int row, int copy) {
  if (h.layout == Layout::flat) return row;
  if (expertRows(h)) return entryRow(keptHeader(h, row)[1 + copy]);
  const int from = headSource(*keptHeader(h, row));
  return from * h.tokensMax + (row - h.arriving.rankOffsets[from]);
}

// The parts of an output that the arriving rows of the route fill.
MOE_LANES Filled filledRows(const HandleView& h, int rank) {
  return {h.arriving.rowsPerExpert, h.arriving.expertOffsets, h.arriving.rankOffsets, h.sent.layoutRowsOf[rank]};
}

// The local expert of a copy, in layouts with a row per expert.
MOE_LANES int copyExpert(const HandleView& h, int row, int copy) {
  return entryExpert(keptHeader(h, row)[1 + copy]);
}

MOE_LANES int layoutCopies(const HandleView& h, int row) {
  return expertRows(h) ? headEntries(*keptHeader(h, row)) : 1;
}

// ---- Arrivals. They tell how many copies of an arrived row are made: copies(row). For each copy they tell its row in
// the layout, place(row, copy), and its expert, expert(row, copy). expertOffsets() tells where the rows of experts
// begin. Rows and everything that travels with them use the same arrivals. The source of a row is separate: it is a
// function of the row (and of the piece).

// Arrivals from the headers that the handle keeps. The first `inPlace` copies of a row are already in place.
struct KeptArrivals {
  const HandleView& h;
  int inPlace;

  MOE_LANES int copies(int row) const { return layoutCopies(h, row) - inPlace; }
  MOE_LANES int place(int row, int copy) const { return layoutRow(h, row, inPlace + copy); }
  MOE_LANES int expert(int row, int copy) const { return copyExpert(h, row, inPlace + copy); }
  MOE_LANES const std::int32_t* expertOffsets() const { return h.arriving.expertOffsets; }
};

// Where the scales of an arrived row lie.
struct ArrivedScales {
  const std::uint32_t* words;
  std::int64_t stride;

  // For a row that is one piece of memory.
  static MOE_LANES ArrivedScales behind(const std::uint8_t* row, std::uint32_t codeBytes) {
    return {reinterpret_cast<const std::uint32_t*>(row + codeBytes), 1};
  }
};

// Copies some rows from source(row) to their places in `out`: a list for streamRows.
template <class Rows, class Arrivals, class Source>
struct Delivered {
  ArrivingParts<Rows> items;
  Arrivals arrivals;
  Source source;
  std::uint8_t* out;

  MOE_LANES int count() const { return items.count(); }
  MOE_LANES int sinksMax() const { return items.rows.h.topk; }
  MOE_LANES CopyJob job(int i) const {
    const PartOf part = items.at(i);
    const int copies = arrivals.copies(part.row);
    return {source(part.row) + part.begin, copies > 0 ? part.bytes : 0, copies};
  }
  MOE_LANES Sink sink(int i, int copy) const {
    const PartOf part = items.at(i);
    const std::int64_t row = arrivals.place(part.row, copy);
    return {out + row * items.share.rowBytes + part.begin, nullptr, true};
  }
};

// Where the words of copy `copy` of an arrived row begin in this rank's output.
MOE_LANES std::int64_t gridStart(const ScaleGrid& grid, const auto& arrivals, int row, int copy) {
  if (grid.experts == 0) return grid.rowStart(arrivals.place(row, copy));
  const int expert = arrivals.expert(row, copy);
  return grid.startOf(arrivals.place(row, copy), expert, arrivals.expertOffsets()[expert]);
}
// Where the scales of such a copy lie.
MOE_LANES std::uint32_t* scalesAt(const CastArgs& cast, const auto& arrivals, int row, int copy) {
  return cast.outScales + gridStart(cast.grid, arrivals, row, copy);
}

// Copies the scales of some rows from scalesOf(row) to their places in the caller's output. A lane takes kAtOnce words
// of a row, and looks up their place once. Neighbouring lanes take neighbouring rows if those are closer to each other
// in the output than the words of a row; else they take neighbouring words.
template <int kAtOnce, class Rows>
MOE_LANES void deliverScales(const Moving auto& s, const Rows& rows, const auto& arrivals, const auto& scalesOf,
                             WarpIndex team) {
  const CastArgs& cast = s.p.dispatch.cast;
  const int count = rows.end - rows.begin, lanesOfRow = (cast.words + kAtOnce - 1) / kAtOnce;
  const bool byRows = cast.grid.wordStride != 1;
  const Slice slice = sliceOf(count * lanesOfRow, team);
  s.warp.forEach(slice.count, [&](int i) {
    const int item = slice.begin + i;
    const int row = rows.row(rows.begin + (byRows ? item % count : item / lanesOfRow));
    const int first = byRows ? item / count : item % lanesOfRow;
    const ArrivedScales from = scalesOf(row);
    std::uint32_t words[kAtOnce];
    MOE_UNROLLED
    for (int j = 0; j < kAtOnce; ++j) {
      const int word = first + j * lanesOfRow;
      words[j] = word < cast.words ? s.warp.laneLoad(from.words + word * from.stride) : 0;
    }
    MOE_ROLLED
    for (int copy = 0; copy < arrivals.copies(row); ++copy) {
      std::uint32_t* to = scalesAt(cast, arrivals, row, copy);
      MOE_UNROLLED
      for (int j = 0; j < kAtOnce; ++j) {
        const int word = first + j * lanesOfRow;
        if (word < cast.words) to[word * cast.grid.wordStride] = words[j];
      }
    }
  });
}

// Stores entry `n` of a row to the caller's arrays, at row `at` of the layout. For one lane.
MOE_LANES void laneDescribe(const HandleView& h, const DispatchArgs& d, const Quad& head, const Quad& entry, int n,
                            std::int64_t at) {
  if (d.outSourceIndex != nullptr && (n == 0 || expertRows(h))) {
    d.outSourceIndex[at] = headSource(head) * h.tokensMax + headToken(head);
  }
  const std::int64_t place = expertRows(h) ? at : at * h.topk + entryTopk(entry);
  if (d.outTopkWeights != nullptr) d.outTopkWeights[place] = entryWeight(entry);
  if (!expertRows(h)) laneStoreId(h, d, place, d.idBase + entryExpert(entry));
}
// Stores entry `n` of a row whose header the handle keeps, if the row has this many entries. All loads are independent
// of each other.
MOE_LANES void laneDescribeEntry(const HandleView& h, const DispatchArgs& d, int row, int n) {
  const Quad* header = keptHeader(h, row);
  const Quad head = header[0], entry = header[1 + n];
  if (n < headEntries(head)) laneDescribe(h, d, head, entry, n, layoutRow(h, row, n));
}

MOE_LANES bool describes(const DispatchArgs& d) {
  return d.outSourceIndex != nullptr || d.outTopkIdx != nullptr || d.outTopkWeights != nullptr;
}

// Marks place k of a row as unused, at row `at` of the layout. For layouts with a row per token.
MOE_LANES void laneDescribeNothing(const HandleView& h, const DispatchArgs& d, int at, int k) {
  const std::int64_t place = std::int64_t{at} * h.topk + k;
  if (d.outTopkWeights != nullptr) d.outTopkWeights[place] = 0.0f;
  laneStoreId(h, d, place, d.invalidId);
}

// Fills the caller's offsets of experts, and those of the blocks of their scales.
MOE_LANES void copyExpertOffsets(const Moving auto& s, const std::int32_t* offsets) {
  std::int32_t* out = s.p.dispatch.outExpertOffsets;
  std::int32_t* blocks = s.p.dispatch.cast.outBlockOffsets;
  if (out == nullptr && blocks == nullptr) return;
  const ScaleGrid* grid = gridOfExperts(s.p.dispatch);
  s.warp.forEach(s.handle.map.count(s.comm.rank) + 1, [&](int e) {
    if (out != nullptr) out[e] = offsets[e];
    if (blocks != nullptr) blocks[e] = grid != nullptr ? grid->firstBlock(offsets[e], e) : 0;
  });
}

// The stores of a dispatch that delivers nothing. The outputs look as if no token went anywhere.
template <Moves Warp>
MOE_SELDOM void describeNothing(Warp warp, const StepParams& p, Filled filled, WarpIndex team) {
  const DispatchArgs& d = p.dispatch;
  if (team.index == 0) {
    warp.forEach(p.handle.map.count(p.comm.rank) + 1, [&](int e) {
      if (d.outExpertOffsets != nullptr) d.outExpertOffsets[e] = 0;
      if (d.cast.outBlockOffsets != nullptr) d.cast.outBlockOffsets[e] = 0;
    });
  }
  if (d.padding == 0) return;
  Padding<Warp>(warp, p, filled).runOverAll(team);
}

// The same for the arrays of DescribeArgs. One warp calls it.
template <Core Warp>
MOE_SELDOM void describeNoArrivals(Warp warp, const StepParams& p) {
  const DescribeArgs& a = p.describe;
  const int experts = p.handle.map.count(p.comm.rank), ranks = p.comm.nranks;
  warp.forEach(experts * (ranks + 1), [&](int i) {
    const bool counts = i >= experts * ranks;
    if (counts && a.rowsPerExpert != nullptr) a.rowsPerExpert[i - experts * ranks] = 0;
    if (!counts && a.layoutRange != nullptr) a.layoutRange[i] = 0;
  });
}

// Each warp of the team describes whole rows. The first rows go to the middle warp, because warp 0 already does the
// control work.
MOE_LANES void describeRows(const Moving auto& s, WarpIndex team) {
  const HandleView& h = s.handle;
  const DispatchArgs& d = s.p.dispatch;
  if (team.index == 0) copyExpertOffsets(s, h.arriving.expertOffsets);
  if (d.padding != 0) padOutputs(s.warp, s.p, filledRows(h, s.comm.rank), team);
  if (!describes(d)) return;
  const Slice slice = sliceOf(*h.arriving.rows, {(team.index + team.count / 2) % team.count, team.count, team.blocks});
  const int first = slice.begin, items = slice.count * h.topk;
  if (!expertRows(h)) {
    s.warp.forEach(items, [&](int i) { laneDescribeNothing(h, d, layoutRow(h, first + i / h.topk, 0), i % h.topk); });
  }
  s.warp.forEach(items, [&](int i) { laneDescribeEntry(h, d, first + i / h.topk, i % h.topk); });
}

}  // namespace moe
