// Low-latency combine of rows that are made here (of all layouts but RANK_MAJOR): each rank that a token went to stores
// one row to the token's owner, in landing words (landing.h); the owner takes the rows as they come and sums them,
// those of its domain in rank order first. Ranks of other domains put theirs, with a flag behind them. Flags:
// docs/internals/protocol.md, "LL combine that lands".
#pragma once

#include "device/protocol/combine_prepare.h"

namespace moe {

// Rows of other domains and gradients need a flag, other rows none: such combines are counted, the same on all ranks.
template <Lands Warp>
MOE_LANES bool hasFlags(const Warp& warp, const StepParams& p) {
  return split(warp, p.comm) || p.combine.grads != 0;
}

// ---- The expert side

// Beginning with this rank's own rows: in FLAT order all ranks would store to the same one at the same time. Those of
// which placeOf(arrival) is NULL are left out.
template <bool kLanding, Lands Warp, class PlaceOf>
MOE_LANES void handBack(const Warp& warp, const StepParams& p, WarpIndex w, PlaceOf placeOf) {
  const HandleView& h = p.handle;
  const CombineArgs& a = p.combine;
  const int rows = *h.rows, first = h.rankOffsets[p.comm.rank];
  const Strided mine = stridedOf(0, rows * a.arriving.count, w);
  prepareRows<kLanding>(
      warp, p, mine.count,
      [&](int i) {
        PartOf part = partOf(a.arriving, a.rowBytes, mine.at(i));
        part.row += part.row < rows - first ? first : first - rows;
        return part;
      },
      [&](int row) { return placeOf(arrivalOf(h, row)); });
}

// Rows of this domain go to their owners, those of others to where they are put from.
template <Lands Warp>
MOE_LANES void handBackRows(const Warp& warp, const StepParams& p, WarpIndex w) {
  const CommView& c = p.comm;
  const auto slot = [&](int rank, std::uint64_t area, int from, int index) {
    return llSlot(c, p.handle, rank, area, c.rowBytesMax, p.combine.rowBytes, from, index);
  };
  handBack<true>(warp, p, w, [&](const Arrival& at) -> std::uint8_t* {
    return isRemote(warp, c, at.from) ? nullptr : slot(at.from, c.at.llCombineRows, c.rank, at.index);
  });
  if (!split(warp, c)) return;
  handBack<false>(warp, p, w, [&](const Arrival& at) -> std::uint8_t* {
    return isRemote(warp, c, at.from) ? slot(c.rank, c.at.llCombineRows, at.from, at.index) : nullptr;
  });
}

// Right after a combine of the same set: rows may go where those of the one before were when every rank has taken them.
// With a dispatch in between, everybody has.
template <Lands Warp>
MOE_LANES bool waitForTakers(const Warp& warp, const StepParams& p, std::uint64_t epoch, WarpIndex w) {
  const CommView& c = p.comm;
  const std::uint64_t free = llFlags(c, p.handle, c.at.llCombineFree);
  tellFree(warp, c, free, epoch, w);
  return waitForAll(warp, c, free, epoch, Phase::combineSlots);
}

// Where rows will land those of RANK_MAJOR operations may lie, which the caller may have written after its dispatch.
// Such places are emptied before peers hear of this combine, and they send nothing before that.
template <Lands Warp>
MOE_LANES void emptyPlaces(const Warp& warp, const StepParams& p, WarpIndex w) {
  const CommView& c = p.comm;
  const int ofRank = c.llTokensMax * (c.rowBytesMax / static_cast<int>(sizeof(Quad)));
  auto* places = c.mine<Quad>(llSetOffset(c, p.handle, c.at.llCombineRows, c.rowBytesMax));
  for (std::int64_t i = 0; i < c.nranks; ++i) {
    const Slice slice = sliceOf(ofRank, w);
    Quad* place = places + i * ofRank + slice.begin;
    warp.forEach(slice.count, [&](int n) { warp.laneStore(place + n, Quad{}); });
  }
}

// False if a wait failed.
template <Lands Warp>
MOE_LANES bool beginHandBack(const Warp& warp, const StepParams& p, Channel channel, std::uint64_t epoch, WarpIndex w) {
  const CommView& c = p.comm;
  const int set = p.handle.llSet;
  const bool uncombined = c.state->llUncombined[set] != 0, used = c.state->llUsed[set] != 0;
  if (!uncombined && !waitForTakers(warp, p, epoch, w)) return false;
  if (used) emptyPlaces(warp, p, w);
  noteBegin(warp, c, channel, w);
  if (w.index == 0) {
    if (used && !waitForWarps(warp, c, &c.state->begun[channel], epoch)) return false;
    tellTerms(warp, p, epoch);
  }
  return !used || waitForDomain(warp, c, llFlags(c, p.handle, c.at.llCombineSizes), epoch, Phase::combineSlots);
}

// What a sending step leaves for the next one.
template <Lands Warp>
MOE_LANES void endHandBack(const Warp& warp, const StepParams& p, Channel channel, std::uint64_t epoch,
                           std::uint64_t number, WarpIndex w) {
  if (!isLast(w)) return;
  const CommView& c = p.comm;
  HandleState* state = p.handle.state;
  const bool flags = hasFlags(warp, p);
  endEpoch(warp, c, channel, epoch, [&] {
    state->combineEpoch = epoch;
    state->combineHanded = number;
    if (flags) c.state->handed[0][channel] = number;
    c.state->llUncombined[p.handle.llSet] = c.state->llUsed[p.handle.llSet] = 0;
  });
}

// ---- The owner

// A token's rows in the order of its destinations, then the biases.
template <Lands Warp>
MOE_LANES bool takeTokens(const Warp& warp, const StepParams& p, std::uint64_t epoch, WarpIndex w) {
  const CommView& c = p.comm;
  const HandleView& h = p.handle;
  const CombineArgs& a = p.combine;
  const int biases = biasCount(a);
  const Strided mine = stridedOf(0, a.tokens * a.parts.count, w);
  const auto item = [&](int i) { return partOf(a.parts, a.rowBytes, mine.at(i)); };
  return warp.takeRows(
      c, mine.count, a.rowType, h.slots + biases,
      [&](int i) {
        const PartOf part = item(i);
        std::uint8_t* out = a.out + static_cast<std::int64_t>(part.row) * a.rowBytes;
        const int landing = h.nearCount[part.row];
        return TakeJob{{out + part.begin, part.bytes, h.destinationCount[part.row] + biases}, landing};
      },
      [&](int i, int term) -> const std::uint8_t* {
        const PartOf part = item(i);
        const int bias = term - h.destinationCount[part.row];
        if (bias >= 0) return biasRow(a, bias, part);
        const Destination& from = h.destinations[part.row * h.slots + term];
        const std::uint64_t area = isRemote(warp, c, from.rank) ? c.far->at.llCombineIn : c.at.llCombineRows;
        return llSlot(c, h, c.rank, area, c.rowBytesMax, a.rowBytes, from.rank, from.index) + part.begin;
      },
      [&](int i, int term) -> Failure {
        const int from = h.destinations[item(i).row * h.slots + term].rank;
        const auto expected = static_cast<std::int64_t>(epoch);
        return {0, Fault::timeout, Phase::combineRows, from, 0, 0, expected, expected - 1};
      });
}

// One warp looks whether terms agree. If they do not, the others stop waiting for rows that never come. Those of other
// domains come with their flags.
template <Lands Warp>
MOE_LANES void takeBack(const Warp& warp, const StepParams& p, const CombineArea& area, std::uint64_t epoch,
                        std::uint64_t number, WarpIndex w) {
  if (w.index == 0 && !termsAgree(warp, p, domainRanks(p.comm), epoch)) return;
  if (hasFlags(warp, p) && !waitForAll(warp, p.comm, area.ready, number, Phase::combineRows)) return;
  if (split(warp, p.comm) && w.index == 0 && !termsAgree(warp, p, allRanks(p.comm), epoch)) return;
  if (!takeTokens(warp, p, epoch, w)) return;
  if (p.combine.outWeightGrads != nullptr) takeWeightGrads(warp, p, area, w);
}

template <Lands Warp>
MOE_LANES void llCombine(const Warp& warp, const StepParams& p, WarpIndex w) {
  const CommView& c = p.comm;
  const HandleView& h = p.handle;
  const CombineArea area = combineArea(c, h);
  const bool sends = (p.phases & kSendPhase) != 0;
  const std::uint64_t epoch = operationEpoch(c, area.channel, p.phases, h.state->combineEpoch);
  const std::uint64_t number = sends ? c.state->handed[0][area.channel] + 1 : h.state->combineHanded;
  if (warp.stopped(c)) return;
  if (sends) {
    if (!llRowsAreGood(warp, p, w)) return;
    if (!beginHandBack(warp, p, area.channel, epoch, w)) return;
    handBackRows(warp, p, w);
    if (p.combine.grads != 0) pushWeightGrads(warp, p, area, w);
    if (hasFlags(warp, p)) announce(warp, c, area.ready, Meeting::rows, w);
    if (split(warp, c)) llPutSums(warp, p, area, number, w);
    endHandBack(warp, p, area.channel, epoch, number, w);
  }
  if ((p.phases & kReceivePhase) != 0) takeBack(warp, p, area, epoch, number, w);
}

}  // namespace moe
