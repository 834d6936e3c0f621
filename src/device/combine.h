// Combine, for both modes: the expert side sums the rows that belong to the same token (in top-k order), and pushes one
// row per (token, rank) into the slot [token][ordinal] at the token's owner; the owner sums its slots in rank order.
// The modes differ in which slots they use and how many generations of them there are. Flags: docs/protocol.md,
// "Combine".
#pragma once

#include "device/deliver.h"

namespace moe {

// The slots and flags of one mode.
struct CombineArea {
  Channel channel;
  std::uint64_t rows, grads, ready, ack;
  int tokensMax, parities, slots;
};

MOE_LANES CombineArea combineArea(const CommView& c, int lowLatency) {
  const int slots = slotsPerToken(c.topkMax, c.nranks);
  if (lowLatency != 0) {
    return {kLlCombineChannel, c.at.llCombineRows, c.at.llCombineGrads, c.at.llCombineReady,
            c.at.llCombineAck, c.llTokensMax,      kParities,           slots};
  }
  return {kHtCombineChannel, c.at.htCombineRows, c.at.htCombineGrads, c.at.htCombineReady,
          c.at.htCombineAck, c.tokensMax,        kHtCombineParities,  slots};
}

MOE_LANES std::int64_t tokenSlot(const CombineArea& area, std::uint64_t epoch, int token) {
  return static_cast<std::int64_t>(epoch % static_cast<unsigned>(area.parities)) * area.tokensMax + token;
}

MOE_LANES std::uint8_t* partialRow(const CommView& c, const CombineArea& area, int rank, std::uint64_t epoch, int token,
                                   int ordinal) {
  return c.in<std::uint8_t>(rank, area.rows) + (tokenSlot(area, epoch, token) * area.slots + ordinal) * c.rowBytesMax;
}

// Where the partial sum of arriving row `row` belongs.
MOE_LANES std::uint8_t* partialRowOf(const CommView& c, const HandleView& h, const CombineArea& area,
                                     std::uint64_t epoch, int row) {
  const Quad head = *keptHeader(h, row);
  return partialRow(c, area, headSource(head), epoch, headToken(head), headOrdinal(head));
}

// Rows go back in turns, one to each owner after the other and beginning after this rank: in FLAT order all ranks would
// push to the same owner at the same time. Some turns are empty if owners sent different numbers of rows.
MOE_LANES int turnCount(const HandleView& h) {
  int most = 0;
  for (int from = 0; from < h.map.nranks; ++from) {
    const int rows = h.rankOffsets[from + 1] - h.rankOffsets[from];
    most = rows > most ? rows : most;
  }
  return most * h.map.nranks;
}

// The row (FLAT order) of a turn, or -1.
MOE_LANES int rowOfTurn(const CommView& c, const HandleView& h, int turn) {
  const int from = (c.rank + 1 + turn % c.nranks) % c.nranks, row = h.rankOffsets[from] + turn / c.nranks;
  return row < h.rankOffsets[from + 1] ? row : -1;
}

template <class Warp>
MOE_LANES void pushPartialSums(const Warp& warp, const StepParams& p, const CombineArea& area, std::uint64_t epoch,
                               WarpIndex w) {
  const CommView& c = p.comm;
  const HandleView& h = p.handle;
  const CombineArgs& a = p.combine;
  const int n = stridedCount(turnCount(h) * a.arriving.count, w);
  const auto item = [&](int i) {
    PartOf part = partOf(a.arriving, a.rowBytes, w.index + i * w.count);
    part.row = rowOfTurn(c, h, part.row);
    return part;
  };
  const auto rowAt = [&](int row, int copy) {
    return a.rows + static_cast<std::int64_t>(layoutRow(h, row, copy)) * a.rowBytes;
  };
  if (!expertRows(h)) {  // one row per token already
    warp.streamRows(
        n,
        [&](int i) {
          const PartOf part = item(i);
          if (part.row < 0) return CopyJob{nullptr, 0, 0};
          return CopyJob{rowAt(part.row, 0) + part.begin, part.bytes, 1};
        },
        [&](int i, int) {
          const PartOf part = item(i);
          return partialRowOf(c, h, area, epoch, part.row) + part.begin;
        });
    return;
  }
  const auto jobOf = [&](int i) {
    const PartOf part = item(i);
    if (part.row < 0) return SumJob{nullptr, 0, 0};
    return SumJob{partialRowOf(c, h, area, epoch, part.row) + part.begin, part.bytes, layoutCopies(h, part.row)};
  };
  const auto termOf = [&](int i, int term) {
    const PartOf part = item(i);
    return rowAt(part.row, term) + part.begin;
  };
  const auto weightOf = [&](int i, int term) { return entryWeight(keptHeader(h, item(i).row)[1 + term]); };
  if (a.weighted != 0) {
    warp.template reduceRows<true>(n, a.rowType, jobOf, termOf, weightOf);
  } else {
    warp.template reduceRows<false>(n, a.rowType, jobOf, termOf, weightOf);
  }
}

// Gradients of the weights go to [token][k] at the owner: each entry has exactly one source.
template <class Warp>
MOE_LANES void pushWeightGrads(const Warp& warp, const StepParams& p, const CombineArea& area, std::uint64_t epoch,
                               WarpIndex w) {
  const CommView& c = p.comm;
  const HandleView& h = p.handle;
  const Slice slice = sliceOf(*h.rows, w);
  warp.forEach(slice.count, [&](int i) {
    const int row = slice.begin + i;
    const Quad* header = keptHeader(h, row);
    float* to = c.in<float>(headSource(*header), area.grads) + tokenSlot(area, epoch, headToken(*header)) * c.topkMax;
    for (int n = 0; n < headEntries(*header); ++n) {
      const int k = entryTopk(header[1 + n]);
      const std::int64_t at = layoutRow(h, row, n);
      warp.laneStore(to + k, p.combine.weightGrads[expertRows(h) ? at : at * h.topk + k]);
    }
  });
}

template <class Warp>
MOE_LANES void combineSend(const Warp& warp, const StepParams& p, const CombineArea& area, std::uint64_t epoch,
                           WarpIndex w) {
  const CommView& c = p.comm;
  // The slots of an earlier epoch are written again: every owner has summed them.
  if (!waitForAcks(warp, c, area.ack, epoch, area.parities, Phase::combineAck)) return;
  pushPartialSums(warp, p, area, epoch, w);
  if (p.combine.weightGrads != nullptr) pushWeightGrads(warp, p, area, epoch, w);
  announceWhenSent(warp, c, area.ready, epoch, w);
}

// The owner's sum: its slots in rank order, then the biases.
template <class Warp>
MOE_LANES void sumSlots(const Warp& warp, const StepParams& p, const CombineArea& area, std::uint64_t epoch,
                        WarpIndex w) {
  const CommView& c = p.comm;
  const HandleView& h = p.handle;
  const CombineArgs& a = p.combine;
  const int biases = (a.bias0 != nullptr ? 1 : 0) + (a.bias1 != nullptr ? 1 : 0);
  const auto item = [&](int i) { return partOf(a.parts, a.rowBytes, w.index + i * w.count); };
  warp.template reduceRows<false>(
      stridedCount(a.tokens * a.parts.count, w), a.rowType,
      [&](int i) {
        const PartOf part = item(i);
        std::uint8_t* out = a.out + static_cast<std::int64_t>(part.row) * a.rowBytes;
        return SumJob{out + part.begin, part.bytes, h.destinationCount[part.row] + biases};
      },
      [&](int i, int term) -> const std::uint8_t* {
        const PartOf part = item(i);
        const int bias = term - h.destinationCount[part.row];
        if (bias < 0) return partialRow(c, area, c.rank, epoch, part.row, term) + part.begin;
        const std::uint8_t* rows = bias == 0 && a.bias0 != nullptr ? a.bias0 : a.bias1;
        return rows + static_cast<std::int64_t>(part.row) * a.rowBytes + part.begin;
      },
      [](int, int) { return 1.0f; });
}

template <class Warp>
MOE_LANES void takeWeightGrads(const Warp& warp, const StepParams& p, const CombineArea& area, std::uint64_t epoch,
                               WarpIndex w) {
  const CommView& c = p.comm;
  const HandleView& h = p.handle;
  const Slice slice = sliceOf(p.combine.tokens, w);
  warp.forEach(slice.count * h.topk, [&](int i) {
    const int token = slice.begin + i / h.topk, k = i % h.topk, entry = token * h.topk + k;
    const float* from = c.mine<float>(area.grads) + tokenSlot(area, epoch, token) * c.topkMax + k;
    p.combine.outWeightGrads[entry] = h.ids[entry] >= 0 ? warp.laneLoad(from) : 0.0f;
  });
}

template <class Warp>
MOE_LANES void combineReceive(const Warp& warp, const StepParams& p, const CombineArea& area, std::uint64_t epoch,
                              WarpIndex w) {
  const CommView& c = p.comm;
  if (!warp.waitAll(c, c.mine<Flag>(area.ready), c.nranks, epoch, Phase::combineRows)) return;
  sumSlots(warp, p, area, epoch, w);
  if (p.combine.outWeightGrads != nullptr) takeWeightGrads(warp, p, area, epoch, w);
}

template <class Warp>
MOE_LANES void combine(const Warp& warp, const StepParams& p, WarpIndex w) {
  const CommView& c = p.comm;
  HandleState* state = p.handle.state;
  const CombineArea area = combineArea(c, p.handle.lowLatency);
  const std::uint64_t epoch = operationEpoch(c, area.channel, p.phases, state->combineEpoch);
  if ((p.phases & kSendPhase) != 0) combineSend(warp, p, area, epoch, w);
  if ((p.phases & kReceivePhase) != 0 && !warp.stopped(c)) combineReceive(warp, p, area, epoch, w);
  leave(warp, c, w, [&] {
    warp.forEach(1, [&](int) {
      if ((p.phases & kSendPhase) == 0) return;
      c.state->epoch[area.channel] = epoch;
      state->combineEpoch = epoch;
    });
    if ((p.phases & kReceivePhase) == 0) return;
    acknowledge(warp, c, area.ack, epoch, area.parities);
  });
}

}  // namespace moe
