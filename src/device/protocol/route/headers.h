// The route's third part: row headers are sent to the receivers, which keep them in their handles.
#pragma once

#include "device/protocol/core/expert_waves.h"
#include "device/protocol/core/rails.h"
#include "device/protocol/route/exchange.h"

namespace moe {

// ---- The route across domains, for HT: each token's index on its rails, and the tables by which rail peers forward
// its rows to their final places (core/rails.h).
//   railTables  [parity][domain][index]: a Quad (destinations, wave, 0, 0), then a Destination each

// Row of the receiver's layout for the first entry that this warp's token `token` has on a rank.
MOE_LANES int firstEntryRow(const Routing auto& r, int token, int rank) {
  const std::int32_t *ids = r.own.idsOf(r.handle, token), *rows = r.own.entryRowsOf(r.handle, token);
  int row = 0;
  for (int k = r.handle.topk - 1; k >= 0; --k) row = r.handle.map.isOn(ids[k], rank) ? rows[k] : row;
  return row;
}

// The destination of this warp's token `token` at a rank. For one lane.
MOE_LANES Destination destinationAt(const Routing auto& r, int token, int rank) {
  const int bucket = r.handle.map.experts + rank;
  const int index = r.own.positionOf(r.handle, token, bucket), flat = r.own.rankBase[rank] + index;
  const int row = expertRows(r.handle)                   ? firstEntryRow(r, token, rank)
                  : r.handle.layout == Layout::rankMajor ? r.comm.rank * r.handle.tokensMax + index
                                                         : flat;
  const int wave = r.handle.wavesByExpert() ? waveAtRank(r.handle, r.own.idsOf(r.handle, token), rank) : 0;
  return {static_cast<std::int16_t>(rank), static_cast<std::int16_t>(wave), index, row, flat};
}

// Calls add(row) with the row of this warp's token `token` at each rank of `ranks` that it goes to. For one lane.
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

// Writes the table that the rail peer in `domain` needs for this warp's token `token`. For one lane.
MOE_LANES void laneWriteRail(const Routing auto& r, int token, int domain, int index) {
  Quad* to = r.comm.template mine<Quad>(railTableOffset(r.comm, r.comm.far->at.railTablesOut, domain, index));
  std::uint32_t count = 0;
  const int first = domain * r.comm.domainSize;
  laneForRanks(r, token, {first, first + r.comm.domainSize}, [&](const Destination& at) {
    ++count;
    r.warp.laneStore(to + count, Quad{static_cast<std::uint32_t>(at.rank), static_cast<std::uint32_t>(at.index),
                                      static_cast<std::uint32_t>(at.row), static_cast<std::uint32_t>(at.flat)});
  });
  r.warp.laneStore(
      to,
      Quad{count, static_cast<std::uint32_t>(waveOf(r.handle, r.own.tokens.begin + token, r.p.route.tokens)), 0, 0});
}

// Lists the rail peers that this warp's token `token` goes to. For one lane.
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

// The number of rows that will arrive from the rail peer in `domain`.
MOE_LANES int railRows(const Routing auto& r, int domain) {
  if (domain == r.comm.domain()) return 0;
  return r.warp.laneLoad(routeCounts(r.comm, r.comm.rank, r.epoch, r.comm.railPeer(domain)) +
                         r.handle.domainBucket(r.comm.domain()));
}

// Keeps the table of one row, and notes where waves begin. For one lane.
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
  for (int v = wave + 1; v <= r.handle.waves; ++v) r.handle.rails.start[v * r.handle.domains + domain] = rows;
}

MOE_LANES void keepRailTables(const Routing auto& r) {
  for (int domain = 0; domain < r.handle.domains; ++domain) {
    const int rows = railRows(r, domain);
    const Slice slice = sliceOf(rows, r.w);
    r.warp.forEach(slice.count, [&](int i) { laneKeepRail(r, domain, slice.begin + i, rows); });
    if (rows > 0 || r.w.index != 0) continue;
    r.warp.forEach(r.handle.waves + 1, [&](int v) { r.handle.rails.start[v * r.handle.domains + domain] = 0; });
  }
}

MOE_LANES std::uint64_t headerOffset(const CommView& c, std::uint64_t epoch, int from, int index) {
  const std::int64_t slot = static_cast<std::int64_t>(parityOf(epoch) * c.nranks + from) * c.at.routeTokensMax + index;
  return c.at.routeHeaders + static_cast<std::uint64_t>(slot * headerQuads(c.topkMax)) * sizeof(Quad);
}
// Where headers for a remote rank wait to be put.
MOE_LANES std::uint64_t headerOutOffset(const CommView& c, int to, int index) {
  const std::int64_t slot = static_cast<std::int64_t>(to) * c.at.routeTokensMax + index;
  return c.far->at.routeHeadersOut + static_cast<std::uint64_t>(slot * headerQuads(c.topkMax)) * sizeof(Quad);
}
// Where this rank writes the header of its row `index` at a rank.
MOE_LANES Quad* headerOf(const Routing auto& r, int to, int index) {
  if (r.isRemote(to)) return r.comm.template mine<Quad>(headerOutOffset(r.comm, to, index));
  return r.comm.template in<Quad>(to, headerOffset(r.comm, r.epoch, r.comm.rank, index));
}

