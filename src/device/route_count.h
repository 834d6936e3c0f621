// The route's first part: who uses what. Tokens are taken 32 at a time, as a chunk; of each chunk there is one word per
// bucket (an expert or a rank), whose bit t says that token t uses it. So a token's position among the users of a
// bucket is a count of bits, and no order of execution shows.
#pragma once

#include "device/expert_waves.h"

namespace moe {

// A warp's share of the tokens, whole chunks, and its rows of the handle's tables.
struct RouteSlice {
  Slice tokens, chunks;
  std::int32_t* place;     // [buckets] where this warp's tokens begin in a bucket
  std::int32_t* rankBase;  // [nranks] where this rank's rows begin at a rank, in FLAT order

  MOE_LANES bool uses(const HandleView& h, int token, int bucket) const {
    return (h.users[static_cast<std::int64_t>(token / kChunkTokens) * h.buckets() + bucket] >> token % kChunkTokens &
            1u) != 0;
  }
  // Among this warp's tokens.
  MOE_LANES int positionOf(const HandleView& h, int token, int bucket) const {
    const std::int64_t at = static_cast<std::int64_t>(token / kChunkTokens) * h.buckets() + bucket;
    return h.chunkStart[at] + bitCount(h.users[at] & ((1u << token % kChunkTokens) - 1));
  }
};

MOE_LANES RouteSlice routeSlice(const HandleView& h, const RouteArgs& a, WarpIndex w) {
  const Slice chunks = sliceOf((a.tokens + kChunkTokens - 1) / kChunkTokens, w);
  const int begin = chunks.begin * kChunkTokens, end = (chunks.begin + chunks.count) * kChunkTokens;
  const int first = begin < a.tokens ? begin : a.tokens, last = end < a.tokens ? end : a.tokens;
  return {{first, last - first},
          chunks,
          h.warpPlace + static_cast<std::int64_t>(w.index) * h.buckets(),
          h.warpRankBase + static_cast<std::int64_t>(w.index) * h.map.nranks};
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

// No other entry of the token names a lower expert of this one's rank.
MOE_LANES bool isLowestOnRank(const HandleView& h, const RouteArgs& a, int entry, int expert, int rank) {
  const int first = h.map.first(rank), begin = entry - entry % h.topk;
  for (int other = begin; other < begin + h.topk; ++other) {
    const std::int64_t id = indexAt(h, a, other);
    if (id >= first && id < expert) return false;
  }
  return true;
}

template <class Warp>
MOE_LANES void takeEntries(const Warp& warp, const RouteSlice& s, const StepParams& p) {
  const HandleView& h = p.handle;
  const RouteArgs& a = p.route;
  warp.forEach(s.tokens.count * h.topk, [&](int i) {
    const int entry = s.tokens.begin * h.topk + i, token = entry / h.topk;
    const std::int64_t id = indexAt(h, a, entry);
    const Fault fault = entryFault(h, a, entry, id);
    if (fault != Fault::none) {
      const std::int64_t index = static_cast<std::int64_t>(token) << 8 | entry % h.topk;
      warp.laneFail(p.comm, {0, fault, Phase::none, p.comm.rank, 0, index, h.map.experts, id});
    }
    const int expert = fault == Fault::none ? static_cast<int>(id) : -1;
    h.ids[entry] = expert;
    h.weights[entry] = a.topkWeights != nullptr ? a.topkWeights[entry] : 1.0f;
    if (expert < 0) return;
    std::uint32_t* users = h.users + static_cast<std::int64_t>(token / kChunkTokens) * h.buckets();
    const std::uint32_t bit = 1u << token % kChunkTokens;
    warp.laneOr(users + expert, bit);
    const int rank = h.map.rankOf(expert);
    warp.laneOr(users + h.map.experts + rank, bit);
    if (takesRails(warp, h)) warp.laneOr(users + h.domainBucket(rank / p.comm.domainSize), bit);
    if (h.wavesByExpert() && isLowestOnRank(h, a, entry, expert, rank)) {
      const int wave = waveOfExpert(expert - h.map.first(rank), h.map.count(rank));
      warp.laneOr(users + h.waveBucket(rank, wave), bit);
    }
  });
}

// The users of each bucket among this warp's tokens, and how many there are.
template <class Warp>
MOE_LANES void countTokens(const Warp& warp, const RouteSlice& s, const StepParams& p) {
  const HandleView& h = p.handle;
  const std::int64_t first = static_cast<std::int64_t>(s.chunks.begin) * h.buckets();
  warp.forEach(s.chunks.count * h.buckets(), [&](int i) { h.users[first + i] = 0; });
  takeEntries(warp, s, p);
  warp.forEach(h.buckets(), [&](int bucket) {
    int sum = 0;
    for (int chunk = 0; chunk < s.chunks.count; ++chunk) {
      const std::int64_t at = first + static_cast<std::int64_t>(chunk) * h.buckets() + bucket;
      h.chunkStart[at] = sum;
      sum += bitCount(h.users[at]);
    }
    h.warpCounts[s.place - h.warpPlace + bucket] = sum;
  });
}

// The warps of this rank meet; then each knows where its own tokens begin in every bucket.
template <class Warp>
MOE_LANES bool sumWarps(const Warp& warp, const RouteSlice& s, const CommView& c, const HandleView& h,
                        std::uint64_t epoch, WarpIndex w) {
  Flag* counted = &c.state->routeCounted;
  warp.mark(counted, Meeting::counts, w);
  if (!waitForWarps(warp, c, counted, epoch)) return false;
  warp.forEach(h.buckets(), [&](int bucket) {
    int before = 0, all = 0;
    for (int other = 0; other < w.count; ++other) {
      const int count = h.warpCounts[static_cast<std::int64_t>(other) * h.buckets() + bucket];
      before += other < w.index ? count : 0;
      all += count;
    }
    s.place[bucket] = before;
    if (w.index == 0) h.totals[bucket] = all;
  });
  return true;
}

}  // namespace moe
