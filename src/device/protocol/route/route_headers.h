// The route's third part: row headers go to the receivers, which keep them in their handles.
#pragma once

#include "device/protocol/route/route_rails.h"

namespace moe {

MOE_LANES std::uint64_t headerOffset(const CommView& c, std::uint64_t epoch, int from, int index) {
  const std::int64_t slot = static_cast<std::int64_t>(parityOf(epoch) * c.nranks + from) * c.at.routeTokensMax + index;
  return c.at.routeHeaders + static_cast<std::uint64_t>(slot * headerQuads(c.topkMax)) * sizeof(Quad);
}
// Where headers for a remote rank wait to be put.
MOE_LANES std::uint64_t headerOutOffset(const CommView& c, int to, int index) {
  const std::int64_t slot = static_cast<std::int64_t>(to) * c.at.routeTokensMax + index;
  return c.far->at.routeHeadersOut + static_cast<std::uint64_t>(slot * headerQuads(c.topkMax)) * sizeof(Quad);
}
// The header of this rank's row `index` at a rank, where this rank writes it.
template <Computes Warp>
MOE_LANES Quad* headerOf(const Warp& warp, const CommView& c, std::uint64_t epoch, int to, int index) {
  if (isRemote(warp, c, to)) return c.mine<Quad>(headerOutOffset(c, to, index));
  return c.in<Quad>(to, headerOffset(c, epoch, c.rank, index));
}

// How many of a token's entries `ids` name an expert of `rank`: of those before entry k, and of all.
MOE_LANES Sums entriesOnRank(const HandleView& h, const std::int32_t* ids, int k, int rank) {
  return laneSums<8>(h.topk, k, [&](int other) { return h.map.isOn(ids[other], rank) ? 1 : 0; });
}

// A row of this warp's token `token`: its number among those that this rank sends to `rank`.
struct RowAt {
  int rank, index;
  int headIndex;  // for its header
};
MOE_LANES RowAt rowOfEntry(const RouteSlice& s, const HandleView& h, int token, int k) {
  const int id = s.ids[token * h.topk + k];
  if (id < 0) return {kNoRank, 0, 0};
  const int rank = h.map.rankOf(id);
  return {rank, s.positionOf(h, token, h.map.experts + rank), 0};
}
// The row that goes to a destination, which the handle gets to know here. Rail peers get no header as such.
template <Computes Warp>
MOE_LANES RowAt rowOfDestination(const Warp& warp, const RouteSlice& s, const CommView& c, const HandleView& h,
                                 int token, int ordinal) {
  const Destination to = s.destinations[token * h.slots + ordinal];
  h.destinations[static_cast<std::int64_t>(s.tokens.begin + token) * h.slots + ordinal] = to;
  if (to.rank == kNoRank || (takesRails(warp, h) && !c.inDomain(to.rank))) return {kNoRank, 0, 0};
  return {to.rank, to.index, h.wavesByExpert() ? s.positionOf(h, token, h.waveBucket(to.rank, to.wave)) : 0};
}

// Writes entry k of a token to the header of its row there, or, with k = topk, that header's head. One lane.
template <Computes Warp>
MOE_LANES void laneWriteHeader(const Warp& warp, const RouteSlice& s, const StepParams& p, std::uint64_t epoch,
                               int token, int k, const RowAt& row) {
  const HandleView& h = p.handle;
  const std::int32_t* ids = s.idsOf(h, token);
  const Sums entries = entriesOnRank(h, ids, k, row.rank);
  const int number = s.tokens.begin + token;
  const bool isEntry = k < h.topk;
  const Quad quad = isEntry ? makeEntry(h.map.local(ids[k], row.rank), k, s.weights[token * h.topk + k],
                                        expertRows(h) ? s.entryRow[token * h.topk + k] : 0)
                            : makeHead(number, waveOf(number, p.route.tokens), row.headIndex, p.comm.rank, entries.all);
  warp.laneStore(headerOf(warp, p.comm, epoch, row.rank, row.index) + (isEntry ? 1 + entries.before : 0), quad);
}

// Neighbouring lanes have the Quads of one token, so that those of a header travel together.
template <Computes Warp>
MOE_LANES void sendHeaders(const Warp& warp, const RouteSlice& s, const StepParams& p, std::uint64_t epoch) {
  const HandleView& h = p.handle;
  const int each = h.topk + h.slots;
  warp.forEach(s.tokens.count * each, [&](int i) {
    const int token = h.byItems.of(i), k = i - token * each;
    const RowAt row = k < h.topk ? rowOfEntry(s, h, token, k) : rowOfDestination(warp, s, p.comm, h, token, k - h.topk);
    if (row.rank != kNoRank) laneWriteHeader(warp, s, p, epoch, token, k < h.topk ? k : h.topk, row);
  });
}

// Heads for ranks of other domains that rails lead to: no destination names them, but the first of a token's entries on
// each.
template <Computes Warp>
MOE_LANES void fillRemoteHeads(const Warp& warp, const RouteSlice& s, const StepParams& p, std::uint64_t epoch) {
  const CommView& c = p.comm;
  const HandleView& h = p.handle;
  warp.forEach(s.tokens.count * h.topk, [&](int i) {
    const int token = h.byTopk.of(i), k = i - token * h.topk;
    RowAt row = rowOfEntry(s, h, token, k);
    if (row.rank == kNoRank || c.inDomain(row.rank)) return;
    if (entriesOnRank(h, s.idsOf(h, token), k, row.rank).before > 0) return;
    row.headIndex = railIndexOf(s, h, token, row.rank / c.domainSize);
    laneWriteHeader(warp, s, p, epoch, token, h.topk, row);
  });
}

// Headers that wait for remote ranks, and for rail peers what they must know to forward.
template <Computes Warp>
MOE_LANES void putHeaders(const Warp& warp, const StepParams& p, std::uint64_t epoch, WarpIndex w) {
  const CommView& c = p.comm;
  const HandleView& h = p.handle;
  forRemoteRanks(c, w, [&](int to) {
    if (!waitForOwn(warp, c, c.at.routeHeadersReady, epoch)) return false;
    const std::int64_t bytes =
        h.totals[h.map.experts + to] * headerQuads(c.topkMax) * static_cast<std::int64_t>(sizeof(Quad));
    putBlock(warp, c, to, headerOffset(c, epoch, c.rank, 0), headerOutOffset(c, to, 0), bytes);
    if (takesRails(warp, h) && to == c.railPeer(to / c.domainSize)) putRailTable(warp, c, h, epoch, to / c.domainSize);
    putFlag(warp, c, to, c.at.routeHeadersReady, epoch);
    return true;
  });
}

// A header that has come, as far as it is looked up before it is known how long it is.
struct ArrivedHeader {
  static constexpr int kEntries = 4;
  Arrival at;
  const Quad* slot;
  Quad head, entries[kEntries];
  int waveBefore;  // of the source's row before; -1: there is none
};

template <Computes Warp>
MOE_LANES ArrivedHeader laneLookUpHeader(const Warp& warp, const RouteSlice& s, const CommView& c, const HandleView& h,
                                         std::uint64_t epoch, int row) {
  ArrivedHeader header;
  header.at = arrivalOf(s.rankOffsets, c.nranks, row);
  const Quad* slot = c.mine<Quad>(headerOffset(c, epoch, header.at.from, header.at.index));
  header.slot = slot;
  header.head = warp.laneLoad(slot);
  MOE_UNROLLED
  for (int i = 0; i < ArrivedHeader::kEntries; ++i) {
    if (i < h.topk) header.entries[i] = warp.laneLoad(slot + 1 + i);
  }
  header.waveBefore = -1;
  if (h.lowLatency == 0 && header.at.index > 0) {
    header.waveBefore = headWave(warp.laneLoad(slot - headerQuads(c.topkMax)));
  }
  return header;
}

template <Computes Warp>
MOE_LANES void laneKeepHeader(const Warp& warp, const RouteSlice& s, const CommView& c, const HandleView& h, int row,
                              const ArrivedHeader& header) {
  const Quad head = header.head;
  Quad* kept = h.headers + static_cast<std::int64_t>(row) * h.headerStride();
  kept[0] = head;
  MOE_UNROLLED
  for (int i = 0; i < ArrivedHeader::kEntries; ++i) {
    if (i < headEntries(head)) kept[1 + i] = header.entries[i];
  }
  for (int i = ArrivedHeader::kEntries; i < headEntries(head); ++i) kept[1 + i] = warp.laneLoad(header.slot + 1 + i);
  if (h.lowLatency != 0) return;
  const int from = header.at.from;
  laneNoteWaves(h, row, from, header.waveBefore, headWave(head), s.rankOffsets[from + 1]);
  if (!h.wavesByExpert()) return;
  const int wave = waveOfHeader(kept, h.map.count(c.rank));
  h.waveRows[s.waveRowsStart[wave * c.nranks + from] + headIndex(head)] = row;
}

// The first warp has the counts to report: the others do this without it, if there are any.
template <Computes Warp>
MOE_LANES void keepHeaders(const Warp& warp, const RouteSlice& s, const CommView& c, const HandleView& h,
                           std::uint64_t epoch, WarpIndex w) {
  const WarpIndex others{w.index - 1, w.count - 1, w.blocks};
  const int rows = w.count > 1 && w.index == 0 ? 0 : s.rankOffsets[c.nranks];
  const Slice slice = sliceOf(rows, w.count > 1 && w.index > 0 ? others : w);
  warp.template collect<1>(
      slice.count, [&](int i) { return laneLookUpHeader(warp, s, c, h, epoch, slice.begin + i); },
      [&](int i, const ArrivedHeader& header) { laneKeepHeader(warp, s, c, h, slice.begin + i, header); });
  if (w.index != 0 || h.lowLatency != 0) return;
  warp.forEach(c.nranks, [&](int from) {
    const int begin = s.rankOffsets[from];
    if (begin == s.rankOffsets[from + 1]) laneNoteNoRows(h, from, begin);
  });
}

}  // namespace moe
