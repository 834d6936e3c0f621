// The tables of an LL dispatch that routes. Each block of lanes that share scratch memory has tables of its own: for
// the tokens that it sends, some at a time, and for the rows that it takes.
#pragma once

#include "device/view/flag.h"
#include "device/view/shape.h"

namespace moe {

// Handles with larger tables, or for more tokens, route in a step of their own. Tables must fit into a block's scratch
// memory. Each block looks at all tokens before its own, so with many tokens it is faster to count them once for all.
inline constexpr std::int64_t kLlTableBytesMax = 40 << 10;
inline constexpr int kLlRouteTokensMax = 1024;
static_assert(kLlRouteTokensMax <= kFlagRowsMax, "a flag says how many rows came");

// The most ranks of a step that notes ranks in the bits of one word.
inline constexpr int kSlotRanksMax = 32;

// A block handles this many tokens at a time, one bit each, and this many rows.
inline constexpr int kLlTokensAtOnce = 32, kLlRowsAtOnce = 16;

// Where a handle's tables lie, in words from the beginning of a block's memory.
struct LlTableLayout {
  // Tables of the tokens that are sent. Buckets are those of the route. The bits of ranks begin with the ranks of this
  // domain, in order; the bits of all other ranks follow, in order.
  int earlier;    // uint32 [chunks of tokensMax][nranks] bit t: token t of the chunk precedes the block's tokens and
                  // goes there
  int before;     // uint32 [buckets] users among this rank's tokens before those at hand
  int users;      // uint32 [buckets] bit t: token t of those at hand
  int ranks;      // uint32 [kLlTokensAtOnce][rankWords] the ranks that a token goes to
  int entriesTo;  // uint32 [kLlTokensAtOnce][nranks] bit k: entry k of the token is for an expert of the rank. Only
                  // plain dispatches have it, which have at most kSlotRanksMax ranks.
  int words;      // uint32 [kLlWords]
  int ids;        // int32 [kLlTokensAtOnce][topk] as the handle keeps them
  int weights;    // float [kLlTokensAtOnce][topk]
  int lastRows;   // int32 [nranks] rows that went to each rank in the set's previous dispatch
  int slots;      // uint64 [nranks] addresses of this rank's first slot at each rank
  int toldTo;     // uint64 [nranks] addresses of its metadata at each rank
  // Tables of the rows that arrive.
  int rankRows;       // int32 [nranks] rows of each source
  int rankOffsets;    // int32 [nranks + 1] as in the handle
  int expertOffsets;  // int32 [localExperts + 1]
  int rowsPerExpert;  // int32 [localExperts]
  int entriesBefore;  // int32 [nranks][localExperts] entries of the ranks before each rank
  int toldBy;         // uint64 [nranks] addresses of each source's metadata, in steps whose warps are blocks
  int arrived;        // uint64 [nranks] addresses of each source's first slot
  int headers;        // Quad [kLlRowsAtOnce][headerQuads] of the rows at hand, as they came
  int end;
};

// Words that a block notes. The first three are not 0 if an id is invalid, if the rank is to stop, and if the block
// must wait for slots. The fourth is an LlVerdict.
enum LlWord { kLlFaulty, kLlStops, kLlVerdict, kLlWords };

MOE_HOST_DEVICE constexpr int llRankWords(int nranks) {
  return (nranks + 31) / 32;
}
// The number of chunks of `tokens` tokens.
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
  take(at.entriesTo, ranks <= kSlotRanksMax ? kLlTokensAtOnce * ranks : 0);
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
