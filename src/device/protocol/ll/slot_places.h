// Where the rows of a dispatch into slots go, and what they are: counted by each block for its own tokens, and by the
// last one for all (slot_dispatch.h). A word has the ranks of a token, and one the tokens of a rank.
#pragma once

#include "device/protocol/ll/places.h"
#include "device/protocol/ll/taken.h"

namespace moe {

// The ranks in a word, one after the other.
template <class Body>
MOE_LANES void forBits(std::uint32_t bits, Body body) {
  MOE_ROLLED
  for (; bits != 0; bits &= bits - 1) body(bitCount((bits & (0u - bits)) - 1));
}

// Where rows are cut if two blocks share them.
MOE_LANES std::uint32_t llHalfOf(std::uint32_t rowBytes) {
  return (rowBytes / 2 + 15) / 16 * 16;
}

// What a block looks up together is of several kinds. On a GPU lanes of a warp that look up different things do it one
// after the other, so each kind begins with a warp of its own.
template <class Warp>
MOE_LANES int wholeWarps(int n) {
  return (n + Warp::kLanes - 1) / Warp::kLanes * Warp::kLanes;
}

// Words that blocks look up beside ids: whether the rank is to stop, and whether slots must be waited for.
template <class Warp>
struct LlSlotWords {
  static constexpr int kItems = 2 * Warp::kLanes;  // the first lane of a warp for each

  static MOE_LANES std::uint32_t look(const Warp& warp, const StepParams& p, int i) {
    if (i == 0) return warp.laneStopped(p.comm) ? 1 : 0;
    return i == Warp::kLanes ? p.comm.state->llUncombined[p.handle.llSet] : 0;
  }
  static MOE_LANES void laneKeep(const Warp& warp, const LlTables& t, int i, std::uint32_t word) {
    if (word != 0) warp.laneOr(t.word(i == 0 ? kLlStops : kLlWaits), 1);
  }
};

MOE_LANES bool isExpert(const HandleView& h, std::int64_t id) {
  return id >= 0 && id < h.map.experts;
}

// A token's ids, kAtOnce of them looked up side by side.
template <class Id>
struct LlSlotIds {
  static constexpr int kAtOnce = 8;
  Id id[kAtOnce];

  static MOE_LANES LlSlotIds of(const Id* ids, int count) {
    LlSlotIds some;
    MOE_UNROLLED
    for (int j = 0; j < kAtOnce; ++j) some.id[j] = j < count ? ids[j] : Id{-1};
    return some;
  }
  // A single one.
  static MOE_LANES LlSlotIds of(Id only) {
    LlSlotIds some;
    some.id[0] = only;
    return some;
  }
};
// use(ids) of 32 or 64 bits.
template <class Use>
MOE_LANES void withIds(const StepParams& p, int token, Use use) {
  const void* ids = p.route.topkIdx;
  const int first = token * p.handle.topk;
  if (p.handle.wideIndex != 0) {
    use(static_cast<const std::int64_t*>(ids) + first);
  } else {
    use(static_cast<const std::int32_t*>(ids) + first);
  }
}

// Some tokens of a block, at most kLlTokensAtOnce.
template <Blocks Warp>
class LlSlotPlaces {
 public:
  MOE_LANES LlSlotPlaces(const Warp& warp, const StepParams& params, const LlTables& tables, Range tokens)
      : warp_(warp), p_(params), h_(params.handle), t_(tables), tokens_(tokens) {}

  // What needs no look-up: addresses, and tables that are empty. Nothing meets.
  static MOE_LANES void prepare(const Warp& warp, const StepParams& p, const LlTables& t) {
    const CommView& c = p.comm;
    const HandleView& h = p.handle;
    const int ranks = c.nranks, buckets = h.map.experts + ranks;
    warp.each(buckets, [&](int i) { t.before()[i] = 0; });
    warp.each(2 * ranks + kLlTokensAtOnce + int{kLlWords}, [&](int i) {
      if (i < kLlTokensAtOnce) {
        t.ranks()[i] = 0;
      } else if (i < kLlTokensAtOnce + kLlWords) {
        *t.word(static_cast<LlWord>(i - kLlTokensAtOnce)) = 0;
      } else if (i < kLlTokensAtOnce + kLlWords + ranks) {
        t.users()[i - kLlTokensAtOnce - kLlWords] = 0;
      } else {
        const int rank = i - kLlTokensAtOnce - kLlWords - ranks;
        t.slots()[rank] = llSlot(c, h, rank, c.at.llRows, c.rowBytesMax, p.dispatch.rowBytes, c.rank, 0);
        t.toldTo()[rank] = c.in<std::uint8_t>(rank, llToldOffset(c, h, c.at.llTold, c.rank));
      }
    });
  }
  // For other tokens. Meets before and after.
  static MOE_LANES void prepareAgain(const Warp& warp, const StepParams& p, const LlTables& t) {
    warp.forEach(0, [](int) {});
    prepare(warp, p, t);
    warp.forEach(0, [](int) {});
  }

