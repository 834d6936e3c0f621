// Low-latency dispatch: rows go to slots [source][index] of the handle's set, from where the receiver delivers them.
// RANK_MAJOR rows may stay where they came, and this rank's own rows need no slot if they are delivered in the same
// step. Flags: docs/internals/protocol.md, "LL dispatch".
#pragma once

#include "device/protocol/deliver.h"
#include "device/protocol/push.h"
#include "device/view/ll_slots.h"

namespace moe {

template <Moves Warp>
MOE_LANES void llSendSizes(const Warp& warp, const CommView& c, const HandleView& h, std::uint64_t value) {
  warp.forEach(c.domainSize, [&](int i) {
    warp.laneStore(c.in<std::uint64_t>(c.domainFirst + i, llSizesOffset(c, h, c.rank)), value);
  });
}

// True if all ranks' terms are `value`; else one of them is reported. After the rows' flags.
template <Moves Warp>
MOE_LANES bool llSizesAgree(const Warp& warp, const CommView& c, const HandleView& h, std::uint64_t value) {
  return allAreGood(warp, c, allRanks(c), [&](int from) -> Failure {
    const auto theirs = warp.laneLoad(c.mine<std::uint64_t>(llSizesOffset(c, h, from)));
    return theirs == value ? Failure{} : disagreement(Phase::dispatchRows, from, value, theirs);
  });
}

// The rows that go to slots: not this rank's own if they go straight from its input to its output, while those of
// others are on their way. Rows that are cast, and those of two steps, wait in slots.
struct LlSlotRows {
  int except;  // rank

  MOE_LANES bool any(int) const { return true; }
  MOE_LANES bool takes(const Destination& to) const { return to.rank != except; }
};

template <Moves Warp>
MOE_LANES void llSendRows(const Warp& warp, const StepParams& p, WarpIndex w) {
  const CommView& c = p.comm;
  const HandleView& h = p.handle;
  const DispatchArgs& d = p.dispatch;
  const auto slotsOf = [&](std::uint64_t area, int bytesMax, std::uint32_t bytes) {
    return [&c, &h, area, bytesMax, bytes](const Destination& to) {
      return Sink{llSlot(c, h, to.rank, area, bytesMax, bytes, c.rank, to.index), nullptr, to.rank == c.rank};
    };
  };
  const auto rowSlotOf = slotsOf(c.at.llRows, c.rowBytesMax, d.rowBytes);
  const auto rowOutOf = [&](int token) {
    const std::uint64_t at = llOutOffset(c, h, c.far->at.llRowsOut, c.rowBytesMax, d.rowBytes, token);
    return Sink{c.mine<std::uint8_t>(at), nullptr, true};
  };
  const LlSlotRows rows{d.straight != 0 ? c.rank : kNoRank};
  if (d.cast.type != kNoCast) {
    pushCast(warp, c, h, d, w, rowSlotOf, rowOutOf);
  } else {
    pushPayload(warp, c, h, d.rows, {0, d.tokens}, rows, d.rowBytes, d.parts, w, rowSlotOf, rowOutOf);
  }
  if (d.sideBytes == 0) return;
  pushPayload(warp, c, h, d.side, {0, d.tokens}, rows, d.sideBytes, Parts{1, d.sideBytes}, w,
              slotsOf(c.at.llSide, c.sideBytesMax, d.sideBytes), [&](int token) {
                const std::uint64_t at = llOutOffset(c, h, c.far->at.llSideOut, c.sideBytesMax, d.sideBytes, token);
                return Sink{c.mine<std::uint8_t>(at), nullptr, true};
              });
}

// One payload's rows for a remote rank, from where they wait to its slots.
template <Moves Warp>
MOE_LANES void llPutPayload(const Warp& warp, const StepParams& p, int to, std::uint64_t slots, std::uint64_t out,
                            int bytesMax, std::uint32_t bytes, std::uint64_t epoch) {
  const CommView& c = p.comm;
  const HandleView& h = p.handle;
  const std::int32_t* tokens = h.outgoing + static_cast<std::int64_t>(to) * h.tokensMax;
  warp.put(c, h.totals[h.map.experts + to], [&](int i) {
    return putBytes(to, llSlotOffset(c, h, slots, bytesMax, bytes, c.rank, i),
                    llOutOffset(c, h, out, bytesMax, bytes, tokens[i]), bytes, epoch);
  });
}

// Rows, the word of their sizes and the flag, to the remote ranks of this warp; each call by another connection.
template <Moves Warp>
MOE_LANES void llPutRows(const Warp& warp, const StepParams& p, std::uint64_t sizes, std::uint64_t epoch, WarpIndex w) {
  const CommView& c = p.comm;
  const HandleView& h = p.handle;
  const DispatchArgs& d = p.dispatch;
  const std::uint64_t ready = llFlags(c, h, c.at.llRowsReady);
  forRemoteRanks(c, w, [&](int to) {
    if (!waitForOwn(warp, c, ready, epoch)) return false;
    llPutPayload(warp, p, to, c.at.llRows, c.far->at.llRowsOut, c.rowBytesMax, d.rowBytes, epoch);
    if (d.sideBytes != 0) {
      llPutPayload(warp, p, to, c.at.llSide, c.far->at.llSideOut, c.sideBytesMax, d.sideBytes, epoch);
    }
    // Together, so that the adapter is told once.
    warp.put(c, 2, [&](int i) {
      return i == 0 ? putWord(to, llSizesOffset(c, h, c.rank), sizes, epoch) : flagPut(c, to, ready, epoch, epoch);
    });
    return true;
  });
}

// The slots of the set's last dispatch are written again: everybody has taken the rows. After a combine there is
// nothing to wait for, as it waited for everybody to come to it; else each rank says so now that its stream has come
// here.
template <Moves Warp>
MOE_LANES bool waitForSlots(const Warp& warp, const StepParams& p, std::uint64_t epoch, WarpIndex w) {
  const CommView& c = p.comm;
  const HandleView& h = p.handle;
  const std::uint64_t free = llFlags(c, h, c.at.llFree);
  tellFree(warp, c, free, epoch, w);
  return waitForAll(warp, c, free, epoch, Phase::dispatchSlots);
}

// A range [begin, end) of this rank's arriving rows. Rows from `gapAt` on are stored `gap` rows later.
struct LlRows {
  const HandleView& h;
  int begin, end, gapAt, gap;

