// The route: from topk_idx to row positions that are final before any payload moves. Nothing depends on timing: rows
// are ordered by source rank, then token. One step, for both modes:
//   count     which tokens use which expert and which rank, as bits; sums of each warp's tokens     (route_count.h)
//   exchange  all ranks learn all counts and compute every offset themselves                        (route_exchange.h)
//   place     positions of every entry; row headers go to the receivers, which keep them in the handle
// Flags: docs/protocol.md, "Route".
#pragma once

#include "device/route_exchange.h"
#include "device/waves.h"

namespace moe {

// Positions of the token's entries and rows. One lane.
MOE_LANES void lanePlaceEntry(const RouteSlice& s, const HandleView& h, int entry) {
  const int token = entry / h.topk, expert = h.ids[entry];
  if (expert >= 0) h.entryRow[entry] = s.place[expert] + s.positionOf(h, token, expert);
}

// Row of the receiver's layout for the token's first entry on a rank.
MOE_LANES int firstEntryRow(const HandleView& h, int token, int rank) {
  for (int k = 0; k < h.topk; ++k) {
    const int expert = h.ids[token * h.topk + k];
    if (expert >= 0 && h.map.rankOf(expert) == rank) return h.entryRow[token * h.topk + k];
  }
  return 0;
}

// The token's destinations in rank order. One lane.
MOE_LANES void laneListDestinations(const RouteSlice& s, const CommView& c, const HandleView& h, int token) {
  int count = 0;
  for (int rank = 0; rank < c.nranks; ++rank) {
    const int bucket = h.map.experts + rank;
    if (!s.uses(h, token, bucket)) continue;
    const int index = s.place[bucket] + s.positionOf(h, token, bucket), flat = s.rankBase[rank] + index;
    const int row = expertRows(h)                   ? firstEntryRow(h, token, rank)
                    : h.layout == Layout::rankMajor ? c.rank * h.tokensMax + index
                                                    : flat;
    h.destinations[token * h.slots + count++] = {rank, index, row, flat};
  }
  h.destinationCount[token] = count;
}

template <class Warp>
MOE_LANES void placeTokens(const Warp& warp, const RouteSlice& s, const CommView& c, const HandleView& h) {
  const int first = s.tokens.begin * h.topk;
  if (expertRows(h)) warp.forEach(s.tokens.count * h.topk, [&](int i) { lanePlaceEntry(s, h, first + i); });
  warp.forEach(s.tokens.count, [&](int i) { laneListDestinations(s, c, h, s.tokens.begin + i); });
}

MOE_LANES Quad* headerSlot(const CommView& c, int rank, std::uint64_t epoch, int from, int index) {
  const std::int64_t slot = static_cast<std::int64_t>(parityOf(epoch) * c.nranks + from) * c.at.routeTokensMax + index;
  return c.in<Quad>(rank, c.at.routeHeaders) + slot * headerQuads(c.topkMax);
}

template <class Warp>
MOE_LANES void sendHeaders(const Warp& warp, const StepParams& p, std::uint64_t epoch, Slice tokens) {
  const CommView& c = p.comm;
  const HandleView& h = p.handle;
  warp.forEach(tokens.count * h.slots, [&](int i) {
    const int token = tokens.begin + i / h.slots, ordinal = i % h.slots;
    if (ordinal >= h.destinationCount[token]) return;
    const Destination to = h.destinations[token * h.slots + ordinal];
    laneWriteHeader(warp, c, h, headerSlot(c, to.rank, epoch, c.rank, to.index), token, waveOf(token, p.route.tokens),
                    to.rank);
  });
}

template <class Warp>
MOE_LANES void keepHeaders(const Warp& warp, const CommView& c, const HandleView& h, std::uint64_t epoch, WarpIndex w) {
  const Slice slice = sliceOf(*h.rows, w);
  warp.forEach(slice.count, [&](int i) {
    const int row = slice.begin + i;
    const Arrival at = arrivalOf(h, row);
    const Quad* slot = headerSlot(c, c.rank, epoch, at.from, at.index);
    Quad* kept = h.headers + static_cast<std::int64_t>(row) * h.headerStride();
    const Quad head = warp.laneLoad(slot);
    kept[0] = head;
    for (int entry = 1; entry <= headEntries(head); ++entry) kept[entry] = warp.laneLoad(slot + entry);
    if (h.lowLatency != 0) return;
    const int before = at.index == 0 ? -1 : headWave(warp.laneLoad(slot - headerQuads(c.topkMax)));
    laneNoteWaves(h, row, at.from, before, headWave(head));
  });
  if (w.index != 0 || h.lowLatency != 0) return;
  warp.forEach(c.nranks, [&](int from) {
    if (h.rankOffsets[from] == h.rankOffsets[from + 1]) laneNoteNoRows(h, from);
  });
}

template <class Warp>
MOE_LANES void route(const Warp& warp, const StepParams& p, WarpIndex w) {
  const CommView& c = p.comm;
  const HandleView& h = p.handle;
  const std::uint64_t epoch = c.state->epoch[kRouteChannel] + 1;
  if (warp.stopped(c)) return;
  const RouteSlice s = routeSlice(h, p.route, w);
  countTokens(warp, s, p);
  if (!sumWarps(warp, s, c, h, epoch, w)) return;
  if (w.index == 0) {
    if (warp.stopped(c)) return;  // an entry that cannot be: the peers do not learn of the others
    sendCounts(warp, c, h, epoch);
  }
  if (!waitForAll(warp, c, c.at.routeCountsReady, epoch, Phase::routeCounts)) return;
  if (!handlesAgree(warp, c, h, epoch)) return;  // the peers have our counts and find out for themselves
  addBases(warp, s, c, h, epoch);
  placeTokens(warp, s, c, h);
  sendHeaders(warp, p, epoch, s.tokens);
  announce(warp, c, c.at.routeHeadersReady, Meeting::rows, w);
  if (w.index == 0) takeCounts(warp, c, h, epoch);
  if (!waitForAll(warp, c, c.at.routeHeadersReady, epoch, Phase::routeHeaders)) return;
  if (!waitForCounts(warp, c, epoch)) return;
  keepHeaders(warp, c, h, epoch, w);
  if (w.index == 0) warp.forEach(1, [&](int) { c.state->epoch[kRouteChannel] = epoch; });
}

}  // namespace moe
