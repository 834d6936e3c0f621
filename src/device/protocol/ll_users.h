// Who uses what of a rank's tokens, counted from the ids by each block of lanes for itself: so a dispatch that routes
// asks nobody before its first row. Of each chunk of 32 tokens there is one word per bucket (an expert or a rank),
// whose bit t says that token t uses it, as in the route.
#pragma once

#include "device/protocol/route/route_refusal.h"
#include "device/view/ll_tables.h"

namespace moe {

// The session of a block, with its tables.
template <Computes Wide>
struct LlBlock : Session<Wide> {
  LlTables tables;

  MOE_LANES LlBlock(const Wide& policy, const StepParams& params, WarpIndex mover, const Operation& operation)
      : Session<Wide>(policy, params, {mover.index % mover.blocks, mover.blocks, mover.blocks}, operation) {
    layOutLlTables(this->handle, memory(), &tables);
  }

 private:
  MOE_LANES std::uint8_t* memory() const {
    if constexpr (Wide::kScratchBytes >= kLlTableBytesMax) {
      return this->warp.scratchMemory();
    } else {
      const std::int64_t bytes = llTableBytes(this->handle);
      return bytes <= Wide::kScratchBytes ? this->warp.scratchMemory()
                                          : this->handle.sent.tables.blocks + this->w.index * bytes;
    }
  }
};

template <class Block>
class LlUsers {
 public:
  MOE_LANES explicit LlUsers(const Block& block)
      : c_(block.comm),
        h_(block.handle),
        p_(block.p),
        route_(block.p.route),
        t_(block.tables),
        warp_(block.warp),
        leads_(block.w.index == 0) {}

  // All lanes of the block together. Entries that cannot be are left out; the first block knows that there are some.
  MOE_LANES void count() const {
    const int chunks = chunkCount(), cleared = static_cast<int>(t_.users - t_.ranks) + chunks * buckets();
    warp_.forEach(cleared, [&](int i) { t_.ranks[i] = 0; });
    warp_.template collect<4>(
        route_.tokens * h_.topk, [&](int i) { return givenIndexAt(h_, route_, i); },
        [&](int i, std::int64_t given) { laneMark(i, given); });
    warp_.forEach(buckets() - firstBucket(), [&](int i) { laneSum(firstBucket() + i); });
  }
  // The first block: whether an entry cannot be.
  MOE_LANES bool refuses() const { return *t_.faulty != 0; }

  // The destinations of a token: as Outgoing wants it.
  MOE_LANES Destination of(int token, int ordinal) const {
    const std::uint32_t* words = ranksOf(token);
    int left = ordinal;
    MOE_ROLLED
    for (int word = 0; word < llRankWords(h_); ++word) {
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
  // How many there are; of those in this domain, how many.
  MOE_LANES int destinations(int token) const { return countBits(token, h_.map.nranks); }
  MOE_LANES int localDestinations(int token) const { return countBits(token, c_.domainSize); }

  // Where a token comes among this rank's users of a bucket. Of experts, where they are counted.
  MOE_LANES int positionOf(int token, int bucket) const {
    const int at = token / kChunkTokens * buckets() + bucket;
    return t_.before[at] + bitCount(t_.users[at] & ((1u << token % kChunkTokens) - 1));
  }
  // All users of a bucket.
  MOE_LANES int total(int bucket) const {
    const int chunks = chunkCount(), at = (chunks - 1) * buckets() + bucket;
    return chunks == 0 ? 0 : t_.before[at] + bitCount(t_.users[at]);
  }

 private:
  MOE_LANES int buckets() const { return h_.map.experts + h_.map.nranks; }
  MOE_LANES int chunkCount() const { return (route_.tokens + kChunkTokens - 1) / kChunkTokens; }
  // Experts are counted where rows have places by them, and by the block that tells the counts.
  MOE_LANES int firstBucket() const { return leads_ || expertRows(h_) ? 0 : h_.map.experts; }

  // Bits of a token are in the order of its destinations.
  MOE_LANES int rankAt(int bit) const {
    return bit < c_.domainSize ? c_.domainFirst + bit : c_.remoteRank(bit - c_.domainSize);
  }
  MOE_LANES int bitOf(int rank) const {
    if (c_.inDomain(rank)) return rank - c_.domainFirst;
    return rank < c_.domainFirst ? rank + c_.domainSize : rank;
  }
  MOE_LANES std::uint32_t* ranksOf(int token) const {
    const int first = token * llRankWords(h_);
    return t_.ranks + first;
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

  MOE_LANES void laneMark(int entry, std::int64_t given) const {
    const std::int64_t id = placed(h_, entry, given);
    if (leads_ && cannotBe(entry, id, given)) return warp_.laneOr(t_.faulty, 1);
    if (id < 0 || id >= h_.map.experts) return;
    const auto expert = static_cast<int>(id);
    const int token = h_.byTopk.of(entry), rank = h_.map.rankOf(expert), bit = bitOf(rank);
    std::uint32_t* users = t_.users + token / kChunkTokens * buckets();
    const std::uint32_t user = 1u << token % kChunkTokens;
    if (firstBucket() == 0) warp_.laneOr(users + expert, user);
    warp_.laneOr(users + h_.map.experts + rank, user);
    warp_.laneOr(ranksOf(token) + bit / 32, 1u << bit % 32);
  }

  // As givenFault, with look-ups side by side. Entries of a token have one copy of one expert.
  MOE_LANES bool cannotBe(int entry, std::int64_t id, std::int64_t given) const {
    if (id < 0 || h_.merges != 0) return indexFault(h_, id) != Fault::none;
    const int k = entry - h_.byTopk.of(entry) * h_.topk;
    const auto isSame = [&](int other) { return givenIndexAt(h_, route_, entry - k + other) == given ? 1 : 0; };
    return indexFault(h_, id) != Fault::none || laneSums<8>(k, 0, isSame).all != 0;
  }

  MOE_LANES void laneSum(int bucket) const {
    int sum = 0;
    MOE_ROLLED
    for (int chunk = 0; chunk < chunkCount(); ++chunk) {
      const int at = chunk * buckets() + bucket;
      t_.before[at] = static_cast<std::uint16_t>(sum);
      sum += bitCount(t_.users[at]);
    }
  }

  const CommView& c_;
  const HandleView& h_;
  const StepParams& p_;
  const RouteArgs& route_;
  const LlTables& t_;
  const typename Block::Policy& warp_;
  bool leads_;
};

}  // namespace moe
