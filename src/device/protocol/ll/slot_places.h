// Where the rows of a plain dispatch go, and their headers. Each block counts this for its own tokens, and the last
// block for all (block_dispatch.h). One word holds the ranks of a token, another one the tokens of a rank.
#pragma once

#include "device/protocol/ll/places.h"
#include "device/protocol/ll/taken.h"

namespace moe {

// The bits below bit `n`, which is at most 31.
MOE_LANES std::uint32_t bitsBelow(int n) {
  return (1u << n) - 1;
}

// A block's part of each row: the whole row, or one half if two blocks share a token. Rows that are cast are divided by
// elements, in whole tiles, others by bytes.
struct LlRowPart {
  std::uint32_t begin, size;

  static MOE_LANES LlRowPart of(const LlShare& share, std::uint32_t rowSize, std::uint32_t unit = sizeof(Quad)) {
    const std::uint32_t half = (rowSize / 2 + unit - 1) / unit * unit, first = half < rowSize ? half : rowSize;
    const std::uint32_t begin = share.sharer == 0 ? 0 : first;
    return {begin, share.sharers == 1 ? rowSize : begin == 0 ? first : rowSize - first};
  }
};

// A block looks up several kinds of things together. On a GPU, lanes of one warp that look up different kinds do it one
// after the other, so each kind begins at a new warp.
template <class Warp>
MOE_LANES int wholeWarps(int n) {
  return (n + Warp::kLanes - 1) / Warp::kLanes * Warp::kLanes;
}

// An id of the caller as it was looked up. Nothing is computed from it yet, because that would wait for it.
struct LlLookedUp {
  std::uint32_t low, high;  // high: 0 if ids have 32 bits
};

// The caller's ids, which have 32 or 64 bits. They are read in halves, so that one code serves both, without branches.
class LlGivenIds {
 public:
  MOE_LANES explicit LlGivenIds(const StepParams& p)
      : halves_(static_cast<const std::uint32_t*>(p.route.topkIdx)), wide_(p.handle.wideIndex != 0 ? 1 : 0) {}

  MOE_LANES LlLookedUp lookUp(int entry) const { return {low(entry), wide_ != 0 ? halves_[(entry << 1) + 1] : 0}; }
  MOE_LANES std::int64_t id(const LlLookedUp& found) const {
    const std::uint32_t high = wide_ != 0 ? found.high : 0u - (found.low >> 31);
    return static_cast<std::int64_t>(std::uint64_t{high} << 32 | found.low);
  }
  MOE_LANES std::int64_t at(int entry) const { return id(lookUp(entry)); }
  // The low half of an id. For ids that are not negative and fit into it, it is the id.
  MOE_LANES std::uint32_t low(int entry) const { return halves_[entry << wide_]; }

 private:
  const std::uint32_t* halves_;
  int wide_;
};

// An entry, and the low halves of the first ids of its token, which are looked up at once; or a word.
struct LlSlotLook {
  static constexpr int kAtOnce = 8;
  LlLookedUp own;
  std::uint32_t ids[kAtOnce];

  static MOE_LANES LlSlotLook ofWord(std::uint32_t word) {
    LlSlotLook look;
    look.own = {word, 0};
    return look;
  }
  // `first`: the token's first entry.
  static MOE_LANES LlSlotLook ofEntry(const LlGivenIds& ids, int first, int topk, int k) {
    LlSlotLook look;
    look.own = ids.lookUp(first + k);
    MOE_UNROLLED
    for (int j = 0; j < kAtOnce; ++j) look.ids[j] = ids.low(first + (j < topk ? j : 0));
    return look;
  }
  MOE_LANES std::uint32_t word() const { return own.low; }

