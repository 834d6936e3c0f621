// The route: from topk_idx to row positions that are final before any payload moves. Nothing depends on timing: rows
// are ordered by source rank, then token. One step, for both modes:
//   count     which tokens use which expert and which rank, as bits; sums of each warp's tokens     (route_count.h)
//   exchange  all ranks learn all counts and compute every offset themselves                        (route_exchange.h)
//   place     positions of every entry; row headers go to the receivers, which keep them in the handle
// Flags: docs/protocol.md, "Route".
#pragma once

#include "device/route_rails.h"

namespace moe {

// Positions of the token's entries and rows. One lane.
MOE_LANES void lanePlaceEntry(const RouteSlice& s, const HandleView& h, int entry) {
  const int token = entry / h.topk, expert = h.ids[entry];
  if (expert >= 0) h.entryRow[entry] = s.place[expert] + s.positionOf(h, token, expert);
}

// The token's destinations. One lane.
template <class Warp>
MOE_LANES void laneListDestinations(const Warp& warp, const RouteSlice& s, const StepParams& p, int token) {
  const CommView& c = p.comm;
  const HandleView& h = p.handle;
  Destination* list = h.destinations + std::int64_t{token} * h.slots;
  int count = 0;
  std::uint32_t waves = 0;
  const auto add = [&](const Destination& to) {
    list[count++] = to;
    waves |= 1u << to.wave;
  };
  laneForRanks(s, c, h, token, domainRanks(c), add);
  h.nearCount[token] = count;
  if (h.wavesByExpert()) h.wavesOf[token] = waves;
  if (takesRails(warp, h)) {
    laneListRails(warp, s, p, token, add);
  } else if (split(warp, c)) {
    const auto addRemote = [&](const Destination& to) {
      h.outgoing[static_cast<std::int64_t>(to.rank) * h.tokensMax + to.index] = token;
      add(to);
    };
    laneForRanks(s, c, h, token, {0, c.domainFirst}, addRemote);
    laneForRanks(s, c, h, token, {c.domainFirst + c.domainSize, c.nranks}, addRemote);
  }
  h.destinationCount[token] = count;
  while (count < h.slots) list[count++].rank = kNoRank;
}

template <class Warp>
MOE_LANES void placeTokens(const Warp& warp, const RouteSlice& s, const StepParams& p) {
  const HandleView& h = p.handle;
  const int first = s.tokens.begin * h.topk;
  if (expertRows(h)) warp.forEach(s.tokens.count * h.topk, [&](int i) { lanePlaceEntry(s, h, first + i); });
  warp.forEach(s.tokens.count, [&](int i) { laneListDestinations(warp, s, p, s.tokens.begin + i); });
}

// ---- Headers

MOE_LANES std::uint64_t headerOffset(const CommView& c, std::uint64_t epoch, int from, int index) {
  const std::int64_t slot = static_cast<std::int64_t>(parityOf(epoch) * c.nranks + from) * c.at.routeTokensMax + index;
  return c.at.routeHeaders + static_cast<std::uint64_t>(slot * headerQuads(c.topkMax)) * sizeof(Quad);
}
MOE_LANES Quad* headerSlot(const CommView& c, int rank, std::uint64_t epoch, int from, int index) {
  return c.in<Quad>(rank, headerOffset(c, epoch, from, index));
}
// Where headers for a remote rank wait to be put.
MOE_LANES std::uint64_t headerOutOffset(const CommView& c, int to, int index) {
  const std::int64_t slot = static_cast<std::int64_t>(to) * c.at.routeTokensMax + index;
  return c.far->at.routeHeadersOut + static_cast<std::uint64_t>(slot * headerQuads(c.topkMax)) * sizeof(Quad);
}

template <class Warp>
MOE_LANES void sendHeaders(const Warp& warp, const RouteSlice& s, const StepParams& p, std::uint64_t epoch) {
  const CommView& c = p.comm;
  const HandleView& h = p.handle;
  warp.forEach(s.tokens.count * h.slots, [&](int i) {
    const int token = s.tokens.begin + i / h.slots, ordinal = i % h.slots;
    if (ordinal >= h.nearCount[token]) return;
    const Destination to = h.destinations[token * h.slots + ordinal];
    const int bucket = h.waveBucket(to.rank, to.wave);
    const int inWave = h.wavesByExpert() ? s.place[bucket] + s.positionOf(h, token, bucket) : 0;
    laneWriteHeader(warp, c, h, headerSlot(c, to.rank, epoch, c.rank, to.index), token, waveOf(token, p.route.tokens),
                    inWave, to.rank);
  });
}

// Headers for remote ranks, where they wait to be put. HT destinations do not list these ranks, so the entries do: the
// first of a token's on each rank.
MOE_LANES bool isFirstOnRank(const HandleView& h, int token, int k, int rank) {
  const std::int32_t* ids = h.ids + std::int64_t{token} * h.topk;
  for (int before = 0; before < k; ++before) {
    if (ids[before] >= 0 && h.map.rankOf(ids[before]) == rank) return false;
  }
  return true;
}

template <class Warp>
MOE_LANES void fillRemoteHeaders(const Warp& warp, const RouteSlice& s, const StepParams& p) {
  const CommView& c = p.comm;
  const HandleView& h = p.handle;
  warp.forEach(s.tokens.count * h.topk, [&](int i) {
    const int token = s.tokens.begin + i / h.topk, k = i % h.topk, id = h.ids[token * h.topk + k];
    if (id < 0) return;
    const int rank = h.map.rankOf(id), bucket = h.map.experts + rank;
    if (c.inDomain(rank) || !isFirstOnRank(h, token, k, rank)) return;
    const int index = s.place[bucket] + s.positionOf(h, token, bucket);
    const int railIndex = takesRails(warp, h) ? railIndexOf(s, h, token, rank / c.domainSize) : 0;
    laneWriteHeader(warp, c, h, c.mine<Quad>(headerOutOffset(c, rank, index)), token, waveOf(token, p.route.tokens),
                    railIndex, rank);
  });
}

// Headers that wait for remote ranks, and for rail peers what they must know to forward.
template <class Warp>
MOE_LANES void putHeaders(const Warp& warp, const StepParams& p, std::uint64_t epoch, WarpIndex w) {
  const CommView& c = p.comm;
  const HandleView& h = p.handle;
  forRemoteRanks(c, w, [&](int to) {
    if (!waitForOwn(warp, c, c.at.routeHeadersReady, epoch)) return false;
    const std::int64_t bytes =
        h.totals[h.map.experts + to] * headerQuads(c.topkMax) * static_cast<std::int64_t>(sizeof(Quad));
    putBlock(warp, c, to, headerOffset(c, epoch, c.rank, 0), headerOutOffset(c, to, 0), bytes);
    if (takesRails(warp, h) && to == c.railPeer(to / c.domainSize)) putRailTable(warp, c, h, epoch, to / c.domainSize);
    putFlag(warp, c, to, c.at.routeHeadersReady, epoch);
    return true;
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
    if (!h.wavesByExpert()) return;
    const int wave = waveOfHeader(kept, h.map.count(c.rank));
    h.waveRows[h.waveRowsStart[wave * c.nranks + at.from] + headIndex(head)] = row;
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
  placeTokens(warp, s, p);
  sendHeaders(warp, s, p, epoch);
  if (split(warp, c)) fillRemoteHeaders(warp, s, p);
  announce(warp, c, c.at.routeHeadersReady, Meeting::rows, w);
  if (split(warp, c)) putHeaders(warp, p, epoch, w);
  if (w.index == 0) takeCounts(warp, c, h, epoch);
  if (!waitForAll(warp, c, c.at.routeHeadersReady, epoch, Phase::routeHeaders)) return;
  if (!waitForCounts(warp, c, epoch)) return;
  keepHeaders(warp, c, h, epoch, w);
  if (takesRails(warp, h)) keepRailTables(warp, c, h, epoch, w);
  if (w.index == 0) warp.forEach(1, [&](int) { c.state->epoch[kRouteChannel] = epoch; });
}

}  // namespace moe