// Counts a token's entries `ids` that name an expert of `rank`: those before entry k, and all.
MOE_LANES Sums entriesOnRank(const HandleView& h, const std::int32_t* ids, int k, int rank) {
  return laneSums<8>(h.topk, k, [&](int other) { return h.map.isOn(ids[other], rank) ? 1 : 0; });
}

// A row of this warp's token `token`. `index`: its position among the rows that this rank sends to `rank`.
struct RowAt {
  int rank, index;
  int headIndex;  // the index that its header has
};
MOE_LANES RowAt rowOfEntry(const Routing auto& r, int token, int k) {
  const int id = r.own.ids[token * r.handle.topk + k];
  if (id < 0) return {kNoRank, 0, 0};
  const int rank = r.handle.map.rankOf(id);
  return {rank, r.own.positionOf(r.handle, token, r.handle.map.experts + rank), 0};
}
// The row for a destination. Rail peers get no header.
MOE_LANES RowAt rowOfDestination(const Routing auto& r, int token, int ordinal) {
  const Destination to = r.own.destinations[token * r.handle.destinationsMax + ordinal];
  if (to.rank == kNoRank || (r.takesRails() && !r.comm.inDomain(to.rank))) return {kNoRank, 0, 0};
  return {to.rank, to.index,
          r.handle.wavesByExpert() ? r.own.positionOf(r.handle, token, r.handle.waveBucket(to.rank, to.wave)) : 0};
}

// Writes entry k of a token to the header of its row at `row.rank` or, with k = topk, the head of that header. For one
// lane.
MOE_LANES void laneWriteHeader(const Routing auto& r, int token, int k, const RowAt& row) {
  const std::int32_t* ids = r.own.idsOf(r.handle, token);
  const Sums entries = entriesOnRank(r.handle, ids, k, row.rank);
  const int number = r.own.tokens.begin + token;
  const bool isEntry = k < r.handle.topk;
  const Quad quad =
      isEntry ? makeEntry(r.handle.map.local(ids[k], row.rank), k, r.own.weights[token * r.handle.topk + k],
                          expertRows(r.handle) ? r.own.entryRow[token * r.handle.topk + k] : 0)
              : makeHead(number, waveOf(r.handle, number, r.p.route.tokens), row.headIndex, r.comm.rank, entries.all);
  r.warp.laneStore(headerOf(r, row.rank, row.index) + (isEntry ? 1 + entries.before : 0), quad);
}

// Neighbouring lanes write the Quads of one token, so that the Quads of a header travel together.
MOE_LANES void sendHeaders(const Routing auto& r) {
  const int each = r.handle.topk + r.handle.destinationsMax;
  r.warp.forEach(r.own.tokens.count * each, [&](int i) {
    const int token = r.handle.byItems.of(i), k = i - token * each;
    const RowAt row = k < r.handle.topk ? rowOfEntry(r, token, k) : rowOfDestination(r, token, k - r.handle.topk);
    if (row.rank != kNoRank) laneWriteHeader(r, token, k < r.handle.topk ? k : r.handle.topk, row);
  });
}

// Writes the heads for ranks of other domains that are reached over rails. No destination names these ranks, so the
// first entry of a token on each rank stands for them.
MOE_LANES void fillRemoteHeads(const Routing auto& r) {
  r.warp.forEach(r.own.tokens.count * r.handle.topk, [&](int i) {
    const int token = r.handle.byTopk.of(i), k = i - token * r.handle.topk;
    RowAt row = rowOfEntry(r, token, k);
    if (row.rank == kNoRank || r.comm.inDomain(row.rank)) return;
    if (entriesOnRank(r.handle, r.own.idsOf(r.handle, token), k, row.rank).before > 0) return;
    row.headIndex = railIndexOf(r, token, row.rank / r.comm.domainSize);
    laneWriteHeader(r, token, r.handle.topk, row);
  });
}

// Puts the headers for remote ranks, and for rail peers the tables that they need for forwarding.
MOE_LANES void putHeaders(const Routing auto& r) {
  forRemoteRanks(r, [&](int to) {
    if (!r.waitForOwn(r.comm.at.routeHeadersReady, r.epoch)) return false;
    const std::int64_t bytes = r.handle.sent.totals[r.handle.map.experts + to] * headerQuads(r.comm.topkMax) *
                               static_cast<std::int64_t>(sizeof(Quad));
    putBlock(r, to, {headerOffset(r.comm, r.epoch, r.comm.rank, 0), headerOutOffset(r.comm, to, 0), bytes});
    if (r.takesRails() && to == r.comm.railPeer(to / r.comm.domainSize)) putRailTable(r, to / r.comm.domainSize);
    putFlag(r, to, r.comm.at.routeHeadersReady);
    return true;
  });
}