  MOE_LANES int row(int number) const { return number < gapAt ? number : number + gap; }
};
MOE_LANES LlRows llOwnRows(const CommView& c, const HandleView& h) {
  return {h, h.rankOffsets[c.rank], h.rankOffsets[c.rank + 1], 0, 0};
}
MOE_LANES LlRows llRowsOfOthers(const CommView& c, const HandleView& h) {
  const int first = h.rankOffsets[c.rank], own = h.rankOffsets[c.rank + 1] - first;
  return {h, 0, *h.rows - own, first, own};
}

// Rows to the caller's output, from the caller's input if that is given, else from their slots: all of what is in a
// slot, or its first bytes.
template <Moves Warp>
MOE_LANES void llDeliver(const Warp& warp, const StepParams& p, const LlRows& rows, const std::uint8_t* in,
                         std::uint64_t area, int bytesMax, std::uint32_t slotBytes, std::uint8_t* out,
                         std::uint32_t rowBytes, const Parts& parts, WarpIndex w) {
  const CommView& c = p.comm;
  const HandleView& h = p.handle;
  if (out == nullptr) return;
  deliverRows(
      warp, rows, out, rowBytes, parts, w,
      [&](int row) -> const std::uint8_t* {
        if (in != nullptr) return in + std::int64_t{headToken(*keptHeader(h, row))} * rowBytes;
        const Arrival at = arrivalOf(h, row);
        return llSlot(c, h, c.rank, area, bytesMax, slotBytes, at.from, at.index);
      },
      [&](int row) { return layoutCopies(h, row); }, [&](int row, int copy) { return layoutRow(h, row, copy); });
}

// Word by word: neighbouring lanes take neighbouring rows of a token-contiguous output, else neighbouring words.
template <Moves Warp>
MOE_LANES void llDeliverScales(const Warp& warp, const StepParams& p, WarpIndex w) {
  const CommView& c = p.comm;
  const HandleView& h = p.handle;
  const CastArgs& cast = p.dispatch.cast;
  if (cast.outScales == nullptr) return;
  const int rows = *h.rows;
  const Slice slice = sliceOf(rows * cast.words, w);
  warp.forEach(slice.count, [&](int i) {
    const int item = slice.begin + i;
    const int row = cast.rowStride == 1 ? item % rows : item / cast.words;
    const int word = cast.rowStride == 1 ? item / rows : item % cast.words;
    const Arrival at = arrivalOf(h, row);
    const std::uint8_t* slot = llSlot(c, h, c.rank, c.at.llRows, c.rowBytesMax, p.dispatch.rowBytes, at.from, at.index);
    const auto value = warp.laneLoad(reinterpret_cast<const std::uint32_t*>(slot + cast.elements) + word);
    for (int copy = 0; copy < layoutCopies(h, row); ++copy) {
      const int to = layoutRow(h, row, copy);
      cast.outScales[to / cast.group * cast.groupStride + to % cast.group * cast.rowStride + word * cast.wordStride] =
          value;
    }
  });
}

// An output that is too small is its owner's fault alone: the peers have done their part. Reported when all warps of
// this rank have sent, as the peers wait for them.
template <Moves Warp>
MOE_LANES void llRefuse(const Warp& warp, const StepParams& p, std::uint64_t epoch, WarpIndex w) {
  const CommView& c = p.comm;
  if (w.index != 0 || !waitForOwn(warp, c, llFlags(c, p.handle, c.at.llRowsReady), epoch)) return;
  warp.forEach(1, [&](int) {
    warp.laneFail(c, {0, Fault::capacity, Phase::dispatchOutput, c.rank, 0, 0, p.dispatch.capacity,
                      p.handle.layoutRowsOf[c.rank]});
  });
}

template <Moves Warp>
MOE_LANES void llDispatchReceive(const Warp& warp, const StepParams& p, std::uint64_t epoch, WarpIndex w) {
  const CommView& c = p.comm;
  const HandleView& h = p.handle;
  const DispatchArgs& d = p.dispatch;
  if (h.layoutRowsOf[c.rank] > d.capacity) return llRefuse(warp, p, epoch, w);
  describeRows(warp, c, h, d, w);
  // Rows that stay in their slots need one warp that waits, and one look.
  const bool stay = d.outRows == nullptr && d.cast.outScales == nullptr && d.sideBytes == 0 && h.arrivals == 0;
  if (stay && w.index != 0) return;
  const std::uint32_t outBytes = d.cast.type != kNoCast ? static_cast<std::uint32_t>(d.cast.elements) : d.rowBytes;
  const bool straight = d.straight != 0;
  MOE_ROLLED
  for (int turn = straight ? 0 : 1; turn < 2; ++turn) {
    const bool own = turn == 0;
    if (!own && !waitForAll(warp, c, llFlags(c, h, c.at.llRowsReady), epoch, Phase::dispatchRows)) return;
    if (!own && !llSizesAgree(warp, c, h, d.terms)) return;
    const LlRows rows = own ? llOwnRows(c, h) : straight ? llRowsOfOthers(c, h) : LlRows{h, 0, *h.rows, 0, 0};
    llDeliver(warp, p, rows, own ? d.rows : nullptr, c.at.llRows, c.rowBytesMax, d.rowBytes, d.outRows, outBytes,
              d.arriving, w);
    if (d.sideBytes == 0) continue;
    llDeliver(warp, p, rows, own ? d.side : nullptr, c.at.llSide, c.sideBytesMax, d.sideBytes, d.outSide, d.sideBytes,
              Parts{1, d.sideBytes}, w);
  }
  llDeliverScales(warp, p, w);
  if (h.arrivals != 0) announceArrivals(warp, h, 0, {0, h.map.count(c.rank)}, w);
}

// What a sending step leaves for the next one. Warps that have announced their rows have read what changes here.
template <Moves Warp>
MOE_LANES void llEndSend(const Warp& warp, const StepParams& p, Channel channel, std::uint64_t epoch) {
  const CommView& c = p.comm;
  const HandleView& h = p.handle;
  if (!waitForOwn(warp, c, llFlags(c, h, c.at.llRowsReady), epoch)) return;
  warp.forEach(1, [&](int) {
    c.state->epoch[channel] = epoch;
    c.state->llUncombined[h.llSet] = 1;
    if (h.layout == Layout::rankMajor) c.state->llUsed[h.llSet] = 1;
    h.state->dispatchEpoch = epoch;
  });
}

template <Moves Warp>
MOE_LANES void llDispatch(const Warp& warp, const StepParams& p, WarpIndex w) {
  const CommView& c = p.comm;
  const HandleView& h = p.handle;
  const Channel channel = llChannel(kLlDispatchChannel, h.llSet);
  const std::uint64_t epoch = operationEpoch(c, channel, p.phases, h.state->dispatchEpoch);
  const bool sends = (p.phases & kSendPhase) != 0, uncombined = c.state->llUncombined[h.llSet] != 0;
  if (warp.stopped(c)) return;
  if (sends) {
    if (uncombined && !waitForSlots(warp, p, epoch, w)) return;
    if (w.index == 0) llSendSizes(warp, c, h, p.dispatch.terms);
    llSendRows(warp, p, w);
    announce(warp, c, llFlags(c, h, c.at.llRowsReady), Meeting::rows, w);
    if (split(warp, c)) llPutRows(warp, p, p.dispatch.terms, epoch, w);
    if (isLast(w)) llEndSend(warp, p, channel, epoch);
  }
  if ((p.phases & kReceivePhase) != 0) llDispatchReceive(warp, p, epoch, w);
}

}  // namespace moe
