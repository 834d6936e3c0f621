// Gradients of the weights, in a combine of both modes. They go to [token][k] at the owner: each entry has exactly one
// source. To owners in other domains they go by the row's index there: LL from here, HT over the rail of the owner.
#pragma once

#include "device/protocol/deliver.h"
#include "device/protocol/rails.h"
#include "device/view/ll_slots.h"

namespace moe {

// The flags and gradients of one mode.
struct CombineArea {
  Channel channel;
  std::uint64_t ready, grads;
};

MOE_LANES std::uint64_t gradsRow(const CommView& c, std::uint64_t area, std::int64_t row) {
  return area + static_cast<std::uint64_t>(row * c.topkMax) * sizeof(float);
}
MOE_LANES std::uint64_t llGradsRow(const CommView& c, const HandleView& h, std::uint64_t area, int rank, int index) {
  return gradsRow(c, area, (std::int64_t{h.llSet} * c.nranks + rank) * c.llTokensMax + index);
}
MOE_LANES std::uint64_t railGradsRow(const CommView& c, std::uint64_t area, std::int64_t domain, int index) {
  return gradsRow(c, area, domain * c.tokensMax + index);
}

// Where the gradients of an arriving row go.
template <Moves Warp>
MOE_LANES float* gradsOfRow(const Warp& warp, const StepParams& p, const CombineArea& area, int row) {
  const CommView& c = p.comm;
  const HandleView& h = p.handle;
  const Quad head = *keptHeader(h, row);
  const int source = headSource(head);
  if (!isRemote(warp, c, source)) return c.in<float>(source, gradsRow(c, area.grads, headToken(head)));
  if (h.lowLatency != 0) {
    return c.mine<float>(llGradsRow(c, h, c.far->at.llGradsOut, source, row - h.rankOffsets[source]));
  }
  const int forwarder = c.domainFirst + source % c.domainSize;
  return c.in<float>(forwarder, railGradsRow(c, c.far->at.railGradsOut, source / c.domainSize, headIndex(head)));
}

template <Moves Warp>
MOE_LANES void pushWeightGrads(const Warp& warp, const StepParams& p, const CombineArea& area, WarpIndex w) {
  const HandleView& h = p.handle;
  const Slice slice = sliceOf(*h.rows, w);
  warp.forEach(slice.count, [&](int i) {
    const int row = slice.begin + i;
    const Quad* header = keptHeader(h, row);
    float* to = gradsOfRow(warp, p, area, row);
    for (int n = 0; n < headEntries(*header); ++n) {
      const int k = entryTopk(header[1 + n]);
      const std::int64_t at = layoutRow(h, row, n);
      warp.laneStore(to + k, p.combine.weightGrads[expertRows(h) ? at : at * h.topk + k]);
    }
  });
}

// Where the gradient of an entry has come. One lane.
template <Moves Warp>
MOE_LANES const float* gradOfEntry(const Warp& warp, const StepParams& p, const CombineArea& area, int token, int k,
                                   int expert) {
  const CommView& c = p.comm;
  const HandleView& h = p.handle;
  const int rank = h.map.rankOf(expert);
  if (!isRemote(warp, c, rank)) return c.mine<float>(gradsRow(c, area.grads, token)) + k;
  const bool lowLatency = h.lowLatency != 0;
  const int sender = lowLatency ? rank : c.railPeer(rank / c.domainSize);
  const Destination* to = h.destinations + std::int64_t{token} * h.slots + h.nearCount[token];
  while (to->rank != sender) ++to;
  const std::uint64_t row = lowLatency ? llGradsRow(c, h, c.far->at.llGradsIn, rank, to->index)
                                       : railGradsRow(c, c.far->at.railGrads, rank / c.domainSize, to->index);
  return c.mine<float>(row) + k;
}

template <Moves Warp>
MOE_LANES void takeWeightGrads(const Warp& warp, const StepParams& p, const CombineArea& area, WarpIndex w) {
  const HandleView& h = p.handle;
  const Slice slice = sliceOf(p.combine.tokens, w);
  warp.forEach(slice.count * h.topk, [&](int i) {
    const int entry = slice.begin * h.topk + i, token = entry / h.topk, expert = h.ids[entry];
    p.combine.outWeightGrads[entry] =
        expert >= 0 ? warp.laneLoad(gradOfEntry(warp, p, area, token, entry % h.topk, expert)) : 0.0f;
  });
}

}  // namespace moe
