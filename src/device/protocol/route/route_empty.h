// The end of a route that a rank refuses: every rank makes one in which no token goes anywhere. No header is sent, but
// the flags are told, so that epochs go on. Code of its own, as it is seldom needed.
#pragma once

#include "device/protocol/handle_fault.h"
#include "device/protocol/route/route_exchange.h"

namespace moe {

template <Computes Warp>
class EmptyRoute {
 public:
  MOE_LANES EmptyRoute(const Warp& warp, const StepParams& p, WarpIndex w)
      : s(warp, p, w, {kRouteChannel, p.comm.state->epoch[kRouteChannel] + 1, 0}), h_(p.handle) {}

  MOE_LANES void run() const {
    emptyTokens();
    s.announce(s.comm.at.routeHeadersReady, Meeting::rows, s.w);
    markAlone(s);
    forRemoteRanks(s, [&](int to) {
      if (!s.waitForOwn(s.comm.at.routeHeadersReady, s.epoch)) return false;
      putFlag(s, to, s.comm.at.routeHeadersReady);
      return true;
    });
    if (s.w.index == 0) emptyCounts();
    if (!s.waitForAll(s.comm.at.routeHeadersReady, s.epoch, Phase::routeHeaders) || s.w.index != 0) return;
    keepFault(s.warp, h_, toldFault());
    endRoute(s);
  }

 private:
  // This warp's share of tokens: nowhere to go.
  MOE_LANES void emptyTokens() const {
    const Slice slice = sliceOf(s.p.route.tokens, s.w);
    const std::int64_t first = slice.begin;
    s.warp.forEach(slice.count * h_.topk, [&](int i) { h_.sent.ids[first * h_.topk + i] = -1; });
    s.warp.forEach(slice.count * h_.destinationsMax,
                   [&](int i) { h_.sent.destinations[first * h_.destinationsMax + i].rank = kNoRank; });
    s.warp.forEach(slice.count, [&](int i) {
      h_.sent.destinationCount[first + i] = h_.sent.localCount[first + i] = 0;
      if (h_.wavesByExpert()) h_.sent.wavesOf[first + i] = 0;
    });
  }

  MOE_LANES void emptyCounts() const {
    const int ranks = s.comm.nranks, experts = h_.map.count(s.comm.rank);
    std::int32_t* host = h_.hostCounts->perRank();
    s.warp.forEach(h_.buckets(), [&](int bucket) { h_.sent.totals[bucket] = 0; });
    s.warp.forEach(ranks + experts, [&](int i) { host[i] = 0; });
    s.warp.forEach(experts + 1, [&](int e) {
      h_.arriving.expertOffsets[e] = 0;
      if (e < experts) h_.arriving.rowsPerExpert[e] = 0;
    });
    s.warp.forEach(ranks + 1, [&](int rank) {
      h_.arriving.rankOffsets[rank] = 0;
      if (rank == ranks) return;
      h_.sent.flatRowsOf[rank] = 0;
      h_.sent.layoutRowsOf[rank] = layoutRows(h_, rank, 0, 0);
      if (h_.lowLatency == 0) laneNoteNoRows(h_, rank, 0);
    });
    if (h_.wavesByExpert()) {
      s.warp.forEach(kHtWaves * ranks + 1, [&](int i) { h_.arriving.waveRowsStart[i] = 0; });
    }
    if (s.takesRails()) s.warp.forEach((kHtWaves + 1) * h_.domains, [&](int i) { h_.rails.start[i] = 0; });
    s.warp.forEach(1, [&](int) {
      *h_.arriving.rows = h_.hostCounts->rows = 0;
      h_.hostCounts->layoutRows = layoutRows(h_, s.comm.rank, 0, 0);
      laneBeginRoute(h_);
    });
  }

  // Of several ranks that refuse, all name the lowest.
  MOE_LANES Failure toldFault() const {
    int rank = 0;
    MOE_ROLLED
    while ((s.warp.laneLoad(routeTerms(s.comm, s.comm.rank, s.epoch, rank)).w & kRouteRefused) == 0) ++rank;
    return faultTold(h_, rank, s.warp.laneLoad(routeBadEntry(s.comm, s.comm.rank, s.epoch, rank)));
  }

  const Session<Warp> s;
  const HandleView& h_;
};

template <Computes Warp>
MOE_SELDOM void makeEmptyRoute(Warp warp, const StepParams& p, WarpIndex w) {
  EmptyRoute<Warp>(warp, p, w).run();
}

}  // namespace moe
