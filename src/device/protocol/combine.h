// Combine of HT and of LL RANK_MAJOR (of other LL layouts: ll_combine.h): the token's owner reads the rows that its
// token has at other ranks from their windows and sums them, those of its domain in rank order first. Ranks of other
// domains put their rows into its window (LL), or their rail peer puts the sum of its domain there (HT). Rows that
// peers cannot read, and rows per expert, are first made into one row per token by the expert side, in window memory of
// its own (HT: the staging area, LL: slots like those in which the rows came). Flags: docs/internals/protocol.md,
// "Combine".
#pragma once

#include "device/protocol/combine_prepare.h"

namespace moe {

// The row that stands for the token at destination `to`, as this rank reads it.
template <Moves Warp>
MOE_LANES const std::uint8_t* partialRow(const Warp& warp, const StepParams& p, const Destination& to) {
  const CommView& c = p.comm;
  const std::uint32_t rowBytes = p.combine.rowBytes;
  const bool remote = isRemote(warp, c, to.rank);
  if (remote && p.handle.lowLatency == 0) {
    return c.mine<std::uint8_t>(
        railRow(c, c.far->at.railSums, c.rowBytesMax, rowBytes, to.rank / c.domainSize, to.index));
  }
  if (remote) return llSlot(c, p.handle, c.rank, c.far->at.llCombineIn, c.rowBytesMax, rowBytes, to.rank, to.index);
  if (p.handle.lowLatency != 0) {
    return llSlot(c, p.handle, to.rank, c.at.llCombineRows, c.rowBytesMax, rowBytes, c.rank, to.index);
  }
  const CombineRecord at = warp.laneLoad(combineRecord(c, c.rank, to.rank));
  const std::int64_t row = at.prepared != 0 ? to.flat : to.row;
  return c.in<std::uint8_t>(to.rank, at.rows) + row * rowBytes;
}

// The owner's sums: a token's rows in the order of its destinations, then the biases. Rows are read after mayRead() has
// returned true, and not at all if it returns false.
template <Moves Warp, class MayRead>
MOE_LANES bool sumTokens(const Warp& warp, const StepParams& p, Range tokens, WarpIndex w, MayRead mayRead) {
  const HandleView& h = p.handle;
  const CombineArgs& a = p.combine;
  const int biases = biasCount(a);
  const Strided mine = stridedOf(tokens.begin * a.parts.count, tokens.end * a.parts.count, w);
  const auto item = [&](int i) { return partOf(a.parts, a.rowBytes, mine.at(i)); };
  return warp.template reduceRows<false>(
      mine.count, a.rowType, h.slots + biases, mayRead,
      [&](int i) {
        const PartOf part = item(i);
        std::uint8_t* out = a.out + static_cast<std::int64_t>(part.row) * a.rowBytes;
        return SumJob{out + part.begin, part.bytes, h.destinationCount[part.row] + biases};
      },
      [&](int i, int term) -> const std::uint8_t* {
        const PartOf part = item(i);
        const int bias = term - h.destinationCount[part.row];
        if (bias < 0) return partialRow(warp, p, h.destinations[part.row * h.slots + term]) + part.begin;
        return biasRow(a, bias, part);
      },
      [](int, int) { return 1.0f; });
}

// What is wrong with the rows that rank `from` offers, if anything. One lane.
MOE_LANES Failure combineFault(const HandleView& h, const CombineArgs& a, const CombineRecord& record, int from) {
  if (record.terms != a.terms) return disagreement(Phase::combineRows, from, a.terms, record.terms);
  return rowsFault(h, record, from);
}

// Every rank looks at every record of its domain, so that all of them refuse together.
template <Moves Warp>
MOE_LANES bool rowsAreGood(const Warp& warp, const StepParams& p) {
  const CommView& c = p.comm;
  return allAreGood(warp, c, domainRanks(c), [&](int from) {
    return combineFault(p.handle, p.combine, warp.laneLoad(combineRecord(c, c.rank, from)), from);
  });
}

// LL looks rows up while it waits; HT records must be there to find one.
template <int kWaves, Moves Warp>
MOE_LANES bool sumWave(const Warp& warp, const StepParams& p, const CombineArea& area, std::uint64_t epoch,
                       std::uint64_t number, int wave, WarpIndex w) {
  const bool lowLatency = kWaves == 1 && p.handle.lowLatency != 0;
  const Range from = lowLatency ? allRanks(p.comm) : domainRanks(p.comm);
  const auto rowsAreThere = [&] {
    return waitForRanks(warp, p.comm, waveFlags(p.comm, area.ready, wave), from, number, Phase::combineRows);
  };
  if (!lowLatency && !rowsAreThere()) return false;
  if (!lowLatency && wave == 0 && !rowsAreGood(warp, p)) return false;
  return sumTokens(warp, p, tokensOfWave(kWaves, wave, p.combine.tokens), w, [&] {
    return !lowLatency || (rowsAreThere() && (!isLast(w) || termsAgree(warp, p, allRanks(p.comm), epoch)));
  });
}

// What must be so before rows may be handed over.
template <Moves Warp>
MOE_LANES bool beginCombine(const Warp& warp, const StepParams& p, std::uint64_t epoch, bool uncombined, WarpIndex w) {
  if (p.handle.lowLatency == 0) {
    if (w.index == 0) offerRows(warp, p);
    return true;
  }
  if (!uncombined && !waitForReaders(warp, p, epoch, w)) return false;
  if (tellsTerms(w)) tellTerms(warp, p, epoch);
  return true;
}

template <Moves Warp>
MOE_LANES void endCombine(const Warp& warp, const StepParams& p, const CombineArea& area, std::uint64_t epoch,
                          WarpIndex w) {
  const CommView& c = p.comm;
  if (p.combine.outWeightGrads != nullptr) takeWeightGrads(warp, p, area, w);
  // LL slots are the library's until the next dispatch, which brings rows from all peers, and so their word. HT rows
  // are the caller's, who may overwrite them when the step has ended: not before the last peer has read them.
  if (p.handle.lowLatency != 0) return;
  announce(warp, c, c.at.htCombineDone, Meeting::taken, w);
  if (w.index == 0) waitForDomain(warp, c, c.at.htCombineDone, epoch, Phase::combineDone);
}

// What a sending step leaves for the next one.
template <Moves Warp>
MOE_LANES void endCombineSend(const Warp& warp, const StepParams& p, const CombineArea& area, std::uint64_t epoch,
                              std::uint64_t number, WarpIndex w) {
  if (!isLast(w)) return;
  const CommView& c = p.comm;
  const HandleView& h = p.handle;
  endEpoch(warp, c, area.channel, epoch, [&] {
    h.state->combineEpoch = epoch;
    h.state->combineHanded = number;
    handedCount(c, h, area.channel) = number;
    if (h.lowLatency != 0) c.state->llUncombined[h.llSet] = 0, c.state->llUsed[h.llSet] = 1;
  });
}

template <int kWaves, Moves Warp>
MOE_LANES void combine(const Warp& warp, const StepParams& p, WarpIndex w) {
  const CommView& c = p.comm;
  const HandleView& h = p.handle;
  const CombineArea area = combineArea(c, h);
  const std::uint64_t epoch = operationEpoch(c, area.channel, p.phases, h.state->combineEpoch);
  const std::uint64_t number = handedNumber(c, h, area.channel, p.phases, h.state->combineHanded);
  const bool sends = (p.phases & kSendPhase) != 0, receives = (p.phases & kReceivePhase) != 0;
  const bool uncombined = h.lowLatency != 0 && c.state->llUncombined[h.llSet] != 0;
  if (warp.stopped(c)) return;
  if (sends) {
    if (h.lowLatency != 0 && !llRowsAreGood(warp, p, w)) return;
    noteBegin(warp, c, area.channel, w);
    if (!beginCombine(warp, p, epoch, uncombined, w)) return;
  }
  const auto handOver = [&](int wave) {
    if (!sends) return;
    handOverWave<kWaves>(warp, p, area, number, wave, w);
    if (split(warp, c) && h.lowLatency != 0) llPutSums(warp, p, area, number, w);
    if (wave == kWaves - 1) endCombineSend(warp, p, area, epoch, number, w);
  };
  const auto take = [&](int wave) { return !receives || sumWave<kWaves>(warp, p, area, epoch, number, wave, w); };
  if (inWaves<kWaves>(handOver, take, takesLater(w)) && receives) endCombine(warp, p, area, epoch, w);
}

}  // namespace moe
