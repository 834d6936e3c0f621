// Weights that a combine brings: the owner of tokens has them, and the rows are summed at the ranks of their experts.
// So each rank first stores its weights to all ranks, in its own order, and the expert side looks an entry up by what
// its header says. Flags: README.md, "Weights of a combine".
#pragma once

#include "device/protocol/combine/grads.h"
#include "device/protocol/core/remote.h"

namespace moe {

// A combine, as one that brings weights if its handle's do: before its warps say that they have begun.
MOE_LANES Operation withWeights(const StepParams& p, Operation which) {
  const bool brings = p.handle.weighted != 0 && (p.phases & kSendPhase) != 0;
  which.weights = brings ? p.comm.state->weighted[which.channel] + 1 : 0;
  return which;
}
// What a sending step leaves for the next one. One lane.
MOE_LANES void noteWeights(const Combining auto& s) {
  if (s.weights != 0) s.comm.state->weighted[s.channel] = s.weights;
}

MOE_LANES std::uint64_t weightsReady(const Combining auto& s) {
  return s.handle.lowLatency != 0 ? llFlags(s.comm, s.handle, s.comm.at.llWeightsReady) : s.comm.at.htWeightsReady;
}
// Where the weights of rank `from` are in a window, [tokens][topk].
MOE_LANES std::uint64_t weightsFrom(const Combining auto& s, int from) {
  const CommView& c = s.comm;
  const bool lowLatency = s.handle.lowLatency != 0;
  const std::int64_t part = lowLatency ? s.handle.llSet : parityOf(s.weights);
  const std::int64_t tokens = lowLatency ? c.llTokensMax : c.tokensMax;
  return gradsRow(c, lowLatency ? c.at.llWeights : c.at.htWeights, (part * c.nranks + from) * tokens);
}

// The weight of an entry of this rank's tokens. Merged entries count with the first one, which has their sum. One lane.
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

// The weight of an entry of a row that came, where its owner has stored it.
MOE_LANES float broughtWeight(const Combining auto& s, const Quad& head, const Quad& entry) {
  const float* weights = s.comm.template mine<float>(weightsFrom(s, headSource(head)));
  const int at = headToken(head) * s.handle.topk + entryTopk(entry);
  return s.warp.laneLoad(weights + at);
}

// What a sending step does before it makes rows; if it applies weights, the wait for all of them. False if that failed.
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
