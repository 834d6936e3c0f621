// The route computes from topk_idx the final position of every row, before any payload moves. Nothing depends on
// timing: rows are ordered by source rank, then by token. One step serves both modes:
//   count     finds as bits which tokens use which expert and which rank; sums each warp's tokens   (count.h)
//   exchange  sends all counts to all ranks, which compute every offset themselves                   (exchange.h)
//   budget    if a rank would get too many rows, leaves out entries and counts again                 (here)
//   place     computes positions of every entry and row                                              (here)
//   headers   sends headers to the receivers, which keep them in the handle                          (headers.h)
// Its time depends on the number of dependent look-ups, not on their size: see docs/internals/notebook.md, "The route's
// steps". Flags: README.md.
#pragma once

#include "device/protocol/core/seldom.h"
#include "device/protocol/route/empty.h"
#include "device/protocol/route/exchange.h"
#include "device/protocol/route/headers.h"

namespace moe {

// ---- A budget for the rows that arrive at a rank. All ranks have the same exchanged counts, so all of them find
// whether a rank would get more rows. If so, all ranks leave out the entries beyond the budget, and count again.
// Decision 0072.

MOE_LANES bool overflows(const Routing auto& r) {
  const auto isOver = [&](int rank) {
    return bucketSums(r, r.handle.map.experts + rank).all > r.handle.rowsBudget ? 1 : 0;
  };
  return r.warp.scanInOrder(r.comm.nranks, isOver, [](int, int) {}) != 0;
}

// Notes for the handle and for the host how many rows would arrive here without a budget. The first warp calls it, with
// the first counts.
MOE_LANES void noteWanted(const Routing auto& r) {
  const HandleView& h = r.handle;
  const int first = h.map.first(r.comm.rank), experts = h.map.count(r.comm.rank);
  CountWord* host = h.countsWanted(r.comm.rank);
  const std::uint32_t ticket = latestRoute(h);
  r.warp.forEach(1 + experts, [&](int i) {
    const int bucket = i == 0 ? h.map.experts + r.comm.rank : first + i - 1;
    const int wanted = bucketSums(r, bucket).all;
    h.arriving.wanted[i] = wanted;
    host[i] = countWord(ticket, wanted);
  });
}

// Whether this warp's token `token` is beyond the budget of the rank that has `expert`. Uses the first counts.
MOE_LANES bool isBehindBudget(const Routing auto& r, int token, int expert) {
  const int rank = r.handle.map.rankOf(expert);
  const int before = r.own.positionOf(r.handle, token, r.handle.map.experts + rank);
  return r.own.rankBase[rank] + before >= r.handle.rowsBudget;
}

// Leaves out the entries of this warp's tokens that are beyond a budget. Entries that are merged into one of them are
// left out too.
MOE_LANES void leaveOut(const Routing auto& r) {
  const HandleView& h = r.handle;
  r.warp.forEach(r.own.tokens.count * h.topk, [&](int i) {
    const int id = r.own.ids[i];
    if (id < 0 || !isBehindBudget(r, h.byTopk.of(i), id)) return;
    r.own.ids[i] = h.sent.ids[r.own.tokens.begin * h.topk + i] = -1;
  });
}

// Marks the users of buckets again, from the entries that are left.
MOE_LANES void markAgain(const Routing auto& r) {
  const HandleView& h = r.handle;
  r.warp.forEach(r.own.chunks.count * h.buckets(), [&](int i) { r.own.users[i] = 0; });
  r.warp.forEach(r.own.tokens.count * h.topk, [&](int i) {
    if (r.own.ids[i] >= 0) laneMarkUser(r, h.byTopk.of(i), r.own.ids[i]);
  });
}

template <Computes Warp>
class Recount {
 public:
  // The tables of its session are those of the route that it belongs to, and keep their content.
  MOE_LANES Recount(const Warp& warp, const StepParams& p, WarpIndex w)
      : r(warp, p, w), number_(r.comm.state->recounts + 1) {}

