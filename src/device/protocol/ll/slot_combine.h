// A combine whose rows lie in their slots, with nothing beside them (combinesFromSlots). Most decoders run it in each
// layer. It has code of its own, because the general code (Combine) takes longer than such a step should. Words and
// slots are the same. README.md, "Combine from slots".
//
// A warp of the policy is a block here. The last of several blocks has no rows. It looks at the terms and ends the
// epoch.
#pragma once

#include "device/protocol/combine/combine.h"
#include "device/protocol/ll/slot_places.h"
#include "device/view/steps.h"

namespace moe {

static_assert(kWireRow == 0, "combinesFromSlots");

// Gives zeros instead of this rank's rows, because owners wait for rows. It is not inlined, because it is seldom
// needed.
template <Moves Warp>
MOE_SELDOM void llGiveZeros(Warp warp, const StepParams& p, WarpIndex w, Operation operation) {
  const CombineSession<Warp> s(warp, p, w, operation);
  prepareZeroRows<false>(s, PreparedWave<1>{w, 0}.items(p));
  announceWave(s, s.area.ready, 0, w);
}

template <Blocks Warp>
class LlSlotCombine {
 public:
  static MOE_LANES void run(const Warp& warp, const StepParams& p, WarpIndex warpOfAll) {
    const WarpIndex w{warpOfAll.index, warpOfAll.count, warpOfAll.count};
    const LlShare share = LlShare::of(p.combine.tokens, w.count > 1, w);
    const std::uint64_t began = warp.follow();
    LlSlotCombine(warp, p, w, share).run(began);
  }

 private:
  MOE_LANES LlSlotCombine(const Warp& warp, const StepParams& p, WarpIndex w, const LlShare& share)
      : s_(warp, p, w, combineOperation(p)), share_(share) {}

  // All flags are sent and awaited in mayRead, while the last lanes look up rows.
  MOE_LANES void run(std::uint64_t began) const {
    std::uint32_t uncombined = s_.comm.state->llUncombined[s_.handle.llSet], fault = knownFault(s_);
    bool silent = false;
    const LlRowPart part = LlRowPart::of(share_, s_.args.rowBytes);
    const Sums sums{*this, began, uncombined, fault, silent, biasCount(s_.args), part};
    if (!s_.warp.reduceRows(s_.comm, sums)) return;
    if (isLast(s_.w) && termsAgree(s_, allRanks(s_.comm))) endCombineSend<true>(s_, silent);
  }
  MOE_LANES bool meet(std::uint64_t began, std::uint32_t uncombined, std::uint32_t fault, bool& silent) const {
    std::uint64_t epoch = s_.epoch, number = s_.number;
    if (s_.w.index == 0) s_.warp.beginPublish();  // others wait for this rank's word alone
    if (s_.stopped(uncombined, fault, epoch, number)) return false;
    silent = givesZeros(s_, fault);
    if (!silent && s_.w.index == 0) tellReady();
    s_.warp.noteStart(began);
    s_.noteBegin();
    if (uncombined == 0 && !waitForReaders(s_, silent || isLast(s_.w))) return false;
    if (isLast(s_.w)) tellTerms(s_);
    if (silent) llGiveZeros(s_.warp, s_.p, s_.w, s_.operation());
    return s_.waitForAll(s_.area.ready, s_.number, Phase::combineRows);
  }

  MOE_LANES void tellReady() const {
    const CommView& c = s_.comm;
    s_.warp.endPublish(
        c.domainSize, [&](int i) { return c.in<Flag>(c.domainFirst + i, s_.area.ready) + c.rank; },
        flagWord(s_.number));
  }

  // A list for reduceRows: the sums of the block's tokens, or of its part of one token.
  struct Sums {
    const LlSlotCombine& combine;
    std::uint64_t began;
    std::uint32_t uncombined, fault;
    bool& silent;
    int biases;
    LlRowPart part;

    MOE_LANES const CombineArgs& args() const { return combine.s_.args; }
    MOE_LANES const Sent& sent() const { return combine.s_.handle.sent; }
    MOE_LANES int token(int i) const { return combine.share_.first + i; }

    MOE_LANES int count() const { return combine.share_.end - combine.share_.first; }
    MOE_LANES int rowType() const { return args().rowType; }
    MOE_LANES int termsMax() const { return combine.s_.handle.destinationsMax + biases; }
    MOE_LANES bool mayRead() const { return combine.meet(began, uncombined, fault, silent); }
    MOE_LANES SumJob job(int i) const {
      std::uint8_t* out = args().out + std::int64_t{token(i)} * args().rowBytes;
      return {out + part.begin, part.bytes, sent().destinationCount[token(i)] + biases};
    }
    MOE_LANES const std::uint8_t* term(int i, int term) const {
      const int rows = biases == 0 ? term + 1 : sent().destinationCount[token(i)];
      if (term >= rows) return biasRow(args(), term - rows, {token(i), part.begin, part.bytes});
      const int places = combine.s_.handle.destinationsMax;
      const Destination to = sent().destinations[std::int64_t{token(i)} * places + term];
      const CommView& c = combine.s_.comm;
      return llSlot(c, combine.s_.handle, to.rank, c.at.llCombineRows, c.rowBytesMax, args().rowBytes, c.rank,
                    to.index) +
             part.begin;
    }
  };

  const CombineSession<Warp> s_;
  const LlShare share_;
};

}  // namespace moe
