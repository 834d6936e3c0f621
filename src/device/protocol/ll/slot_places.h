// Where the rows of a plain dispatch go, and their headers. Each block counts this for its own tokens, and the last
// block for all (block_dispatch.h). One word holds the ranks of a token, another one the tokens of a rank.
#pragma once

#include "device/protocol/ll/places.h"
#include "device/protocol/ll/taken.h"

namespace moe {

// Calls body(number) for each bit that is set, from the lowest on.
template <class Body>
MOE_LANES void forBits(std::uint32_t bits, Body body) {
  MOE_ROLLED
  for (; bits != 0; bits &= bits - 1) body(bitCount((bits & (0u - bits)) - 1));
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

// Words that blocks look up beside ids: whether the rank is to stop, and whether the block must wait for slots.
template <class Warp>
struct LlSlotWords {
  static constexpr int kItems = 2 * Warp::kLanes;  // one warp for each word, which its first lane looks up

  static MOE_LANES std::uint32_t look(const Warp& warp, const StepParams& p, int i) {
    if (i == 0) return warp.laneStopped(p.comm) ? 1 : 0;
    return i == Warp::kLanes ? p.comm.state->llUncombined[p.handle.llSet] : 0;
  }
  static MOE_LANES void laneKeep(const Warp& warp, const LlTables& t, int i, std::uint32_t word) {
    if (word != 0) warp.laneOr(t.word(i == 0 ? kLlStops : kLlWaits), 1);
  }
};

// An entry and the first ids of its token, which are looked up at once; or a word.
template <class Id>
struct LlSlotLook {
  static constexpr int kAtOnce = 8;
  Id own;
  Id ids[kAtOnce];

  static MOE_LANES LlSlotLook ofWord(std::uint32_t word) {
    LlSlotLook look;
    look.own = static_cast<Id>(word);
    return look;
  }
  // `ids` are those of the entry's token.
  static MOE_LANES LlSlotLook ofEntry(const Id* ids, int topk, int k) {
    LlSlotLook look;
    look.own = ids[k];
    MOE_UNROLLED
    for (int j = 0; j < kAtOnce; ++j) look.ids[j] = j < topk ? ids[j] : Id{-1};
    return look;
  }
  MOE_LANES std::uint32_t word() const { return static_cast<std::uint32_t>(own); }
};

// An entry compared with the others of its token: how many of them are for the same rank, before it and in total, and
// whether an earlier one names the same expert. An unused or invalid entry has id -1 and no counts.
struct LlSlotEntry {
  int id, rank, before, all;
  bool twice;

  template <class Id>
  static MOE_LANES LlSlotEntry of(const HandleView& h, const LlSlotLook<Id>& look, const Id* ids, int k) {
    if (look.own < 0 || look.own >= h.map.experts) return {-1, 0, 0, 0, false};
    LlSlotEntry entry{static_cast<int>(look.own), h.map.rankOf(static_cast<int>(look.own)), 0, 0, false};
    const int first = h.map.first(entry.rank);
    const auto count = static_cast<unsigned>(h.map.count(entry.rank));
    const auto take = [&](int j, Id other) {
      const bool same = other >= 0 && static_cast<unsigned>(static_cast<int>(other) - first) < count;
      entry.all += same ? 1 : 0;
      entry.before += same && j < k ? 1 : 0;
      entry.twice = entry.twice || (j < k && other == look.own);
    };
    MOE_UNROLLED
    for (int j = 0; j < LlSlotLook<Id>::kAtOnce; ++j) take(j, look.ids[j]);
    MOE_ROLLED
    for (int j = LlSlotLook<Id>::kAtOnce; j < h.topk; ++j) take(j, ids[j]);
    return entry;
  }
};

// Whether two of the first entries of a token name the same expert.
MOE_LANES bool llRepeats(const LlSlotLook<std::int32_t>& look) {
  bool repeats = false;
  MOE_UNROLLED
  for (int j = 1; j < look.kAtOnce; ++j) {
    MOE_UNROLLED
    for (int i = 0; i < j; ++i) repeats = repeats || (look.ids[i] == look.ids[j] && look.ids[j] >= 0);
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

// Calls use(ids) with all ids, which have 32 or 64 bits.
template <class Use>
MOE_LANES void withIds(const StepParams& p, Use use) {
  if (p.handle.wideIndex != 0) {
    use(static_cast<const std::int64_t*>(p.route.topkIdx));
  } else {
    use(static_cast<const std::int32_t*>(p.route.topkIdx));
  }
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
  // The same, for the block's next tokens. All lanes meet before and after.
  static MOE_LANES void prepareAgain(const Warp& warp, const StepParams& p, const LlTables& t, int first) {
    warp.forEach(0, [](int) {});
    prepare(warp, p, t, first);
    warp.forEach(0, [](int) {});
  }

  // All lanes of the block call it. It looks up at once the ids and weights of these tokens and the ids of all tokens
  // before them, and calls start() meanwhile. False: the rank is to stop.
  template <class Start>
  MOE_LANES bool count(Start start) const {
    const int own = size() * h_.topk, entries = wholeWarps<Warp>(own), words = entries + Words::kItems;
    const int first = tokens_.begin * h_.topk;
    const std::uint32_t lost = p_.comm.state->lost[0];
    withIds(p_, [&](const auto* ids) {
      using Id = std::remove_cvref_t<decltype(*ids)>;
      struct Look {
        Id id;  // or a word
        float weight;
      };
      warp_.collectBeside(
          words + first,
          [&](int i) -> Look {
            if (i >= words) return {earlierId(ids, i - words), 0};
            if (i >= entries) return {static_cast<Id>(Words::look(warp_, p_, i - entries)), 0};
            if (i >= own) return {0, 0};
            return {ids[first + i], p_.route.topkWeights != nullptr ? p_.route.topkWeights[first + i] : 1.0f};
          },
          [&](int i, const Look& look) {
            if (i >= words) return laneCountEarlier(i - words, idOf(look.id, lost));
            if (i < own) return laneKeep(i, idOf(look.id, lost), look.weight);
            if (i >= entries) Words::laneKeep(warp_, t_, i - entries, static_cast<std::uint32_t>(look.id));
          },
          start);
    });
    return *t_.word(kLlStops) == 0;
  }
  // Valid after count(): true if the set's last operation was a dispatch.
  MOE_LANES bool waitsForSlots() const { return *t_.word(kLlWaits) != 0; }

  MOE_LANES int first() const { return tokens_.begin; }
  MOE_LANES int size() const { return tokens_.end - tokens_.begin; }
  // The position of a token at hand among this rank's tokens for a rank.
  MOE_LANES int positionOf(int at, int rank) const {
    const int ranks = p_.comm.nranks;
    int sum = usersBefore(at, rank);
    MOE_ROLLED
    for (int chunk = 0; chunk < llChunks(tokens_.begin); ++chunk) sum += bitCount(t_.earlier()[chunk * ranks + rank]);
    return sum;
  }
  // The token's slot at `rank`; NULL: the token does not go there.
  MOE_LANES std::uint8_t* slot(int at, int rank) const {
    if ((t_.ranks()[at] >> rank & 1) == 0) return nullptr;
    return t_.slots()[rank] + static_cast<std::int64_t>(positionOf(at, rank)) * p_.dispatch.rowBytes;
  }

  // Stores headers to the receivers, and the handle's tables of sent rows: entries, places of destinations, and ids.
  // Each of the three kinds has warps of its own.
  MOE_LANES void storeHeaders() const {
    const int entries = size() * h_.topk, places = size() * h_.destinationsMax;
    const int placesAt = wholeWarps<Warp>(entries), keptAt = placesAt + wholeWarps<Warp>(places);
    warp_.each(keptAt + entries, [&](int i) {
      if (i >= keptAt) return laneKeepId(i - keptAt);
      if (i < entries) return laneStoreEntry(i);
      if (i >= placesAt && i - placesAt < places) laneStorePlace(i - placesAt);
    });
  }

 private:
  using Words = LlSlotWords<Warp>;

  MOE_LANES bool byExpert() const { return kPlaced && expertRows(h_); }
  MOE_LANES bool merges() const { return kMerges && h_.merges != 0; }
  MOE_LANES int bucketOf(int expert) const { return p_.comm.nranks + expert; }

  // The number of tokens at hand before token `at` that use a bucket.
  MOE_LANES int usersBefore(int at, int bucket) const { return bitCount(t_.users()[bucket] & ((1u << at) - 1)); }

  // The id of an entry of an earlier token. -1: in a handle that merges, the entry repeats an earlier one of its token.
  template <class Id>
  MOE_LANES Id earlierId(const Id* ids, int entry) const {
    const Id own = ids[entry];
    if (!byExpert() || !merges()) return own;
    const int k = entry - h_.byTopk.of(entry) * h_.topk;
    return laneSums<8>(k, 0, [&](int j) { return ids[entry - k + j] == own ? 1 : 0; }).all != 0 ? Id{-1} : own;
  }
  // -1: unused, invalid, or of a lost rank. `lost`: a bit for each.
  template <class Id>
  MOE_LANES int idOf(Id given, std::uint32_t lost) const {
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
    if (byExpert()) warp_.laneOr(t_.users() + bucketOf(id), 1u << at);
  }

  // The first entry of a token for a rank stores the head too.
  MOE_LANES void laneStoreEntry(int i) const {
    const int at = h_.byTopk.of(i), k = i - at * h_.topk, id = t_.ids()[i];
    const std::int32_t* ids = t_.ids() + i - k;
    const auto look = LlSlotLook<std::int32_t>::ofEntry(ids, h_.topk, k);
    LlSlotEntry entry = LlSlotEntry::of(h_, look, ids, k);
    if (id < 0) return;
    float weight = t_.weights()[i];
    if (mayRepeat(look)) {
      const LlMergedEntry merged = mergedEntry(i, k, entry.rank);
      if (merged.with != k) return;
      entry.before = merged.before;
      entry.all = merged.all;
      weight = merged.weight;
    }
    auto* header =
        reinterpret_cast<Quad*>(t_.toldTo()[entry.rank] + llToldHeader(p_.comm, h_, positionOf(at, entry.rank)));
    if (entry.before == 0) warp_.laneStore(header, makeHead(tokens_.begin + at, 0, 0, p_.comm.rank, entry.all));
    const int bucket = bucketOf(id);
    const int row = byExpert() ? static_cast<int>(t_.before()[bucket]) + usersBefore(at, bucket) : 0;
    warp_.laneStore(header + 1 + entry.before, makeEntry(h_.map.local(id, entry.rank), k, weight, row));
  }
  // Whether a token may name an expert again. Otherwise its entries are refused by the leading block, or are different.
  MOE_LANES bool mayRepeat(const LlSlotLook<std::int32_t>& look) const {
    return merges() && (h_.topk > look.kAtOnce || llRepeats(look));
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
      if (mayRepeat(LlSlotLook<std::int32_t>::ofEntry(t_.ids() + i - k, h_.topk, k))) {
        const LlMergedEntry merged = mergedEntry(i, k, h_.map.rankOf(id));
        if (merged.with != k) id = idOfMerged(merged.with);
        weight = merged.weight;
      }
    }
    h_.sent.ids[kept] = id;
    h_.sent.weights[kept] = weight;
  }
  // Stores place `ordinal` of a token's destinations in the handle.
  MOE_LANES void laneStorePlace(int i) const {
    const int at = size() == 1 ? 0 : i / h_.destinationsMax, ordinal = i - at * h_.destinationsMax;
    std::uint32_t left = t_.ranks()[at];
    if (ordinal == 0) {
      h_.sent.localCount[tokens_.begin + at] = h_.sent.destinationCount[tokens_.begin + at] = bitCount(left);
    }
    MOE_ROLLED
    for (int before = 0; before < ordinal; ++before) left &= left - 1;
    Destination to{kNoRank, 0, 0, 0, 0};
    forBits(left & (0u - left), [&](int rank) {
      to.rank = static_cast<std::int16_t>(rank);
      to.index = positionOf(at, rank);
    });
    h_.sent.destinations[std::int64_t{tokens_.begin + at} * h_.destinationsMax + ordinal] = to;
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
  // dispatch before. False: the rank is to stop.
  MOE_LANES bool count() const {
    const int words = wholeWarps<Warp>(p_.comm.nranks), entries = words + Words::kItems;
    const std::uint32_t lost = p_.comm.state->lost[0];
    withIds(p_, [&](const auto* ids) {
      using Look = LlSlotLook<std::remove_cvref_t<decltype(*ids)>>;
      warp_.collectBeside(
          entries + p_.dispatch.tokens * h_.topk,
          [&](int i) {
            if (i < words) return Look::ofWord(lastRows(i));
            if (i < entries) return Look::ofWord(Words::look(warp_, p_, i - words));
            const int token = h_.byTopk.of(i - entries);
            return Look::ofEntry(ids + token * h_.topk, h_.topk, i - entries - token * h_.topk);
          },
          [&](int i, const Look& looked) {
            if (i < p_.comm.nranks) t_.lastRows()[i] = static_cast<std::int32_t>(looked.word());
            if (i < words) return;
            if (i < entries) return Words::laneKeep(warp_, t_, i - words, looked.word());
            const int token = h_.byTopk.of(i - entries);
            const LlSlotEntry entry = LlSlotEntry::of(h_, looked, ids + token * h_.topk, i - entries - token * h_.topk);
            if (entry.id >= 0 && (lost >> entry.rank & 1) != 0) return;  // counts as unused
            const bool merged = kMerges && entry.twice && h_.merges != 0;
            if ((entry.twice && !merged) || (entry.id < 0 && looked.own != -1)) warp_.laneOr(t_.word(kLlFaulty), 1);
            if (entry.id < 0 || merged) return;
            warp_.laneAdd(t_.before() + entry.id, 1);
            if (entry.before == 0) warp_.laneAdd(t_.before() + h_.map.experts + entry.rank, 1);
          },
          StartNothing{});
    });
    return *t_.word(kLlStops) == 0;
  }
  MOE_LANES bool waitsForSlots() const { return *t_.word(kLlWaits) != 0; }

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
  using Words = LlSlotWords<Warp>;

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