  // False if a wait failed.
  MOE_LANES bool run() const {
    if (!allHaveRead()) return false;
    leaveOut(r);
    markAgain(r);
    sumChunks(r);
    if (!sumWarps(r, &r.comm.state->routeRecounted, Meeting::countsAgain, number_)) return false;
    if (r.w.count == 1) r.warp.mark(&r.comm.state->routeRecounted, Meeting::countsAgain, r.w);  // as markAlone
    if (r.w.index == 0) {
      writeCounts(r);
      tellCounts(r, r.comm.at.routeCountsAgain, number_);
      r.warp.forEach(1, [&](int) { r.comm.state->recounts = number_; });
    }
    if (!r.waitForAll(r.comm.at.routeCountsAgain, number_, Phase::routeCounts)) return false;
    takeRankBases(r);
    return true;
  }

 private:
  // True when every warp has read the first counts, so that the second counts may overwrite them.
  MOE_LANES bool allHaveRead() const {
    const std::uint64_t& read = r.comm.at.routeCountsRead;
    r.announce(read, Meeting::countsRead, r.w);
    if (r.split() && r.w.index == 0) {
      if (!r.waitForOwn(read, number_)) return false;
      r.warp.put(r.comm, r.comm.remoteRanks(),
                 [&](int i) { return flagPut(r.comm, r.comm.remoteRank(i), read, number_); });
    }
    return r.waitForAll(read, number_, Phase::routeCounts);
  }

  const RouteSession<Warp> r;
  const std::uint64_t number_;
};

// False if a wait failed.
template <Routing R>
MOE_LANES bool keepToBudget(const R& r) {
  if (r.w.index == 0) noteWanted(r);
  if (!overflows(r)) return true;
  return seldom<Recount<typename R::Policy>>(
      r, [](const auto& counts) { return counts.run(); }, r.w);
}

// ---- The step

// Lists the destinations of this warp's token `token`. For one lane.
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

// Stores the lists of this warp's tokens in the handle, if they are not there already.
MOE_LANES void keepDestinations(const Routing auto& r) {
  Destination* kept =
      r.handle.sent.destinations + static_cast<std::int64_t>(r.own.tokens.begin) * r.handle.destinationsMax;
  if (kept == r.own.destinations) return;
  r.warp.forEach(r.own.tokens.count * r.handle.destinationsMax, [&](int i) { kept[i] = r.own.destinations[i]; });
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
  keepDestinations(r);
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
    // A dispatch that waits beside this route needs the counts first. Otherwise headers go first.
    bool hadFault = isFollowed() && takeArriving();
    send();
    if (!isFollowed()) hadFault = takeArriving();
    if (r.w.index == 0) showCounts(r, hadFault);
    if (!r.waitForAll(r.comm.at.routeHeadersReady, r.epoch, Phase::routeHeaders)) return;
    keepHeaders(r);
    if (r.takesRails()) keepRailTables(r);
    if (r.w.index == 0) endRoute(r);
  }

 private:
  MOE_LANES bool isFollowed() const { return r.p.route.followed != 0; }

  // Places all rows of this warp's tokens, and sends their headers.
  MOE_LANES void send() const {
    placeTokens(r);
    if (isFollowed()) r.warp.mark(&r.comm.state->routePlaced, Meeting::placed, r.w);
    sendTokens(r);
    r.announce(r.comm.at.routeHeadersReady, Meeting::rows, r.w);
    markAlone(r);
    if (r.split()) putHeaders(r);
  }

  // Computes what this rank receives. True if the route ends a fault.
  MOE_LANES bool takeArriving() const {
    takeOffsets(r);
    if (r.w.index != 0) return false;
    if (r.handle.countsExperts != 0) takeAllExperts(r);
    return takeCounts(r);
  }

  // Exchanges counts and terms. Every rank learns from them which ranks have bad terms or refuse the route.
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
