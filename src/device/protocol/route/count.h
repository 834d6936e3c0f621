// The route's first part: finding the users of experts and ranks. Tokens are taken 32 at a time, as a chunk. Each chunk
// has one word per bucket (an expert or a rank); bit t of it is set if token t uses the bucket. A token's position
// among the users of a bucket is then a count of bits, which does not depend on the order of execution.
#pragma once

#include "device/protocol/core/expert_waves.h"
#include "device/protocol/core/session.h"
#include "device/view/lost.h"

namespace moe {

// ---- A warp's share of a route: its tokens, and the tables that only it writes and reads. They lie in scratch memory
// if they fit (`scratchMemory`), else in the handle.

struct RouteSlice {
  Slice tokens, chunks;
  // Tables of the warp's own tokens and chunks, from the first of them on.
  std::uint32_t* users;       // [chunks][buckets] bit t: token t of the chunk uses the bucket
  std::int32_t* chunkStart;   // [chunks][buckets] position of a chunk among this warp's users
  std::int32_t* ids;          // [tokens][topk] as in the handle
  float* weights;             // [tokens][topk]
  std::int32_t* entryRow;     // [tokens][topk]
  Destination* destinations;  // [tokens][slots]
  // Tables of all buckets and ranks.
  std::int32_t* counts;         // [buckets] users among this warp's tokens
  std::int32_t* totals;         // [buckets] totals of all warps; only in the first warp
  std::int32_t* place;          // [buckets] where this warp's tokens begin in a bucket
  std::int32_t* groups;         // [experts + 1] where the groups of all experts begin
  std::int32_t* rankBase;       // [nranks] where this rank's rows begin at a rank, in FLAT order
  std::int32_t* rankOffsets;    // [nranks + 1] as in the handle
  std::int32_t* waveRowsStart;  // as in the handle

  // The entries of this warp's token `token`.
  MOE_LANES std::int32_t* idsOf(const HandleView& h, int token) const { return ids + std::int64_t{token} * h.topk; }
  MOE_LANES std::int32_t* entryRowsOf(const HandleView& h, int token) const {
    return entryRow + std::int64_t{token} * h.topk;
  }
  // Whether this warp's token `token` uses bucket `bucket`.
  MOE_LANES bool uses(const HandleView& h, int token, int bucket) const {
    return (users[token / kChunkTokens * h.buckets() + bucket] >> token % kChunkTokens & 1u) != 0;
  }
  // The token's position among this rank's users of the bucket. When `place` is complete, it is the row, for an expert.
  MOE_LANES int positionOf(const HandleView& h, int token, int bucket) const {
    const int at = token / kChunkTokens * h.buckets() + bucket;
    return place[bucket] + chunkStart[at] + bitCount(users[at] & ((1u << token % kChunkTokens) - 1));
  }
};

// Allocates a warp's scratch memory.
template <Computes Warp>
class ScratchMemory {
 public:
  MOE_LANES explicit ScratchMemory(const Warp& warp) : next_(warp.scratchMemory()) {}

