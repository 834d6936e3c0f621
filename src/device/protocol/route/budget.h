// A budget for the rows that arrive at a rank. The counts that were exchanged tell every rank alike whether one would
// get more. Then all ranks leave out what comes behind the budget, and count again. Decision 0072; flags:
// README.md.
#pragma once

#include "device/protocol/core/seldom.h"
#include "device/protocol/route/exchange.h"

namespace moe {

MOE_LANES bool overflows(const Routing auto& r) {
  const auto isOver = [&](int rank) {
    return bucketSums(r, r.handle.map.experts + rank).all > r.handle.rowsBudget ? 1 : 0;
  };
  return r.warp.scanInOrder(r.comm.nranks, isOver, [](int, int) {}) != 0;
}

// What would arrive here without a budget, for the handle and for the host. The first warp, from the first counts.
MOE_LANES void noteWanted(const Routing auto& r) {
  const HandleView& h = r.handle;
  const int first = h.map.first(r.comm.rank), experts = h.map.count(r.comm.rank);
  CountWord* host = h.hostWanted(r.comm.rank);
  const std::uint32_t ticket = latestRoute(h);
  r.warp.forEach(1 + experts, [&](int i) {
    const int bucket = i == 0 ? h.map.experts + r.comm.rank : first + i - 1;
    const int wanted = bucketSums(r, bucket).all;
    h.arriving.wanted[i] = wanted;
    host[i] = countWord(ticket, wanted);
  });
}

// Whether this warp's token `token` comes behind the budget of the rank that has `expert`. By the first counts.
MOE_LANES bool isBehindBudget(const Routing auto& r, int token, int expert) {
  const int rank = r.handle.map.rankOf(expert);
  const int before = r.own.positionOf(r.handle, token, r.handle.map.experts + rank);
  return r.own.rankBase[rank] + before >= r.handle.rowsBudget;
}

// Leaves out the entries of this warp's tokens that come behind a budget. What is merged into one is gone with it.
MOE_LANES void leaveOut(const Routing auto& r) {
  const HandleView& h = r.handle;
  r.warp.forEach(r.own.tokens.count * h.topk, [&](int i) {
    const int id = r.own.ids[i];
    if (id < 0 || !isBehindBudget(r, h.byTopk.of(i), id)) return;
    r.own.ids[i] = h.sent.ids[r.own.tokens.begin * h.topk + i] = -1;
  });
}

// Marks who uses what, from the entries that are left.
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
  // Its tables are those of the route that it belongs to, with their content.
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
  // The second counts go where the first ones are.
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

}  // namespace moe
