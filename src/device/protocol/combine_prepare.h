// The expert side of combine: one row per token that came, where the token's owner can read it, and the gradients of
// the weights at the owner.
#pragma once

#include "device/protocol/combine_grads.h"

namespace moe {

MOE_LANES CombineArea combineArea(const CommView& c, const HandleView& h) {
  if (h.lowLatency == 0) {
    return {kHtCombineChannel, goesInWaves(h) ? c.at.htCombineWaves : c.at.htCombineReady, c.at.htCombineGrads};
  }
  const std::uint64_t grads = static_cast<std::uint64_t>(h.llSet) * static_cast<std::uint64_t>(c.llTokensMax) *
                              static_cast<std::uint64_t>(c.topkMax) * sizeof(float);
  return {llChannel(kLlCombineChannel, h.llSet), llFlags(c, h, c.at.llCombineReady), c.at.llCombineGrads + grads};
}

MOE_LANES CombineRecord* combineRecord(const CommView& c, int rank, int from) {
  return c.in<CombineRecord>(rank, c.at.htCombines) + from;
}

// The row of a part in one of the caller's biases.
MOE_LANES const std::uint8_t* biasRow(const CombineArgs& a, int bias, const PartOf& part) {
  const std::uint8_t* rows = bias == 0 && a.bias0 != nullptr ? a.bias0 : a.bias1;
  return rows + static_cast<std::int64_t>(part.row) * a.rowBytes + part.begin;
}
MOE_LANES int biasCount(const CombineArgs& a) {
  return (a.bias0 != nullptr ? 1 : 0) + (a.bias1 != nullptr ? 1 : 0);
}

// One row per token of those that came: a copy, or the sum of the rows of its experts here, in top-k order. Items 0 to
// n - 1 are parts of rows in FLAT order, itemOf(i); they go to placeOf(row), nowhere if that is NULL.
template <bool kLanding, Moves Warp, class ItemOf, class PlaceOf>
MOE_LANES void prepareRows(const Warp& warp, const StepParams& p, int n, ItemOf itemOf, PlaceOf placeOf) {
  const HandleView& h = p.handle;
  const CombineArgs& a = p.combine;
  const auto rowAt = [&](const PartOf& part, int copy) {
    return a.rows + static_cast<std::int64_t>(layoutRow(h, part.row, copy)) * a.rowBytes + part.begin;
  };
  if (!expertRows(h)) {
    warp.template streamRows<kLanding>(
        n, 1,
        [&](int i) {
          const PartOf part = itemOf(i);
          return CopyJob{rowAt(part, 0), part.bytes, 1};
        },
        [&](int i, int) {
          const PartOf part = itemOf(i);
          std::uint8_t* row = placeOf(part.row);
          return Sink{row == nullptr ? nullptr : row + part.begin, nullptr, !kLanding};  // most land at peers
        });
    return;
  }
  const auto jobOf = [&](int i) {
    const PartOf part = itemOf(i);
    std::uint8_t* row = placeOf(part.row);
    return row == nullptr ? SumJob{} : SumJob{row + part.begin, part.bytes, layoutCopies(h, part.row)};
  };
  const auto termOf = [&](int i, int term) { return rowAt(itemOf(i), term); };
  const auto always = [] { return true; };
  const auto weightOf = [&](int i, int term) { return entryWeight(keptHeader(h, itemOf(i).row)[1 + term]); };
  if (a.weighted != 0) {
    warp.template reduceRows<true, kLanding>(n, a.rowType, h.topk, always, jobOf, termOf, weightOf);
  } else {
    warp.template reduceRows<false, kLanding>(n, a.rowType, h.topk, always, jobOf, termOf, weightOf);
  }
}

// Where the row that stands for arriving row `row` (FLAT order) is made.
MOE_LANES std::uint8_t* preparedRow(const StepParams& p, int row) {
  const CommView& c = p.comm;
  const HandleView& h = p.handle;
  const std::uint32_t rowBytes = p.combine.rowBytes;
  if (h.lowLatency == 0) return c.mine<std::uint8_t>(p.combine.rowsOffset) + static_cast<std::int64_t>(row) * rowBytes;
  const Arrival at = arrivalOf(h, row);
  return llSlot(c, h, c.rank, c.at.llCombineRows, c.rowBytesMax, rowBytes, at.from, at.index);
}

// A share of the rows, to where they are read.
template <Moves Warp>
MOE_LANES void prepareShare(const Warp& warp, const StepParams& p, const ArrivingRows& rows, WarpIndex w) {
  const auto items = partsOf(rows, p.combine.arriving, p.combine.rowBytes, w);
  prepareRows<false>(
      warp, p, items.mine.count, [&](int i) { return items.at(i); }, [&](int row) { return preparedRow(p, row); });
}

MOE_LANES bool prepares(const CombineArgs& a) {
  return a.inPlace == 0 || a.grads != 0;
}

// ---- What must agree in a LL combine: words of their own, so that rows need not wait for them; with the flags of
// other domains, which are no sums of shares

// One warp tells the domain. In combines that do not land neither the first, which hands rows over, nor the last, which
// has the fewest and so looks at what the others say.
MOE_LANES bool tellsTerms(WarpIndex w) {
  return w.index == (w.count > 2 ? w.count - 2 : 0);
}

template <Moves Warp>
MOE_LANES void tellTerms(const Warp& warp, const StepParams& p, std::uint64_t epoch) {
  const CommView& c = p.comm;
  const std::uint64_t terms = llFlags(c, p.handle, c.at.llCombineSizes);
  warp.publishAll(
      c.domainSize, [&](int i) { return c.in<Flag>(c.domainFirst + i, terms) + c.rank; },
      flagWord(epoch, p.combine.terms));
}

// Looks at the terms of `ranks`. Those of other domains came with their flags; for others it waits.
template <Moves Warp>
MOE_LANES bool termsAgree(const Warp& warp, const StepParams& p, Range ranks, std::uint64_t epoch) {
  const CommView& c = p.comm;
  const std::uint64_t area = llFlags(c, p.handle, c.at.llCombineSizes);
  if (!waitForDomain(warp, c, area, epoch, Phase::combineRows)) return false;
  return allAreGood(warp, c, ranks, [&](int from) -> Failure {
    const bool remote = isRemote(warp, c, from);
    const std::uint64_t words = remote ? combineArea(c, p.handle).ready : area;
    const auto theirs = static_cast<unsigned>(flagValue(warp.laneLoad(c.mine<Flag>(words) + from)));
    return theirs == p.combine.terms ? Failure{} : disagreement(Phase::combineRows, from, p.combine.terms, theirs);
  });
}

// LL, right after a combine of the same set: what that one made, and its terms, may be written again when every rank
// has read it. With a dispatch in between, everybody has.
template <Moves Warp>
MOE_LANES bool waitForReaders(const Warp& warp, const StepParams& p, std::uint64_t epoch, WarpIndex w) {
  const CommView& c = p.comm;
  const std::uint64_t free = llFlags(c, p.handle, c.at.llCombineFree);
  tellFree(warp, c, free, epoch, w);
  const bool writes = prepares(p.combine) || tellsTerms(w);
  return !writes || waitForAll(warp, c, free, epoch, Phase::combineSlots);
}

// ---- Whether there are rows enough

MOE_LANES CombineRecord ownRecord(const CombineArgs& a) {
  return {a.rowsOffset,
          a.capacity,
          a.held,
          a.terms,
          static_cast<std::int16_t>(a.inPlace != 0 ? 0 : 1),
          static_cast<std::int16_t>(a.grads != 0 && a.weightGrads == nullptr ? 1 : 0)};
}

// What rank `from` lacks for the rows that had arrived there, if anything.
MOE_LANES Failure rowsFault(const HandleView& h, const CombineRecord& record, int from) {
  const std::int64_t arrived = h.flatRowsOf[from], rows = h.layoutRowsOf[from];
  if (arrived == 0) return {};
  if (rows > record.held) return {0, Fault::capacity, Phase::combineRows, from, 0, 0, record.held, rows};
  if (record.gradsMiss != 0) return {0, Fault::noGrads, Phase::combineRows, from, 0, 0, 0, arrived};
  const bool fits = record.prepared == 0 || arrived <= record.capacity;
  return fits ? Failure{} : Failure{0, Fault::staging, Phase::combineRows, from, 0, 0, record.capacity, arrived};
}

// LL has no records: a rank that lacks something reports it before it has sent anything, and does not begin.
template <Moves Warp>
MOE_LANES bool llRowsAreGood(const Warp& warp, const StepParams& p, WarpIndex w) {
  const CombineArgs& a = p.combine;
  if (a.held == kAnyRows && (a.grads == 0 || a.weightGrads != nullptr)) return true;
  CombineRecord mine = ownRecord(a);
  mine.prepared = 0;  // in slots, of which there are enough
  const Failure why = rowsFault(p.handle, mine, p.comm.rank);
  if (why.fault == Fault::none) return true;
  if (w.index == 0) warp.forEach(1, [&](int) { warp.laneFail(p.comm, why); });
  return false;
}

template <Moves Warp>
MOE_LANES void offerRows(const Warp& warp, const StepParams& p) {
  const CommView& c = p.comm;
  const CombineRecord mine = ownRecord(p.combine);
  warp.forEach(c.domainSize, [&](int i) { warp.laneStore(combineRecord(c, c.domainFirst + i, c.rank), mine); });
}

// Where something is lacking nothing is read or made; every rank finds out from the record.
MOE_LANES bool mayPrepare(const StepParams& p) {
  if (p.handle.lowLatency != 0) return true;
  return rowsFault(p.handle, ownRecord(p.combine), p.comm.rank).fault == Fault::none;
}

// LL: the rows that wait for remote owners, who cannot read them here, and their gradients; each call by another
// connection.
template <Moves Warp>
MOE_LANES void llPutSums(const Warp& warp, const StepParams& p, const CombineArea& area, std::uint64_t number,
                         WarpIndex w) {
  const CommView& c = p.comm;
  const HandleView& h = p.handle;
  const std::uint32_t rowBytes = p.combine.rowBytes;
  forRemoteRanks(c, w, [&](int to) {
    if (!waitForOwn(warp, c, area.ready, number)) return false;
    const std::int64_t rows = h.rankOffsets[to + 1] - h.rankOffsets[to];
    putBlock(warp, c, to, llSlotOffset(c, h, c.far->at.llCombineIn, c.rowBytesMax, rowBytes, c.rank, 0),
             llSlotOffset(c, h, c.at.llCombineRows, c.rowBytesMax, rowBytes, to, 0), rows * rowBytes, number);
    if (p.combine.grads != 0) {
      putBlock(warp, c, to, llGradsRow(c, h, c.far->at.llGradsIn, c.rank, 0),
               llGradsRow(c, h, c.far->at.llGradsOut, to, 0),
               rows * c.topkMax * static_cast<std::int64_t>(sizeof(float)), number);
    }
    const std::uint64_t flag = area.ready + static_cast<unsigned>(c.rank) * sizeof(Flag);
    warp.put(c, 1, [&](int) { return putWord(to, flag, flagWord(number, p.combine.terms), number); });
    return true;
  });
}

// One wave of the expert side.
template <int kWaves, Moves Warp>
MOE_LANES void handOverWave(const Warp& warp, const StepParams& p, const CombineArea& area, std::uint64_t number,
                            int wave, WarpIndex w) {
  const CombineArgs& a = p.combine;
  if (!prepares(a) && (p.phases & kReceivePhase) != 0) {  // nothing to wait for: one warp speaks for all
    if (w.index == 0) tell(warp, p.comm, waveFlags(p.comm, area.ready, wave), number);
    return;
  }
  if (mayPrepare(p)) {
    if (a.inPlace == 0) prepareShare(warp, p, arrivingRows(p.handle, kWaves, wave), w);
    if (a.grads != 0 && wave == 0) pushWeightGrads(warp, p, area, w);
  }
  announceWave(warp, p.comm, area.ready, wave, w);
}

}  // namespace moe