  // Calls earlier(low half) for each of the first k ids of the token.
  template <class Earlier>
  MOE_LANES void forEarlier(const LlGivenIds& all, int first, int k, Earlier earlier) const {
    MOE_UNROLLED
    for (int j = 0; j < kAtOnce; ++j) {
      if (j < k) earlier(ids[j]);
    }
    MOE_ROLLED
    for (int j = kAtOnce; j < k; ++j) earlier(all.low(first + j));
  }
};

// Whether two of the first entries of a token name the same expert.
MOE_LANES bool llRepeats(const std::int32_t* ids, int topk) {
  constexpr int kAtOnce = LlSlotLook::kAtOnce;
  std::int32_t first[kAtOnce];
  MOE_UNROLLED
  for (int j = 0; j < kAtOnce; ++j) first[j] = j < topk ? ids[j] : -1;
  bool repeats = false;
  MOE_UNROLLED
  for (int j = 1; j < kAtOnce; ++j) {
    MOE_UNROLLED
    for (int i = 0; i < j; ++i) repeats = repeats || (first[i] == first[j] && first[j] >= 0);
  }
  return repeats;
}

// An entry of a token that names experts again, in a handle that merges. It counts with the first entry that names its
// expert, `with`, whose weight is the sum.
struct LlMergedEntry {
  int with, before, all;  // before, all: entries for the same rank, those that repeat an earlier one left out
  float weight;
};
// `ids`, `weights`: of the token. `first`, `count`: the experts of the entry's rank.
template <class Id>
MOE_SELDOM LlMergedEntry llMergedEntry(const Id* ids, const float* weights, int topk, int k, int first, int count) {
  LlMergedEntry entry{k, 0, 0, 0.0f};
  MOE_ROLLED
  for (int j = k - 1; j >= 0; --j) entry.with = ids[j] == ids[k] ? j : entry.with;
  MOE_ROLLED
  for (int j = 0; j < topk; ++j) {
    bool counts = ids[j] >= first && ids[j] < first + count;
    MOE_ROLLED
    for (int i = 0; i < j; ++i) counts = counts && ids[i] != ids[j];
    entry.all += counts ? 1 : 0;
    entry.before += counts && j < k ? 1 : 0;
    if (j < k || ids[j] != ids[k] || entry.with != k) continue;
    entry.weight = j == k ? weights[j] : addRounded(entry.weight, weights[j]);
  }
  return entry;
}

// Some tokens of a block, at most kLlTokensAtOnce. `kPlaced`: the layout may have places by experts. A header then has
// the position of an entry among the entries of its expert. Buckets are the ranks, then the experts. `kMerges`: the
// handle may merge.
template <Blocks Warp, bool kPlaced, bool kMerges>
class LlSlotPlaces {
 public:
  MOE_LANES LlSlotPlaces(const Warp& warp, const StepParams& params, const LlTables& tables, Range tokens)
      : warp_(warp), p_(params), h_(params.handle), t_(tables), tokens_(tokens) {}

