// The expert side of combine: one row per token that came, where the token's owner can read it, and the gradients of
// the weights at the owner.
#pragma once

#include "device/combine_grads.h"

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
template <bool kLanding, class Warp, class ItemOf, class PlaceOf>
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
template <class Warp>
MOE_LANES void prepareShare(const Warp& warp, const StepParams& p, const ArrivingRows& rows, WarpIndex w) {
  const auto items = partsOf(rows, p.combine.arriving, p.combine.rowBytes, w);
  prepareRows<false>(
      warp, p, items.mine.count, [&](int i) { return items.at(i); }, [&](int row) { return preparedRow(p, row); });
}

MOE_LANES bool prepares(const CombineArgs& a) {
  return a.inPlace == 0 || a.weightGrads != nullptr;
}

// LL, right after a combine of the same set: what that one made may be written again when every rank has read it. With
// a dispatch in between, everybody has.
template <class Warp>
MOE_LANES bool waitForReaders(const Warp& warp, const StepParams& p, std::uint64_t epoch, WarpIndex w) {
  const CommView& c = p.comm;
  const std::uint64_t free = llFlags(c, p.handle, c.at.llCombineFree);
  tellFree(warp, c, free, epoch, w);
  return !prepares(p.combine) || waitForAll(warp, c, free, epoch, Phase::combineSlots);
}

template <class Warp>
MOE_LANES void offerRows(const Warp& warp, const StepParams& p) {
  const CommView& c = p.comm;
  const CombineArgs& a = p.combine;
  const CombineRecord mine{a.rowsOffset, a.capacity, a.rowBytes, a.inPlace != 0 ? 0 : 1, 0};
  warp.forEach(c.domainSize, [&](int i) { warp.laneStore(combineRecord(c, c.domainFirst + i, c.rank), mine); });
}

// Rows that do not fit the staging area are not made; every rank finds out from the record.
MOE_LANES bool preparedRowsFit(const StepParams& p) {
  return p.handle.lowLatency != 0 || *p.handle.rows <= p.combine.capacity;
}

// LL: the rows that wait for remote owners, who cannot read them here, and their gradients; each call by another
// connection.
template <class Warp>
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
    if (p.combine.weightGrads != nullptr) {
      putBlock(warp, c, to, llGradsRow(c, h, c.far->at.llGradsIn, c.rank, 0),
               llGradsRow(c, h, c.far->at.llGradsOut, to, 0),
               rows * c.topkMax * static_cast<std::int64_t>(sizeof(float)), number);
    }
    putFlag(warp, c, to, area.ready, number, number);
    return true;
  });
}

// One wave of the expert side.
template <int kWaves, class Warp>
MOE_LANES void handOverWave(const Warp& warp, const StepParams& p, const CombineArea& area, std::uint64_t number,
                            int wave, WarpIndex w) {
  const CombineArgs& a = p.combine;
  if (!prepares(a) && (p.phases & kReceivePhase) != 0) {  // nothing to wait for: one warp speaks for all
    if (w.index == 0) tell(warp, p.comm, waveFlags(p.comm, area.ready, wave), number);
    return;
  }
  if (a.inPlace == 0 && preparedRowsFit(p)) prepareShare(warp, p, arrivingRows(p.handle, kWaves, wave), w);
  if (a.weightGrads != nullptr && wave == 0) pushWeightGrads(warp, p, area, w);
  announceWave(warp, p.comm, area.ready, wave, w);
}

}  // namespace moe
