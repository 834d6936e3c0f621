// A warp's share of a route: its tokens, and the tables that it alone writes and reads. They lie in scratch memory as
// far as there is room (`scratchMemory`), else in the handle.
#pragma once

#include "device/protocol/core/expert_waves.h"
#include "device/protocol/core/session.h"

namespace moe {

struct RouteSlice {
  Slice tokens, chunks;
  // Of its tokens and chunks alone, the first of them first.
  std::uint32_t* users;       // [chunks][buckets] bit t: token t of the chunk uses the bucket
  std::int32_t* chunkStart;   // [chunks][buckets] position of a chunk among this warp's users
  std::int32_t* ids;          // [tokens][topk] as in the handle
  float* weights;             // [tokens][topk]
  std::int32_t* entryRow;     // [tokens][topk]
  Destination* destinations;  // [tokens][slots]
  // Of all buckets and ranks.
  std::int32_t* counts;         // [buckets] users among this warp's tokens
  std::int32_t* totals;         // [buckets] of all warps; the first warp's alone
  std::int32_t* place;          // [buckets] where this warp's tokens begin in a bucket
  std::int32_t* groups;         // [experts + 1] where the groups of all experts begin
  std::int32_t* rankBase;       // [nranks] where this rank's rows begin at a rank, in FLAT order
  std::int32_t* rankOffsets;    // [nranks + 1] as in the handle
  std::int32_t* waveRowsStart;  // as in the handle

  // Entries of this warp's token `token`.
  MOE_LANES std::int32_t* idsOf(const HandleView& h, int token) const { return ids + std::int64_t{token} * h.topk; }
  MOE_LANES std::int32_t* entryRowsOf(const HandleView& h, int token) const {
    return entryRow + std::int64_t{token} * h.topk;
  }
  // Of this warp's token `token`, in bucket `bucket`.
  MOE_LANES bool uses(const HandleView& h, int token, int bucket) const {
    return (users[token / kChunkTokens * h.buckets() + bucket] >> token % kChunkTokens & 1u) != 0;
  }
  // Where it comes among those that this rank has for the bucket; with `place` complete, for an expert, its row.
  MOE_LANES int positionOf(const HandleView& h, int token, int bucket) const {
    const int at = token / kChunkTokens * h.buckets() + bucket;
    return place[bucket] + chunkStart[at] + bitCount(users[at] & ((1u << token % kChunkTokens) - 1));
  }
};

// Hands out a warp's scratch memory.
template <Computes Warp>
class ScratchMemory {
 public:
  MOE_LANES explicit ScratchMemory(const Warp& warp) : next_(warp.scratchMemory()) {}

  // `count` items there if they fit, else those at `elsewhere`.
  template <class Item>
  MOE_LANES Item* take(Item* elsewhere, std::int64_t count) {
    const std::int64_t bytes = roundUp(count * std::int64_t{sizeof(Item)}, 16);
    if (bytes > room_) return elsewhere;
    auto* items = reinterpret_cast<Item*>(next_);
    next_ += bytes;
    room_ -= bytes;
    return items;
  }

 private:
  std::uint8_t* next_;
  std::int64_t room_ = Warp::kScratchBytes;
};

// What is used most comes first.
template <Computes Warp>
MOE_LANES RouteSlice routeSlice(const Warp& warp, const StepParams& p, WarpIndex w) {
  const HandleView& h = p.handle;
  const int tokens = p.route.tokens;
  RouteSlice s;
  s.chunks = sliceOf((tokens + kChunkTokens - 1) / kChunkTokens, w);
  const int begin = s.chunks.begin * kChunkTokens, end = begin + s.chunks.count * kChunkTokens;
  const int first = begin < tokens ? begin : tokens, last = end < tokens ? end : tokens;
  s.tokens = {first, last - first};
  const int buckets = h.buckets(), ranks = h.map.nranks, waveRows = h.wavesByExpert() ? kHtWaves * ranks + 1 : 0;
  const std::int64_t bits = std::int64_t{s.chunks.begin} * buckets, entry = std::int64_t{s.tokens.begin} * h.topk;
  const std::int64_t own = std::int64_t{w.index} * buckets, entries = std::int64_t{s.tokens.count} * h.topk;
  ScratchMemory scratch(warp);
  s.rankBase = scratch.take(h.sent.tables.warpRankBase + std::int64_t{w.index} * ranks, ranks);
  s.rankOffsets = scratch.take(h.sent.tables.warpRankOffsets + std::int64_t{w.index} * (ranks + 1), ranks + 1);
  s.waveRowsStart = scratch.take(h.sent.tables.warpWaveRows + std::int64_t{w.index} * waveRows, waveRows);
  s.place = scratch.take(h.sent.tables.warpPlace + own, buckets);
  s.counts = scratch.take(h.sent.tables.warpCounts + own, buckets);
  s.totals = scratch.take(h.sent.totals, w.index == 0 ? buckets : 0);
  s.users = scratch.take(h.sent.tables.users + bits, std::int64_t{s.chunks.count} * buckets);
  s.chunkStart = scratch.take(h.sent.tables.chunkStart + bits, std::int64_t{s.chunks.count} * buckets);
  s.ids = scratch.take(h.sent.ids + entry, entries);
  s.weights = scratch.take(h.sent.weights + entry, entries);
  s.destinations = scratch.take(h.sent.destinations + std::int64_t{s.tokens.begin} * h.destinationsMax,
                                std::int64_t{s.tokens.count} * h.destinationsMax);
  s.entryRow = scratch.take(h.sent.entryRow + entry, expertRows(h) ? entries : 0);
  s.groups = scratch.take(h.sent.tables.warpGroups + own, expertRows(h) ? h.map.experts + 1 : 0);
  return s;
}

// A session of the route, with this warp's share.
template <Computes Warp>
struct RouteSession : Session<Warp> {
  static constexpr bool kWholeTokens = Warp::kWholeTokens;
  RouteSlice own;

  MOE_LANES RouteSession(const Warp& policy, const StepParams& params, WarpIndex index)
      : Session<Warp>(policy, params, index, {kRouteChannel, params.comm.state->epoch[kRouteChannel] + 1, 0}),
        own(routeSlice(policy, params, index)) {}
};
template <class S>
concept Routing = Computing<S> && requires(const S r) {
  r.own;
};

// The sums of what several have: of those before number `own`, and of all n.
struct Sums {
  int before, all;
};
// Looked up kAtOnce at a time, as a look-up takes longer than to add. One lane.
template <int kAtOnce, class ValueOf>
MOE_LANES Sums laneSums(int n, int own, ValueOf valueOf) {
  Sums sums{0, 0};
  MOE_ROLLED
  for (int begin = 0; begin < n; begin += kAtOnce) {
    int values[kAtOnce];
    MOE_UNROLLED
    for (int j = 0; j < kAtOnce; ++j) values[j] = begin + j < n ? valueOf(begin + j) : 0;
    MOE_UNROLLED
    for (int j = 0; j < kAtOnce; ++j) {
      sums.before += begin + j < own ? values[j] : 0;
      sums.all += values[j];
    }
  }
  return sums;
}

}  // namespace moe
