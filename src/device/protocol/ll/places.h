// Where a rank's tokens go. Each block of lanes counts this from the ids for its own tokens, so that a dispatch that
// routes waits for nobody before its first row. A bucket is an expert or a rank. A token's position among the users of
// a bucket is the number of users among all tokens before it.
#pragma once

#include "device/protocol/core/session.h"
#include "device/protocol/core/shares.h"
#include "device/protocol/route/refusal.h"
#include "device/view/ll_slots.h"

namespace moe {

// ---- A block of lanes that share scratch memory, in a dispatch that routes: its session, its tables, the tokens that
// it sends, and the parts of their rows that each warp sends.

// The tables of a block.
class LlTables {
 public:
  template <Computes Wide>
  MOE_LANES LlTables(const Wide& policy, const HandleView& handle, int block)
      : at_(handle.llTables), memory_(memory(policy, handle, block)) {}

  MOE_LANES std::uint32_t* earlier() const { return memory_ + at_.earlier; }
  MOE_LANES std::uint32_t* before() const { return memory_ + at_.before; }
  MOE_LANES std::uint32_t* users() const { return memory_ + at_.users; }
  MOE_LANES std::uint32_t* ranks() const { return memory_ + at_.ranks; }
  MOE_LANES std::uint32_t* entriesTo() const { return memory_ + at_.entriesTo; }
  MOE_LANES std::uint32_t* word(LlWord which) const { return memory_ + at_.words + which; }
  MOE_LANES std::int32_t* ids() const { return table<std::int32_t>(at_.ids); }
  MOE_LANES float* weights() const { return table<float>(at_.weights); }
  MOE_LANES std::int32_t* lastRows() const { return table<std::int32_t>(at_.lastRows); }
  MOE_LANES std::uint8_t** slots() const { return table<std::uint8_t*>(at_.slots); }
  MOE_LANES std::uint8_t** toldTo() const { return table<std::uint8_t*>(at_.toldTo); }
  MOE_LANES std::int32_t* rankRows() const { return table<std::int32_t>(at_.rankRows); }
  MOE_LANES std::int32_t* rankOffsets() const { return table<std::int32_t>(at_.rankOffsets); }
  MOE_LANES std::int32_t* expertOffsets() const { return table<std::int32_t>(at_.expertOffsets); }
  MOE_LANES std::int32_t* rowsPerExpert() const { return table<std::int32_t>(at_.rowsPerExpert); }
  MOE_LANES std::int32_t* entriesBefore() const { return table<std::int32_t>(at_.entriesBefore); }
  MOE_LANES std::uint8_t** toldBy() const { return table<std::uint8_t*>(at_.toldBy); }
  MOE_LANES std::uint8_t** arrived() const { return table<std::uint8_t*>(at_.arrived); }
  MOE_LANES Quad* headers() const { return table<Quad>(at_.headers); }

 private:
  template <class T>
  MOE_LANES T* table(int words) const {
    return reinterpret_cast<T*>(memory_ + words);
  }
  template <class Wide>
  static MOE_LANES std::uint32_t* memory(const Wide& policy, const HandleView& handle, int block) {
    std::uint8_t* memory = policy.scratchMemory();
    if constexpr (Wide::kScratchBytes < kLlTableBytesMax) {
      const std::int64_t bytes = llTableBytes(handle.llTables);
      if (bytes > Wide::kScratchBytes) memory = handle.sent.tables.blocks + block * bytes;
    }
    return reinterpret_cast<std::uint32_t*>(memory);
  }

  const LlTableLayout& at_;
  std::uint32_t* memory_;
};

// The session of a block, with its tables. `kIsPlain`: the dispatch carries nothing special.
template <Computes Wide, bool kIsPlain>
struct LlBlock : Session<Wide>, LlTables {
  static constexpr bool kPlain = kIsPlain;
  static constexpr bool kPrepared = false;  // whether toldBy() and arrived() are filled

  MOE_LANES LlBlock(const Wide& policy, const StepParams& params, WarpIndex own, const Operation& operation)
      : Session<Wide>(policy, params, {own.block(), own.blocks, own.blocks}, operation),
        LlTables(policy, params.handle, own.block()) {}
};

// The tokens [first, end) of a block. If there are enough blocks, two blocks (`sharers`) share a token, and this
// block is number `sharer` of them.
struct LlShare {
  int first, end, sharer, sharers;
  bool leads;  // this block knows all tokens and sends the counts: it has the last token, or no rows

