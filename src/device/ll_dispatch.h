// Low-latency dispatch: one step, no exchange first. Rows go with their headers to fixed slots [source][index] of two
// parities; counts go ahead of them, so that the receiver has computed every offset when the rows arrive.
// Flags: docs/protocol.md, "LL dispatch".
#pragma once

#include "device/deliver.h"
#include "device/push.h"
#include "device/route.h"

namespace moe {

// Slot `index` of rank `from` in one of the [parity][from][llTokensMax] areas at rank `rank`.
MOE_LANES std::uint8_t* llSlot(const CommView& c, int rank, std::uint64_t area, int slotBytes, std::uint64_t epoch,
                               int from, int index) {
  const std::int64_t slot = static_cast<std::int64_t>(parityOf(epoch) * c.nranks + from) * c.llTokensMax + index;
  return c.in<std::uint8_t>(rank, area) + slot * slotBytes;
}

MOE_LANES std::int32_t* llCounts(const CommView& c, int rank, std::uint64_t epoch, int from) {
  return c.in<std::int32_t>(rank, c.at.llCounts) +
         static_cast<std::int64_t>(parityOf(epoch) * c.nranks + from) * c.at.llCountStride;
}

MOE_LANES Flag* llCountsFlags(const CommView& c, int rank, std::uint64_t epoch) {
  return c.in<Flag>(rank, c.at.llCountsReady) + std::int64_t{parityOf(epoch)} * c.nranks;
}

// What must agree between ranks for this dispatch.
MOE_LANES std::int32_t llSignature(const HandleView& h, const DispatchArgs& d) {
  return static_cast<std::int32_t>((h.signature ^ d.rowBytes) * 16777619u ^ d.sideBytes);
}

template <class Warp>
MOE_LANES void llSendCounts(const Warp& warp, const StepParams& p, std::uint64_t epoch, int to) {
  const CommView& c = p.comm;
  const HandleView& h = p.handle;
  std::int32_t* counts = llCounts(c, to, epoch, c.rank);
  const int first = h.map.first(to), experts = h.map.count(to);
  warp.forEach(experts, [&](int e) { warp.laneStore(counts + 1 + e, h.totals[first + e]); });
  warp.forEach(1, [&](int) { warp.laneStore(counts, llSignature(h, p.dispatch)); });
  warp.publish(llCountsFlags(c, to, epoch) + c.rank, flagWord(epoch, h.totals[h.map.experts + to]));
}

template <class Warp>
MOE_LANES void llSendHeaders(const Warp& warp, const CommView& c, const HandleView& h, int tokens, std::uint64_t epoch,
                             WarpIndex w) {
  const Slice slice = sliceOf(tokens * h.slots, w);
  const int headerBytes = static_cast<int>(headerQuads(c.topkMax)) * static_cast<int>(sizeof(Quad));
  warp.forEach(slice.count, [&](int i) {
    const int token = (slice.begin + i) / h.slots, ordinal = (slice.begin + i) % h.slots;
    if (ordinal >= h.destinationCount[token]) return;
    const Destination to = h.destinations[token * h.slots + ordinal];
    std::uint8_t* slot = llSlot(c, to.rank, c.at.llHeaders, headerBytes, epoch, c.rank, to.index);
    laneWriteHeader(warp, c, h, reinterpret_cast<Quad*>(slot), token, ordinal);
  });
}

template <class Warp>
MOE_LANES void llSendRows(const Warp& warp, const StepParams& p, std::uint64_t epoch, WarpIndex w) {
  const CommView& c = p.comm;
  const DispatchArgs& d = p.dispatch;
  llSendHeaders(warp, c, p.handle, d.tokens, epoch, w);
  const auto slotsOf = [&](std::uint64_t area, int slotBytes) {
    return [&c, epoch, area, slotBytes](const Destination& to) {
      return llSlot(c, to.rank, area, slotBytes, epoch, c.rank, to.index);
    };
  };
  pushPayload(warp, p.handle, d.rows, d.tokens, d.rowBytes, d.parts, w, slotsOf(c.at.llRows, c.rowBytesMax));
  if (d.sideBytes == 0) return;
  pushPayload(warp, p.handle, d.side, d.tokens, d.sideBytes, Parts{1, d.sideBytes}, w,
              slotsOf(c.at.llSide, c.sideBytesMax));
}

template <class Warp>
MOE_LANES void llDispatchSend(const Warp& warp, const StepParams& p, std::uint64_t epoch, WarpIndex w) {
  const CommView& c = p.comm;
  // The slots of epoch - 2 are written again: every receiver has taken them.
  if (!waitForAcks(warp, c, c.at.llDispatchAck, epoch, kParities, Phase::dispatchAck)) return;
  for (int to = w.index; to < c.nranks; to += w.count) llSendCounts(warp, p, epoch, to);
  // The first warp has its hands free for the plan, if there are others.
  if (w.count == 1) {
    llSendRows(warp, p, epoch, w);
  } else if (w.index > 0) {
    llSendRows(warp, p, epoch, {w.index - 1, w.count - 1});
  }
  announceWhenSent(warp, c, c.at.llRowsReady, epoch, w);
}

// Offsets of what arrives, from the counts of all sources. Returns false if a source has another handle.
template <class Warp>
MOE_LANES bool llPlaceSources(const Warp& warp, const StepParams& p, std::uint64_t epoch) {
  const CommView& c = p.comm;
  const HandleView& h = p.handle;
  const Flag* flags = llCountsFlags(c, c.rank, epoch);
  const int rows = warp.scanInOrder(
      c.nranks, [&](int from) { return flagValue(warp.laneLoad(flags + from)); },
      [&](int from, int offset) { h.rankOffsets[from] = offset; });
  const auto isStranger = [&](int from) {
    return warp.laneLoad(llCounts(c, c.rank, epoch, from)) != llSignature(h, p.dispatch);
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
MOE_LANES int llPlaceExperts(const Warp& warp, const CommView& c, const HandleView& h, std::uint64_t epoch) {
  const int experts = h.map.count(c.rank);
  const auto countOf = [&](int from, int local) { return warp.laneLoad(llCounts(c, c.rank, epoch, from) + 1 + local); };
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

// One warp plans for all; the others wait for its word. A refusal is reported at the step's end, when all warps have
// sent: the peers get what they wait for and can decide for themselves.
template <class Warp>
MOE_LANES void llPlan(const Warp& warp, const StepParams& p, std::uint64_t epoch) {
  const CommView& c = p.comm;
  const HandleView& h = p.handle;
  bool good = llPlaceSources(warp, p, epoch);
  int rows = 0;
  if (good) {
    rows = layoutRows(h, c.rank, *h.rows, llPlaceExperts(warp, c, h, epoch));
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

MOE_LANES const Quad* llHeader(const CommView& c, std::uint64_t epoch, const LlArrival& at) {
  const int headerBytes = static_cast<int>(headerQuads(c.topkMax)) * static_cast<int>(sizeof(Quad));
  return reinterpret_cast<const Quad*>(llSlot(c, c.rank, c.at.llHeaders, headerBytes, epoch, at.from, at.index));
}

// Row of the layout for an entry of a message, which says only its position among its source's entries.
MOE_LANES int llExpertRow(const CommView& c, const HandleView& h, int from, const Quad& entry) {
  return h.expertBase[from * h.map.count(c.rank) + entryExpert(entry)] + entryRow(entry);
}

// Keeps the headers of this warp's rows, with final rows of the layout in them, and describes the rows to the caller.
template <class Warp>
MOE_LANES void llKeepHeaders(const Warp& warp, const StepParams& p, std::uint64_t epoch, WarpIndex w) {
  const CommView& c = p.comm;
  const HandleView& h = p.handle;
  const Slice slice = sliceOf(*h.rows, w);
  warp.forEach(slice.count, [&](int i) {
    const int row = slice.begin + i;
    const LlArrival at = llArrival(h, row);
    const Quad* slot = llHeader(c, epoch, at);
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
MOE_LANES void llDeliver(const Warp& warp, const StepParams& p, std::uint64_t epoch, std::uint64_t area, int slotBytes,
                         std::uint8_t* out, std::uint32_t rowBytes, const Parts& parts, WarpIndex w) {
  const CommView& c = p.comm;
  const HandleView& h = p.handle;
  deliverRows(
      warp, h, out, rowBytes, parts, w,
      [&](int row) {
        const LlArrival at = llArrival(h, row);
        return static_cast<const std::uint8_t*>(llSlot(c, c.rank, area, slotBytes, epoch, at.from, at.index));
      },
      [&](int row) { return expertRows(h) ? headEntries(warp.laneLoad(llHeader(c, epoch, llArrival(h, row)))) : 1; },
      [&](int row, int copy) {
        if (h.layout == Layout::flat) return row;
        const LlArrival at = llArrival(h, row);
        if (h.layout == Layout::rankMajor) return at.from * h.tokensMax + at.index;
        return llExpertRow(c, h, at.from, warp.laneLoad(llHeader(c, epoch, at) + 1 + copy));
      });
}

template <class Warp>
MOE_LANES void llDispatchReceive(const Warp& warp, const StepParams& p, std::uint64_t epoch, WarpIndex w) {
  const CommView& c = p.comm;
  const HandleView& h = p.handle;
  const DispatchArgs& d = p.dispatch;
  if (!warp.waitAll(c, llCountsFlags(c, c.rank, epoch), c.nranks, epoch, Phase::dispatchCounts)) return;
  if (w.index == 0) llPlan(warp, p, epoch);
  if (!warp.waitAll(c, &h.state->planReady, 1, epoch, Phase::dispatchPlan)) return;
  if (flagValue(warp.laneLoad(&h.state->planReady)) != 0) return;
  if (!warp.waitAll(c, c.mine<Flag>(c.at.llRowsReady), c.nranks, epoch, Phase::dispatchRows)) return;
  llDeliver(warp, p, epoch, c.at.llRows, c.rowBytesMax, d.outRows, d.rowBytes, d.arriving, w);
  copyExpertOffsets(warp, c, h, d, w);
  llKeepHeaders(warp, p, epoch, w);
  if (d.sideBytes != 0) {
    llDeliver(warp, p, epoch, c.at.llSide, c.sideBytesMax, d.outSide, d.sideBytes, Parts{1, d.sideBytes}, w);
  }
}

template <class Warp>
MOE_LANES void llDispatch(const Warp& warp, const StepParams& p, WarpIndex w) {
  const CommView& c = p.comm;
  HandleState* state = p.handle.state;
  const std::uint64_t epoch = operationEpoch(c, kLlDispatchChannel, p.phases, state->dispatchEpoch);
  if ((p.phases & kSendPhase) != 0) llDispatchSend(warp, p, epoch, w);
  if ((p.phases & kReceivePhase) != 0 && !warp.stopped(c)) llDispatchReceive(warp, p, epoch, w);
  leave(warp, c, w, [&] {
    warp.forEach(1, [&](int) {
      if ((p.phases & kSendPhase) == 0) return;
      c.state->epoch[kLlDispatchChannel] = epoch;
      state->dispatchEpoch = epoch;
    });
    if ((p.phases & kReceivePhase) == 0) return;
    warp.forEach(state->refusal.fault == Fault::none ? 0 : 1, [&](int) { warp.laneFail(c, state->refusal); });
    acknowledge(warp, c, c.at.llDispatchAck, epoch, kParities);
  });
}

}  // namespace moe
