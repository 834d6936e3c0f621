// The last of the route's work on a token by one lane that does all of it, for policies with `kWholeTokens`: each entry
// is looked at once. What lanes that share a token do stands in route_headers.h; both come to the same.
#pragma once

#include "device/protocol/route/route_headers.h"

namespace moe {

// The headers of this warp's token `token`, which is placed, and its destinations for the handle.
template <Computes Warp>
MOE_LANES void laneSendToken(const Warp& warp, const RouteSlice& s, const StepParams& p, std::uint64_t epoch,
                             int token) {
  const CommView& c = p.comm;
  const HandleView& h = p.handle;
  const int number = s.tokens.begin + token, rows = h.destinationCount[number];
  const Destination* list = s.destinations + std::int64_t{token} * h.slots;
  Destination* kept = h.destinations + std::int64_t{number} * h.slots;
  std::int32_t* rowOf = s.rankOffsets;  // its content comes later: here, by rank, the token's row there
  Quad* headers[kTopkMax];
  int entries[kTopkMax];
  for (int i = 0; i < h.slots; ++i) kept[i] = list[i];
  for (int i = 0; i < rows; ++i) {
    rowOf[list[i].rank] = i;
    headers[i] = headerOf(warp, c, epoch, list[i].rank, list[i].index);
    entries[i] = 0;
  }
  for (int k = 0, entry = token * h.topk; k < h.topk; ++k, ++entry) {
    const int expert = s.ids[entry];
    if (expert < 0) continue;
    const int rank = h.map.rankOf(expert), row = rowOf[rank];
    warp.laneStore(headers[row] + ++entries[row],
                   makeEntry(h.map.local(expert, rank), k, s.weights[entry], expertRows(h) ? s.entryRow[entry] : 0));
  }
  for (int i = 0, wave = waveOf(number, p.route.tokens); i < rows; ++i) {
    const int rank = list[i].rank,
              of = h.wavesByExpert() ? s.positionOf(h, token, h.waveBucket(rank, list[i].wave)) : 0;
    warp.laneStore(headers[i], makeHead(number, wave, of, c.rank, entries[i]));
  }
}

}  // namespace moe
