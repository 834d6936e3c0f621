// The tables of an LL dispatch that routes. Each block of lanes that share scratch memory counts for itself what it has
// to know of all tokens of its rank, and of all that come.
#pragma once

#include "device/view/views.h"

namespace moe {

// Handles whose tables are larger route in a step of their own. A block's scratch memory holds this much.
inline constexpr std::int64_t kLlTableBytesMax = 40 << 10;

struct LlTables {
  // Of the tokens that are sent. Chunks and buckets as in the route; the first bit of a token's words is this domain's
  // first rank, then come the domain's others, then all other ranks in order.
  std::uint32_t* ranks;   // [tokensMax][rankWords] the ranks that a token goes to
  std::uint32_t* faulty;  // [2] not 0: an id cannot be; what is wrong with what the ranks have told
  std::uint32_t* users;   // [chunks][buckets] bit t: token t of the chunk uses the bucket
  std::uint16_t* before;  // [chunks][buckets] users in earlier chunks
  // Of what comes.
  std::int32_t* rankRows;       // [nranks] rows of each source
  std::int32_t* rankOffsets;    // [nranks + 1] as in the handle
  std::int32_t* expertOffsets;  // [localExperts + 1]
  std::int32_t* rowsPerExpert;  // [localExperts]
  std::int32_t* entriesBefore;  // [nranks][localExperts] entries of earlier ranks
};

MOE_HOST_DEVICE int llRankWords(const HandleView& h) {
  return (h.map.nranks + 31) / 32;
}
MOE_HOST_DEVICE int llChunks(const HandleView& h) {
  return (h.tokensMax + kChunkTokens - 1) / kChunkTokens;
}

// Lays the tables out from `memory` on, and returns their bytes. With memory NULL: these alone.
MOE_HOST_DEVICE std::int64_t layOutLlTables(const HandleView& h, std::uint8_t* memory, LlTables* tables) {
  const int ranks = h.map.nranks, experts = h.map.count(0), cells = llChunks(h) * (h.map.experts + ranks);
  auto* words = reinterpret_cast<std::int32_t*>(memory);
  std::int64_t end = 0;
  const auto take = [&](std::int64_t count) {
    std::int32_t* begin = words == nullptr ? nullptr : words + end;
    end += roundUp(count, 4);
    return begin;
  };
  tables->ranks = reinterpret_cast<std::uint32_t*>(take(std::int64_t{h.tokensMax} * llRankWords(h)));
  tables->faulty = reinterpret_cast<std::uint32_t*>(take(2));
  tables->users = reinterpret_cast<std::uint32_t*>(take(cells));
  tables->before = reinterpret_cast<std::uint16_t*>(take((cells + 1) / 2));
  tables->rankRows = take(ranks);
  tables->rankOffsets = take(ranks + 1);
  tables->expertOffsets = take(experts + 1);
  tables->rowsPerExpert = take(experts);
  tables->entriesBefore = take(std::int64_t{ranks} * experts);
  return end * std::int64_t{sizeof(std::int32_t)};
}
MOE_HOST_DEVICE std::int64_t llTableBytes(const HandleView& h) {
  LlTables tables;
  return layOutLlTables(h, nullptr, &tables);
}

// Whether a dispatch of this handle can route in the same step: the same on all ranks.
MOE_HOST_DEVICE bool dispatchRoutes(const HandleView& h) {
  return h.lowLatency != 0 && h.rowsBudget == 0 && h.countsExperts == 0 && llTableBytes(h) <= kLlTableBytesMax;
}

}  // namespace moe
