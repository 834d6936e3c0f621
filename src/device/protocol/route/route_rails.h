// The route across domains, for HT: each token's index on the rails that it takes, and the tables by which rail peers
// forward its rows to their final places (rails.h).
//   railTables  [parity][domain][index]: a Quad (destinations, wave, 0, 0), then a Destination each
#pragma once

#include "device/protocol/expert_waves.h"
#include "device/protocol/rails.h"
#include "device/protocol/route/route_exchange.h"

namespace moe {

// Row of the receiver's layout for the first entry on a rank of this warp's token `token`.
MOE_LANES int firstEntryRow(const RouteSlice& s, const HandleView& h, int token, int rank) {
  const std::int32_t *ids = s.idsOf(h, token), *rows = s.entryRowsOf(h, token);
  int row = 0;
  for (int k = h.topk - 1; k >= 0; --k) row = h.map.isOn(ids[k], rank) ? rows[k] : row;
  return row;
}

// The row of this warp's token `token` at a rank. One lane.
MOE_LANES Destination destinationAt(const RouteSlice& s, const CommView& c, const HandleView& h, int token, int rank) {
  const int bucket = h.map.experts + rank;
  const int index = s.positionOf(h, token, bucket), flat = s.rankBase[rank] + index;
  const int row = expertRows(h)                   ? firstEntryRow(s, h, token, rank)
                  : h.layout == Layout::rankMajor ? c.rank * h.tokensMax + index
                                                  : flat;
  const int wave = h.wavesByExpert() ? waveAtRank(h, s.idsOf(h, token), rank) : 0;
  return {static_cast<std::int16_t>(rank), static_cast<std::int16_t>(wave), index, row, flat};
}

// Calls add(row) for the row of this warp's token `token` at each of some ranks. One lane.
template <class Add>
MOE_LANES void laneForRanks(const RouteSlice& s, const CommView& c, const HandleView& h, int token, Range ranks,
                            Add add) {
  for (int rank = ranks.begin; rank < ranks.end; ++rank) {
    if (s.uses(h, token, h.map.experts + rank)) add(destinationAt(s, c, h, token, rank));
  }
}

// The position of this warp's token `token` among those that this rank sends to a domain.
MOE_LANES int railIndexOf(const RouteSlice& s, const HandleView& h, int token, int domain) {
  return s.positionOf(h, token, h.domainBucket(domain));
}

MOE_LANES std::uint64_t railTableOffset(const CommView& c, std::uint64_t area, int part, int index) {
  const std::int64_t slot = static_cast<std::int64_t>(part) * c.tokensMax + index;
  return area + static_cast<std::uint64_t>(slot * c.far->at.railQuads) * sizeof(Quad);
}

// What the rail peer in `domain` must know of this warp's token `token`. One lane.
template <Computes Warp>
MOE_LANES void laneWriteRail(const Warp& warp, const RouteSlice& s, const StepParams& p, int token, int domain,
                             int index) {
  const CommView& c = p.comm;
  Quad* to = c.mine<Quad>(railTableOffset(c, c.far->at.railTablesOut, domain, index));
  std::uint32_t count = 0;
  const int first = domain * c.domainSize;
  laneForRanks(s, c, p.handle, token, {first, first + c.domainSize}, [&](const Destination& at) {
    ++count;
    warp.laneStore(to + count, Quad{static_cast<std::uint32_t>(at.rank), static_cast<std::uint32_t>(at.index),
                                    static_cast<std::uint32_t>(at.row), static_cast<std::uint32_t>(at.flat)});
  });
  warp.laneStore(to, Quad{count, static_cast<std::uint32_t>(waveOf(s.tokens.begin + token, p.route.tokens)), 0, 0});
}

// The rail peers that this warp's token `token` goes to. One lane.
template <Computes Warp, class Add>
MOE_LANES void laneListRails(const Warp& warp, const RouteSlice& s, const StepParams& p, int token, Add add) {
  const CommView& c = p.comm;
  const HandleView& h = p.handle;
  for (int domain = 0; domain < h.domains; ++domain) {
    if (domain == c.domain() || !s.uses(h, token, h.domainBucket(domain))) continue;
    const int index = railIndexOf(s, h, token, domain);
    h.outgoing[static_cast<std::int64_t>(domain) * h.tokensMax + index] = s.tokens.begin + token;
    laneWriteRail(warp, s, p, token, domain, index);
    add(Destination{static_cast<std::int16_t>(c.railPeer(domain)), 0, index, 0, 0});
  }
}

template <Computes Warp>
MOE_LANES void putRailTable(const Warp& warp, const CommView& c, const HandleView& h, std::uint64_t epoch, int domain) {
  const int part = parityOf(epoch) * c.domains() + c.domain();
  const std::int64_t bytes =
      std::int64_t{h.totals[h.domainBucket(domain)]} * c.far->at.railQuads * static_cast<std::int64_t>(sizeof(Quad));
  putBlock(warp, c, c.railPeer(domain), railTableOffset(c, c.far->at.railTables, part, 0),
           railTableOffset(c, c.far->at.railTablesOut, domain, 0), bytes);
}

// Rows that will come from the rail peer in `domain`.
template <Computes Warp>
MOE_LANES int railRows(const Warp& warp, const CommView& c, const HandleView& h, std::uint64_t epoch, int domain) {
  if (domain == c.domain()) return 0;
  return warp.laneLoad(routeCounts(c, c.rank, epoch, c.railPeer(domain)) + h.domainBucket(c.domain()));
}

// One row's table, and where waves begin. One lane.
template <Computes Warp>
MOE_LANES void laneKeepRail(const Warp& warp, const CommView& c, const HandleView& h, std::uint64_t epoch, int domain,
                            int index, int rows) {
  const int part = parityOf(epoch) * c.domains() + domain;
  const Quad* table = c.mine<Quad>(railTableOffset(c, c.far->at.railTables, part, index));
  const Quad head = warp.laneLoad(table);
  const std::int64_t at = static_cast<std::int64_t>(domain) * h.tokensMax + index;
  h.railCount[at] = static_cast<int>(head.x);
  for (int i = 0; i < static_cast<int>(head.x); ++i) {
    const Quad to = warp.laneLoad(table + 1 + i);
    h.railTo[at * h.railSlots() + i] = {static_cast<std::int16_t>(to.x), 0, static_cast<int>(to.y),
                                        static_cast<int>(to.z), static_cast<int>(to.w)};
  }
  const int wave = static_cast<int>(head.y);
  const int before = index == 0 ? -1 : static_cast<int>(warp.laneLoad(table - c.far->at.railQuads).y);
  for (int v = before + 1; v <= wave; ++v) h.railStart[v * h.domains + domain] = index;
  if (index + 1 < rows) return;
  for (int v = wave + 1; v <= kHtWaves; ++v) h.railStart[v * h.domains + domain] = rows;
}

template <Computes Warp>
MOE_LANES void keepRailTables(const Warp& warp, const CommView& c, const HandleView& h, std::uint64_t epoch,
                              WarpIndex w) {
  for (int domain = 0; domain < h.domains; ++domain) {
    const int rows = railRows(warp, c, h, epoch, domain);
    const Slice slice = sliceOf(rows, w);
    warp.forEach(slice.count, [&](int i) { laneKeepRail(warp, c, h, epoch, domain, slice.begin + i, rows); });
    if (rows > 0 || w.index != 0) continue;
    warp.forEach(kHtWaves + 1, [&](int v) { h.railStart[v * h.domains + domain] = 0; });
  }
}

}  // namespace moe