  // All lanes of the block. Looked up at once: ids and weights of these tokens, and ids of all tokens before them.
  // False: the rank is to stop.
  MOE_LANES bool count() const {
    const int own = size() * h_.topk, entries = wholeWarps<Warp>(own), words = entries + Words::kItems;
    warp_.template collect<1>(
        words + tokens_.begin,
        [&](int i) {
          if (i < entries) return i < own ? entry(tokens_.begin * h_.topk + i) : Look{kUnused, 0.0f};
          if (i < words) return Look{Words::look(warp_, p_, i - entries), 0.0f};
          return Look{ranksOf(i - words), 0.0f};
        },
        [&](int i, const Look& look) {
          if (i < own) return laneKeep(i, look);
          if (i < entries) return;
          if (i < words) return Words::laneKeep(warp_, t_, i - entries, look.bits);
          forBits(look.bits, [&](int rank) { warp_.laneAdd(t_.before() + rank, 1); });
        });
    return *t_.word(kLlStops) == 0;
  }
  // Known then: the set's last operation was a dispatch.
  MOE_LANES bool waitsForSlots() const { return *t_.word(kLlWaits) != 0; }

  MOE_LANES int first() const { return tokens_.begin; }
  MOE_LANES int size() const { return tokens_.end - tokens_.begin; }
  // Where a token at hand comes among this rank's rows for `rank`.
  MOE_LANES int positionOf(int at, int rank) const {
    return static_cast<int>(t_.before()[rank]) + bitCount(t_.users()[rank] & ((1u << at) - 1));
  }
  // Its slot there; NULL: it does not go there.
  MOE_LANES std::uint8_t* slot(int at, int rank) const {
    if ((t_.ranks()[at] >> rank & 1) == 0) return nullptr;
    return t_.slots()[rank] + static_cast<std::int64_t>(positionOf(at, rank)) * p_.dispatch.rowBytes;
  }

  // Headers to the receivers, and the handle's tables of what is sent: a lane for each entry, and for each place of a
  // destination, by other warps.
  MOE_LANES void storeHeaders() const {
    const int entries = size() * h_.topk, places = size() * h_.destinationsMax;
    const int from = wholeWarps<Warp>(entries);
    warp_.each(from + places, [&](int i) {
      if (i >= from) return laneStorePlace(i - from);
      if (i < entries) laneStoreEntry(i);
    });
  }

 private:
  using Words = LlSlotWords<Warp>;
  // What a lane looks up: an id with its weight, a word, or the ranks of a token.
  struct Look {
    std::uint32_t bits;
    float weight;
  };
  static constexpr std::uint32_t kUnused = ~0u;

  MOE_LANES Look entry(int at) const {
    const RouteArgs& route = p_.route;
    const float weight = route.topkWeights != nullptr ? route.topkWeights[at] : 1.0f;
    const std::int64_t id = givenIndexAt(h_, route, at);
    return {isExpert(h_, id) ? static_cast<std::uint32_t>(id) : kUnused, weight};
  }
  MOE_LANES std::uint32_t ranksOf(int token) const {
    std::uint32_t ranks = 0;
    withIds(p_, token, [&](const auto* ids) {
      using Ids = LlSlotIds<std::remove_cvref_t<decltype(*ids)>>;
      MOE_ROLLED
      for (int first = 0; first < h_.topk; first += Ids::kAtOnce) {
        const Ids some = Ids::of(ids + first, h_.topk - first);
        MOE_UNROLLED
        for (int j = 0; j < Ids::kAtOnce; ++j) {
          if (isExpert(h_, some.id[j])) ranks |= 1u << h_.map.rankOf(static_cast<int>(some.id[j]));
        }
      }
    });
    return ranks;
  }

  MOE_LANES void laneKeep(int i, const Look& look) const {
    t_.ids()[i] = static_cast<std::int32_t>(look.bits);
    t_.weights()[i] = look.weight;
    if (look.bits == kUnused) return;
    const int at = h_.byTopk.of(i), rank = h_.map.rankOf(static_cast<int>(look.bits));
    warp_.laneOr(t_.ranks() + at, 1u << rank);
    warp_.laneOr(t_.users() + rank, 1u << at);
  }