  // Prepares what needs no look-up: addresses, and empty tables. Lanes do not meet. `first`: the first token at hand.
  static MOE_LANES void prepare(const Warp& warp, const StepParams& p, const LlTables& t, int first) {
    const CommView& c = p.comm;
    const HandleView& h = p.handle;
    const int ranks = c.nranks, buckets = h.map.experts + ranks;
    const bool byExpert = kPlaced && expertRows(h);
    warp.each(buckets, [&](int i) {
      t.before()[i] = 0;
      if (byExpert) t.users()[i] = 0;
    });
    warp.each(llChunks(first) * ranks, [&](int i) { t.earlier()[i] = 0; });
    warp.each(kLlTokensAtOnce * ranks, [&](int i) { t.entriesTo()[i] = 0; });
    warp.each(2 * ranks + kLlTokensAtOnce + int{kLlWords}, [&](int i) {
      if (i < kLlTokensAtOnce) {
        t.ranks()[i] = 0;
      } else if (i < kLlTokensAtOnce + kLlWords) {
        *t.word(static_cast<LlWord>(i - kLlTokensAtOnce)) = 0;
      } else if (i < kLlTokensAtOnce + kLlWords + ranks) {
        if (!byExpert) t.users()[i - kLlTokensAtOnce - kLlWords] = 0;
      } else {
        const int rank = i - kLlTokensAtOnce - kLlWords - ranks;
        t.slots()[rank] = llSlot(c, h, rank, c.at.llRows, c.rowBytesMax, p.dispatch.rowBytes, c.rank, 0);
        t.toldTo()[rank] = c.in<std::uint8_t>(rank, llToldOffset(c, h, c.at.llTold, c.rank));
        t.toldBy()[rank] = llToldBy<std::uint8_t>(c, h, rank);
        t.arrived()[rank] = llSlot(c, h, c.rank, c.at.llRows, c.rowBytesMax, p.dispatch.rowBytes, rank, 0);
      }
    });
  }
  // The same, for the next tokens of block `block`. All lanes meet before and after.
  static MOE_SELDOM void prepareAgain(Warp warp, const StepParams& p, int block, int first) {
    warp.forEach(0, [](int) {});
    prepare(warp, p, LlTables(warp, p.handle, block), first);
    warp.forEach(0, [](int) {});
  }

  // All lanes of the block call it. It looks up at once the ids and weights of these tokens and the ids of all tokens
  // before them, and calls start() meanwhile. False: the rank is to stop. `word` was looked up before.
  template <class Start>
  MOE_LANES bool count(Start start, std::uint32_t& word) const {
    const int own = size() * h_.topk, earlier = wholeWarps<Warp>(own), first = tokens_.begin * h_.topk;
    const float* weights = p_.route.topkWeights;
    const std::uint32_t lost = p_.comm.state->lost[0];
    const LlGivenIds ids(p_);
    struct Look {
      LlLookedUp given;
      float weight;
    };
    return warp_.collectUnlessStopped(
        p_.comm, earlier + first,
        [&](int i) -> Look {
          if (i >= own && i < earlier) return {};
          const int entry = i < own ? first + i : i - earlier;
          return {i < own ? ids.lookUp(entry) : earlierId(ids, entry),
                  i < own && weights != nullptr ? weights[entry] : 1.0f};
        },
        [&](int i, const Look& look) {
          const int id = idOf(ids.id(look.given), lost);
          if (i < own) return laneKeep(i, id, look.weight);
          if (i >= earlier) laneCountEarlier(i - earlier, id);
        },
        start, word);
  }

  MOE_LANES int first() const { return tokens_.begin; }
  MOE_LANES int size() const { return tokens_.end - tokens_.begin; }
  // The position of a token at hand among this rank's tokens for a rank.
  MOE_LANES int positionOf(int at, int rank) const { return positionOf(at, rank, t_.users()[rank]); }
  // The token's slot at `rank`; NULL: the token does not go there.
  MOE_LANES std::uint8_t* slot(int at, int rank) const {
    const std::uint32_t users = t_.users()[rank];
    if ((users >> at & 1) == 0) return nullptr;
    return t_.slots()[rank] + static_cast<std::int64_t>(positionOf(at, rank, users)) * p_.dispatch.rowBytes;
  }

  // Stores headers to the receivers, and the handle's tables of sent rows: entries, places of destinations, and ids.
  // Each of the three kinds has warps of its own.
  MOE_LANES void storeHeaders() const {
    const int entries = size() * h_.topk, places = size() * p_.comm.nranks;
    const int placesAt = wholeWarps<Warp>(entries), keptAt = placesAt + wholeWarps<Warp>(places);
    warp_.each(keptAt + entries, [&](int i) {
      if (i >= keptAt) return laneKeepId(i - keptAt);
      if (i < entries) return laneStoreEntry(i);
      if (i >= placesAt && i - placesAt < places) laneStorePlace(i - placesAt);
    });
  }

