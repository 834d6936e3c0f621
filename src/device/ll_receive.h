// The receiver's side of low-latency dispatch: offsets from everybody's counts, descriptions from the headers, and rows
// from their slots to the caller's output.
#pragma once

#include "device/deliver.h"
#include "device/ll_slots.h"
#include "device/route.h"

namespace moe {

// What must agree between ranks for this dispatch.
MOE_LANES std::int32_t llSignature(const HandleView& h, const DispatchArgs& d) {
  return static_cast<std::int32_t>((h.signature ^ d.rowBytes) * 16777619u ^ d.sideBytes);
}

// Offsets of what arrives, from the counts of all sources. Returns false if a source has another handle.
template <class Warp>
MOE_LANES bool llPlaceSources(const Warp& warp, const StepParams& p) {
  const CommView& c = p.comm;
  const HandleView& h = p.handle;
  const int rows = warp.scanInOrder(
      c.nranks, [&](int from) { return warp.laneLoad(llCounts(c, h, c.rank, from) + kLlRowCount); },
      [&](int from, int offset) { h.rankOffsets[from] = offset; });
  const auto isStranger = [&](int from) {
    return warp.laneLoad(llCounts(c, h, c.rank, from) + kLlSignature) != llSignature(h, p.dispatch);
  };
  const int strangers = warp.scanInOrder(
      c.nranks, [&](int from) { return isStranger(from) ? 1 : 0; },
      [&](int from, int before) {
        if (before != 0 || !isStranger(from)) return;
        h.state->refusal = {0, Fault::disagreement, Phase::dispatchCounts, from, 0, 0, 0, 0};
      });
  warp.forEach(1, [&](int) {
    h.rankOffsets[c.nranks] = rows;
    *h.rows = rows;
  });
  return strangers == 0;
}

template <class Warp>
MOE_LANES int llPlaceExperts(const Warp& warp, const CommView& c, const HandleView& h) {
  const int experts = h.map.count(c.rank);
  const auto countOf = [&](int from, int local) {
    return warp.laneLoad(llCounts(c, h, c.rank, from) + kLlExpertCounts + local);
  };
  const int rows = warp.scanInOrder(
      experts,
      [&](int local) {
        int sum = 0;
        for (int from = 0; from < c.nranks; ++from) sum += countOf(from, local);
        return static_cast<int>(roundUp(sum, h.alignment));
      },
      [&](int local, int offset) {
        const int group = h.layout == Layout::expertMajorPadded ? local * c.nranks * h.tokensMax : offset;
        int sum = 0;
        for (int from = 0; from < c.nranks; ++from) {
          h.expertBase[from * experts + local] = group + sum;
          sum += countOf(from, local);
        }
        h.rowsPerExpert[local] = sum;
        h.expertOffsets[local] = offset;
      });
  warp.forEach(1, [&](int) { h.expertOffsets[experts] = rows; });
  return rows;
}

// One warp plans for all; the others wait for its word.
template <class Warp>
MOE_LANES void llPlan(const Warp& warp, const StepParams& p, std::uint64_t epoch) {
  const CommView& c = p.comm;
  const HandleView& h = p.handle;
  bool good = llPlaceSources(warp, p);
  int rows = 0;
  if (good) {
    rows = layoutRows(h, c.rank, *h.rows, llPlaceExperts(warp, c, h));
    good = rows <= p.dispatch.capacity;
    warp.forEach(good ? 0 : 1, [&](int) {
      h.state->refusal = {0, Fault::capacity, Phase::dispatchOutput, c.rank, 0, 0, p.dispatch.capacity, rows};
    });
  }
  warp.publish(&h.state->planReady, flagWord(epoch, good ? 0 : 1));
  if (good) reportCounts(warp, c, h, rows);  // after the plan: the host can wait, the other warps cannot
}

// An arriving row in its slot.
struct LlArrival {
  int from, index;
};
MOE_LANES LlArrival llArrival(const HandleView& h, int row) {
  const int from = sourceOf(h, row);
  return {from, row - h.rankOffsets[from]};
}

// Row of the layout for an entry of a message, which says only its position among its source's entries.
MOE_LANES int llExpertRow(const CommView& c, const HandleView& h, int from, const Quad& entry) {
  return h.expertBase[from * h.map.count(c.rank) + entryExpert(entry)] + entryRow(entry);
}

// Keeps the headers of this warp's rows, with final rows of the layout in them, and describes the rows to the caller.
template <class Warp>
MOE_LANES void llKeepHeaders(const Warp& warp, const StepParams& p, WarpIndex w) {
  const CommView& c = p.comm;
  const HandleView& h = p.handle;
  const Slice slice = sliceOf(*h.rows, w);
  warp.forEach(slice.count, [&](int i) {
    const int row = slice.begin + i;
    const LlArrival at = llArrival(h, row);
    const Quad* slot = llHeader(c, h, c.rank, at.from, at.index);
    Quad* kept = h.headers + static_cast<std::int64_t>(row) * h.headerStride();
    const Quad head = warp.laneLoad(slot);
    kept[0] = head;
    for (int n = 1; n <= headEntries(head); ++n) {
      Quad entry = warp.laneLoad(slot + n);
      entry.w = static_cast<std::uint32_t>(llExpertRow(c, h, at.from, entry));
      kept[n] = entry;
    }
    if (describes(p.dispatch)) laneDescribeRow(h, p.dispatch, row);
  });
}

// Rows are delivered by whichever warp their parts fall to, so it reads the header in the slot: the kept one may be on
// its way from another warp.
template <class Warp>
MOE_LANES void llDeliver(const Warp& warp, const StepParams& p, std::uint64_t area, int bytesMax, std::uint8_t* out,
                         std::uint32_t rowBytes, const Parts& parts, WarpIndex w) {
  const CommView& c = p.comm;
  const HandleView& h = p.handle;
  if (out == nullptr) return;
  const auto header = [&](const LlArrival& at) { return llHeader(c, h, c.rank, at.from, at.index); };
  deliverRows(
      warp, h, out, rowBytes, parts, w,
      [&](int row) {
        const LlArrival at = llArrival(h, row);
        return static_cast<const std::uint8_t*>(llSlot(c, h, c.rank, area, bytesMax, rowBytes, at.from, at.index));
      },
      [&](int row) { return expertRows(h) ? headEntries(warp.laneLoad(header(llArrival(h, row)))) : 1; },
      [&](int row, int copy) {
        if (h.layout == Layout::flat) return row;
        const LlArrival at = llArrival(h, row);
        if (h.layout == Layout::rankMajor) return at.from * h.tokensMax + at.index;
        return llExpertRow(c, h, at.from, warp.laneLoad(header(at) + 1 + copy));
      });
}

// The plan's refusal, when all warps of this rank have sent: the peers get what they wait for and can decide for
// themselves.
template <class Warp>
MOE_LANES void llRefuse(const Warp& warp, const StepParams& p, std::uint64_t epoch) {
  const CommView& c = p.comm;
  if (!waitForOwn(warp, c, llFlags(c, p.handle, c.at.llRowsReady), epoch)) return;
  warp.forEach(1, [&](int) { warp.laneFail(c, p.handle.state->refusal); });
}

template <class Warp>
MOE_LANES void llDispatchReceive(const Warp& warp, const StepParams& p, std::uint64_t epoch, WarpIndex w) {
  const CommView& c = p.comm;
  const HandleView& h = p.handle;
  const DispatchArgs& d = p.dispatch;
  if (!waitForAll(warp, c, llFlags(c, h, c.at.llCountsReady), epoch, Phase::dispatchCounts)) return;
  if (w.index == 0) llPlan(warp, p, epoch);
  if (!warp.waitAll(c, &h.state->planReady, 1, epoch, Phase::dispatchPlan)) return;
  if (flagValue(warp.laneLoad(&h.state->planReady)) != 0) {
    if (w.index == 0) llRefuse(warp, p, epoch);
    return;
  }
  copyExpertOffsets(warp, c, h, d, w);
  llKeepHeaders(warp, p, w);
  if (!waitForAll(warp, c, llFlags(c, h, c.at.llRowsReady), epoch, Phase::dispatchRows)) return;
  llDeliver(warp, p, c.at.llRows, c.rowBytesMax, d.outRows, d.rowBytes, d.arriving, w);
  if (d.sideBytes == 0) return;
  llDeliver(warp, p, c.at.llSide, c.sideBytesMax, d.outSide, d.sideBytes, Parts{1, d.sideBytes}, w);
}

}  // namespace moe
