// The route across domains, for HT: each token's index on the rails that it takes, and the tables by which rail peers
// forward its rows to their final places (rails.h).
//   railTables  [parity][domain][index]: a Quad (destinations, wave, 0, 0), then a Destination each
#pragma once

#include "device/protocol/core/expert_waves.h"
#include "device/protocol/core/rails.h"
#include "device/protocol/route/exchange.h"

namespace moe {

// Row of the receiver's layout for the first entry on a rank of this warp's token `token`.
MOE_LANES int firstEntryRow(const Routing auto& r, int token, int rank) {
  const std::int32_t *ids = r.own.idsOf(r.handle, token), *rows = r.own.entryRowsOf(r.handle, token);
  int row = 0;
  for (int k = r.handle.topk - 1; k >= 0; --k) row = r.handle.map.isOn(ids[k], rank) ? rows[k] : row;
  return row;
}

// The row of this warp's token `token` at a rank. One lane.
MOE_LANES Destination destinationAt(const Routing auto& r, int token, int rank) {
  const int bucket = r.handle.map.experts + rank;
  const int index = r.own.positionOf(r.handle, token, bucket), flat = r.own.rankBase[rank] + index;
  const int row = expertRows(r.handle)                   ? firstEntryRow(r, token, rank)
                  : r.handle.layout == Layout::rankMajor ? r.comm.rank * r.handle.tokensMax + index
                                                         : flat;
  const int wave = r.handle.wavesByExpert() ? waveAtRank(r.handle, r.own.idsOf(r.handle, token), rank) : 0;
  return {static_cast<std::int16_t>(rank), static_cast<std::int16_t>(wave), index, row, flat};
}

// Calls add(row) for the row of this warp's token `token` at each of some ranks. One lane.
template <class Add>
MOE_LANES void laneForRanks(const Routing auto& r, int token, Range ranks, Add add) {
  for (int rank = ranks.begin; rank < ranks.end; ++rank) {
    if (r.own.uses(r.handle, token, r.handle.map.experts + rank)) add(destinationAt(r, token, rank));
  }
}

// The position of this warp's token `token` among those that this rank sends to a domain.
MOE_LANES int railIndexOf(const Routing auto& r, int token, int domain) {
  return r.own.positionOf(r.handle, token, r.handle.domainBucket(domain));
}

MOE_LANES std::uint64_t railTableOffset(const CommView& c, std::uint64_t area, int part, int index) {
  const std::int64_t slot = static_cast<std::int64_t>(part) * c.tokensMax + index;
  return area + static_cast<std::uint64_t>(slot * c.far->at.railQuads) * sizeof(Quad);
}

// What the rail peer in `domain` must know of this warp's token `token`. One lane.
MOE_LANES void laneWriteRail(const Routing auto& r, int token, int domain, int index) {
  Quad* to = r.comm.template mine<Quad>(railTableOffset(r.comm, r.comm.far->at.railTablesOut, domain, index));
  std::uint32_t count = 0;
  const int first = domain * r.comm.domainSize;
  laneForRanks(r, token, {first, first + r.comm.domainSize}, [&](const Destination& at) {
    ++count;
    r.warp.laneStore(to + count, Quad{static_cast<std::uint32_t>(at.rank), static_cast<std::uint32_t>(at.index),
                                      static_cast<std::uint32_t>(at.row), static_cast<std::uint32_t>(at.flat)});
  });
  r.warp.laneStore(to,
                   Quad{count, static_cast<std::uint32_t>(waveOf(r.own.tokens.begin + token, r.p.route.tokens)), 0, 0});
}

// The rail peers that this warp's token `token` goes to. One lane.
template <class Add>
MOE_LANES void laneListRails(const Routing auto& r, int token, Add add) {
  for (int domain = 0; domain < r.handle.domains; ++domain) {
    if (domain == r.comm.domain() || !r.own.uses(r.handle, token, r.handle.domainBucket(domain))) continue;
    const int index = railIndexOf(r, token, domain);
    r.handle.rails.outgoing[static_cast<std::int64_t>(domain) * r.handle.tokensMax + index] =
        r.own.tokens.begin + token;
    laneWriteRail(r, token, domain, index);
    add(Destination{static_cast<std::int16_t>(r.comm.railPeer(domain)), 0, index, 0, 0});
  }
}

MOE_LANES void putRailTable(const Routing auto& r, int domain) {
  const int part = parityOf(r.epoch) * r.comm.domains() + r.comm.domain();
  const std::int64_t bytes = std::int64_t{r.handle.sent.totals[r.handle.domainBucket(domain)]} *
                             r.comm.far->at.railQuads * static_cast<std::int64_t>(sizeof(Quad));
  putBlock(r, r.comm.railPeer(domain),
           {railTableOffset(r.comm, r.comm.far->at.railTables, part, 0),
            railTableOffset(r.comm, r.comm.far->at.railTablesOut, domain, 0), bytes});
}

// Rows that will come from the rail peer in `domain`.
MOE_LANES int railRows(const Routing auto& r, int domain) {
  if (domain == r.comm.domain()) return 0;
  return r.warp.laneLoad(routeCounts(r.comm, r.comm.rank, r.epoch, r.comm.railPeer(domain)) +
                         r.handle.domainBucket(r.comm.domain()));
}

// One row's table, and where waves begin. One lane.
MOE_LANES void laneKeepRail(const Routing auto& r, int domain, int index, int rows) {
  const int part = parityOf(r.epoch) * r.comm.domains() + domain;
  const Quad* table = r.comm.template mine<Quad>(railTableOffset(r.comm, r.comm.far->at.railTables, part, index));
  const Quad head = r.warp.laneLoad(table);
  const std::int64_t at = static_cast<std::int64_t>(domain) * r.handle.tokensMax + index;
  r.handle.rails.count[at] = static_cast<int>(head.x);
  for (int i = 0; i < static_cast<int>(head.x); ++i) {
    const Quad to = r.warp.laneLoad(table + 1 + i);
    r.handle.rails.to[at * r.handle.railDestinationsMax() + i] = {
        static_cast<std::int16_t>(to.x), 0, static_cast<int>(to.y), static_cast<int>(to.z), static_cast<int>(to.w)};
  }
  const int wave = static_cast<int>(head.y);
  const int before = index == 0 ? -1 : static_cast<int>(r.warp.laneLoad(table - r.comm.far->at.railQuads).y);
  for (int v = before + 1; v <= wave; ++v) r.handle.rails.start[v * r.handle.domains + domain] = index;
  if (index + 1 < rows) return;
  for (int v = wave + 1; v <= kHtWaves; ++v) r.handle.rails.start[v * r.handle.domains + domain] = rows;
}

MOE_LANES void keepRailTables(const Routing auto& r) {
  for (int domain = 0; domain < r.handle.domains; ++domain) {
    const int rows = railRows(r, domain);
    const Slice slice = sliceOf(rows, r.w);
    r.warp.forEach(slice.count, [&](int i) { laneKeepRail(r, domain, slice.begin + i, rows); });
    if (rows > 0 || r.w.index != 0) continue;
    r.warp.forEach(kHtWaves + 1, [&](int v) { r.handle.rails.start[v * r.handle.domains + domain] = 0; });
  }
}

}  // namespace moe
