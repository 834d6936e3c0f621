// The route: from topk_idx to row positions that are final before any payload moves. Nothing depends on timing: rows
// are ordered by source rank, then token. One step, for both modes:
//   count     which tokens use which expert and which rank, as bits; sums of each warp's tokens     (count.h)
//   exchange  all ranks learn all counts and compute every offset themselves                        (exchange.h)
//   budget    if a rank would get too many rows: some entries are left out, and all count again     (budget.h)
//   place     positions of every entry and row                                                      (here)
//   headers   go to the receivers, which keep them in the handle                                    (headers.h)
// It is bound by the number of dependent look-ups, not by their size: see docs/internals/notebook.md, "The route's
// steps". Flags: README.md.
#pragma once

#include "device/protocol/core/seldom.h"
#include "device/protocol/route/budget.h"
#include "device/protocol/route/empty.h"
#include "device/protocol/route/headers.h"

namespace moe {

// The destinations of this warp's token `token`. One lane.
MOE_LANES void laneListDestinations(const Routing auto& r, int token) {
  const int number = r.own.tokens.begin + token;
  Destination* list = r.own.destinations + std::int64_t{token} * r.handle.destinationsMax;
  int count = 0;
  std::uint32_t waves = 0;
  const auto add = [&](const Destination& to) {
    list[count++] = to;
    waves |= 1u << to.wave;
  };
  laneForRanks(r, token, domainRanks(r.comm), add);
  r.handle.sent.localCount[number] = count;
  if (r.handle.wavesByExpert()) r.handle.sent.wavesOf[number] = waves;
  if (r.takesRails()) {
    laneListRails(r, token, add);
  } else if (r.split()) {
    const auto addRemote = [&](const Destination& to) {
      r.handle.rails.outgoing[static_cast<std::int64_t>(to.rank) * r.handle.tokensMax + to.index] = number;
      add(to);
    };
    laneForRanks(r, token, {0, r.comm.domainFirst}, addRemote);
    laneForRanks(r, token, {r.comm.domainFirst + r.comm.domainSize, r.comm.nranks}, addRemote);
  }
  r.handle.sent.destinationCount[number] = count;
  while (count < r.handle.destinationsMax) list[count++].rank = kNoRank;
}

MOE_LANES void placeTokens(const Routing auto& r) {
  if (expertRows(r.handle)) {
    r.warp.forEach(r.own.tokens.count * r.handle.topk, [&](int i) {
      const int expert = r.own.ids[i];
      if (expert < 0) return;
      r.own.entryRow[i] = r.own.positionOf(r.handle, r.handle.byTopk.of(i), expert);
      r.handle.sent.entryRow[r.own.tokens.begin * r.handle.topk + i] = r.own.entryRow[i];
    });
  }
  r.warp.forEach(r.own.tokens.count, [&](int i) { laneListDestinations(r, i); });
}

MOE_LANES void sendTokens(const Routing auto& r) {
  if (takesWholeTokens(r)) {
    r.warp.forEach(r.own.tokens.count, [&](int token) { laneSendToken(r, token); });
    return;
  }
  sendHeaders(r);
  if (r.takesRails()) fillRemoteHeads(r);
}

template <Computes Warp>
class Route {
 public:
  MOE_LANES Route(const Warp& warp, const StepParams& p, WarpIndex w) : r(warp, p, w) {}

  MOE_LANES void run() const {
    if (r.stopped()) return;
    countTokens(r);
    if (!sumWarps(r, &r.comm.state->routeCounted, Meeting::counts, r.epoch)) return;
    const Agreement agreement = exchange();
    if (agreement == Agreement::refused) {
      return seldom<EmptyRoute<Warp>>(
          r, [](const auto& route) { route.run(); }, r.w);
    }
    if (agreement != Agreement::good) return;
    if (r.handle.rowsBudget != 0 && !keepToBudget(r)) return;
    if (expertRows(r.handle)) addExpertBases(r);
    placeTokens(r);
    sendTokens(r);
    r.announce(r.comm.at.routeHeadersReady, Meeting::rows, r.w);
    markAlone(r);
    if (r.split()) putHeaders(r);
    takeOffsets(r);
    const bool hadFault = r.w.index == 0 && takeCounts(r);
    if (r.w.index == 0 && r.handle.countsExperts != 0) takeAllExperts(r);
    if (!r.waitForAll(r.comm.at.routeHeadersReady, r.epoch, Phase::routeHeaders)) return;
    keepHeaders(r);
    if (r.takesRails()) keepRailTables(r);
    if (r.w.index == 0) endRoute(r, r.own.rankOffsets[r.comm.nranks], hadFault);
  }

 private:
  // Every rank learns from the counts what is wrong with those of others.
  MOE_LANES Agreement exchange() const {
    if (r.w.index == 0) {
      writeCounts(r);
      tellCounts(r, r.comm.at.routeCountsReady, r.epoch);
    }
    if (!r.waitForAll(r.comm.at.routeCountsReady, r.epoch, Phase::routeCounts)) return Agreement::failed;
    return takeRankBases(r);
  }

  const RouteSession<Warp> r;
};

}  // namespace moe
