// Gradients of the weights, in a combine of both modes. They go to [token][k] at the owner: each entry has exactly one
// source. To owners in other domains they go by the row's index there: LL from here, HT over the rail of the owner.
#pragma once

#include "device/protocol/core/deliver.h"
#include "device/protocol/core/rails.h"
#include "device/view/ll_slots.h"

namespace moe {

// The flags and gradients of one mode.
struct CombineArea {
  std::uint64_t ready, grads;
};
MOE_LANES CombineArea combineArea(const CommView& c, const HandleView& h, std::uint64_t epoch) {
  if (h.lowLatency == 0) {
    const std::int64_t before = std::int64_t{parityOf(epoch)} * c.tokensMax * c.topkMax;
    return {goesInWaves(h) ? c.at.htCombineWaves : c.at.htCombineReady,
            c.at.htCombineGrads + static_cast<std::uint64_t>(before) * sizeof(float)};
  }
  const std::uint64_t grads = static_cast<std::uint64_t>(h.llSet) * static_cast<std::uint64_t>(c.llTokensMax) *
                              static_cast<std::uint64_t>(c.topkMax) * sizeof(float);
  return {llFlags(c, h, c.at.llCombineReady), c.at.llCombineGrads + grads};
}
MOE_LANES Channel combineChannel(const HandleView& h) {
  return h.lowLatency == 0 ? kHtCombineChannel : llChannel(kLlCombineChannel, h.llSet);
}

// A session of a combine, with what it was asked for. `kCodes`: its rows travel in a wire format.
template <Moves Warp, bool kCodes = false>
struct CombineSession : Session<Warp> {
  static constexpr bool kCoded = kCodes;
  const CombineArgs& args;
  CombineArea area;
  std::uint64_t weights;  // 0: none are brought

  MOE_LANES CombineSession(const Warp& policy, const StepParams& params, WarpIndex index, const Operation& operation)
      : Session<Warp>(policy, params, index, operation),
        args(params.combine),
        area(combineArea(params.comm, params.handle, operation.epoch)),
        weights(operation.weights) {}
};
template <class S>
concept Combining = Moving<S> && requires(const S s) {
  s.args;
  s.area;
  s.weights;
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
MOE_LANES float* gradsOfRow(const Combining auto& s, int row) {
  const CommView& c = s.comm;
  const HandleView& h = s.handle;
  const Quad head = *keptHeader(h, row);
  const int source = headSource(head);
  if (!s.isRemote(source)) return c.in<float>(source, gradsRow(c, s.area.grads, headToken(head)));
  if (h.lowLatency != 0) {
    return c.mine<float>(llGradsRow(c, h, c.far->at.llGradsOut, source, row - h.arriving.rankOffsets[source]));
  }
  const int forwarder = c.domainFirst + source % c.domainSize;
  return c.in<float>(forwarder, railGradsRow(c, c.far->at.railGradsOut, source / c.domainSize, headIndex(head)));
}

// `silent`: zeros.
MOE_LANES void pushWeightGrads(const Combining auto& s, bool silent = false) {
  const HandleView& h = s.handle;
  const Slice slice = sliceOf(*h.arriving.rows, s.w);
  s.warp.forEach(slice.count, [&](int i) {
    const int row = slice.begin + i;
    const Quad* header = keptHeader(h, row);
    float* to = gradsOfRow(s, row);
    for (int n = 0; n < headEntries(*header); ++n) {
      const int k = entryTopk(header[1 + n]);
      const std::int64_t at = layoutRow(h, row, n);
      s.warp.laneStore(to + k, silent ? 0.0f : s.args.weightGrads[expertRows(h) ? at : at * h.topk + k]);
    }
  });
}

// Where the gradient of entry k of a token has come. One lane.
MOE_LANES const float* gradOfEntry(const Combining auto& s, int token, int k, int expert) {
  const CommView& c = s.comm;
  const HandleView& h = s.handle;
  const int rank = h.map.rankOf(expert);
  if (!s.isRemote(rank)) return c.mine<float>(gradsRow(c, s.area.grads, token)) + k;
  const bool lowLatency = h.lowLatency != 0;
  const int sender = lowLatency ? rank : c.railPeer(rank / c.domainSize);
  const Destination* to = h.sent.destinations + std::int64_t{token} * h.destinationsMax + h.sent.localCount[token];
  while (to->rank != sender) ++to;
  const std::uint64_t row = lowLatency ? llGradsRow(c, h, c.far->at.llGradsIn, rank, to->index)
                                       : railGradsRow(c, c.far->at.railGrads, rank / c.domainSize, to->index);
  return c.mine<float>(row) + k;
}

MOE_LANES void takeWeightGrads(const Combining auto& s) {
  const HandleView& h = s.handle;
  const Slice slice = sliceOf(s.args.tokens, s.w);
  s.warp.forEach(slice.count * h.topk, [&](int i) {
    const int entry = slice.begin * h.topk + i, token = entry / h.topk, id = h.sent.ids[entry];
    // The sum of merged weights has the gradient of each of them.
    const int k = isMerged(id) ? mergedInto(id) : entry % h.topk,
              expert = isMerged(id) ? h.sent.ids[token * h.topk + k] : id;
    s.args.outWeightGrads[entry] = expert >= 0 ? s.warp.laneLoad(gradOfEntry(s, token, k, expert)) : 0.0f;
  });
}

}  // namespace moe