  // `block`: this block among all. With `countingBlock` (`apart`), the last of several blocks counts and moves no rows,
  // because the others would wait for it. If there are enough blocks, the code needs no integer division.
  static MOE_LANES LlShare of(const DispatchArgs& d, WarpIndex block) {
    return of(d.tokens, d.countingBlock != 0 && block.count > 1, block);
  }
  static MOE_LANES LlShare of(int tokens, bool apart, WarpIndex block) {
    const int movers = apart ? block.count - 1 : block.count;
    const int sharers = tokens > 0 && tokens * 2 <= movers ? 2 : 1;
    const int number = sharers == 2 ? block.index / 2 : block.index, sharer = block.index - number * sharers;
    const int each = tokens <= movers ? 1 : (tokens + movers - 1) / movers;
    const bool counts = apart && block.index == movers;
    const int first = counts ? tokens : number * each < tokens ? number * each : 0;
    const int end = counts ? tokens : number * each >= tokens ? 0 : first + each < tokens ? first + each : tokens;
    const bool last = tokens > 0 ? end == tokens && sharer == 0 : block.index == 0;
    return {first, end, sharer, sharers, apart ? counts : last};
  }

  // The index of warp `warp`, one of the block's `warps`, among all warps that share these tokens' rows.
  MOE_LANES WarpIndex team(int warp, int warps) const { return {warp * sharers + sharer, warps * sharers, sharers}; }
};

// A warp's parts of the rows of some tokens. A team mostly has a warp for each part of a row.
struct LlParts {
  Range tokens;
  Parts parts;
  std::uint32_t rowBytes;
  WarpIndex team;
  int each;  // number of this warp's parts of a row

  static MOE_LANES LlParts of(Range tokens, const Parts& parts, std::uint32_t rowBytes, WarpIndex team) {
    const int left = parts.count - team.index;
    const int each = left <= 0 ? 0 : left <= team.count ? 1 : (left + team.count - 1) / team.count;
    return {tokens, parts, rowBytes, team, each};
  }
  MOE_LANES int count() const { return (tokens.end - tokens.begin) * each; }
  MOE_LANES PartOf at(int i) const {
    const int token = each == 1 ? i : i / each, part = team.index + (i - token * each) * team.count;
    const std::uint32_t begin = static_cast<std::uint32_t>(part) * parts.bytes, left = rowBytes - begin;
    return {tokens.begin + token, begin, left < parts.bytes ? left : parts.bytes};
  }
};

// An entry of a handle that merges duplicates.
template <class Params>
MOE_SELDOM TakenEntry mergedEntry(const Params& p, int entry) {
  return takenEntry(p.handle, p.route, LostRanks(p.comm), entry);
}
// True if an entry is invalid, by itself or because of earlier entries of its token. Unlike givenFault it makes several
// look-ups at once. Only the leading block calls it, so that its code does not slow the other blocks down. `id`: the
// expert that the entry names.
template <class Params>
MOE_SELDOM bool entryCannotBe(const Params& p, int entry, std::int64_t id) {
  const HandleView& h = p.handle;
  if (id < 0 || h.merges != 0) return indexFault(h, id) != Fault::none;
  const int first = h.byTopk.of(entry) * h.topk;
  const std::int64_t given = givenIndexAt(h, p.route, entry);
  const auto isSame = [&](int other) { return givenIndexAt(h, p.route, first + other) == given ? 1 : 0; };
  return indexFault(h, id) != Fault::none || laneSums<8>(entry - first, 0, isSame).all != 0;
}

// The tokens at hand: kLlTokensAtOnce of a block's share, from `first` on.
template <class Tabled>
class LlPlaces {
 public:
  MOE_LANES LlPlaces(const Tabled& block, const LlShare& share, int first)
      : c_(block.comm),
        h_(block.handle),
        p_(block.p),
        t_(block),
        warp_(block.warp),
        leads_(share.leads),
        begins_(first == share.first),
        first_(first),
        count_(share.end - first < kLlTokensAtOnce ? share.end - first : kLlTokensAtOnce) {}