 private:
  // `users`: the tokens at hand that go to the rank.
  MOE_LANES int positionOf(int at, int rank, std::uint32_t users) const {
    const int ranks = p_.comm.nranks;
    int sum = bitCount(users & bitsBelow(at));
    MOE_ROLLED
    for (int chunk = 0; chunk < llChunks(tokens_.begin); ++chunk) sum += bitCount(t_.earlier()[chunk * ranks + rank]);
    return sum;
  }
  MOE_LANES bool byExpert() const { return kPlaced && expertRows(h_); }
  MOE_LANES bool merges() const { return kMerges && h_.merges != 0; }
  MOE_LANES int bucketOf(int expert) const { return p_.comm.nranks + expert; }

  // The number of tokens at hand before token `at` that use a bucket.
  MOE_LANES int usersBefore(int at, int bucket) const { return bitCount(t_.users()[bucket] & bitsBelow(at)); }

  // The id of an entry of an earlier token. -1: in a handle that merges, the entry repeats an earlier one of its token.
  MOE_LANES LlLookedUp earlierId(const LlGivenIds& ids, int entry) const {
    const LlLookedUp own = ids.lookUp(entry);
    if (!byExpert() || !merges()) return own;
    const int k = entry - h_.byTopk.of(entry) * h_.topk;
    const auto isSame = [&](int j) { return ids.at(entry - k + j) == ids.id(own) ? 1 : 0; };
    return laneSums<8>(k, 0, isSame).all != 0 ? LlLookedUp{~0u, ~0u} : own;
  }
  // -1: unused, invalid, or of a lost rank. `lost`: a bit for each.
  MOE_LANES int idOf(std::int64_t given, std::uint32_t lost) const {
    if (given < 0 || given >= h_.map.experts) return -1;
    const int id = static_cast<int>(given);
    return (lost >> h_.map.rankOf(id) & 1) == 0 ? id : -1;
  }
  MOE_LANES void laneCountEarlier(int entry, int id) const {
    if (id < 0) return;
    const int token = h_.byTopk.of(entry);
    if (byExpert()) warp_.laneAdd(t_.before() + bucketOf(id), 1);
    const int word = token / kChunkTokens * p_.comm.nranks + h_.map.rankOf(id);
    warp_.laneOr(t_.earlier() + word, 1u << token % kChunkTokens);
  }
  // Keeps an entry of a token at hand.
  MOE_LANES void laneKeep(int i, int id, float weight) const {
    const int at = h_.byTopk.of(i);
    t_.ids()[i] = id;
    t_.weights()[i] = weight;
    if (id < 0) return;
    const int rank = h_.map.rankOf(id);
    warp_.laneOr(t_.ranks() + at, 1u << rank);
    warp_.laneOr(t_.users() + rank, 1u << at);
    const int entries = at * p_.comm.nranks + rank;
    warp_.laneOr(t_.entriesTo() + entries, 1u << (i - at * h_.topk));
    if (byExpert()) warp_.laneOr(t_.users() + bucketOf(id), 1u << at);
  }

