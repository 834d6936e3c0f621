// A combine whose rows lie in their slots, and which brings nothing beside them (combinesFromSlots): what most decoders
// run in each layer. Code of its own, as that of Combine for everybody else is longer than such a step takes. Words and
// slots are the same. README.md, "Combine from slots".
//
// A warp of the policy is a block here.
#pragma once

#include "device/protocol/combine/combine.h"
#include "device/view/steps.h"

namespace moe {

static_assert(kWireRow == 0, "combinesFromSlots");

// Zeros instead of this rank's rows, for owners who wait for rows. Code of its own, as it is seldom needed.
template <Moves Warp>
MOE_SELDOM void llGiveZeros(Warp warp, const StepParams& p, WarpIndex w, Operation operation) {
  const CombineSession<Warp> s(warp, p, w, operation);
  prepareZeroRows<false>(s, PreparedWave<1>{w, 0}.items(p));
  s.announce(s.area.ready, Meeting::waves, w);
}

template <Blocks Warp>
class LlSlotCombine {
 public:
  MOE_LANES LlSlotCombine(const Warp& warp, const StepParams& p, WarpIndex w)
      : s_(warp, p, {w.index, w.count, w.count}, combineOperation(p)) {}

  MOE_LANES void run() const {
    std::uint32_t uncombined = s_.comm.state->llUncombined[s_.handle.llSet], fault = knownFault(s_);
    std::uint64_t epoch = s_.epoch, number = s_.number;
    if (s_.stopped(uncombined, fault, epoch, number)) return;
    const bool silent = givesZeros(s_, fault);
    if (!silent && s_.w.index == 0) s_.tell(s_.area.ready, s_.number);  // others wait for this alone
    s_.noteBegin();
    if (uncombined == 0 && !waitForReaders(s_, silent)) return;
    if (tellsTerms(s_.w)) tellTerms(s_);
    if (silent) llGiveZeros(s_.warp, s_.p, s_.w, s_.operation());
    if (!sumRows()) return;
    if (isLast(s_.w)) endCombineSend(s_, silent);
  }

 private:
  // What TokenSums reads.
  struct From {
    const LlSlotCombine& combine;

    MOE_LANES const std::uint8_t* partialRow(const Destination& to) const {
      const auto& s = combine.s_;
      return llSlot(s.comm, s.handle, to.rank, s.comm.at.llCombineRows, s.comm.rowBytesMax, s.args.rowBytes,
                    s.comm.rank, to.index);
    }
    MOE_LANES bool mayRead() const {
      const auto& s = combine.s_;
      return s.waitForAll(s.area.ready, s.number, Phase::combineRows) && (!isLast(s.w) || termsAgree(s, allRanks(s.comm)));
    }
  };

  // Two blocks have a half each where there are enough.
  MOE_LANES bool sumRows() const {
    const CombineArgs& a = s_.args;
    const std::uint32_t half = (a.rowBytes / 2 + 15) / 16 * 16;
    const Parts parts = a.tokens * 2 <= s_.w.count && half > 0 ? Parts{2, half} : Parts{1, a.rowBytes};
    const PartShare share = shareOf({0, a.tokens}, parts, a.rowBytes, s_.w);
    return s_.warp.reduceRows(s_.comm, TokenSums<From>{From{*this}, s_.p, biasCount(a), share});
  }

  const CombineSession<Warp> s_;
};

}  // namespace moe
