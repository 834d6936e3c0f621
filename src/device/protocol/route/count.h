// The route's first part: who uses what. Tokens are taken 32 at a time, as a chunk; of each chunk there is one word per
// bucket (an expert or a rank), whose bit t says that token t uses it. So a token's position among the users of a
// bucket is a count of bits, and no order of execution shows.
#pragma once

#include "device/protocol/route/slice.h"

namespace moe {

// The expert of an entry as the caller has named it.
MOE_LANES std::int64_t givenIndexAt(const HandleView& h, const RouteArgs& a, int entry) {
  return h.wideIndex != 0 ? static_cast<const std::int64_t*>(a.topkIdx)[entry]
                          : static_cast<const std::int32_t*>(a.topkIdx)[entry];
}

// The physical expert of an entry that names expert `id` of a placement; -1: it is on no rank of these; or a number
// that no expert has.
template <class View>
MOE_SELDOM std::int64_t placedIndex(const View& h, int entry, std::int64_t id) {
  if (id < 0 || id >= h.placesNamed) return id;
  const Replicas replicas = h.placement->replicas()[id];
  if (replicas.count == 0) return h.map.experts;
  if (replicas.count == 1) return replicas.first;
  const int token = h.byTopk.of(entry), turn = token - replicas.byCount.of(token) * replicas.count;
  return h.placement->list(h.placesNamed)[replicas.first + turn];
}
// The physical expert of an entry that the caller has named `id`. What cannot be stays what cannot be.
MOE_LANES std::int64_t placed(const HandleView& h, int entry, std::int64_t id) {
  return h.placement == nullptr ? id : placedIndex(h, entry, id);
}
// The same by the entry alone. Look-ups side by side take givenIndexAt: a branch among them would part their loads.
MOE_LANES std::int64_t indexAt(const HandleView& h, const RouteArgs& a, int entry) {
  return placed(h, entry, givenIndexAt(h, a, entry));
}

// An entry as it counts: its physical expert, its weight, and the entry of its token that it counts with.
struct TakenEntry {
  std::int64_t id;
  float weight;
  int with;
};
// If the handle merges, an expert that a token names again counts where the token names it first, with the sum of its
// weights. One lane.
MOE_LANES TakenEntry takenEntry(const HandleView& h, const RouteArgs& a, int entry) {
  const auto weightOf = [&](int i) { return a.topkWeights != nullptr ? a.topkWeights[i] : 1.0f; };
  const int first = h.byTopk.of(entry) * h.topk;
  TakenEntry taken{indexAt(h, a, entry), weightOf(entry), entry - first};
  if (h.merges == 0 || taken.id < 0) return taken;
  MOE_ROLLED
  for (int other = first; other < first + h.topk; ++other) {
    if (other == entry || indexAt(h, a, other) != taken.id) continue;
    if (other < entry) return {taken.id, 0.0f, other - first};
    taken.weight = addRounded(taken.weight, weightOf(other));
  }
  return taken;
}

// What is wrong with an entry, if anything, by itself.
MOE_LANES Fault indexFault(const HandleView& h, std::int64_t id) {
  return id < -1 || id >= h.map.experts ? Fault::badIndex : Fault::none;
}
// The words of the chunk of this warp's token `token`, and the token's bit in them.
MOE_LANES std::uint32_t* usersOf(const Routing auto& r, int token) {
  return r.own.users + std::int64_t{token / kChunkTokens} * r.handle.buckets();
}
MOE_LANES std::uint32_t bitOf(int token) {
  return 1u << token % kChunkTokens;
}
// Entries that cannot be make their token one of a bucket that all routes have: so the first warp learns of it.
MOE_LANES void laneNoteFault(const Routing auto& r, int token) {
  r.warp.laneOr(usersOf(r, token) + r.handle.faultBucket(), bitOf(token));
}

// Entry k of a token as the handle keeps it: its expert or, below 0, none, or the entry that it is merged into.
MOE_LANES int keptId(const HandleView& h, int k, const TakenEntry& taken) {
  if (indexFault(h, taken.id) != Fault::none) return -1;
  return taken.with != k ? idOfMerged(taken.with) : static_cast<int>(taken.id);
}

// Keeps entry k of this warp's token `token` for the handle, without an expert if that cannot be. Returns the expert,
// or below 0. One lane.
MOE_LANES int laneKeepEntry(const Routing auto& r, int token, int k, const TakenEntry& taken) {
  const int own = token * r.handle.topk + k, entry = r.own.tokens.begin * r.handle.topk + own;
  const int expert = keptId(r.handle, k, taken);
  if (expert == -1 && taken.id != -1) laneNoteFault(r, token);  // unused, but not given as unused
  r.own.ids[own] = r.handle.sent.ids[entry] = expert;
  r.own.weights[own] = r.handle.sent.weights[entry] = taken.weight;
  return expert;
}

MOE_LANES void takeEntries(const Routing auto& r) {
  const int first = r.own.tokens.begin * r.handle.topk;
  r.warp.template collect<2>(
      r.own.tokens.count * r.handle.topk, [&](int i) { return takenEntry(r.handle, r.p.route, first + i); },
      [&](int i, const TakenEntry& taken) {
        const int token = r.handle.byTopk.of(i);
        laneKeepEntry(r, token, i - token * r.handle.topk, taken);
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

// One lane, for an entry of this warp's token `token`: the buckets that it uses.
MOE_LANES void laneMarkUser(const Routing auto& r, int token, int expert) {
  const HandleView& h = r.handle;
  const int rank = h.map.rankOf(expert);
  std::uint32_t* users = usersOf(r, token);
  const std::uint32_t bit = bitOf(token);
  r.warp.laneOr(users + expert, bit);
  r.warp.laneOr(users + h.map.experts + rank, bit);
  if (r.takesRails()) r.warp.laneOr(users + h.domainBucket(rank / r.comm.domainSize), bit);
  if (h.wavesByExpert() && isLowestOnRank(h, r.own.idsOf(h, token), expert, rank)) {
    r.warp.laneOr(users + h.waveBucket(rank, waveOfExpert(expert - h.map.first(rank), h.map.count(rank))), bit);
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

// A lane may have its tokens for itself (`kWholeTokens`): then it looks at each entry once, and both ways come to the
// same. Rails want more of a token: there its lanes share it on every machine.
MOE_LANES bool takesWholeTokens(const Routing auto& r) {
  return r.kWholeTokens && !r.takesRails();
}

// The entries of this warp's token `token`, and the buckets that it uses.
MOE_LANES void laneTakeToken(const Routing auto& r, int token) {
  std::uint32_t* users = usersOf(r, token);
  const std::uint32_t bit = bitOf(token);
  for (int k = 0; k < r.handle.topk; ++k) {
    const int entry = (r.own.tokens.begin + token) * r.handle.topk + k;
    const int expert = laneKeepEntry(r, token, k, takenEntry(r.handle, r.p.route, entry));
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
      users[r.handle.waveBucket(rank, waveOfExpert(ids[k] - r.handle.map.first(rank), r.handle.map.count(rank)))] |=
          bit;
    }
  }
}

// How many users each bucket has among this warp's tokens, and where each chunk's begin.
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

// The users of each bucket among this warp's tokens, and how many there are.
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

// The warps of this rank meet; then each knows where its own tokens begin in every bucket that counts for rows. The
// first, which sends them, knows the totals. `counted`: the word at which they meet, for the time `number`.
MOE_LANES bool sumWarps(const Routing auto& r, Flag* counted, Meeting meeting, std::uint64_t number) {
  if (r.w.count > 1) {
    r.warp.mark(counted, meeting, r.w);
    if (!r.waitForWarps(counted, number)) return false;
  }
  const int buckets = r.handle.buckets(), first = r.w.index == 0 || expertRows(r.handle) ? 0 : r.handle.map.experts;
  // The first needs to know of all others, the rest of those before them.
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

// A single warp skips the meeting. The word grows all the same: the next route may have more warps.
MOE_LANES void markAlone(const AnySession auto& r) {
  if (r.w.count == 1) r.warp.mark(&r.comm.state->routeCounted, Meeting::counts, r.w);
}

}  // namespace moe
