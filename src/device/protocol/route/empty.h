// The end of a route that a rank refuses: every rank makes an empty route, in which no token goes anywhere. No header
// is sent, but flags are still announced, so that epochs advance. It is separate code, because it is seldom needed.
#pragma once

#include "device/protocol/core/handle_fault.h"
#include "device/protocol/route/exchange.h"

namespace moe {

// Clears the destinations of this warp's share of tokens.
MOE_LANES void emptyTokens(const AnySession auto& s) {
  const HandleView& h = s.handle;
  const Slice slice = sliceOf(s.p.route.tokens, s.w);
  const std::int64_t first = slice.begin;
  s.warp.forEach(slice.count * h.topk, [&](int i) { h.sent.ids[first * h.topk + i] = -1; });
  s.warp.forEach(slice.count * h.destinationsMax,
                 [&](int i) { h.sent.destinations[first * h.destinationsMax + i].rank = kNoRank; });
  s.warp.forEach(slice.count, [&](int i) {
    h.sent.destinationCount[first + i] = h.sent.localCount[first + i] = 0;
    if (h.wavesByExpert()) h.sent.wavesOf[first + i] = 0;
  });
}

// Clears all counts of the host except `rows`.
MOE_LANES void tellNothing(const AnySession auto& s) {
  const HandleView& h = s.handle;
  const std::uint32_t ticket = latestRoute(h);
  CountWord* words = h.countsPerRank();
  s.warp.forEach(static_cast<int>(h.countsEnd(s.comm.rank) - words), [&](int i) { words[i] = countWord(ticket, 0); });
  s.warp.forEach(1, [&](int) { h.counts->layoutRows = countWord(ticket, layoutRows(h, s.comm.rank, 0, 0)); });
}

// Clears the counts of rows that are sent and that arrive, and ends an earlier fault. One warp calls it.
MOE_LANES void emptyCounts(const AnySession auto& s) {
  const HandleView& h = s.handle;
  const int ranks = s.comm.nranks, experts = h.map.count(s.comm.rank);
  s.warp.forEach(h.buckets(), [&](int bucket) { h.sent.totals[bucket] = 0; });
  s.warp.forEach(experts + 1, [&](int e) {
    h.arriving.expertOffsets[e] = 0;
    if (e < experts) h.arriving.rowsPerExpert[e] = 0;
  });
  s.warp.forEach(ranks + 1, [&](int rank) {
    h.arriving.rankOffsets[rank] = 0;
    if (rank == ranks) return;
    h.sent.flatRowsOf[rank] = 0;
    h.sent.layoutRowsOf[rank] = layoutRows(h, rank, 0, 0);
    if (h.lowLatency == 0) laneNoteNoRows(h, rank, 0);
  });
  if (h.wavesByExpert()) {
    s.warp.forEach(h.waves * ranks + 1, [&](int i) { h.arriving.waveRowsStart[i] = 0; });
  }
  if (s.takesRails()) s.warp.forEach((h.waves + 1) * h.domains, [&](int i) { h.rails.start[i] = 0; });
  if (h.rowsBudget != 0) s.warp.forEach(1 + experts, [&](int i) { h.arriving.wanted[i] = 0; });
  if (h.countsExperts != 0) s.warp.forEach(h.map.experts, [&](int e) { h.arriving.allExperts[e] = 0; });
  s.warp.forEach(1, [&](int) { *h.arriving.rows = 0; });
  tellNothing(s);
  beginRoute(s);
}

template <Computes Warp>
class EmptyRoute {
 public:
  MOE_LANES EmptyRoute(const Warp& warp, const StepParams& p, WarpIndex w)
      : s(warp, p, w, {kRouteChannel, p.comm.state->epoch[kRouteChannel] + 1, 0}), h_(p.handle) {}

  MOE_LANES void run() const {
    emptyTokens(s);
    s.announce(s.comm.at.routeHeadersReady, Meeting::rows, s.w);
    markAlone(s);
    forRemoteRanks(s, [&](int to) {
      if (!s.waitForOwn(s.comm.at.routeHeadersReady, s.epoch)) return false;
      putFlag(s, to, s.comm.at.routeHeadersReady);
      return true;
    });
    if (s.w.index == 0) emptyCounts(s);
    if (s.w.index == 0) keepFault(s.warp, h_, toldFault());
    if (s.p.route.followed != 0) s.warp.mark(&s.comm.state->routePlaced, Meeting::placed, s.w);
    if (!s.waitForAll(s.comm.at.routeHeadersReady, s.epoch, Phase::routeHeaders) || s.w.index != 0) return;
    endRoute(s);
    tellRows(s, 0, true);
  }

 private:
  // The fault that all ranks report: if several ranks refuse, that of the lowest one.
  MOE_LANES Failure toldFault() const {
    int rank = 0;
    MOE_ROLLED
    while ((s.warp.laneLoad(routeTerms(s.comm, s.comm.rank, s.epoch, rank)).w & kRouteRefused) == 0) ++rank;
    return faultTold(h_, rank, s.warp.laneLoad(routeBadEntry(s.comm, s.comm.rank, s.epoch, rank)));
  }

  const Session<Warp> s;
  const HandleView& h_;
};

}  // namespace moe
