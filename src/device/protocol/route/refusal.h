// The data that ranks exchange in a route before any header: terms, counts and, if a rank refuses the route, its first
// invalid entry. With it every rank refuses the route and names the entry.
#pragma once

#include "device/protocol/core/session.h"
#include "device/protocol/route/count.h"

namespace moe {

// Where the data lies that rank `from` sent for this epoch: its handle's terms; an invalid entry, if the terms say that
// there is one; and then its counts of entries per expert, of rows per rank and, for HT across several domains, of
// tokens per domain.
MOE_LANES std::uint64_t countsOffset(const CommView& c, std::uint64_t epoch, int from) {
  return c.at.routeCounts +
         static_cast<std::uint64_t>(parityOf(epoch) * c.nranks + from) * static_cast<unsigned>(c.at.countStride) * 4;
}
MOE_LANES std::int32_t* routeCounts(const CommView& c, int rank, std::uint64_t epoch, int from) {
  return c.in<std::int32_t>(rank, countsOffset(c, epoch, from)) + kTermWords;
}

MOE_LANES Quad* routeTerms(const CommView& c, int rank, std::uint64_t epoch, int from) {
  return c.in<Quad>(rank, countsOffset(c, epoch, from));
}

// The terms that all ranks must share in a route: those of the handle, and of the placement that the route uses.
MOE_LANES Quad termsOf(const HandleView& h) {
  Quad terms = h.terms;
  if (h.placement != nullptr) {
    terms.y |= h.placement->boundWord;
    terms.z |= h.placement->alignmentWord;
  }
  return terms;
}

// The number of rows that rank `from` sends here in each wave by experts.
MOE_LANES std::int32_t* waveCounts(const CommView& c, int rank, std::uint64_t epoch, int from) {
  return c.in<std::int32_t>(rank, c.at.waveCounts) + std::int64_t{parityOf(epoch) * c.nranks + from} * kHtWaves;
}

// The invalid entry of a rank that refuses the route: its fault, token << 8 | entry, and its value in two words.
MOE_LANES Quad* routeBadEntry(const CommView& c, int rank, std::uint64_t epoch, int from) {
  return routeTerms(c, rank, epoch, from) + 1;
}

// The fault of an entry, if any, by itself or together with earlier entries of its token. For one lane.
MOE_LANES Fault givenFault(const StepParams& p, int entry) {
  const HandleView& h = p.handle;
  const std::int64_t id = LostRanks(p.comm).standing(h.map, indexAt(h, p.route, entry));
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

// The fault that rank `from` sent with its counts.
MOE_LANES Failure faultTold(const HandleView& h, int from, const Quad& words) {
  const auto id = static_cast<std::int64_t>(std::uint64_t{words.w} << 32 | words.z);
  return badEntry(static_cast<Fault>(words.x), from, words.y, h.namedExperts(), id);
}

// Stores the first invalid entry to placeAt(rank), where each rank of [begin, end) reads it. One warp calls it.
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

// The first warp calls it before it sends its counts.
template <Computes Warp>
MOE_SELDOM void writeBadEntry(Warp warp, const StepParams& p) {
  const CommView& c = p.comm;
  const std::uint64_t epoch = c.state->epoch[kRouteChannel] + 1;
  storeBadEntry(warp, p, domainRanks(c), [&](int rank) { return routeBadEntry(c, rank, epoch, c.rank); });
}

}  // namespace moe
