// The tables of an LL dispatch that routes. Each block of lanes that share scratch memory has its own: of the tokens
// that it sends, some at once, and of the rows that it takes.
#pragma once

#include "device/view/flag.h"
#include "device/view/shape.h"

namespace moe {

// Handles whose tables are larger, or that are for more tokens, route in a step of their own. A block's scratch memory
// holds this much. Each block looks at all tokens before its own, so many tokens are better counted once.
inline constexpr std::int64_t kLlTableBytesMax = 40 << 10;
inline constexpr int kLlRouteTokensMax = 1024;
static_assert(kLlRouteTokensMax <= kFlagRowsMax, "a flag says how many rows came");

// Tokens of a block at once, one bit each; and rows.
inline constexpr int kLlTokensAtOnce = 32, kLlRowsAtOnce = 16;

// Where a handle has them, in words from the beginning of a block's memory.
struct LlTableLayout {
  // Of the tokens that are sent. Buckets as in the route. Bits of ranks: first this domain's first rank, then the
  // domain's others, then all other ranks in order.
  int earlier;   // uint32 [chunks of tokensMax][nranks] bit t: token t of the chunk, before the block's, goes there
  int before;    // uint32 [buckets] users among this rank's tokens before those at hand
  int users;     // uint32 [buckets] bit t: token t of those at hand
  int ranks;     // uint32 [kLlTokensAtOnce][rankWords] the ranks that a token goes to
  int words;     // uint32 [kLlWords]
  int ids;       // int32 [kLlTokensAtOnce][topk] as the handle keeps them
  int weights;   // float [kLlTokensAtOnce][topk]
  int lastRows;  // int32 [nranks] rows that went to each rank in the set's dispatch before
  int slots;     // uint64 [nranks] addresses of this rank's first slot at each
  int toldTo;    // uint64 [nranks] the same of what it tells
  // Of what comes.
  int rankRows;       // int32 [nranks] rows of each source
  int rankOffsets;    // int32 [nranks + 1] as in the handle
  int expertOffsets;  // int32 [localExperts + 1]
  int rowsPerExpert;  // int32 [localExperts]
  int entriesBefore;  // int32 [nranks][localExperts] entries of earlier ranks
  int toldBy;         // uint64 [nranks] addresses of what each source tells, in steps whose warps are blocks
  int arrived;        // uint64 [nranks] the same of its first slot
  int headers;        // Quad [kLlRowsAtOnce][headerQuads] of the rows at hand, as they came
  int end;
};

// What a block notes. Not 0: an id cannot be; the rank is to stop; slots must be waited for; and an LlVerdict.
enum LlWord { kLlFaulty, kLlStops, kLlWaits, kLlVerdict, kLlWords };

MOE_HOST_DEVICE constexpr int llRankWords(int nranks) {
  return (nranks + 31) / 32;
}
// Chunks of so many tokens.
MOE_HOST_DEVICE constexpr int llChunks(int tokens) {
  return (tokens + kChunkTokens - 1) / kChunkTokens;
}

constexpr LlTableLayout layOutLlTables(const ExpertMap& map, int topk, int tokensMax) {
  const int ranks = map.nranks, experts = map.count(0), buckets = map.experts + ranks;
  LlTableLayout at{};
  const auto take = [&](int& table, int words) {
    table = at.end;
    at.end += static_cast<int>(roundUp(words, 4));
  };
  take(at.earlier, llChunks(tokensMax) * ranks);
  take(at.before, buckets), take(at.users, buckets);
  take(at.ranks, kLlTokensAtOnce * llRankWords(ranks));
  take(at.words, kLlWords);
  take(at.ids, kLlTokensAtOnce * topk), take(at.weights, kLlTokensAtOnce * topk);
  take(at.lastRows, ranks);
  take(at.slots, 2 * ranks), take(at.toldTo, 2 * ranks);
  take(at.rankRows, ranks), take(at.rankOffsets, ranks + 1);
  take(at.expertOffsets, experts + 1), take(at.rowsPerExpert, experts);
  take(at.entriesBefore, ranks * experts);
  take(at.toldBy, 2 * ranks), take(at.arrived, 2 * ranks);
  take(at.headers,
       kLlRowsAtOnce * static_cast<int>(headerQuads(topk)) * static_cast<int>(sizeof(Quad) / sizeof(std::uint32_t)));
  return at;
}

constexpr std::int64_t llTableBytes(const LlTableLayout& at) {
  return std::int64_t{at.end} * std::int64_t{sizeof(std::uint32_t)};
}

}  // namespace moe
