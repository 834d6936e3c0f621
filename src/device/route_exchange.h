// The route's second part: every rank tells every rank how many entries per expert and rows per rank it sends, and each
// computes from all of these where its own rows begin everywhere, and what it will receive.
#pragma once

#include "device/remote.h"
#include "device/route_count.h"

namespace moe {

// The counts that rank `from` sent for this epoch: entries per expert, rows per rank (and, for HT, per domain if there
// are several), the handle's signature.
MOE_LANES std::uint64_t countsOffset(const CommView& c, std::uint64_t epoch, int from) {
  return c.at.routeCounts +
         static_cast<std::uint64_t>(parityOf(epoch) * c.nranks + from) * static_cast<unsigned>(c.at.countStride) * 4;
}
MOE_LANES std::int32_t* routeCounts(const CommView& c, int rank, std::uint64_t epoch, int from) {
  return c.in<std::int32_t>(rank, countsOffset(c, epoch, from));
}

// The rows that rank `from` sends here in each wave by experts.
MOE_LANES std::int32_t* waveCounts(const CommView& c, int rank, std::uint64_t epoch, int from) {
  return c.in<std::int32_t>(rank, c.at.waveCounts) + std::int64_t{parityOf(epoch) * c.nranks + from} * kHtWaves;
}

// The buffers of epoch - 2 are written again. No acknowledgement is needed: we have everyone's counts of epoch - 1,
// which a rank sends after it has kept the headers of epoch - 2.
template <class Warp>
MOE_LANES void sendCounts(const Warp& warp, const CommView& c, const HandleView& h, std::uint64_t epoch) {
  const int each = h.sharedBuckets() + 1;
  warp.forEach(c.domainSize * each, [&](int i) {
    const int bucket = i % each;
    const std::int32_t count = bucket < each - 1 ? h.totals[bucket] : static_cast<std::int32_t>(h.signature);
    warp.laneStore(routeCounts(c, c.domainFirst + i / each, epoch, c.rank) + bucket, count);
  });
  if (h.wavesByExpert()) {
    warp.forEach(c.nranks * kHtWaves, [&](int i) {
      const int to = i / kHtWaves, wave = i % kHtWaves;
      warp.laneStore(waveCounts(c, to, epoch, c.rank) + wave, h.totals[h.waveBucket(to, wave)]);
    });
  }
  tell(warp, c, c.at.routeCountsReady, epoch);
  if (!split(warp, c)) return;
  // Remote ranks get a copy of what this rank has told itself.
  const std::uint64_t own = countsOffset(c, epoch, c.rank);
  const auto bytes = static_cast<std::uint32_t>(each) * 4;
  warp.put(c, c.remoteRanks(), [&](int i) { return putBytes(c.remoteRank(i), own, own, bytes); });
  tellRemote(warp, c, c.at.routeCountsReady, epoch);
}

// False, and reported, if a rank's handle is not like ours.
template <class Warp>
MOE_LANES bool handlesAgree(const Warp& warp, const CommView& c, const HandleView& h, std::uint64_t epoch) {
  return allAreGood(warp, c, allRanks(c), [&](int from) -> Failure {
    const std::int32_t signature = warp.laneLoad(routeCounts(c, c.rank, epoch, from) + h.sharedBuckets());
    const bool same = static_cast<std::uint32_t>(signature) == h.signature;
    return {0, same ? Fault::none : Fault::disagreement, Phase::routeCounts, from, 0, 0, 0, 0};
  });
}

// What all ranks together, and the ranks before this one, send to a bucket.
struct BucketSums {
  int before, all;
};
template <class Warp>
MOE_LANES BucketSums bucketSums(const Warp& warp, const CommView& c, std::uint64_t epoch, int bucket) {
  BucketSums sums{0, 0};
  for (int from = 0; from < c.nranks; ++from) {
    const int count = warp.laneLoad(routeCounts(c, c.rank, epoch, from) + bucket);
    sums.before += from < c.rank ? count : 0;
    sums.all += count;
  }
  return sums;
}

// Adds to this warp's places where this rank's entries begin in the layouts of the receivers.
template <class Warp>
MOE_LANES void addBases(const Warp& warp, const RouteSlice& s, const CommView& c, const HandleView& h,
                        std::uint64_t epoch) {
  warp.forEach(c.nranks, [&](int rank) { s.rankBase[rank] = bucketSums(warp, c, epoch, h.map.experts + rank).before; });
  if (!expertRows(h)) return;
  // Groups of all experts one after the other; a receiver's begin with its first expert's.
  std::int32_t* groups = h.warpGroups + (s.place - h.warpPlace);
  const int rows = warp.scanInOrder(
      h.map.experts, [&](int e) { return static_cast<int>(roundUp(bucketSums(warp, c, epoch, e).all, h.alignment)); },
      [&](int e, int before) { groups[e] = before; });
  warp.forEach(1, [&](int) { groups[h.map.experts] = rows; });  // there are more buckets than experts
  warp.forEach(h.map.experts, [&](int e) {
    const int first = h.map.first(h.map.rankOf(e));
    const int group =
        h.layout == Layout::expertMajorPadded ? (e - first) * c.nranks * h.tokensMax : groups[e] - groups[first];
    s.place[e] += group + bucketSums(warp, c, epoch, e).before;
  });
}

// Rows of the layout at rank `to`, of which `rows` tokens and `expertRowCount` rows of groups arrive.
MOE_LANES int layoutRows(const HandleView& h, int to, int rows, int expertRowCount) {
  if (h.layout == Layout::flat) return rows;
  if (h.layout == Layout::expertMajor) return expertRowCount;
  if (h.layout == Layout::rankMajor) return h.map.nranks * h.tokensMax;
  return h.map.count(to) * h.map.nranks * h.tokensMax;
}

// The host's copy of this rank's counts, after they are in the handle.
template <class Warp>
MOE_LANES void reportCounts(const Warp& warp, const CommView& c, const HandleView& h) {
  HostCounts* host = h.hostCounts;
  warp.forEach(c.nranks, [&](int r) { host->perRank()[r] = h.rankOffsets[r + 1] - h.rankOffsets[r]; });
  warp.forEach(h.map.count(c.rank), [&](int e) { host->perRank()[c.nranks + e] = h.rowsPerExpert[e]; });
  warp.forEach(1, [&](int) {
    host->rows = *h.rows;
    host->layoutRows = h.layoutRowsOf[c.rank];
    h.state->routes = h.ticket > h.state->routes ? h.ticket : h.state->routes;
  });
  publish(warp, &host->tag, flagWord(h.state->routes));
}

// What this rank will receive, and how much every rank will. The first warp, whose groups of experts are the first;
// the others wait for its word.
template <class Warp>
MOE_LANES void takeCounts(const Warp& warp, const CommView& c, const HandleView& h, std::uint64_t epoch) {
  const int first = h.map.first(c.rank), experts = h.map.count(c.rank);
  const int rows = warp.scanInOrder(
      c.nranks, [&](int from) { return warp.laneLoad(routeCounts(c, c.rank, epoch, from) + h.map.experts + c.rank); },
      [&](int from, int before) { h.rankOffsets[from] = before; });
  warp.forEach(1, [&](int) { *h.rows = h.rankOffsets[c.nranks] = rows; });
  if (h.wavesByExpert()) {
    warp.scanInOrder(
        kHtWaves * c.nranks,
        [&](int i) { return warp.laneLoad(waveCounts(c, c.rank, epoch, i % c.nranks) + i / c.nranks); },
        [&](int i, int before) { h.waveRowsStart[i] = before; });
    warp.forEach(1, [&](int) { h.waveRowsStart[std::int64_t{kHtWaves} * c.nranks] = rows; });
  }
  publish(warp, &c.state->routeTaken, flagWord(epoch));
  const int groups = warp.scanInOrder(
      experts, [&](int e) { return static_cast<int>(roundUp(bucketSums(warp, c, epoch, first + e).all, h.alignment)); },
      [&](int e, int before) {
        h.expertOffsets[e] = before;
        h.rowsPerExpert[e] = bucketSums(warp, c, epoch, first + e).all;
      });
  warp.forEach(1, [&](int) { h.expertOffsets[experts] = groups; });
  warp.forEach(c.nranks, [&](int to) {
    const int flat = bucketSums(warp, c, epoch, h.map.experts + to).all, begin = h.map.first(to);
    const bool grouped = h.layout == Layout::expertMajor;
    h.flatRowsOf[to] = flat;
    h.layoutRowsOf[to] =
        layoutRows(h, to, flat, grouped ? h.warpGroups[begin + h.map.count(to)] - h.warpGroups[begin] : 0);
  });
  reportCounts(warp, c, h);
}

template <class Warp>
MOE_LANES bool waitForCounts(const Warp& warp, const CommView& c, std::uint64_t epoch) {
  return waitForWarps(warp, c, &c.state->routeTaken, epoch);
}

}  // namespace moe
