// Where the words lie that ranks tell each other in a route, before any header.
#pragma once

#include "device/protocol/core/session.h"

namespace moe {

// What rank `from` sent for this epoch: its handle's terms, an entry that cannot be, if the terms say so, and then its
// counts, of entries per expert, of rows per rank and, for HT, per domain if there are several.
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

// What all ranks must have alike in a route: of the handle, and of its placement as the route finds it.
MOE_LANES Quad termsOf(const HandleView& h) {
  Quad terms = h.terms;
  if (h.placement != nullptr) {
    terms.y |= h.placement->boundWord;
    terms.z |= h.placement->alignmentWord;
  }
  return terms;
}

// The rows that rank `from` sends here in each wave by experts.
MOE_LANES std::int32_t* waveCounts(const CommView& c, int rank, std::uint64_t epoch, int from) {
  return c.in<std::int32_t>(rank, c.at.waveCounts) + std::int64_t{parityOf(epoch) * c.nranks + from} * kHtWaves;
}

// The entry that cannot be, for who refuses the route: its fault, token << 8 | entry, and its value in two words.
MOE_LANES Quad* routeBadEntry(const CommView& c, int rank, std::uint64_t epoch, int from) {
  return routeTerms(c, rank, epoch, from) + 1;
}

}  // namespace moe
