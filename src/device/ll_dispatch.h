// Low-latency dispatch: one step, no exchange first. Rows go to slots [source][index] of the handle's set; counts and
// headers go by themselves, so that the receiver has computed every offset and described every row when the rows come.
// RANK_MAJOR rows may stay where they came. Flags: docs/protocol.md, "LL dispatch".
#pragma once

#include "device/ll_receive.h"
#include "device/push.h"

namespace moe {

template <class Warp>
MOE_LANES void llSendCounts(const Warp& warp, const StepParams& p, int to) {
  const CommView& c = p.comm;
  const HandleView& h = p.handle;
  std::int32_t* counts = llCounts(c, h, to, c.rank);
  const int first = h.map.first(to), experts = h.map.count(to);
  warp.forEach(experts, [&](int e) { warp.laneStore(counts + kLlExpertCounts + e, h.totals[first + e]); });
  warp.forEach(1, [&](int) {
    warp.laneStore(counts + kLlSignature, llSignature(h, p.dispatch));
    warp.laneStore(counts + kLlRowCount, h.totals[h.map.experts + to]);
  });
}

template <class Warp>
MOE_LANES void llSendHeaders(const Warp& warp, const CommView& c, const HandleView& h, int tokens, WarpIndex w) {
  const int n = tokens * h.slots, lanes = w.count * Warp::kLanes;
  const int mine = (n - w.index * Warp::kLanes + lanes - 1) / lanes * Warp::kLanes;
  warp.forEach(mine > 0 ? mine : 0, [&](int i) {
    const int job = i / Warp::kLanes * lanes + w.index * Warp::kLanes + i % Warp::kLanes;
    if (job >= n) return;
    const int token = job / h.slots, ordinal = job % h.slots;
    if (ordinal >= h.destinationCount[token]) return;
    const Destination to = h.destinations[job];
    laneWriteHeader(warp, c, h, llHeader(c, h, to.rank, c.rank, to.index), token, ordinal);
  });
}

template <class Warp>
MOE_LANES void llSendRows(const Warp& warp, const StepParams& p, WarpIndex w) {
  const CommView& c = p.comm;
  const HandleView& h = p.handle;
  const DispatchArgs& d = p.dispatch;
  const auto slotsOf = [&](std::uint64_t area, int bytesMax, std::uint32_t bytes) {
    return [&c, &h, area, bytesMax, bytes](const Destination& to) {
      return llSlot(c, h, to.rank, area, bytesMax, bytes, c.rank, to.index);
    };
  };
  pushPayload(warp, h, d.rows, d.tokens, d.rowBytes, d.parts, w, slotsOf(c.at.llRows, c.rowBytesMax, d.rowBytes));
  if (d.sideBytes == 0) return;
  pushPayload(warp, h, d.side, d.tokens, d.sideBytes, Parts{1, d.sideBytes}, w,
              slotsOf(c.at.llSide, c.sideBytesMax, d.sideBytes));
}

// The slots of the set's last dispatch are written again: everybody has taken the rows. After a combine there is
// nothing to wait for, as it waited for everybody to come to it; else each rank says so now that its stream has come
// here.
template <class Warp>
MOE_LANES bool waitForSlots(const Warp& warp, const StepParams& p, std::uint64_t epoch, WarpIndex w) {
  const CommView& c = p.comm;
  const HandleView& h = p.handle;
  if (c.state->llUncombined[h.llSet] == 0) return true;
  const std::uint64_t free = llFlags(c, h, c.at.llFree);
  if (w.index == 0) tell(warp, c, free, epoch);
  return waitForAll(warp, c, free, epoch, Phase::dispatchSlots);
}

template <class Warp>
MOE_LANES bool llDispatchSend(const Warp& warp, const StepParams& p, std::uint64_t epoch, WarpIndex w) {
  const CommView& c = p.comm;
  const HandleView& h = p.handle;
  if (!waitForSlots(warp, p, epoch, w)) return false;
  if (inOffice(w)) {
    const WarpIndex office = officeWarp(w);
    for (int to = office.index; to < c.nranks; to += office.count) llSendCounts(warp, p, to);
    llSendHeaders(warp, c, h, p.dispatch.tokens, office);
    announce(warp, c, llFlags(c, h, c.at.llCountsReady), Meeting::office, office);
  }
  if (carries(w)) {
    const WarpIndex carrier = carrierWarp(w);
    llSendRows(warp, p, carrier);
    announce(warp, c, llFlags(c, h, c.at.llRowsReady), Meeting::rows, carrier);
  }
  return true;
}

template <class Warp>
MOE_LANES void llDispatch(const Warp& warp, const StepParams& p, WarpIndex w) {
  const CommView& c = p.comm;
  const HandleView& h = p.handle;
  const Channel channel = llChannel(kLlDispatchChannel, h.llSet);
  const std::uint64_t epoch = operationEpoch(c, channel, p.phases, h.state->dispatchEpoch);
  const bool sends = (p.phases & kSendPhase) != 0;
  if (sends && !llDispatchSend(warp, p, epoch, w)) return;
  if ((p.phases & kReceivePhase) != 0) llDispatchReceive(warp, p, epoch, w);
  if (!sends || w.index != 0) return;
  if (!waitForOwn(warp, c, llFlags(c, h, c.at.llCountsReady), epoch)) return;
  if (!waitForOwn(warp, c, llFlags(c, h, c.at.llRowsReady), epoch)) return;
  warp.forEach(1, [&](int) {
    c.state->epoch[channel] = epoch;
    c.state->llUncombined[h.llSet] = 1;
    h.state->dispatchEpoch = epoch;
  });
}

}  // namespace moe