// An arrived header, with the entries that are loaded before its length is known.
struct ArrivedHeader {
  static constexpr int kEntries = 4;
  Arrival at;
  const Quad* slot;
  Quad head, entries[kEntries];
  int waveBefore;  // wave of the source's previous row; -1: there is none
};

MOE_LANES ArrivedHeader laneLookUpHeader(const Routing auto& r, int row) {
  ArrivedHeader header;
  header.at = arrivalOf(r.own.rankOffsets, r.comm.nranks, row);
  const Quad* slot = r.comm.template mine<Quad>(headerOffset(r.comm, r.epoch, header.at.from, header.at.index));
  header.slot = slot;
  header.head = r.warp.laneLoad(slot);
  MOE_UNROLLED
  for (int i = 0; i < ArrivedHeader::kEntries; ++i) {
    if (i < r.handle.topk) header.entries[i] = r.warp.laneLoad(slot + 1 + i);
  }
  header.waveBefore = -1;
  if (r.handle.lowLatency == 0 && header.at.index > 0) {
    header.waveBefore = headWave(r.warp.laneLoad(slot - headerQuads(r.comm.topkMax)));
  }
  return header;
}

MOE_LANES void laneKeepHeader(const Routing auto& r, int row, const ArrivedHeader& header) {
  const Quad head = header.head;
  Quad* kept = r.handle.arriving.headers + static_cast<std::int64_t>(row) * r.handle.headerStride();
  kept[0] = head;
  MOE_UNROLLED
  for (int i = 0; i < ArrivedHeader::kEntries; ++i) {
    if (i < headEntries(head)) kept[1 + i] = header.entries[i];
  }
  for (int i = ArrivedHeader::kEntries; i < headEntries(head); ++i) kept[1 + i] = r.warp.laneLoad(header.slot + 1 + i);
  if (r.handle.lowLatency != 0) return;
  const int from = header.at.from;
  laneNoteWaves(r.handle, row, from, header.waveBefore, headWave(head), r.own.rankOffsets[from + 1]);
  if (!r.handle.wavesByExpert()) return;
  const int wave = waveOfHeader(r.handle, kept, r.handle.map.count(r.comm.rank));
  r.handle.arriving.waveRows[r.own.waveRowsStart[wave * r.comm.nranks + from] + headIndex(head)] = row;
}

// Keeps the arrived headers. The first warp reports the counts meanwhile, so the other warps do this without it, if
// there are any.
MOE_LANES void keepHeaders(const Routing auto& r) {
  const WarpIndex others{r.w.index - 1, r.w.count - 1, r.w.blocks};
  const int rows = r.w.count > 1 && r.w.index == 0 ? 0 : r.own.rankOffsets[r.comm.nranks];
  const Slice slice = sliceOf(rows, r.w.count > 1 && r.w.index > 0 ? others : r.w);
  r.warp.template collect<1>(
      slice.count, [&](int i) { return laneLookUpHeader(r, slice.begin + i); },
      [&](int i, const ArrivedHeader& header) { laneKeepHeader(r, slice.begin + i, header); });
  if (r.w.index != 0 || r.handle.lowLatency != 0) return;
  r.warp.forEach(r.comm.nranks, [&](int from) {
    const int begin = r.own.rankOffsets[from];
    if (begin == r.own.rankOffsets[from + 1]) laneNoteNoRows(r.handle, from, begin);
  });
}

// ---- The end of the route for policies with `kWholeTokens`, in which one lane does all work on a token and looks at
// each entry once. The code above is for lanes that share a token. Both have the same result.

// Writes the headers of this warp's placed token `token`.
MOE_LANES void laneSendToken(const Routing auto& r, int token) {
  const int number = r.own.tokens.begin + token, rows = r.handle.sent.destinationCount[number];
  const Destination* list = r.own.destinations + std::int64_t{token} * r.handle.destinationsMax;
  std::int32_t* rowOf = r.own.rankBase;  // no longer in use; here it holds the token's row at each rank
  Quad* headers[kTopkMax];
  int entries[kTopkMax];
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
  for (int i = 0, wave = waveOf(r.handle, number, r.p.route.tokens); i < rows; ++i) {
    const int rank = list[i].rank, of = r.handle.wavesByExpert()
                                            ? r.own.positionOf(r.handle, token, r.handle.waveBucket(rank, list[i].wave))
                                            : 0;
    r.warp.laneStore(headers[i], makeHead(number, wave, of, r.comm.rank, entries[i]));
  }
}

}  // namespace moe
