// HT combine across domains: for each token that came over a rail, this rank sums the rows that the token has in this
// domain, as if the token were its own, and puts the sum to the owner, its rail peer. That belongs to the sending
// phase, as with dispatch. The owner adds the sums of other domains to the rows of its own.
#pragma once

#include "device/protocol/combine.h"

namespace moe {

// Sums of a wave's rows for the owners in other domains, where they wait to be put.
template <Moves Warp>
MOE_LANES bool sumForRails(const Warp& warp, const StepParams& p, const RailRows& rows, WarpIndex w) {
  const CommView& c = p.comm;
  const HandleView& h = p.handle;
  const CombineArgs& a = p.combine;
  const Strided mine = stridedOf(0, rows.count() * a.parts.count, w);
  const auto item = [&](int i) { return partOf(a.parts, a.rowBytes, mine.at(i)); };
  return warp.template reduceRows<false>(
      mine.count, a.rowType, h.slots, [] { return true; },
      [&](int i) {
        const PartOf part = item(i);
        const RailRow row = railRowAt(rows, part.row);
        auto* out =
            c.mine<std::uint8_t>(railRow(c, c.far->at.railSumsOut, c.rowBytesMax, a.rowBytes, row.domain, row.index));
        return SumJob{out + part.begin, part.bytes, h.railCount[row.table]};
      },
      [&](int i, int term) -> const std::uint8_t* {
        const PartOf part = item(i);
        const RailRow row = railRowAt(rows, part.row);
        return partialRow(warp, p, h.railTo[row.table * h.railSlots() + term]) + part.begin;
      },
      [](int, int) { return 1.0f; });
}

template <Moves Warp>
MOE_LANES bool forwardSums(const Warp& warp, const StepParams& p, const CombineArea& area, std::uint64_t number,
                           int wave, WarpIndex w) {
  const CommView& c = p.comm;
  const HandleView& h = p.handle;
  const std::uint32_t rowBytes = p.combine.rowBytes;
  if (!waitForWave(warp, c, area.ready, wave, number, Phase::combineRows)) return false;
  if (wave == 0 && !rowsAreGood(warp, p)) return false;
  const RailRows rows{h, wave};
  sumForRails(warp, p, rows, w);
  return sendOverRails(warp, c, kCombineRails, p.combine.terms, c.far->at.htSumWaves, wave, number, w, [&](int domain) {
    const int peer = c.railPeer(domain), first = rows.first(domain);
    const auto rowIn = [&](std::uint64_t at, int part) { return railRow(c, at, c.rowBytesMax, rowBytes, part, first); };
    putBlock(warp, c, peer, rowIn(c.far->at.railSums, c.domain()), rowIn(c.far->at.railSumsOut, domain),
             std::int64_t{rows.end(domain) - first} * rowBytes, connectionOfWave(wave));
    if (wave != 0 || p.combine.grads == 0) return;
    const std::int64_t arrived = h.railStart[kHtWaves * h.domains + domain];
    putBlock(warp, c, peer, railGradsRow(c, c.far->at.railGrads, c.domain(), 0),
             railGradsRow(c, c.far->at.railGradsOut, domain, 0),
             arrived * c.topkMax * static_cast<std::int64_t>(sizeof(float)), connectionOfWave(wave));
  });
}

// The owner's part of a wave.
template <Moves Warp>
MOE_LANES bool takeSums(const Warp& warp, const StepParams& p, const CombineArea& area, std::uint64_t epoch,
                        std::uint64_t number, int wave, WarpIndex w) {
  const CommView& c = p.comm;
  if (!waitForRails(warp, c, railFlags(c, c.far->at.htSumWaves, wave), number, Phase::combineRails)) return false;
  if (wave == 0 && !railSizesAgree(warp, c, kCombineRails, Phase::combineRails, p.combine.terms)) return false;
  return sumWave<kHtWaves>(warp, p, area, epoch, number, wave, w);
}

template <Moves Warp>
MOE_LANES void combineRails(const Warp& warp, const StepParams& p, WarpIndex w) {
  const CommView& c = p.comm;
  const HandleView& h = p.handle;
  const CombineArea area = combineArea(c, h);
  const std::uint64_t epoch = operationEpoch(c, area.channel, p.phases, h.state->combineEpoch);
  const std::uint64_t number = handedNumber(c, h, area.channel, p.phases, h.state->combineHanded);
  const bool sends = (p.phases & kSendPhase) != 0, receives = (p.phases & kReceivePhase) != 0;
  if (warp.stopped(c)) return;
  if (sends) {
    noteBegin(warp, c, area.channel, w);
    if (w.index == 0) offerRows(warp, p);
    if (!waitForRails(warp, c, c.far->at.htSumsFree, number - 1, Phase::combineRailsFree)) return;
  }
  const auto handOver = [&](int wave) {
    if (sends) handOverWave<kHtWaves>(warp, p, area, number, wave, w);
    return true;
  };
  const auto forward = [&](int wave) {
    if (!sends) return true;
    if (!forwardSums(warp, p, area, number, wave, w)) return false;
    if (wave == kHtWaves - 1) endCombineSend(warp, p, area, epoch, number, w);
    return true;
  };
  const auto take = [&](int wave) { return !receives || takeSums(warp, p, area, epoch, number, wave, w); };
  if (!inWavesOverRails(handOver, forward, take) || !receives) return;
  endCombine(warp, p, area, epoch, w);
  freeRails(warp, c, kCombineRails, c.far->at.htSumsFree, number, w);
}

}  // namespace moe