  // The first entry of a token for a rank stores the head too.
  MOE_LANES void laneStoreEntry(int i) const {
    const int at = h_.byTopk.of(i), k = i - at * h_.topk, id = t_.ids()[i];
    if (id < 0) return;
    const int rank = h_.map.rankOf(id);
    const std::uint32_t entries = t_.entriesTo()[at * p_.comm.nranks + rank];
    int before = bitCount(entries & bitsBelow(k)), all = bitCount(entries);
    float weight = t_.weights()[i];
    if (mayRepeat(i - k)) {
      const LlMergedEntry merged = mergedEntry(i, k, rank);
      if (merged.with != k) return;
      before = merged.before;
      all = merged.all;
      weight = merged.weight;
    }
    auto* header = reinterpret_cast<Quad*>(t_.toldTo()[rank] + llToldHeader(p_.comm, h_, positionOf(at, rank)));
    const int bucket = bucketOf(id);
    const int row = byExpert() ? static_cast<int>(t_.before()[bucket]) + usersBefore(at, bucket) : 0;
    warp_.laneStore(header + 1 + before, makeEntry(h_.map.local(id, rank), k, weight, row));
    if (before == 0) warp_.laneStore(header, makeHead(tokens_.begin + at, 0, 0, p_.comm.rank, all));
  }
  // Whether a token may name an expert again. Otherwise its entries are refused by the leading block, or are different.
  // `first`: the token's first entry.
  MOE_LANES bool mayRepeat(int first) const {
    return merges() && (h_.topk > LlSlotLook::kAtOnce || llRepeats(t_.ids() + first, h_.topk));
  }
  MOE_LANES LlMergedEntry mergedEntry(int i, int k, int rank) const {
    return llMergedEntry(t_.ids() + i - k, t_.weights() + i - k, h_.topk, k, h_.map.first(rank), h_.map.count(rank));
  }
  MOE_LANES void laneKeepId(int i) const {
    const std::int64_t kept = static_cast<std::int64_t>(tokens_.begin) * h_.topk + i;
    int id = t_.ids()[i];
    float weight = t_.weights()[i];
    if (merges() && id >= 0) {
      const int k = i - h_.byTopk.of(i) * h_.topk;
      if (mayRepeat(i - k)) {
        const LlMergedEntry merged = mergedEntry(i, k, h_.map.rankOf(id));
        if (merged.with != k) id = idOfMerged(merged.with);
        weight = merged.weight;
      }
    }
    h_.sent.ids[kept] = id;
    h_.sent.weights[kept] = weight;
  }
  // Stores a rank in the handle, if a token goes there: its place among the token's destinations is the number of ranks
  // before it. The other ranks clear the places that are left.
  MOE_LANES void laneStorePlace(int i) const {
    const int nranks = p_.comm.nranks, at = size() == 1 ? 0 : i / nranks, rank = i - at * nranks;
    const std::uint32_t ranks = t_.ranks()[at];
    const int token = tokens_.begin + at, count = bitCount(ranks), before = bitCount(ranks & bitsBelow(rank));
    const bool goes = (ranks >> rank & 1) != 0;
    const int ordinal = goes ? before : count + rank - before;
    if (rank == 0) h_.sent.localCount[token] = h_.sent.destinationCount[token] = count;
    if (ordinal >= h_.destinationsMax) return;
    Destination to{kNoRank, 0, 0, 0, 0};
    if (goes) {
      to.rank = static_cast<std::int16_t>(rank);
      to.index = positionOf(at, rank);
    }
    h_.sent.destinations[std::int64_t{token} * h_.destinationsMax + ordinal] = to;
  }

  const Warp& warp_;
  const StepParams& p_;
  const HandleView& h_;
  const LlTables& t_;
  Range tokens_;
};

// Totals over all tokens: rows for each rank, entries for each expert, and whether an entry is invalid. For the leading
// block. The tables must have been prepared.
template <Blocks Warp, bool kMerges>
class LlSlotCounts {
 public:
  MOE_LANES LlSlotCounts(const Warp& warp, const StepParams& params, const LlTables& tables)
      : warp_(warp), p_(params), h_(params.handle), t_(tables) {}

  // All lanes call it. It looks up at once the ids of all tokens, and how many rows went to each rank in the set's
  // dispatch before. False: the rank is to stop. `word` was looked up before.
  MOE_LANES bool count(std::uint32_t& word) const {
    const int entries = wholeWarps<Warp>(p_.comm.nranks);
    const std::uint32_t lost = p_.comm.state->lost[0];
    const LlGivenIds ids(p_);
    return warp_.collectUnlessStopped(
        p_.comm, entries + p_.dispatch.tokens * h_.topk,
        [&](int i) {
          if (i < entries) return LlSlotLook::ofWord(lastRows(i));
          const int first = h_.byTopk.of(i - entries) * h_.topk;
          return LlSlotLook::ofEntry(ids, first, h_.topk, i - entries - first);
        },
        [&](int i, const LlSlotLook& looked) {
          if (i < p_.comm.nranks) t_.lastRows()[i] = static_cast<std::int32_t>(looked.word());
          if (i >= entries) laneCount(ids, i - entries, looked, lost);
        },
        StartNothing{}, word);
  }