  // Returns scratch memory for `count` items if they fit, else `elsewhere`.
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

// Tables that are used most are allocated first.
template <Computes Warp>
MOE_LANES RouteSlice routeSlice(const Warp& warp, const StepParams& p, WarpIndex w) {
  const HandleView& h = p.handle;
  const int tokens = p.route.tokens;
  RouteSlice s;
  s.chunks = sliceOf((tokens + kChunkTokens - 1) / kChunkTokens, w);
  const int begin = s.chunks.begin * kChunkTokens, end = begin + s.chunks.count * kChunkTokens;
  const int first = begin < tokens ? begin : tokens, last = end < tokens ? end : tokens;
  s.tokens = {first, last - first};
  const int buckets = h.buckets(), ranks = h.map.nranks, waveRows = h.wavesByExpert() ? h.waves * ranks + 1 : 0;
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

// The sum of the values before number `own`, and the sum of all n.
struct Sums {
  int before, all;
};
// Sums values in groups of kAtOnce look-ups, because a look-up takes longer than an addition. For one lane.
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

// The expert that the caller has named for an entry.
MOE_LANES std::int64_t givenIndexAt(const HandleView& h, const RouteArgs& a, int entry) {
  return h.wideIndex != 0 ? static_cast<const std::int64_t*>(a.topkIdx)[entry]
                          : static_cast<const std::int32_t*>(a.topkIdx)[entry];
}

// The physical expert of an entry that names expert `id` of a placement. -1: the expert is on no rank of the map. An
// invalid `id` gives a number that no expert has.
template <class View>
MOE_SELDOM std::int64_t placedIndex(const View& h, int entry, std::int64_t id) {
  if (id < 0 || id >= h.placesNamed) return id;
  const Replicas replicas = h.placement->replicas()[id];
  if (replicas.count == 0) return h.map.experts;
  if (replicas.count == 1) return replicas.first;
  const int token = h.byTopk.of(entry), turn = token - replicas.byCount.of(token) * replicas.count;
  return h.placement->list(h.placesNamed)[replicas.first + turn];
}
// The physical expert of an entry that the caller has named `id`. An invalid id stays invalid.
MOE_LANES std::int64_t placed(const HandleView& h, int entry, std::int64_t id) {
  return h.placement == nullptr ? id : placedIndex(h, entry, id);
}
// The same, with the look-up of the id. Code that looks up several entries at once uses givenIndexAt instead, because a
// branch among the loads would separate them.
MOE_LANES std::int64_t indexAt(const HandleView& h, const RouteArgs& a, int entry) {
  return placed(h, entry, givenIndexAt(h, a, entry));
}

// An entry as it is counted: its physical expert, its weight, and the entry of its token that it counts with.
struct TakenEntry {
  std::int64_t id;
  float weight;
  int with;
};
// Reads an entry. An expert of a lost rank counts as none. If the handle merges, an expert that a token names again
// counts with the first entry that names it, whose weight is the sum. For one lane.
MOE_LANES TakenEntry takenEntry(const HandleView& h, const RouteArgs& a, const LostRanks& lost, int entry) {
  const auto weightOf = [&](int i) { return a.topkWeights != nullptr ? a.topkWeights[i] : 1.0f; };
  const int first = h.byTopk.of(entry) * h.topk;
  TakenEntry taken{lost.standing(h.map, indexAt(h, a, entry)), weightOf(entry), entry - first};
  if (h.merges == 0 || taken.id < 0) return taken;
  MOE_ROLLED
  for (int other = first; other < first + h.topk; ++other) {
    if (other == entry || indexAt(h, a, other) != taken.id) continue;
    if (other < entry) return {taken.id, 0.0f, other - first};
    taken.weight = addRounded(taken.weight, weightOf(other));
  }
  return taken;
}

// The fault of an entry by itself, if any.
MOE_LANES Fault indexFault(const HandleView& h, std::int64_t id) {
  return id < -1 || id >= h.map.experts ? Fault::badIndex : Fault::none;
}
// `usersOf`: the words of the chunk of this warp's token `token`. `bitOf`: the token's bit in them.
MOE_LANES std::uint32_t* usersOf(const Routing auto& r, int token) {
  return r.own.users + std::int64_t{token / kChunkTokens} * r.handle.buckets();
}
MOE_LANES std::uint32_t bitOf(int token) {
  return 1u << token % kChunkTokens;
}
// Notes that a token has an invalid entry: the token becomes a user of the fault bucket, which all routes have. The
// first warp learns of it from the totals.
MOE_LANES void laneNoteFault(const Routing auto& r, int token) {
  r.warp.laneOr(usersOf(r, token) + r.handle.faultBucket(), bitOf(token));
}

// The handle's id for entry k of a token: the expert, -1 for none, or idOfMerged of the entry that it is merged into.
MOE_LANES int keptId(const HandleView& h, int k, const TakenEntry& taken) {
  if (indexFault(h, taken.id) != Fault::none) return -1;
  return taken.with != k ? idOfMerged(taken.with) : static_cast<int>(taken.id);
}

// Keeps entry k of this warp's token `token` in the handle; an invalid entry gets no expert. Returns the expert, or a
// number below 0. For one lane.
MOE_LANES int laneKeepEntry(const Routing auto& r, int token, int k, const TakenEntry& taken) {
  const int own = token * r.handle.topk + k, entry = r.own.tokens.begin * r.handle.topk + own;
  const int expert = keptId(r.handle, k, taken);
  if (expert == -1 && taken.id != -1) laneNoteFault(r, token);  // unused, but the caller has not marked it as unused
  r.own.ids[own] = r.handle.sent.ids[entry] = expert;
  r.own.weights[own] = r.handle.sent.weights[entry] = taken.weight;
  return expert;
}

MOE_LANES void takeEntries(const Routing auto& r) {
  const int first = r.own.tokens.begin * r.handle.topk;
  const LostRanks lost(r.comm);
  r.warp.template collect<2>(
      r.own.tokens.count * r.handle.topk, [&](int i) { return takenEntry(r.handle, r.p.route, lost, first + i); },
      [&](int i, const TakenEntry& taken) {
        const int token = r.handle.byTopk.of(i);
        laneKeepEntry(r, token, i - token * r.handle.topk, taken);
      });
}

// True if entry k repeats an earlier entry of the token's entries `ids`.
MOE_LANES bool comesTwice(const std::int32_t* ids, int k) {
  return laneSums<8>(k, 0, [&](int other) { return ids[other] == ids[k] ? 1 : 0; }).all != 0;
}
// True if no other entry of the token names a lower expert of the same rank.
MOE_LANES bool isLowestOnRank(const HandleView& h, const std::int32_t* ids, int expert, int rank) {
  const int first = h.map.first(rank);
  const auto isLower = [&](int k) { return ids[k] >= first && ids[k] < expert ? 1 : 0; };
  return laneSums<8>(h.topk, 0, isLower).all == 0;
}

// Marks the buckets that an entry of this warp's token `token` uses. For one lane.
MOE_LANES void laneMarkUser(const Routing auto& r, int token, int expert) {
  const HandleView& h = r.handle;
  const int rank = h.map.rankOf(expert);
  std::uint32_t* users = usersOf(r, token);
  const std::uint32_t bit = bitOf(token);
  r.warp.laneOr(users + expert, bit);
  r.warp.laneOr(users + h.map.experts + rank, bit);
  if (r.takesRails()) r.warp.laneOr(users + h.domainBucket(rank / r.comm.domainSize), bit);
  if (h.wavesByExpert() && isLowestOnRank(h, r.own.idsOf(h, token), expert, rank)) {
    r.warp.laneOr(users + h.waveBucket(rank, waveOfExpert(h, expert - h.map.first(rank), h.map.count(rank))), bit);
  }
}
MOE_LANES void markUsers(const Routing auto& r) {
  r.warp.forEach(r.own.tokens.count * r.handle.topk, [&](int i) {
    const int expert = r.own.ids[i];
    if (expert < 0) return;
    const int token = r.handle.byTopk.of(i), k = i - token * r.handle.topk;
    if (comesTwice(r.own.idsOf(r.handle, token), k)) laneNoteFault(r, token);
    laneMarkUser(r, token, expert);
  });
}

// Whether one lane does all work on a token (`kWholeTokens`), and so looks at each entry once. Both ways have the same
// result. Rails need more work per token, so there the lanes share a token on every machine.
MOE_LANES bool takesWholeTokens(const Routing auto& r) {
  return r.kWholeTokens && !r.takesRails();
}

// Takes the entries of this warp's token `token`, and marks the buckets that it uses.
MOE_LANES void laneTakeToken(const Routing auto& r, int token) {
  std::uint32_t* users = usersOf(r, token);
  const std::uint32_t bit = bitOf(token);
  const LostRanks lost(r.comm);
  for (int k = 0; k < r.handle.topk; ++k) {
    const int entry = (r.own.tokens.begin + token) * r.handle.topk + k;
    const int expert = laneKeepEntry(r, token, k, takenEntry(r.handle, r.p.route, lost, entry));
    if (expert < 0) continue;
    if ((users[expert] & bit) != 0) laneNoteFault(r, token);
    users[expert] |= bit;
    users[r.handle.map.experts + r.handle.map.rankOf(expert)] |= bit;
  }
  if (!r.handle.wavesByExpert()) return;
  const std::int32_t* ids = r.own.idsOf(r.handle, token);
  for (int k = 0; k < r.handle.topk; ++k) {
    if (ids[k] < 0) continue;
    const int rank = r.handle.map.rankOf(ids[k]);
    if (isLowestOnRank(r.handle, ids, ids[k], rank)) {
      users[r.handle.waveBucket(
          rank, waveOfExpert(r.handle, ids[k] - r.handle.map.first(rank), r.handle.map.count(rank)))] |= bit;
    }
  }
}

// Counts the users of each bucket among this warp's tokens, and finds where each chunk's users begin.
MOE_LANES void sumChunks(const Routing auto& r) {
  const int buckets = r.handle.buckets();
  r.warp.forEach(buckets, [&](int bucket) {
    int sum = 0;
    MOE_ROLLED
    for (int chunk = 0; chunk < r.own.chunks.count; ++chunk) {
      const int at = chunk * buckets + bucket;
      r.own.chunkStart[at] = sum;
      sum += bitCount(r.own.users[at]);
    }
    r.own.counts[bucket] = sum;
    if (r.w.count > 1) r.handle.sent.tables.warpCounts[static_cast<std::int64_t>(r.w.index) * buckets + bucket] = sum;
  });
}

// Finds and counts the users of each bucket among this warp's tokens.
MOE_LANES void countTokens(const Routing auto& r) {
  const int buckets = r.handle.buckets();
  r.warp.forEach(r.own.chunks.count * buckets, [&](int i) { r.own.users[i] = 0; });
  if (takesWholeTokens(r)) {
    r.warp.forEach(r.own.tokens.count, [&](int token) { laneTakeToken(r, token); });
  } else {
    takeEntries(r);
    markUsers(r);
  }
  sumChunks(r);
}

// Lets the warps of this rank meet. Each then computes where its own tokens begin in every bucket that it needs for
// rows. The first warp, which sends the totals, computes these too. `counted`: the word at which the warps meet, which
// reaches `number`.
MOE_LANES bool sumWarps(const Routing auto& r, Flag* counted, Meeting meeting, std::uint64_t number) {
  if (r.w.count > 1) {
    r.warp.mark(counted, meeting, r.w);
    if (!r.waitForWarps(counted, number)) return false;
  }
  const int buckets = r.handle.buckets(), first = r.w.index == 0 || expertRows(r.handle) ? 0 : r.handle.map.experts;
  // The first warp needs the counts of all other warps; every other warp needs those of the warps before it.
  const bool leads = r.w.index == 0;
  const std::int32_t* counts = r.handle.sent.tables.warpCounts + (leads ? buckets : 0);
  const int others = leads ? r.w.count - 1 : r.w.index;
  r.warp.forEach(buckets - first, [&](int i) {
    const int bucket = first + i;
    const auto countOf = [&](int other) { return counts[static_cast<std::int64_t>(other) * buckets + bucket]; };
    const int sum = laneSums<16>(others, 0, countOf).all;
    r.own.place[bucket] = leads ? 0 : sum;
    if (leads) r.handle.sent.totals[bucket] = r.own.totals[bucket] = r.own.counts[bucket] + sum;
  });
  return true;
}

// A single warp skips the meeting, but increments the word, because the next route may have more warps.
MOE_LANES void markAlone(const AnySession auto& r) {
  if (r.w.count == 1) r.warp.mark(&r.comm.state->routeCounted, Meeting::counts, r.w);
}

}  // namespace moe
