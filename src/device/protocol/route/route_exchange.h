// The route's second part: every rank tells every rank how many entries per expert and rows per rank it sends, and each
// computes from all of these where its own rows begin everywhere, and what it will receive.
#pragma once

#include "device/protocol/remote.h"
#include "device/protocol/route/route_count.h"

namespace moe {

// What rank `from` sent for this epoch: its handle's terms, and then its counts, of entries per expert, of rows per
// rank and, for HT, per domain if there are several.
MOE_LANES std::uint64_t countsOffset(const CommView& c, std::uint64_t epoch, int from) {
  return c.at.routeCounts +
         static_cast<std::uint64_t>(parityOf(epoch) * c.nranks + from) * static_cast<unsigned>(c.at.countStride) * 4;
}
MOE_LANES std::int32_t* routeCounts(const CommView& c, int rank, std::uint64_t epoch, int from) {
  return c.in<std::int32_t>(rank, countsOffset(c, epoch, from)) + kTermWords;
}

MOE_LANES Quad* routeTerms(const CommView& c, int rank, std::uint64_t epoch, int from) {
  return c.in<Quad>(rank, countsOffset(c, epoch, from));
}

// The rows that rank `from` sends here in each wave by experts.
MOE_LANES std::int32_t* waveCounts(const CommView& c, int rank, std::uint64_t epoch, int from) {
  return c.in<std::int32_t>(rank, c.at.waveCounts) + std::int64_t{parityOf(epoch) * c.nranks + from} * kHtWaves;
}

// What this rank has to say, in all ranks' memory, before they are told. The buffers of epoch - 2 are written again. No
// acknowledgement is needed: we have everyone's counts of epoch - 1, which a rank sends after it has kept the headers
// of epoch - 2.
template <Computes Warp>
MOE_LANES void writeCounts(const Warp& warp, const RouteSlice& s, const CommView& c, const HandleView& h,
                           std::uint64_t epoch) {
  warp.forEach(h.sharedBuckets(), [&](int bucket) {
    const std::int32_t count = s.totals[bucket];
    MOE_ROLLED
    for (int i = 0; i < c.domainSize; ++i) {
      warp.laneStore(routeCounts(c, c.domainFirst + i, epoch, c.rank) + bucket, count);
    }
  });
  warp.forEach(c.domainSize, [&](int i) { warp.laneStore(routeTerms(c, c.domainFirst + i, epoch, c.rank), h.terms); });
  if (h.wavesByExpert()) {
    warp.forEach(c.nranks * kHtWaves, [&](int i) {
      const int to = i / kHtWaves, wave = i % kHtWaves;
      warp.laneStore(waveCounts(c, to, epoch, c.rank) + wave, s.totals[h.waveBucket(to, wave)]);
    });
  }
}

template <Computes Warp>
MOE_LANES void tellCounts(const Warp& warp, const CommView& c, const HandleView& h, std::uint64_t epoch) {
  tell(warp, c, c.at.routeCountsReady, epoch);
  if (!split(warp, c)) return;
  // Remote ranks get a copy of what this rank has told itself.
  const std::uint64_t own = countsOffset(c, epoch, c.rank);
  const auto bytes = static_cast<std::uint32_t>(h.sharedBuckets() + kTermWords) * 4;
  warp.put(c, c.remoteRanks(), [&](int i) { return putBytes(c.remoteRank(i), own, own, bytes); });
  tellRemote(warp, c, c.at.routeCountsReady, epoch);
}

// What the ranks before this one, and all together, send to a bucket. One lane.
template <Computes Warp>
MOE_LANES Sums bucketSums(const Warp& warp, const CommView& c, std::uint64_t epoch, int bucket) {
  const std::int32_t* counts = routeCounts(c, c.rank, epoch, 0) + bucket;
  return laneSums<8>(c.nranks, c.rank,
                     [&](int from) { return warp.laneLoad(counts + std::int64_t{from} * c.at.countStride); });
}

// True if rank `from` has a handle like ours; else that is reported. One lane.
template <Computes Warp>
MOE_LANES bool handleAgrees(const Warp& warp, const CommView& c, const HandleView& h, std::uint64_t epoch, int from) {
  const Quad theirs = warp.laneLoad(routeTerms(c, c.rank, epoch, from)), ours = h.terms;
  if (theirs.x == ours.x && theirs.y == ours.y && theirs.z == ours.z && theirs.w == ours.w) return true;
  Failure why = disagreement(Phase::routeCounts, from, ours.w, theirs.w, 3);
  if (theirs.z != ours.z) why = disagreement(Phase::routeCounts, from, ours.z, theirs.z, 2);
  if (theirs.y != ours.y) why = disagreement(Phase::routeCounts, from, ours.y, theirs.y, 1);
  if (theirs.x != ours.x) why = disagreement(Phase::routeCounts, from, ours.x, theirs.x, 0);
  warp.laneFail(c, why);
  return false;
}

// Where this rank's rows begin at every rank. False, and reported, if a rank's handle is not like ours: both are looked
// up at once.
template <Computes Warp>
MOE_LANES bool takeRankBases(const Warp& warp, const RouteSlice& s, const CommView& c, const HandleView& h,
                             std::uint64_t epoch) {
  const int strangers = warp.scanInOrder(
      2 * c.nranks,
      [&](int i) {
        if (i < c.nranks) return handleAgrees(warp, c, h, epoch, i) ? 0 : 1;
        const int rank = i - c.nranks;
        s.rankBase[rank] = bucketSums(warp, c, epoch, h.map.experts + rank).before;
        return 0;
      },
      [](int, int) {});
  return strangers == 0;
}

// Adds to this warp's places of experts where this rank's entries begin in the layouts of the receivers.
template <Computes Warp>
MOE_LANES void addExpertBases(const Warp& warp, const RouteSlice& s, const CommView& c, const HandleView& h,
                              std::uint64_t epoch) {
  // Groups of all experts one after the other; a receiver's begin with its first expert's.
  const int rows = warp.scanInOrder(
      h.map.experts,
      [&](int e) {
        const Sums sums = bucketSums(warp, c, epoch, e);
        s.place[e] += sums.before;
        return h.groupRows(sums.all);
      },
      [&](int e, int before) { s.groups[e] = before; });
  warp.forEach(1, [&](int) { s.groups[h.map.experts] = rows; });
  warp.forEach(h.map.experts, [&](int e) {
    const int first = h.map.first(h.map.rankOf(e));
    s.place[e] +=
        h.layout == Layout::expertMajorPadded ? (e - first) * c.nranks * h.tokensMax : s.groups[e] - s.groups[first];
  });
}

// Rows of the layout at rank `to`, of which `rows` tokens and `expertRowCount` rows of groups arrive.
MOE_LANES int layoutRows(const HandleView& h, int to, int rows, int expertRowCount) {
  if (h.layout == Layout::flat) return rows;
  if (h.layout == Layout::expertMajor) return expertRowCount;
  if (h.layout == Layout::rankMajor) return h.map.nranks * h.tokensMax;
  return h.map.count(to) * h.map.nranks * h.tokensMax;
}

// Where the rows of each source begin, and, in waves by experts, those of each wave and source. Every warp for itself;
// the first also for the handle.
template <Computes Warp>
MOE_LANES void takeOffsets(const Warp& warp, const RouteSlice& s, const CommView& c, const HandleView& h,
                           std::uint64_t epoch, WarpIndex w) {
  const auto note = [&](std::int32_t* own, std::int32_t* handles, int i, int before) {
    own[i] = before;
    if (w.index == 0) handles[i] = before;
  };
  const int rows = warp.scanInOrder(
      c.nranks, [&](int from) { return warp.laneLoad(routeCounts(c, c.rank, epoch, from) + h.map.experts + c.rank); },
      [&](int from, int before) { note(s.rankOffsets, h.rankOffsets, from, before); });
  if (h.wavesByExpert()) {
    warp.scanInOrder(
        kHtWaves * c.nranks,
        [&](int i) { return warp.laneLoad(waveCounts(c, c.rank, epoch, i % c.nranks) + i / c.nranks); },
        [&](int i, int before) { note(s.waveRowsStart, h.waveRowsStart, i, before); });
  }
  warp.forEach(1, [&](int) {
    note(s.rankOffsets, h.rankOffsets, c.nranks, rows);
    if (w.index == 0) *h.rows = rows;
    if (h.wavesByExpert()) note(s.waveRowsStart, h.waveRowsStart, kHtWaves * c.nranks, rows);
  });
}

// What this rank will receive per expert, and how much every rank will, for the handle and for the host, which is not
// told yet. The first warp, after takeOffsets.
template <Computes Warp>
MOE_LANES void takeCounts(const Warp& warp, const RouteSlice& s, const CommView& c, const HandleView& h,
                          std::uint64_t epoch) {
  const int first = h.map.first(c.rank), experts = h.map.count(c.rank);
  HostCounts* host = h.hostCounts;
  const int groups = warp.scanInOrder(
      experts,
      [&](int e) {
        const int rows = bucketSums(warp, c, epoch, first + e).all;
        h.rowsPerExpert[e] = host->perRank()[c.nranks + e] = rows;
        return h.groupRows(rows);
      },
      [&](int e, int before) { h.expertOffsets[e] = before; });
  warp.forEach(c.nranks, [&](int rank) {
    const int flat = bucketSums(warp, c, epoch, h.map.experts + rank).all, begin = h.map.first(rank);
    const bool grouped = h.layout == Layout::expertMajor;
    const int rows = layoutRows(h, rank, flat, grouped ? s.groups[begin + h.map.count(rank)] - s.groups[begin] : 0);
    h.flatRowsOf[rank] = flat;
    h.layoutRowsOf[rank] = rows;
    host->perRank()[rank] = s.rankOffsets[rank + 1] - s.rankOffsets[rank];
    if (rank != c.rank) return;
    h.expertOffsets[experts] = groups;
    host->rows = flat;
    host->layoutRows = rows;
    h.state->routes = h.ticket > h.state->routes ? h.ticket : h.state->routes;
  });
}

// The first warp ends the route: the handle and the host's counts are complete.
template <Computes Warp>
MOE_LANES void endRoute(const Warp& warp, const CommView& c, const HandleView& h, std::uint64_t epoch) {
  const std::uint32_t ticket = h.state->routes;
  warp.forEach(1, [&](int) { c.state->epoch[kRouteChannel] = epoch; });
  publish(warp, &h.hostCounts->tag, flagWord(ticket));
}

}  // namespace moe