  // The first entry of a token for a rank stores the head too.
  MOE_LANES void laneStoreEntry(int i) const {
    const int at = h_.byTopk.of(i), k = i - at * h_.topk, id = t_.ids()[i];
    const std::int64_t kept = static_cast<std::int64_t>(tokens_.begin) * h_.topk + i;
    const float weight = t_.weights()[i];
    h_.sent.ids[kept] = id;
    h_.sent.weights[kept] = weight;
    if (id < 0) return;
    const int rank = h_.map.rankOf(id), first = h_.map.first(rank);
    const auto count = static_cast<unsigned>(h_.map.count(rank));
    const std::int32_t* ids = t_.ids() + at * h_.topk;
    // Of an unused entry, which is -1, the difference is large too.
    const Sums same = laneSums<8>(
        h_.topk, k, [&](int other) { return static_cast<unsigned>(ids[other] - first) < count ? 1 : 0; });
    auto* header = reinterpret_cast<Quad*>(t_.toldTo()[rank] + llToldHeader(p_.comm, h_, positionOf(at, rank)));
    if (same.before == 0) warp_.laneStore(header, makeHead(tokens_.begin + at, 0, 0, p_.comm.rank, same.all));
    warp_.laneStore(header + 1 + same.before, makeEntry(static_cast<unsigned>(id - first), k, weight, 0));
  }
  // Place `ordinal` of a token's destinations in the handle.
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

// What all tokens use: rows for each rank, entries for each expert, and whether one of them cannot be. For the block
// that leads, in tables that are prepared.
template <Blocks Warp>
class LlSlotCounts {
 public:
  MOE_LANES LlSlotCounts(const Warp& warp, const StepParams& params, const LlTables& tables)
      : warp_(warp), p_(params), h_(params.handle), t_(tables) {}

  // All lanes. Looked up at once: the ids of all tokens, and what went to each rank in the set's dispatch before.
  // False: the rank is to stop.
  MOE_LANES bool count() const {
    const int tokens = p_.dispatch.tokens, words = wholeWarps<Warp>(p_.comm.nranks), ids = words + Words::kItems;
    withIds(p_, 0, [&](const auto* all) {
      using Id = std::remove_cvref_t<decltype(*all)>;
      // A lane looks up a token's first ids, or a word.
      warp_.template collect<1>(
          ids + tokens,
          [&](int i) {
            if (i >= ids) return LlSlotIds<Id>::of(all + (i - ids) * h_.topk, h_.topk);
            return LlSlotIds<Id>::of(static_cast<Id>(i < words ? lastRows(i) : Words::look(warp_, p_, i - words)));
          },
          [&](int i, const LlSlotIds<Id>& looked) {
            if (i >= ids) return laneCount(all + (i - ids) * h_.topk, looked);
            const auto word = static_cast<std::uint32_t>(looked.id[0]);
            if (i >= words) return Words::laneKeep(warp_, t_, i - words, word);
            if (i < p_.comm.nranks) t_.lastRows()[i] = static_cast<std::int32_t>(word);
          });
    });
    return *t_.word(kLlStops) == 0;
  }
  MOE_LANES bool waitsForSlots() const { return *t_.word(kLlWaits) != 0; }

  static MOE_LANES int moreTo(const StepParams& p, const LlTables& t, int rank) {
    return static_cast<int>(t.before()[p.handle.map.experts + rank]) - t.lastRows()[rank];
  }

  // To the receivers and to the handle. Does not meet.
  MOE_LANES void store() const {
    const bool refuses = *t_.word(kLlFaulty) != 0;
    const int experts = h_.map.experts;
    warp_.each(experts + p_.comm.nranks, [&](int bucket) {
      const auto count = static_cast<std::int32_t>(t_.before()[bucket]);
      h_.sent.totals[bucket] = count;
      if (bucket < experts) {
        const int to = h_.map.rankOf(bucket);
        warp_.laneStore(reinterpret_cast<std::int32_t*>(t_.toldTo()[to]) + kToldWords + (bucket - h_.map.first(to)), count);
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
    warp_.laneStore(head + 1,
                    Quad{static_cast<std::uint32_t>(terms), static_cast<std::uint32_t>(terms >> 32), 0, 0});
  }

  // A token: `looked` has its first ids.
  template <class Id>
  MOE_LANES void laneCount(const Id* ids, const LlSlotIds<Id>& looked) const {
    constexpr int kAtOnce = LlSlotIds<Id>::kAtOnce;
    std::uint32_t ranks = 0;
    bool faulty = false;
    const auto take = [&](Id id) {
      faulty = faulty || indexFault(h_, id) != Fault::none;
      if (!isExpert(h_, id)) return;
      warp_.laneAdd(t_.before() + static_cast<int>(id), 1);
      ranks |= 1u << h_.map.rankOf(static_cast<int>(id));
    };
    MOE_UNROLLED
    for (int j = 0; j < kAtOnce; ++j) {
      MOE_UNROLLED
      for (int other = 0; other < j; ++other) faulty = faulty || (looked.id[j] == looked.id[other] && looked.id[j] >= 0);
      if (j < h_.topk) take(looked.id[j]);
    }
    MOE_ROLLED
    for (int k = kAtOnce; k < h_.topk; ++k) {
      const Id id = ids[k];
      take(id);
      faulty = faulty || (id >= 0 && laneSums<8>(k, 0, [&](int other) { return ids[other] == id ? 1 : 0; }).all != 0);
    }
    if (faulty) warp_.laneOr(t_.word(kLlFaulty), 1);
    forBits(ranks, [&](int rank) { warp_.laneAdd(t_.before() + h_.map.experts + rank, 1); });
  }

  const Warp& warp_;
  const StepParams& p_;
  const HandleView& h_;
  const LlTables& t_;
};

}  // namespace moe