  static MOE_LANES int moreTo(const StepParams& p, const LlTables& t, int rank) {
    return static_cast<int>(t.before()[p.handle.map.experts + rank]) - t.lastRows()[rank];
  }

  // Stores the totals to the receivers and to the handle. Lanes do not meet.
  MOE_LANES void store() const {
    const bool refuses = *t_.word(kLlFaulty) != 0;
    const int experts = h_.map.experts;
    warp_.each(experts + p_.comm.nranks, [&](int bucket) {
      const auto count = static_cast<std::int32_t>(t_.before()[bucket]);
      h_.sent.totals[bucket] = count;
      if (bucket < experts) {
        const int to = h_.map.rankOf(bucket);
        warp_.laneStore(reinterpret_cast<std::int32_t*>(t_.toldTo()[to]) + kToldWords + (bucket - h_.map.first(to)),
                        count);
        return;
      }
      laneStoreTerms(bucket - experts, count, refuses);
    });
    if (refuses) llTellBadEntry(warp_, p_);
  }

 private:
  // `lost`: a bit for each rank.
  MOE_LANES void laneCount(const LlGivenIds& ids, int entry, const LlSlotLook& looked, std::uint32_t lost) const {
    const int token = h_.byTopk.of(entry), first = token * h_.topk;
    const std::int64_t given = ids.id(looked.own);
    const bool names = given >= 0 && given < h_.map.experts;
    const int id = names ? static_cast<int>(given) : 0, rank = h_.map.rankOf(id);
    if (names && (lost >> rank & 1) != 0) return;  // counts as unused
    // An earlier id with other high bits is invalid itself, so it does not matter here that it seems to be another one.
    const auto begin = static_cast<std::uint32_t>(h_.map.first(rank)),
               count = static_cast<std::uint32_t>(h_.map.count(rank));
    bool repeats = false, leads = true;
    looked.forEarlier(ids, first, entry - first, [&](std::uint32_t earlier) {
      repeats = repeats || earlier == looked.word();
      leads = leads && earlier - begin >= count;
    });
    const bool merged = kMerges && names && repeats && h_.merges != 0;
    if ((names && repeats && !merged) || (!names && given != -1)) warp_.laneOr(t_.word(kLlFaulty), 1);
    if (!names || merged) return;
    warp_.laneAdd(t_.before() + id, 1);
    if (leads) warp_.laneAdd(t_.before() + h_.map.experts + rank, 1);  // the token's first entry for this rank
  }

  MOE_LANES std::uint32_t lastRows(int rank) const {
    return rank < p_.comm.nranks ? static_cast<std::uint32_t>(*llLastRows(p_.comm, h_, rank)) : 0;
  }

  MOE_LANES void laneStoreTerms(int rank, std::int32_t count, bool refuses) const {
    *llLastRows(p_.comm, h_, rank) = count;
    Quad handle = h_.terms;
    if (refuses) handle.w |= kRouteRefused;
    auto* head = reinterpret_cast<Quad*>(t_.toldTo()[rank]);
    const std::uint64_t terms = p_.dispatch.terms;
    warp_.laneStore(head, handle);
    warp_.laneStore(head + 1, Quad{static_cast<std::uint32_t>(terms), static_cast<std::uint32_t>(terms >> 32), 0, 0});
  }

  const Warp& warp_;
  const StepParams& p_;
  const HandleView& h_;
  const LlTables& t_;
};

}  // namespace moe