  // All lanes of the block call it together, for the tokens at hand in turn. It leaves invalid entries out; the leading
  // block notes that there are some. It looks up at once everything that rows depend on, including the number of rows
  // for each rank in the previous dispatch, and whether the rank is to stop. False: the rank is to stop.
  MOE_LANES bool count() const {
    clear();
    const int from = begins_ ? 0 : first_ * h_.topk, entries = (first_ + count_) * h_.topk - from;
    const int others = begins_ ? 1 + (leads_ ? c_.nranks : 0) : 0;
    const LostRanks lost(c_);
    warp_.template collect<2>(
        entries + others, [&](int i) { return i < entries ? lookAt(from + i) : lookBeside(i - entries); },
        [&](int i, const Look& look) {
          if (i < entries) return laneTake(from + i, look, lost);
          laneTakeBeside(i - entries, look);
        });
    if (begins_ && first_ > 0) warp_.forEach(c_.nranks, [&](int rank) { laneSum(rank); });
    return *t_.word(kLlStops) == 0;
  }

  // For the leading block: whether an entry is invalid.
  MOE_LANES bool refuses() const { return *t_.word(kLlFaulty) != 0; }
  // True if the tokens at hand are the first ones of the block.
  MOE_LANES bool begin() const { return begins_; }
  MOE_LANES int first() const { return first_; }
  MOE_LANES int size() const { return count_; }

  // The destinations of a token at hand, as Outgoing needs them.
  MOE_LANES Destination of(int token, int ordinal) const {
    const std::uint32_t* words = ranksOf(token);
    int left = ordinal;
    MOE_ROLLED
    for (int word = 0; word < llRankWords(c_.nranks); ++word) {
      std::uint32_t bits = words[word];
      const int here = bitCount(bits);
      if (left >= here) {
        left -= here;
        continue;
      }
      for (; left > 0; --left) bits &= bits - 1;
      const int rank = rankAt(word * 32 + bitCount((bits & (0u - bits)) - 1));
      return {static_cast<std::int16_t>(rank), 0, positionOf(token, h_.map.experts + rank), 0, 0};
    }
    return {kNoRank, 0, 0, 0, 0};
  }
  // The number of destinations of a token, in total and in this domain.
  MOE_LANES int destinations(int token) const { return countBits(token, h_.map.nranks); }
  MOE_LANES int localDestinations(int token) const { return countBits(token, c_.domainSize); }

  // Entry k of a token, as the handle keeps it.
  MOE_LANES int id(int token, int k) const { return t_.ids()[(token - first_) * h_.topk + k]; }
  MOE_LANES float weight(int token, int k) const { return t_.weights()[(token - first_) * h_.topk + k]; }

  // The position of a token at hand among this rank's users of a bucket. Valid for experts only where they are counted.
  MOE_LANES int positionOf(int token, int bucket) const {
    return static_cast<int>(t_.before()[bucket]) + bitCount(t_.users()[bucket] & ((1u << (token - first_)) - 1));
  }
  // For the leading block, when its last tokens are at hand. total: the number of all users of a bucket. moreTo: how
  // many more rows go to a rank than in the previous dispatch.
  MOE_LANES int total(int bucket) const { return static_cast<int>(t_.before()[bucket]) + bitCount(t_.users()[bucket]); }
  MOE_LANES int moreTo(int rank) const { return total(h_.map.experts + rank) - t_.lastRows()[rank]; }

 private:
  // The result of a lane's look-up: the id that an entry names and, for a token at hand, its weight; or a word of
  // lookBeside().
  struct Look {
    std::int64_t given;
    float weight;
  };

  MOE_LANES int buckets() const { return h_.map.experts + h_.map.nranks; }
  // Experts are counted where rows have places by experts, and by the block that sends the counts.
  MOE_LANES int firstBucket() const { return leads_ || expertRows(h_) ? 0 : h_.map.experts; }

  // From now on the tokens that were at hand count as earlier ones.
  MOE_LANES void clear() const {
    const int counted = buckets() - firstBucket(), ranks = kLlTokensAtOnce * llRankWords(c_.nranks);
    const int earlier = begins_ ? llChunks(first_) * c_.nranks : 0, words = begins_ ? int{kLlWords} : 0;
    warp_.forEach(counted + ranks + earlier + words, [&](int i) {
      if (i < counted) return laneTurn(firstBucket() + i);
      i -= counted;
      if (i < ranks) {
        t_.ranks()[i] = 0;
      } else if (i < ranks + earlier) {
        t_.earlier()[i - ranks] = 0;
      } else {
        *t_.word(static_cast<LlWord>(i - ranks - earlier)) = 0;
      }
    });
  }
  MOE_LANES void laneTurn(int bucket) const {
    t_.before()[bucket] = begins_ ? 0 : t_.before()[bucket] + static_cast<unsigned>(bitCount(t_.users()[bucket]));
    t_.users()[bucket] = 0;
  }

