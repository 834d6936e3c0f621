// The route: from topk_idx to row positions that are final before any payload moves. Steps, in stream order:
//   routeCount     each warp counts its chunk of tokens per expert and per rank
//   routeScan      the chunks' counts become starting positions; the totals are this rank's counts
//   routeExchange  (HT) all ranks learn all counts and compute every base offset themselves
//   routePlace     positions of every entry; (HT) row headers go to the receivers, which keep them in the handle
// LL leaves the exchange to each dispatch. Nothing depends on timing: rows are ordered by source rank, then token.
// Flags: docs/protocol.md, "Route".
#pragma once

#include "device/row_header.h"
#include "device/step.h"

namespace moe {

// The rank that entry `k` of `token` goes to, if no earlier entry of the token goes there; else -1.
MOE_LANES int firstRank(const HandleView& h, int entry) {
  const int k = entry % h.topk;
  const int* ids = h.ids + (entry - k);
  if (ids[k] < 0) return -1;
  const int rank = h.map.rankOf(ids[k]);
  for (int before = 0; before < k; ++before) {
    if (ids[before] >= 0 && h.map.rankOf(ids[before]) == rank) return -1;
  }
  return rank;
}

MOE_LANES std::int64_t indexAt(const HandleView& h, const RouteArgs& a, int entry) {
  return h.wideIndex != 0 ? static_cast<const std::int64_t*>(a.topkIdx)[entry]
                          : static_cast<const std::int32_t*>(a.topkIdx)[entry];
}

// What is wrong with an entry, if anything.
MOE_LANES Fault entryFault(const HandleView& h, const RouteArgs& a, int entry, std::int64_t id) {
  if (id == -1) return Fault::none;
  if (id < -1 || id >= h.map.experts) return Fault::badIndex;
  for (int before = entry - entry % h.topk; before < entry; ++before) {
    if (indexAt(h, a, before) == id) return Fault::twice;
  }
  return Fault::none;
}

template <class Warp>
MOE_LANES void takeEntries(const Warp& warp, const CommView& c, const HandleView& h, const RouteArgs& a, Slice tokens) {
  warp.forEach(tokens.count * h.topk, [&](int i) {
    const int entry = tokens.begin * h.topk + i;
    const std::int64_t id = indexAt(h, a, entry);
    const Fault fault = entryFault(h, a, entry, id);
    if (fault != Fault::none) {
      const std::int64_t index = static_cast<std::int64_t>(entry / h.topk) << 8 | entry % h.topk;
      warp.laneFail(c, {0, fault, Phase::none, c.rank, 0, index, h.map.experts, id});
    }
    h.ids[entry] = fault == Fault::none ? static_cast<std::int32_t>(id) : -1;
    h.weights[entry] = a.topkWeights != nullptr ? a.topkWeights[entry] : 1.0f;
  });
}

template <class Warp>
MOE_LANES void routeCount(const Warp& warp, const StepParams& p, WarpIndex w) {
  const HandleView& h = p.handle;
  const Slice tokens = sliceOf(p.route.tokens, w);
  std::int32_t* table = h.bucketCounts + static_cast<std::int64_t>(w.index) * h.buckets();
  warp.forEach(h.buckets(), [&](int bucket) { table[bucket] = 0; });
  takeEntries(warp, p.comm, h, p.route, tokens);
  const int first = tokens.begin * h.topk, entries = tokens.count * h.topk;
  warp.countInOrder(
      table, entries, [&](int i) { return h.ids[first + i]; }, [](int, int) {});
  warp.countInOrder(
      table + h.map.experts, entries, [&](int i) { return firstRank(h, first + i); }, [](int, int) {});
}

template <class Warp>
MOE_LANES void routeScan(const Warp& warp, const StepParams& p, WarpIndex w) {
  const HandleView& h = p.handle;
  const Slice slice = sliceOf(h.buckets(), w);
  warp.forEach(slice.count, [&](int i) {
    const int bucket = slice.begin + i;
    std::int32_t sum = 0;
    for (int chunk = 0; chunk < h.chunks; ++chunk) {
      std::int32_t& count = h.bucketCounts[static_cast<std::int64_t>(chunk) * h.buckets() + bucket];
      const std::int32_t own = count;
      count = sum;
      sum += own;
    }
    h.totals[bucket] = sum;
  });
}

// The counts that rank `from` sent for this epoch.
MOE_LANES const std::int32_t* countsOf(const CommView& c, std::uint64_t epoch, int from) {
  return c.mine<std::int32_t>(c.at.routeCounts) +
         static_cast<std::int64_t>(parityOf(epoch) * c.nranks + from) * c.at.countStride;
}

// What all ranks together, and the ranks before this one, send to a bucket.
struct BucketSums {
  int before, all;
};
template <class Warp>
MOE_LANES BucketSums bucketSums(const Warp& warp, const CommView& c, std::uint64_t epoch, int bucket) {
  BucketSums sums{0, 0};
  for (int from = 0; from < c.nranks; ++from) {
    const int count = warp.laneLoad(countsOf(c, epoch, from) + bucket);
    sums.before += from < c.rank ? count : 0;
    sums.all += count;
  }
  return sums;
}

// Bases of the expert groups at rank `to`; returns the rows of its expert-major layout. If `to` is this rank, its own
// per-expert counts and offsets as well.
template <class Warp>
MOE_LANES int placeExperts(const Warp& warp, const CommView& c, const HandleView& h, std::uint64_t epoch, int to) {
  const int first = h.map.first(to), experts = h.map.count(to);
  const int offset = warp.scanInOrder(
      experts,
      [&](int local) { return static_cast<int>(roundUp(bucketSums(warp, c, epoch, first + local).all, h.alignment)); },
      [&](int local, int own) {
        const BucketSums sums = bucketSums(warp, c, epoch, first + local);
        const int group = h.layout == Layout::expertMajorPadded ? local * c.nranks * h.tokensMax : own;
        h.sendBase[first + local] = group + sums.before;
        if (to != c.rank) return;
        h.rowsPerExpert[local] = sums.all;
        h.expertOffsets[local] = own;
      });
  if (to == c.rank) warp.forEach(1, [&](int) { h.expertOffsets[experts] = offset; });
  return offset;
}

MOE_LANES int layoutRows(const HandleView& h, int rank, int rows, int expertRows) {
  if (h.layout == Layout::flat) return rows;
  if (h.layout == Layout::expertMajor) return expertRows;
  if (h.layout == Layout::rankMajor) return h.map.nranks * h.tokensMax;
  return h.map.count(rank) * h.map.nranks * h.tokensMax;
}

// The host's copy of this rank's counts. One warp, after the counts are in the handle.
template <class Warp>
MOE_LANES void reportCounts(const Warp& warp, const CommView& c, const HandleView& h, int layoutRowCount) {
  HostCounts* host = h.hostCounts;
  const int experts = h.map.count(c.rank);
  warp.forEach(c.nranks, [&](int r) { host->perRank()[r] = h.rankOffsets[r + 1] - h.rankOffsets[r]; });
  warp.forEach(experts, [&](int e) { host->perRank()[c.nranks + e] = h.rowsPerExpert[e]; });
  warp.forEach(1, [&](int) {
    host->rows = *h.rows;
    host->layoutRows = layoutRowCount;
    h.state->routes = h.ticket > h.state->routes ? h.ticket : h.state->routes;
  });
  warp.publish(&host->tag, flagWord(h.state->routes));
}

template <class Warp>
MOE_LANES void sendCounts(const Warp& warp, const CommView& c, const HandleView& h, std::uint64_t epoch, int to) {
  auto* counts = c.in<std::int32_t>(to, c.at.routeCounts) +
                 static_cast<std::int64_t>(parityOf(epoch) * c.nranks + c.rank) * c.at.countStride;
  warp.forEach(h.buckets(), [&](int bucket) { warp.laneStore(counts + bucket, h.totals[bucket]); });
  warp.forEach(1, [&](int) { warp.laneStore(counts + h.buckets(), static_cast<std::int32_t>(h.signature)); });
  warp.publish(c.in<Flag>(to, c.at.routeCountsReady) + c.rank, flagWord(epoch));
}

// What is received by rank `to`: where this rank's rows begin there; if it is this rank, all that it receives.
template <class Warp>
MOE_LANES void placeRank(const Warp& warp, const CommView& c, const HandleView& h, std::uint64_t epoch, int to) {
  const int expertRows = placeExperts(warp, c, h, epoch, to);
  const BucketSums rows = bucketSums(warp, c, epoch, h.map.experts + to);
  warp.forEach(1, [&](int) {
    h.sendBase[h.map.experts + to] = rows.before;
    h.layoutRowsOf[to] = layoutRows(h, to, rows.all, expertRows);
    h.flatRowsOf[to] = rows.all;
    if (to != c.rank) return;
    int offset = 0;
    for (int from = 0; from < c.nranks; ++from) {
      h.rankOffsets[from] = offset;
      offset += warp.laneLoad(countsOf(c, epoch, from) + h.map.experts + to);
    }
    h.rankOffsets[c.nranks] = offset;
    *h.rows = offset;
  });
}

// In layoutRowsOf: the rank's handle is not like ours.
inline constexpr std::int32_t kStranger = -1;

template <class Warp>
MOE_LANES void exchangeCounts(const Warp& warp, const StepParams& p, std::uint64_t epoch, WarpIndex w) {
  const CommView& c = p.comm;
  const HandleView& h = p.handle;
  // The buffers of epoch - 2 are written again. No acknowledgement is needed: we have everyone's counts of epoch - 1,
  // which a rank sends after it has kept the headers of epoch - 2.
  for (int to = w.index; to < c.nranks; to += w.count) sendCounts(warp, c, h, epoch, to);
  if (!warp.waitAll(c, c.mine<Flag>(c.at.routeCountsReady), c.nranks, epoch, Phase::routeCounts)) return;
  for (int to = w.index; to < c.nranks; to += w.count) {
    placeRank(warp, c, h, epoch, to);
    const auto signature = static_cast<std::uint32_t>(warp.laneLoad(countsOf(c, epoch, to) + h.buckets()));
    warp.forEach(signature == h.signature ? 0 : 1, [&](int) { h.layoutRowsOf[to] = kStranger; });
  }
}

// One warp per rank: rank r's counts go out, and what is received by rank r is placed. A stranger is refused by the
// last warp, when all have sent: peers that wait for our counts get them and can refuse as well. Advances nothing:
// routePlace ends the epoch.
template <class Warp>
MOE_LANES void routeExchange(const Warp& warp, const StepParams& p, WarpIndex w) {
  const CommView& c = p.comm;
  const HandleView& h = p.handle;
  exchangeCounts(warp, p, c.state->epoch[kRouteChannel] + 1, w);
  leave(warp, c, w, [&] {
    if (warp.stopped(c)) return;
    const int strangers = warp.scanInOrder(
        c.nranks,
        [&](int from) {
          if (h.layoutRowsOf[from] != kStranger) return 0;
          warp.laneFail(c, {0, Fault::disagreement, Phase::routeCounts, from, 0, 0, 0, 0});
          return 1;
        },
        [](int, int) {});
    if (strangers == 0) reportCounts(warp, c, h, h.layoutRowsOf[c.rank]);
  });
}

// Row of the receiver's layout for the first entry of a token on a rank.
MOE_LANES int destinationRow(const CommView& c, const HandleView& h, int entry, int flat) {
  if (h.layout == Layout::flat) return flat;
  if (h.layout == Layout::rankMajor) return c.rank * h.tokensMax + h.rankIndex[entry];
  return expertRow(h, h.ids[entry], h.entryIndex[entry]);
}

// The token's destinations in rank order. One lane.
MOE_LANES void laneListDestinations(const CommView& c, const HandleView& h, int token) {
  int count = 0;
  for (int k = 0; k < h.topk; ++k) {
    const int entry = token * h.topk + k, rank = firstRank(h, entry);
    if (rank < 0) continue;
    int ordinal = 0;
    for (int other = 0; other < h.topk; ++other) {
      const int id = h.ids[token * h.topk + other];
      if (id >= 0 && firstRank(h, token * h.topk + other) >= 0 && h.map.rankOf(id) < rank) ++ordinal;
    }
    const int index = h.rankIndex[entry];
    const int flat = h.lowLatency != 0 ? index : h.sendBase[h.map.experts + rank] + index;
    const int row = h.lowLatency != 0 ? index : destinationRow(c, h, entry, flat);
    h.destinations[token * h.slots + ordinal] = {rank, index, row, flat};
    ++count;
  }
  h.destinationCount[token] = count;
}

template <class Warp>
MOE_LANES void placeTokens(const Warp& warp, const CommView& c, const HandleView& h, Slice tokens, int chunk) {
  std::int32_t* table = h.bucketCounts + static_cast<std::int64_t>(chunk) * h.buckets();
  const int first = tokens.begin * h.topk, entries = tokens.count * h.topk;
  warp.countInOrder(
      table, entries, [&](int i) { return h.ids[first + i]; },
      [&](int i, int position) { h.entryIndex[first + i] = position; });
  warp.countInOrder(
      table + h.map.experts, entries, [&](int i) { return firstRank(h, first + i); },
      [&](int i, int position) { h.rankIndex[first + i] = position; });
  warp.forEach(tokens.count, [&](int i) { laneListDestinations(c, h, tokens.begin + i); });
}

MOE_LANES Quad* headerSlot(const CommView& c, int rank, std::uint64_t area, int tokensMax, std::uint64_t epoch,
                           int from, int index) {
  const std::int64_t slot = static_cast<std::int64_t>(parityOf(epoch) * c.nranks + from) * tokensMax + index;
  return c.in<Quad>(rank, area) + slot * headerQuads(c.topkMax);
}

template <class Warp>
MOE_LANES void sendHeaders(const Warp& warp, const CommView& c, const HandleView& h, std::uint64_t epoch,
                           Slice tokens) {
  warp.forEach(tokens.count * h.slots, [&](int i) {
    const int token = tokens.begin + i / h.slots, ordinal = i % h.slots;
    if (ordinal >= h.destinationCount[token]) return;
    const Destination to = h.destinations[token * h.slots + ordinal];
    Quad* slot = headerSlot(c, to.rank, c.at.routeHeaders, c.tokensMax, epoch, c.rank, to.index);
    laneWriteHeader(warp, c, h, slot, token, ordinal);
  });
}

template <class Warp>
MOE_LANES void keepHeaders(const Warp& warp, const CommView& c, const HandleView& h, std::uint64_t epoch, WarpIndex w) {
  const Slice slice = sliceOf(*h.rows, w);
  warp.forEach(slice.count, [&](int i) {
    const int row = slice.begin + i, from = sourceOf(h, row);
    const Quad* slot = headerSlot(c, c.rank, c.at.routeHeaders, c.tokensMax, epoch, from, row - h.rankOffsets[from]);
    Quad* kept = h.headers + static_cast<std::int64_t>(row) * h.headerStride();
    const Quad head = warp.laneLoad(slot);
    kept[0] = head;
    for (int entry = 1; entry <= headEntries(head); ++entry) kept[entry] = warp.laneLoad(slot + entry);
  });
}

template <class Warp>
MOE_LANES void exchangeHeaders(const Warp& warp, const StepParams& p, Slice tokens, std::uint64_t epoch, WarpIndex w) {
  const CommView& c = p.comm;
  sendHeaders(warp, c, p.handle, epoch, tokens);
  announce(warp, c, c.at.routeHeadersReady, Meeting::rows, w);
  if (warp.waitAll(c, c.mine<Flag>(c.at.routeHeadersReady), c.nranks, epoch, Phase::routeHeaders)) {
    keepHeaders(warp, c, p.handle, epoch, w);
  }
}

// Runs with as many warps as routeCount: warp i places the tokens that warp i counted.
template <class Warp>
MOE_LANES void routePlace(const Warp& warp, const StepParams& p, WarpIndex w) {
  const CommView& c = p.comm;
  const Slice tokens = sliceOf(p.route.tokens, w);
  placeTokens(warp, c, p.handle, tokens, w.index);
  if (p.handle.lowLatency != 0) return;
  const std::uint64_t epoch = c.state->epoch[kRouteChannel] + 1;
  exchangeHeaders(warp, p, tokens, epoch, w);
  leave(warp, c, w, [&] { warp.forEach(1, [&](int) { c.state->epoch[kRouteChannel] = epoch; }); });
}

}  // namespace moe
