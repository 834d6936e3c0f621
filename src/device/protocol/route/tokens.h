// The last of the route's work on a token by one lane that does all of it, for policies with `kWholeTokens`: each entry
// is looked at once. What lanes that share a token do stands in headers.h; both come to the same.
#pragma once

#include "device/protocol/route/headers.h"

namespace moe {

// The headers of this warp's token `token`, which is placed, and its destinations for the handle.
MOE_LANES void laneSendToken(const Routing auto& r, int token) {
  const int number = r.own.tokens.begin + token, rows = r.handle.sent.destinationCount[number];
  const Destination* list = r.own.destinations + std::int64_t{token} * r.handle.destinationsMax;
  Destination* kept = r.handle.sent.destinations + std::int64_t{number} * r.handle.destinationsMax;
  std::int32_t* rowOf = r.own.rankOffsets;  // its content comes later: here, by rank, the token's row there
  Quad* headers[kTopkMax];
  int entries[kTopkMax];
  for (int i = 0; i < r.handle.destinationsMax; ++i) kept[i] = list[i];
  for (int i = 0; i < rows; ++i) {
    rowOf[list[i].rank] = i;
    headers[i] = headerOf(r, list[i].rank, list[i].index);
    entries[i] = 0;
  }
  for (int k = 0, entry = token * r.handle.topk; k < r.handle.topk; ++k, ++entry) {
    const int expert = r.own.ids[entry];
    if (expert < 0) continue;
    const int rank = r.handle.map.rankOf(expert), row = rowOf[rank];
    r.warp.laneStore(headers[row] + ++entries[row], makeEntry(r.handle.map.local(expert, rank), k, r.own.weights[entry],
                                                              expertRows(r.handle) ? r.own.entryRow[entry] : 0));
  }
  for (int i = 0, wave = waveOf(number, r.p.route.tokens); i < rows; ++i) {
    const int rank = list[i].rank, of = r.handle.wavesByExpert()
                                            ? r.own.positionOf(r.handle, token, r.handle.waveBucket(rank, list[i].wave))
                                            : 0;
    r.warp.laneStore(headers[i], makeHead(number, wave, of, r.comm.rank, entries[i]));
  }
}

}  // namespace moe
