// Weights that a combine carries, and gradients of weights. Both are values of entries that travel with the rows.
//
// Gradients, in both modes, go to [token][k] at the owner. Each entry has exactly one source. Gradients for owners in
// other domains are ordered by the row's index there: LL puts them from here, HT over the owner's rail.
//
// Weights that a combine carries are known to the owner of tokens, but the rows are summed at the ranks of their
// experts. Therefore each rank first stores its weights to all ranks, in its own order. The expert side looks up an
// entry's weight by the row's header. Flags: README.md, "Weights of a combine".
#pragma once

#include "device/protocol/core/deliver.h"
#include "device/protocol/core/rails.h"
#include "device/protocol/core/remote.h"
#include "device/view/ll_slots.h"

namespace moe {

// The flags and the gradients of one mode in the window.
struct CombineArea {
  std::uint64_t ready, grads;
};
MOE_LANES CombineArea combineArea(const CommView& c, const HandleView& h, std::uint64_t epoch) {
  if (h.lowLatency == 0) {
    const std::int64_t before = std::int64_t{parityOf(epoch)} * c.tokensMax * c.topkMax;
    return {c.at.htCombineWaves, c.at.htCombineGrads + static_cast<std::uint64_t>(before) * sizeof(float)};
  }
  const std::uint64_t grads = static_cast<std::uint64_t>(h.llSet) * static_cast<std::uint64_t>(c.llTokensMax) *
                              static_cast<std::uint64_t>(c.topkMax) * sizeof(float);
  return {llFlags(c, h, c.at.llCombineReady), c.at.llCombineGrads + grads};
}
MOE_LANES Channel combineChannel(const HandleView& h) {
  return h.lowLatency == 0 ? kHtCombineChannel : llChannel(kLlCombineChannel, h.llSet);
}

// The session of a combine, with the combine's arguments. `kCodes`: its rows travel in a wire format.
template <Moves Warp, bool kCodes = false>
struct CombineSession : Session<Warp> {
  static constexpr bool kCoded = kCodes;
  const CombineArgs& args;
  CombineArea area;
  std::uint64_t weights;  // number of this combine among those that carry weights; 0: it carries none

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

// Where the gradients of an arrived row go.
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

// With `silent` it sends zeros.
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

// Where the gradient of entry k of a token arrives. For one lane.
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
    // Merged entries all have the gradient of their summed weight.
    const int k = isMerged(id) ? mergedInto(id) : entry % h.topk,
              expert = isMerged(id) ? h.sent.ids[token * h.topk + k] : id;
    s.args.outWeightGrads[entry] = expert >= 0 ? s.warp.laneLoad(gradOfEntry(s, token, k, expert)) : 0.0f;
  });
}

// Sets the number of a combine that carries weights, if its handle's combines do. It must be called before the step's
// warps say that they have begun.
MOE_LANES Operation withWeights(const StepParams& p, Operation which) {
  const bool brings = p.handle.weighted != 0 && (p.phases & kSendPhase) != 0;
  which.weights = brings ? p.comm.state->weighted[which.channel] + 1 : 0;
  return which;
}
// Notes the number for the next step. For one lane.
MOE_LANES void noteWeights(const Combining auto& s) {
  if (s.weights != 0) s.comm.state->weighted[s.channel] = s.weights;
}

MOE_LANES std::uint64_t weightsReady(const Combining auto& s) {
  return s.handle.lowLatency != 0 ? llFlags(s.comm, s.handle, s.comm.at.llWeightsReady) : s.comm.at.htWeightsReady;
}
// Where the weights of rank `from` lie in a window, [tokens][topk].
MOE_LANES std::uint64_t weightsFrom(const Combining auto& s, int from) {
  const CommView& c = s.comm;
  const bool lowLatency = s.handle.lowLatency != 0;
  const std::int64_t part = lowLatency ? s.handle.llSet : parityOf(s.weights);
  const std::int64_t tokens = lowLatency ? c.llTokensMax : c.tokensMax;
  return gradsRow(c, lowLatency ? c.at.llWeights : c.at.htWeights, (part * c.nranks + from) * tokens);
}

// The weight of an entry of this rank's tokens. Merged entries count with the first of them, which has their sum. For
// one lane.
MOE_LANES float ownWeight(const StepParams& p, int entry) {
  const HandleView& h = p.handle;
  const float* given = p.combine.topkWeights;
  if (given == nullptr) return h.sent.weights[entry];
  float sum = given[entry];
  if (h.merges == 0) return sum;
  const int first = h.byTopk.of(entry) * h.topk, merged = idOfMerged(entry - first);
  MOE_ROLLED
  for (int other = entry + 1; other < first + h.topk; ++other) {
    if (h.sent.ids[other] == merged) sum = addRounded(sum, given[other]);
  }
  return sum;
}

// The weight of an entry of an arrived row, which its owner has stored here.
MOE_LANES float broughtWeight(const Combining auto& s, const Quad& head, const Quad& entry) {
  const float* weights = s.comm.template mine<float>(weightsFrom(s, headSource(head)));
  const int at = headToken(head) * s.handle.topk + entryTopk(entry);
  return s.warp.laneLoad(weights + at);
}

// Stores this rank's weights to all ranks. A sending step calls it before it makes rows. If the step applies weights,
// it waits for those of all ranks. False: that wait failed.
MOE_LANES bool bringWeights(const Combining auto& s) {
  if (s.weights == 0) return true;
  const CommView& c = s.comm;
  const std::uint64_t own = weightsFrom(s, c.rank), ready = weightsReady(s);
  const Slice slice = sliceOf(s.args.tokens * s.handle.topk, s.w);
  s.warp.forEach(slice.count, [&](int i) {
    const int entry = slice.begin + i;
    const float weight = ownWeight(s.p, entry);
    MOE_ROLLED
    for (int to = c.domainFirst; to < c.domainFirst + c.domainSize; ++to) {
      s.warp.laneStore(c.in<float>(to, own) + entry, weight);
    }
  });
  s.announce(ready, Meeting::weights, s.w);
  const std::int64_t bytes = std::int64_t{s.args.tokens} * s.handle.topk * static_cast<std::int64_t>(sizeof(float));
  if (s.split()) {
    forRemoteRanks(s, [&](int to) {
      if (!s.waitForOwn(ready, s.weights)) return false;
      putBlock(s, to, {own, own, bytes});
      s.warp.put(c, 1, [&](int) { return flagPut(c, to, ready, s.weights); });
      return true;
    });
  }
  return s.args.weighted == 0 || s.waitForAll(ready, s.weights, Phase::combineWeights);
}

}  // namespace moe
