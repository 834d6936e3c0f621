// The route's second part. Every rank sends every rank its numbers of entries per expert and rows per rank. From all of
// these, each rank computes where its own rows begin everywhere, and what it will receive.
#pragma once

#include "device/protocol/core/remote.h"
#include "device/protocol/route/refusal.h"
#include "device/view/terms.h"

namespace moe {

// Writes this rank's counts and terms to all ranks of the domain, before its flags announce them. This overwrites the
// buffers of epoch - 2. No acknowledgement is needed: this rank has every rank's counts of epoch - 1, and a rank sends
// those after it has kept the headers of epoch - 2.
MOE_LANES void writeCounts(const Routing auto& r) {
  r.warp.forEach(r.handle.sharedBuckets(), [&](int bucket) {
    const std::int32_t count = r.own.totals[bucket];
    MOE_ROLLED
    for (int i = 0; i < r.comm.domainSize; ++i) {
      r.warp.laneStore(routeCounts(r.comm, r.comm.domainFirst + i, r.epoch, r.comm.rank) + bucket, count);
    }
  });
  Quad terms = termsOf(r.handle);
  const bool refused = r.own.totals[r.handle.faultBucket()] != 0;
  if (refused) terms.w |= kRouteRefused;
  r.warp.forEach(r.comm.domainSize, [&](int i) {
    r.warp.laneStore(routeTerms(r.comm, r.comm.domainFirst + i, r.epoch, r.comm.rank), terms);
  });
  if (refused) writeBadEntry(r.warp, r.p);
  if (r.handle.wavesByExpert()) {
    r.warp.forEach(r.comm.nranks * r.handle.waves, [&](int i) {
      const int wave = i / r.comm.nranks, to = i % r.comm.nranks;
      r.warp.laneStore(waveCounts(r.comm, to, r.epoch, r.comm.rank) + wave,
                       r.own.totals[r.handle.waveBucket(to, wave)]);
    });
  }
}

// Announces the counts with the flags at `area`, whose value becomes `number`.
MOE_LANES void tellCounts(const Routing auto& r, const std::uint64_t& area, std::uint64_t number) {
  r.tell(area, number);
  if (!r.split()) return;
  // Remote ranks get a copy of the counts that this rank has written for itself.
  const std::uint64_t own = countsOffset(r.comm, r.epoch, r.comm.rank);
  const auto bytes = static_cast<std::uint32_t>(r.handle.sharedBuckets() + kTermWords) * 4;
  r.warp.put(r.comm, r.comm.remoteRanks(), [&](int i) { return putBytes(r.comm.remoteRank(i), own, own, bytes); });
  r.warp.put(r.comm, r.comm.remoteRanks(), [&](int i) { return flagPut(r.comm, r.comm.remoteRank(i), area, number); });
}

// The sums of a bucket: of the ranks before this one, and of all ranks. For one lane.
MOE_LANES Sums bucketSums(const Routing auto& r, int bucket) {
  const std::int32_t* counts = routeCounts(r.comm, r.comm.rank, r.epoch, 0) + bucket;
  return laneSums<8>(r.comm.nranks, r.comm.rank,
                     [&](int from) { return r.warp.laneLoad(counts + std::int64_t{from} * r.comm.at.countStride); });
}

// The difference between our handle's terms and those of rank `from`, if any.
MOE_LANES Failure handleFault(const Quad& ours, const Quad& theirs, int from) {
  if (areLost(theirs.x)) return {};
  if (theirs.x != ours.x) return disagreement(Phase::routeCounts, from, ours.x, theirs.x, 0);
  if (theirs.y != ours.y) return disagreement(Phase::routeCounts, from, ours.y, theirs.y, 1);
  if (theirs.z != ours.z) return disagreement(Phase::routeCounts, from, ours.z, theirs.z, 2);
  if (theirs.w != ours.w) return disagreement(Phase::routeCounts, from, ours.w, theirs.w, 3);
  return {};
}
// The outcome of a route, which is the same on all ranks.
enum class Agreement { good, refused, failed };

// The outcome for rank `from` as a number, so that the sum over all ranks shows the worst. Terms that differ are also
// reported. For one lane.
inline constexpr int kOneStranger = 1 << 16;
MOE_LANES int laneJudgeTerms(const Routing auto& r, int from) {
  Quad theirs = r.warp.laneLoad(routeTerms(r.comm, r.comm.rank, r.epoch, from));
  const bool refused = (theirs.w & kRouteRefused) != 0;
  theirs.w &= ~kRouteRefused;
  const Failure why = handleFault(termsOf(r.handle), theirs, from);
  if (why.fault != Fault::none) r.warp.laneFail(r.comm, why);
  return why.fault != Fault::none ? kOneStranger : refused ? 1 : 0;
}

// Finds where this rank's rows begin at every rank, and whether the ranks' terms allow a route. Both are looked up at
// once.
MOE_LANES Agreement takeRankBases(const Routing auto& r) {
  const int sum = r.warp.scanInOrder(
      2 * r.comm.nranks,
      [&](int i) {
        if (i < r.comm.nranks) return laneJudgeTerms(r, i);
        const int rank = i - r.comm.nranks;
        r.own.rankBase[rank] = bucketSums(r, r.handle.map.experts + rank).before;
        return 0;
      },
      [](int, int) {});
  return sum == 0 ? Agreement::good : sum < kOneStranger ? Agreement::refused : Agreement::failed;
}

// Adds the places where this rank's entries begin in the receivers' layouts to this warp's places of experts.
MOE_LANES void addExpertBases(const Routing auto& r) {
  // The groups of all experts follow one another. A receiver's groups begin with that of its first expert.
  const int rows = r.warp.scanInOrder(
      r.handle.map.experts,
      [&](int e) {
        const Sums sums = bucketSums(r, e);
        r.own.place[e] += sums.before;
        return r.handle.groupRows(sums.all);
      },
      [&](int e, int before) { r.own.groups[e] = before; });
  r.warp.forEach(1, [&](int) { r.own.groups[r.handle.map.experts] = rows; });
  r.warp.forEach(r.handle.map.experts, [&](int e) {
    const int first = r.handle.map.first(r.handle.map.rankOf(e));
    r.own.place[e] += r.handle.layout == Layout::expertMajorPadded ? (e - first) * r.comm.nranks * r.handle.tokensMax
                                                                   : r.own.groups[e] - r.own.groups[first];
  });
}

// Rows of the layout at rank `to`, at which `rows` tokens arrive. `expertRowCount`: rows of its experts' groups.
MOE_LANES int layoutRows(const HandleView& h, int to, int rows, int expertRowCount) {
  if (h.layout == Layout::flat) return rows;
  if (h.layout == Layout::expertMajor) return expertRowCount;
  if (h.layout == Layout::rankMajor) return h.map.nranks * h.tokensMax;
  return h.map.count(to) * h.map.nranks * h.tokensMax;
}

// Finds where the rows of each source begin and, with waves by experts, those of each wave and source. Every warp does
// this for itself; the first also stores the result in the handle.
MOE_LANES void takeOffsets(const Routing auto& r) {
  const auto note = [&](std::int32_t* own, std::int32_t* handles, int i, int before) {
    own[i] = before;
    if (r.w.index == 0) handles[i] = before;
  };
  const int rows = r.warp.scanInOrder(
      r.comm.nranks,
      [&](int from) {
        return r.warp.laneLoad(routeCounts(r.comm, r.comm.rank, r.epoch, from) + r.handle.map.experts + r.comm.rank);
      },
      [&](int from, int before) { note(r.own.rankOffsets, r.handle.arriving.rankOffsets, from, before); });
  if (r.handle.wavesByExpert()) {
    r.warp.scanInOrder(
        r.handle.waves * r.comm.nranks,
        [&](int i) {
          return r.warp.laneLoad(waveCounts(r.comm, r.comm.rank, r.epoch, i % r.comm.nranks) + i / r.comm.nranks);
        },
        [&](int i, int before) { note(r.own.waveRowsStart, r.handle.arriving.waveRowsStart, i, before); });
  }
  r.warp.forEach(1, [&](int) {
    note(r.own.rankOffsets, r.handle.arriving.rankOffsets, r.comm.nranks, rows);
    if (r.w.index == 0) *r.handle.arriving.rows = rows;
    if (r.handle.wavesByExpert())
      note(r.own.waveRowsStart, r.handle.arriving.waveRowsStart, r.handle.waves * r.comm.nranks, rows);
  });
}

// The latest ticket, including that of this route.
MOE_LANES std::uint32_t latestRoute(const HandleView& h) {
  return h.ticket > h.state->routes ? h.ticket : h.state->routes;
}
// Starts a new route of the handle, which ends an earlier fault. Returns whether there was one. One warp calls it.
MOE_LANES bool beginRoute(const AnySession auto& s) {
  HandleState* state = s.handle.state;
  const bool hadFault = state->fault != 0;
  s.warp.forEach(1, [&](int) {
    state->routes = latestRoute(s.handle);
    if (hadFault) {
      state->fault = 0;
      s.handle.fault->ready = 0;
    }
  });
  return hadFault;
}

// Stores the count that the host receives last. The first warp calls it. If the route began or ended a fault, the host
// must see that no later than the count, because a reader of the counts may then ask for the handle's status.
MOE_LANES void tellRows(const AnySession auto& s, int rows, bool faultChanged) {
  CountWord* to = &s.handle.counts->rows;
  const CountWord word = countWord(latestRoute(s.handle), rows);
  if (faultChanged) return s.publish(to, word);
  s.warp.forEach(1, [&](int) { s.warp.laneStore(to, word); });
}

// Computes the rows that this rank receives per expert, and the rows that every rank receives. Returns whether the
// route ends a fault. The first warp calls it, after takeOffsets.
MOE_LANES bool takeCounts(const Routing auto& r) {
  const int first = r.handle.map.first(r.comm.rank), experts = r.handle.map.count(r.comm.rank);
  const int groups = r.warp.scanInOrder(
      experts,
      [&](int e) {
        const int rows = bucketSums(r, first + e).all;
        r.handle.arriving.rowsPerExpert[e] = rows;
        return r.handle.groupRows(rows);
      },
      [&](int e, int before) { r.handle.arriving.expertOffsets[e] = before; });
  r.warp.forEach(r.comm.nranks, [&](int rank) {
    const int flat = bucketSums(r, r.handle.map.experts + rank).all, begin = r.handle.map.first(rank);
    const bool grouped = r.handle.layout == Layout::expertMajor;
    const int rows = layoutRows(r.handle, rank, flat,
                                grouped ? r.own.groups[begin + r.handle.map.count(rank)] - r.own.groups[begin] : 0);
    r.handle.sent.flatRowsOf[rank] = flat;
    r.handle.sent.layoutRowsOf[rank] = rows;
    if (rank == r.comm.rank) r.handle.arriving.expertOffsets[experts] = groups;
  });
  return beginRoute(r);
}

// Computes the number of rows that each expert gets from all ranks. The first warp calls it.
MOE_LANES void takeAllExperts(const Routing auto& r) {
  r.warp.forEach(r.handle.map.experts, [&](int e) { r.handle.arriving.allExperts[e] = bucketSums(r, e).all; });
}

// Stores these counts for the host, which receives `rows` last. The first warp calls it when its headers are announced,
// because a fence would wait for stores to host memory.
MOE_LANES void showCounts(const Routing auto& r, bool faultChanged) {
  const std::uint32_t ticket = latestRoute(r.handle);
  r.warp.forEach(r.handle.map.count(r.comm.rank),
                 [&](int e) { r.handle.countsPerExpert()[e] = countWord(ticket, r.handle.arriving.rowsPerExpert[e]); });
  r.warp.forEach(r.comm.nranks, [&](int rank) {
    r.handle.countsPerRank()[rank] = countWord(ticket, r.own.rankOffsets[rank + 1] - r.own.rankOffsets[rank]);
    if (rank == r.comm.rank) r.handle.counts->layoutRows = countWord(ticket, r.handle.sent.layoutRowsOf[rank]);
  });
  if (r.handle.countsExperts != 0) {
    CountWord* host = r.handle.countsOfAllExperts(r.comm.rank);
    r.warp.forEach(r.handle.map.experts, [&](int e) { host[e] = countWord(ticket, r.handle.arriving.allExperts[e]); });
  }
  tellRows(r, r.own.rankOffsets[r.comm.nranks], faultChanged);
}

// Ends the route, when the handle is complete. The first warp calls it.
MOE_LANES void endRoute(const AnySession auto& r) {
  r.warp.forEach(1, [&](int) { r.comm.state->epoch[kRouteChannel] = r.epoch; });
}

}  // namespace moe
