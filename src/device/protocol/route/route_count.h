// The route's first part: who uses what. Tokens are taken 32 at a time, as a chunk; of each chunk there is one word per
// bucket (an expert or a rank), whose bit t says that token t uses it. So a token's position among the users of a
// bucket is a count of bits, and no order of execution shows.
#pragma once

#include "device/protocol/route/route_slice.h"

namespace moe {

MOE_LANES std::int64_t indexAt(const HandleView& h, const RouteArgs& a, int entry) {
  return h.wideIndex != 0 ? static_cast<const std::int64_t*>(a.topkIdx)[entry]
                          : static_cast<const std::int32_t*>(a.topkIdx)[entry];
}

// What is wrong with an entry, if anything, by itself.
MOE_LANES Fault indexFault(const HandleView& h, std::int64_t id) {
  return id < -1 || id >= h.map.experts ? Fault::badIndex : Fault::none;
}
template <Computes Warp>
MOE_LANES void laneFailEntry(const Warp& warp, const StepParams& p, Fault fault, int token, int k, std::int64_t id) {
  const std::int64_t index = static_cast<std::int64_t>(token) << 8 | k;
  warp.laneFail(p.comm, {0, fault, Phase::none, p.comm.rank, 0, index, p.handle.map.experts, id});
}

// The entries of this warp's tokens, as the handle keeps them: without those that cannot be.
template <Computes Warp>
MOE_LANES void takeEntries(const Warp& warp, const RouteSlice& s, const StepParams& p) {
  struct Entry {
    std::int64_t id;
    float weight;
  };
  const HandleView& h = p.handle;
  const RouteArgs& a = p.route;
  const int first = s.tokens.begin * h.topk;
  warp.template collect<2>(
      s.tokens.count * h.topk,
      [&](int i) {
        return Entry{indexAt(h, a, first + i), a.topkWeights != nullptr ? a.topkWeights[first + i] : 1.0f};
      },
      [&](int i, const Entry& entry) {
        const Fault fault = indexFault(h, entry.id);
        const int token = h.byTopk.of(i);
        if (fault != Fault::none) laneFailEntry(warp, p, fault, s.tokens.begin + token, i - token * h.topk, entry.id);
        s.ids[i] = fault == Fault::none ? static_cast<int>(entry.id) : -1;
        s.weights[i] = entry.weight;
        h.ids[first + i] = s.ids[i];
        h.weights[first + i] = entry.weight;
      });
}

// Of a token's entries `ids`, an earlier one is the same as entry k.
MOE_LANES bool comesTwice(const std::int32_t* ids, int k) {
  return laneSums<8>(k, 0, [&](int other) { return ids[other] == ids[k] ? 1 : 0; }).all != 0;
}
// No other entry of the token names a lower expert of this one's rank.
MOE_LANES bool isLowestOnRank(const HandleView& h, const std::int32_t* ids, int expert, int rank) {
  const int first = h.map.first(rank);
  const auto isLower = [&](int k) { return ids[k] >= first && ids[k] < expert ? 1 : 0; };
  return laneSums<8>(h.topk, 0, isLower).all == 0;
}

template <Computes Warp>
MOE_LANES void markUsers(const Warp& warp, const RouteSlice& s, const StepParams& p) {
  const HandleView& h = p.handle;
  warp.forEach(s.tokens.count * h.topk, [&](int i) {
    const int expert = s.ids[i];
    if (expert < 0) return;
    const int token = h.byTopk.of(i), k = i - token * h.topk, rank = h.map.rankOf(expert);
    const std::int32_t* ids = s.idsOf(h, token);
    if (comesTwice(ids, k)) laneFailEntry(warp, p, Fault::twice, s.tokens.begin + token, k, expert);
    std::uint32_t* users = s.users + std::int64_t{token / kChunkTokens} * h.buckets();
    const std::uint32_t bit = 1u << token % kChunkTokens;
    warp.laneOr(users + expert, bit);
    warp.laneOr(users + h.map.experts + rank, bit);
    if (takesRails(warp, h)) warp.laneOr(users + h.domainBucket(rank / p.comm.domainSize), bit);
    if (h.wavesByExpert() && isLowestOnRank(h, ids, expert, rank)) {
      const int wave = waveOfExpert(expert - h.map.first(rank), h.map.count(rank));
      warp.laneOr(users + h.waveBucket(rank, wave), bit);
    }
  });
}

// A lane may have its tokens for itself (`kWholeTokens`): then it looks at each entry once, and both ways come to the
// same. Rails want more of a token: there its lanes share it on every machine.
template <Computes Warp>
MOE_LANES bool takesWholeTokens(const Warp& warp, const HandleView& h) {
  return Warp::kWholeTokens && !takesRails(warp, h);
}

// One entry, as the handle keeps it: without those that cannot be. Returns the expert, or -1.
template <Computes Warp>
MOE_LANES int laneTakeEntry(const Warp& warp, const RouteSlice& s, const StepParams& p, int token, int k) {
  const HandleView& h = p.handle;
  const int own = token * h.topk + k, entry = s.tokens.begin * h.topk + own;
  const std::int64_t id = indexAt(h, p.route, entry);
  const Fault fault = indexFault(h, id);
  if (fault != Fault::none) laneFailEntry(warp, p, fault, s.tokens.begin + token, k, id);
  const int expert = fault == Fault::none ? static_cast<int>(id) : -1;
  s.ids[own] = h.ids[entry] = expert;
  s.weights[own] = h.weights[entry] = p.route.topkWeights != nullptr ? p.route.topkWeights[entry] : 1.0f;
  return expert;
}

// The entries of this warp's token `token`, and the buckets that it uses.
template <Computes Warp>
MOE_LANES void laneTakeToken(const Warp& warp, const RouteSlice& s, const StepParams& p, int token) {
  const HandleView& h = p.handle;
  std::uint32_t* users = s.users + std::int64_t{token / kChunkTokens} * h.buckets();
  const std::uint32_t bit = 1u << token % kChunkTokens;
  for (int k = 0; k < h.topk; ++k) {
    const int expert = laneTakeEntry(warp, s, p, token, k);
    if (expert < 0) continue;
    if ((users[expert] & bit) != 0) laneFailEntry(warp, p, Fault::twice, s.tokens.begin + token, k, expert);
    users[expert] |= bit;
    users[h.map.experts + h.map.rankOf(expert)] |= bit;
  }
  if (!h.wavesByExpert()) return;
  const std::int32_t* ids = s.idsOf(h, token);
  for (int k = 0; k < h.topk; ++k) {
    if (ids[k] < 0) continue;
    const int rank = h.map.rankOf(ids[k]);
    if (isLowestOnRank(h, ids, ids[k], rank)) {
      users[h.waveBucket(rank, waveOfExpert(ids[k] - h.map.first(rank), h.map.count(rank)))] |= bit;
    }
  }
}

// The users of each bucket among this warp's tokens, and how many there are.
template <Computes Warp>
MOE_LANES void countTokens(const Warp& warp, const RouteSlice& s, const StepParams& p, WarpIndex w) {
  const HandleView& h = p.handle;
  const int buckets = h.buckets();
  warp.forEach(s.chunks.count * buckets, [&](int i) { s.users[i] = 0; });
  if (takesWholeTokens(warp, h)) {
    warp.forEach(s.tokens.count, [&](int token) { laneTakeToken(warp, s, p, token); });
  } else {
    takeEntries(warp, s, p);
    markUsers(warp, s, p);
  }
  warp.forEach(buckets, [&](int bucket) {
    int sum = 0;
    MOE_ROLLED
    for (int chunk = 0; chunk < s.chunks.count; ++chunk) {
      const int at = chunk * buckets + bucket;
      s.chunkStart[at] = sum;
      sum += bitCount(s.users[at]);
    }
    s.counts[bucket] = sum;
    if (w.count > 1) h.warpCounts[static_cast<std::int64_t>(w.index) * buckets + bucket] = sum;
  });
}

// The warps of this rank meet; then each knows where its own tokens begin in every bucket that counts for rows. The
// first, which sends them, knows the totals.
template <Computes Warp>
MOE_LANES bool sumWarps(const Warp& warp, const RouteSlice& s, const CommView& c, const HandleView& h,
                        std::uint64_t epoch, WarpIndex w) {
  if (w.count > 1) {
    Flag* counted = &c.state->routeCounted;
    warp.mark(counted, Meeting::counts, w);
    if (!waitForWarps(warp, c, counted, epoch)) return false;
  }
  const int buckets = h.buckets(), first = w.index == 0 || expertRows(h) ? 0 : h.map.experts;
  // The first needs to know of all others, the rest of those before them.
  const bool leads = w.index == 0;
  const std::int32_t* counts = h.warpCounts + (leads ? buckets : 0);
  const int others = leads ? w.count - 1 : w.index;
  warp.forEach(buckets - first, [&](int i) {
    const int bucket = first + i;
    const auto countOf = [&](int other) { return counts[static_cast<std::int64_t>(other) * buckets + bucket]; };
    const int sum = laneSums<16>(others, 0, countOf).all;
    s.place[bucket] = leads ? 0 : sum;
    if (leads) h.totals[bucket] = s.totals[bucket] = s.counts[bucket] + sum;
  });
  return true;
}

// A single warp skips the meeting. The word grows all the same: the next route may have more warps.
template <Computes Warp>
MOE_LANES void markAlone(const Warp& warp, const CommView& c, WarpIndex w) {
  if (w.count == 1) warp.mark(&c.state->routeCounted, Meeting::counts, w);
}

}  // namespace moe