  // The loads for tokens at hand and for other tokens are the same, so that they go side by side.
  MOE_LANES Look lookAt(int entry) const {
    const float* weights = p_.route.topkWeights;
    return {givenIndexAt(h_, p_.route, entry), weights != nullptr ? weights[entry] : 1.0f};
  }
  MOE_LANES Look lookBeside(int i) const {
    return {i == 0 ? std::int64_t{warp_.laneStopped(c_)} : *llLastRows(c_, h_, i - 1), 0.0f};
  }
  MOE_LANES void laneTakeBeside(int i, const Look& look) const {
    if (i > 0) t_.lastRows()[i - 1] = static_cast<std::int32_t>(look.given);
    if (i == 0 && look.given != 0) warp_.laneOr(t_.word(kLlStops), 1);
  }

  MOE_LANES void laneTake(int entry, const Look& look, const LostRanks& lost) const {
    const int token = h_.byTopk.of(entry), k = entry - token * h_.topk;
    TakenEntry taken{look.given, look.weight, k};
    if constexpr (!Tabled::kPlain) {
      taken.id = placed(h_, entry, look.given);
      if (h_.merges != 0) taken = mergedEntry(p_, entry);
    }
    taken.id = lost.standing(h_.map, taken.id);
    if (leads_ && entryCannotBe(p_, entry, taken.id)) warp_.laneOr(t_.word(kLlFaulty), 1);
    const int id = keptId(h_, k, taken);
    if (token >= first_) return laneKeep(token - first_, k, id, taken.weight);
    if (id < 0) return;
    if (firstBucket() == 0) warp_.laneAdd(t_.before() + id, 1);
    const int word = token / kChunkTokens * c_.nranks + h_.map.rankOf(id);
    warp_.laneOr(t_.earlier() + word, 1u << token % kChunkTokens);
  }
  // Keeps an entry of a token at hand.
  MOE_LANES void laneKeep(int token, int k, int id, float weight) const {
    t_.ids()[token * h_.topk + k] = id;
    t_.weights()[token * h_.topk + k] = weight;
    if (id < 0) return;
    const std::uint32_t user = 1u << token;
    const int rank = h_.map.rankOf(id), bit = bitOf(rank);
    if (firstBucket() == 0) warp_.laneOr(t_.users() + id, user);
    warp_.laneOr(t_.users() + h_.map.experts + rank, user);
    warp_.laneOr(t_.ranks() + token * llRankWords(c_.nranks) + bit / 32, 1u << bit % 32);
  }
  // Counts the tokens before the block's own that go to a rank.
  MOE_LANES void laneSum(int rank) const {
    int sum = 0;
    MOE_ROLLED
    for (int chunk = 0; chunk < llChunks(first_); ++chunk) sum += bitCount(t_.earlier()[chunk * c_.nranks + rank]);
    t_.before()[h_.map.experts + rank] = static_cast<std::uint32_t>(sum);
  }

  // The bits of a token are in the order of its destinations.
  MOE_LANES int rankAt(int bit) const {
    return bit < c_.domainSize ? c_.domainFirst + bit : c_.remoteRank(bit - c_.domainSize);
  }
  MOE_LANES int bitOf(int rank) const {
    if (c_.inDomain(rank)) return rank - c_.domainFirst;
    return rank < c_.domainFirst ? rank + c_.domainSize : rank;
  }
  MOE_LANES const std::uint32_t* ranksOf(int token) const {
    return t_.ranks() + (token - first_) * llRankWords(c_.nranks);
  }
  MOE_LANES int countBits(int token, int end) const {
    const std::uint32_t* words = ranksOf(token);
    int count = 0;
    MOE_ROLLED
    for (int first = 0; first < end; first += 32) {
      const std::uint32_t all = end - first >= 32 ? ~0u : (1u << (end - first)) - 1;
      count += bitCount(words[first / 32] & all);
    }
    return count;
  }

  const CommView& c_;
  const HandleView& h_;
  const StepParams& p_;
  const Tabled& t_;
  const typename Tabled::Policy& warp_;
  bool leads_, begins_;
  int first_, count_;
};

}  // namespace moe
