// The route: from topk_idx to row positions that are final before any payload moves. Nothing depends on timing: rows
// are ordered by source rank, then token. One step, for both modes:
//   count     which tokens use which expert and which rank, as bits; sums of each warp's tokens     (route_count.h)
//   exchange  all ranks learn all counts and compute every offset themselves                        (route_exchange.h)
//   place     positions of every entry and row                                                      (here)
//   headers   go to the receivers, which keep them in the handle                                    (route_headers.h)
// What a lane that has tokens for itself sends is in route_tokens.h.
// It is bound by the number of dependent look-ups, not by their size: see docs/internals/notebook.md, "The route's
// steps". Flags: docs/internals/protocol.md, "Route".
#pragma once

#include "device/protocol/route/route_tokens.h"

namespace moe {

// The destinations of this warp's token `token`. One lane.
template <Computes Warp>
MOE_LANES void laneListDestinations(const Warp& warp, const RouteSlice& s, const StepParams& p, int token) {
  const CommView& c = p.comm;
  const HandleView& h = p.handle;
  const int number = s.tokens.begin + token;
  Destination* list = s.destinations + std::int64_t{token} * h.slots;
  int count = 0;
  std::uint32_t waves = 0;
  const auto add = [&](const Destination& to) {
    list[count++] = to;
    waves |= 1u << to.wave;
  };
  laneForRanks(s, c, h, token, domainRanks(c), add);
  h.nearCount[number] = count;
  if (h.wavesByExpert()) h.wavesOf[number] = waves;
  if (takesRails(warp, h)) {
    laneListRails(warp, s, p, token, add);
  } else if (split(warp, c)) {
    const auto addRemote = [&](const Destination& to) {
      h.outgoing[static_cast<std::int64_t>(to.rank) * h.tokensMax + to.index] = number;
      add(to);
    };
    laneForRanks(s, c, h, token, {0, c.domainFirst}, addRemote);
    laneForRanks(s, c, h, token, {c.domainFirst + c.domainSize, c.nranks}, addRemote);
  }
  h.destinationCount[number] = count;
  while (count < h.slots) list[count++].rank = kNoRank;
}

template <Computes Warp>
MOE_LANES void placeTokens(const Warp& warp, const RouteSlice& s, const StepParams& p) {
  const HandleView& h = p.handle;
  if (expertRows(h)) {
    warp.forEach(s.tokens.count * h.topk, [&](int i) {
      const int expert = s.ids[i];
      if (expert < 0) return;
      s.entryRow[i] = s.positionOf(h, h.byTopk.of(i), expert);
      h.entryRow[s.tokens.begin * h.topk + i] = s.entryRow[i];
    });
  }
  warp.forEach(s.tokens.count, [&](int i) { laneListDestinations(warp, s, p, i); });
}

template <Computes Warp>
MOE_LANES void sendTokens(const Warp& warp, const RouteSlice& s, const StepParams& p, std::uint64_t epoch) {
  if (takesWholeTokens(warp, p.handle)) {
    warp.forEach(s.tokens.count, [&](int token) { laneSendToken(warp, s, p, epoch, token); });
    return;
  }
  sendHeaders(warp, s, p, epoch);
  if (takesRails(warp, p.handle)) fillRemoteHeads(warp, s, p, epoch);
}

template <Computes Warp>
MOE_LANES void route(const Warp& warp, const StepParams& p, WarpIndex w) {
  const CommView& c = p.comm;
  const HandleView& h = p.handle;
  const std::uint64_t epoch = c.state->epoch[kRouteChannel] + 1;
  if (warp.stopped(c)) return;
  const RouteSlice s = routeSlice(warp, h, p.route, w);
  countTokens(warp, s, p, w);
  if (!sumWarps(warp, s, c, h, epoch, w)) return;
  if (w.index == 0) {
    writeCounts(warp, s, c, h, epoch);
    if (warp.stopped(c)) return;  // an entry that cannot be: the peers do not learn of the others
    tellCounts(warp, c, h, epoch);
  }
  if (!waitForAll(warp, c, c.at.routeCountsReady, epoch, Phase::routeCounts)) return;
  if (!takeRankBases(warp, s, c, h, epoch)) return;  // the peers have our counts and find out for themselves
  if (expertRows(h)) addExpertBases(warp, s, c, h, epoch);
  placeTokens(warp, s, p);
  sendTokens(warp, s, p, epoch);
  announce(warp, c, c.at.routeHeadersReady, Meeting::rows, w);
  markAlone(warp, c, w);
  if (split(warp, c)) putHeaders(warp, p, epoch, w);
  takeOffsets(warp, s, c, h, epoch, w);
  if (w.index == 0) takeCounts(warp, s, c, h, epoch);
  if (!waitForAll(warp, c, c.at.routeHeadersReady, epoch, Phase::routeHeaders)) return;
  keepHeaders(warp, s, c, h, epoch, w);
  if (takesRails(warp, h)) keepRailTables(warp, c, h, epoch, w);
  if (w.index == 0) endRoute(warp, c, h, epoch);
}

}  // namespace moe
