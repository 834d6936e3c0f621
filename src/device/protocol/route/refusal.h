// What a rank tells of a route that it refuses: its first entry that cannot be, with its counts. So every rank refuses
// the route, and names the entry.
#pragma once

#include "device/protocol/route/count.h"
#include "device/protocol/route/words.h"

namespace moe {

// What is wrong with an entry, if anything, by itself or beside earlier ones of its token. One lane.
MOE_LANES Fault givenFault(const StepParams& p, int entry) {
  const HandleView& h = p.handle;
  const std::int64_t id = indexAt(h, p.route, entry);
  if (indexFault(h, id) != Fault::none) return indexFault(h, id);
  if (h.merges != 0) return Fault::none;
  MOE_ROLLED
  for (int other = h.byTopk.of(entry) * h.topk; other < entry; ++other) {
    if (id >= 0 && indexAt(h, p.route, other) == id) return Fault::twice;
  }
  return Fault::none;
}

MOE_LANES Quad badEntryWords(const StepParams& p, int entry) {
  const int token = p.handle.byTopk.of(entry), k = entry - token * p.handle.topk;
  const auto id = static_cast<std::uint64_t>(givenIndexAt(p.handle, p.route, entry));
  return {static_cast<std::uint32_t>(givenFault(p, entry)), static_cast<std::uint32_t>(token << 8 | k),
          static_cast<std::uint32_t>(id), static_cast<std::uint32_t>(id >> 32)};
}

// Of rank `from`, as it came with its counts.
MOE_LANES Failure faultTold(const HandleView& h, int from, const Quad& words) {
  const auto id = static_cast<std::int64_t>(std::uint64_t{words.w} << 32 | words.z);
  return {0, static_cast<Fault>(words.x), Phase::none, from, 0, words.y, h.namedExperts(), id};
}

// The first entry that cannot be, to where each rank of [begin, end) reads it, placeAt(rank). One warp.
template <class PlaceAt>
MOE_LANES void storeBadEntry(const auto& warp, const StepParams& p, Range ranks, PlaceAt placeAt) {
  const auto isBad = [&](int entry) { return givenFault(p, entry) != Fault::none ? 1 : 0; };
  warp.scanInOrder(p.route.tokens * p.handle.topk, isBad, [&](int entry, int before) {
    if (before != 0 || isBad(entry) == 0) return;
    const Quad words = badEntryWords(p, entry);
    MOE_ROLLED
    for (int rank = ranks.begin; rank < ranks.end; ++rank) warp.laneStore(placeAt(rank), words);
  });
}

// The first warp, before it tells its counts.
template <Computes Warp>
MOE_SELDOM void writeBadEntry(Warp warp, const StepParams& p) {
  const CommView& c = p.comm;
  const std::uint64_t epoch = c.state->epoch[kRouteChannel] + 1;
  storeBadEntry(warp, p, domainRanks(c), [&](int rank) { return routeBadEntry(c, rank, epoch, c.rank); });
}

}  // namespace moe
