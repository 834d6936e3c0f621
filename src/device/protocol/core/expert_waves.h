// Waves by experts, and the arrival words that they serve. A rank's local experts are divided into groups. A row goes
// to a rank in the wave of its lowest expert there. Therefore, when wave g has been placed, the experts of group g are
// complete. See docs/decisions/0024-arrival-words.md.
#pragma once

#include "device/protocol/core/waves.h"

namespace moe {

// The wave of a local expert, on a rank that has `experts` experts.
MOE_LANES int waveOfExpert(const HandleView& h, int expert, int experts) {
  return expert * h.waves / experts;
}
MOE_LANES Range expertsOfWave(const HandleView& h, int wave, int experts) {
  return tokensOfWave(h.waves, wave, experts);
}

// The wave in which the row of a token goes to a rank. `ids` are the token's entries; the rank holds at least one of
// their experts.
MOE_LANES int waveAtRank(const HandleView& h, const std::int32_t* ids, int rank) {
  const int first = h.map.first(rank), experts = h.map.count(rank);
  int lowest = experts;
  for (int k = 0; k < h.topk; ++k) {
    const int expert = ids[k] - first;
    if (expert >= 0 && expert < lowest) lowest = expert;
  }
  return waveOfExpert(h, lowest, experts);
}

// The wave of an arrived row, from its header.
MOE_LANES int waveOfHeader(const HandleView& h, const Quad* header, int experts) {
  int lowest = experts;
  for (int entry = 1; entry <= headEntries(header[0]); ++entry) {
    if (entryExpert(header[entry]) < lowest) lowest = entryExpert(header[entry]);
  }
  return waveOfExpert(h, lowest, experts);
}

// Selects the rows of a token that go now.
struct AllRows {
  MOE_LANES bool any(int) const { return true; }
  MOE_LANES bool takes(const Destination&) const { return true; }
};
struct RowsOfWave {
  const HandleView& h;
  int wave;

  MOE_LANES bool any(int token) const { return !h.wavesByExpert() || (h.sent.wavesOf[token] >> wave & 1u) != 0; }
  MOE_LANES bool takes(const Destination& to) const { return !h.wavesByExpert() || to.wave == wave; }
};

// The rows that a dispatch receives in a wave.
MOE_LANES ArrivingRows rowsOfWave(const HandleView& h, bool inWaves, int wave) {
  if (!h.wavesByExpert()) return arrivingRows(h, inWaves, wave);
  const std::int32_t* start = h.arriving.waveRowsStart + std::int64_t{wave} * h.map.nranks;
  return {h, inWaves, wave, start[0], start[h.map.nranks], h.arriving.waveRows, kNoRank};
}

// Announces that these experts are complete. All warps that place rows call it, each after its own rows.
MOE_LANES void announceArrivals(const AnySession auto& s, int wave, Range experts, WarpIndex team) {
  if (experts.begin == experts.end) return;
  s.warp.announce(
      experts.end - experts.begin, [&](int i) { return s.handle.arriving.complete + experts.begin + i; },
      static_cast<Meeting>(static_cast<int>(Meeting::arrivals) + wave), team);
}

}  // namespace moe
