// The combines with nothing beside the rows: of rows in their slots (combinesFromSlots), which most decoders run in
// each layer, and of rows that land at their owners (landsPlainly). They have code of their own, because the general
// code (Combine, LlCombine) takes longer than such a step should. Words and slots are the same. README.md, "Combine
// from slots", "Dispatch to places, combine from places".
//
// A warp of the policy is a block here. The last of several blocks has no rows. It tells and compares the terms, and
// ends the epoch.
#pragma once

#include "device/protocol/combine/combine.h"
#include "device/protocol/ll/combine.h"
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

// Sends zeros instead of this rank's rows, because owners wait for rows. It is not inlined, because it is seldom
// needed.
template <Lands Warp>
MOE_SELDOM void llLandZeros(Warp warp, const StepParams& p, WarpIndex w, Operation operation) {
  const CombineSession<Warp> s(warp, p, w, operation);
  prepareZeroRows<true>(s, SharedBack<Warp, true>{w}.items(p));
}

template <Blocks Warp>
requires Lands<Warp>
class LlPlacedCombine {
 public:
  static MOE_LANES void run(const Warp& warp, const StepParams& p, WarpIndex warpOfAll) {
    const WarpIndex w{warpOfAll.index, warpOfAll.count, warpOfAll.count};
    const LlShare tokens = LlShare::of(p.combine.tokens, w.count > 1, w);
    const std::uint64_t began = warp.follow();
    LlPlacedCombine(warp, p, w).run(began, tokens);
  }

 private:
  using S = CombineSession<Warp>;

  MOE_LANES LlPlacedCombine(const Warp& warp, const StepParams& p, WarpIndex w)
      : s_(warp, p, w, llLandingOperation(p)) {}

  MOE_LANES void run(std::uint64_t began, const LlShare& tokens) const {
    const CommState* state = s_.comm.state;
    const int set = s_.handle.llSet;
    std::uint32_t fault = s_.handle.state->fault, uncombined = state->llUncombined[set], used = state->llUsed[set];
    std::uint64_t epoch = s_.epoch;
    // The other offsets are read soon after this one.
    auto rows = static_cast<std::uint32_t>(s_.handle.arriving.rankOffsets[s_.comm.nranks]);
    if (s_.stopped(fault, uncombined, used, epoch, rows)) return;
    const bool silent = givesZeros(s_, fault), last = isLast(s_.w);
    if (uncombined == 0 || used != 0) s_.warp.noteStart(began);  // before a wait
    if (!llBeginLanding(s_, uncombined != 0, used != 0, last)) return;
    if (silent) {
      llLandZeros(s_.warp, s_.p, s_.w, s_.operation());
    } else {
      handBack(LlShare::of(static_cast<int>(rows), s_.w.count > 1, s_.w));
    }
    s_.warp.noteStart(began);
    if (last) {
      llEndLanding(s_, silent, false);
      if (!termsAgree(s_, domainRanks(s_.comm))) return;
    }
    s_.warp.reduceRows(s_.comm, Owned{*this, biasCount(s_.args), tokens, LlRowPart::of(tokens, s_.args.rowBytes)});
  }

  MOE_LANES void handBack(const LlShare& share) const {
    const Made made{*this, share, LlRowPart::of(share, s_.args.rowBytes)};
    if (s_.args.weighted != 0) {
      s_.warp.reduceRows(s_.comm, MadeWeighted{made});
    } else {
      s_.warp.reduceRows(s_.comm, made);
    }
  }

  // A list for reduceRows: the sum of a token's rows at this rank, which goes to the token's owner. If a token has one
  // row here, the row is the sum.
  struct Made {
    static constexpr bool kLanding = true;
    const LlPlacedCombine& c;
    LlShare share;
    LlRowPart part;

    MOE_LANES const Quad* header(int i) const { return keptHeader(c.s_.handle, share.first + i); }

    MOE_LANES int count() const { return share.end - share.first; }
    MOE_LANES int rowType() const { return c.s_.args.rowType; }
    MOE_LANES int termsMax() const { return c.s_.handle.topk; }
    MOE_LANES SumJob job(int i) const {
      const S& s = c.s_;
      const HandleView& h = s.handle;
      const int row = share.first + i;
      const Arrival at = arrivalOf(h, row);
      std::uint8_t* out = llSlot(s.comm, h, at.from, s.comm.at.llCombineRows, s.comm.rowBytesMax, s.args.rowBytes,
                                 s.comm.rank, at.index);
      return {out + part.begin, part.bytes, layoutCopies(h, row)};
    }
    MOE_LANES const std::uint8_t* term(int i, int term) const {
      return givenRow(c.s_.p, {share.first + i, part.begin, part.bytes}, term);
    }
  };
  struct MadeWeighted : Made {
    MOE_LANES float weight(int i, int term) const { return entryWeight(this->header(i)[1 + term]); }
  };

  // A list for reduceRows: the sums of the block's tokens, or of its part of one token, from rows that land here.
  struct Owned {
    const LlPlacedCombine& c;
    int biases;
    LlShare share;
    LlRowPart part;

    MOE_LANES const CombineArgs& args() const { return c.s_.args; }
    MOE_LANES int token(int i) const { return share.first + i; }

    MOE_LANES int count() const { return share.end - share.first; }
    MOE_LANES int rowType() const { return args().rowType; }
    MOE_LANES int termsMax() const { return c.s_.handle.destinationsMax + biases; }
    MOE_LANES int landed(int i) const { return c.s_.handle.sent.destinationCount[token(i)]; }
    MOE_LANES SumJob job(int i) const {
      std::uint8_t* out = args().out + std::int64_t{token(i)} * args().rowBytes;
      return {out + part.begin, part.bytes, landed(i) + biases};
    }
    MOE_LANES const std::uint8_t* term(int i, int term) const {
      const CommView& comm = c.s_.comm;
      const int rows = biases == 0 ? term + 1 : landed(i);
      if (term >= rows) return biasRow(args(), term - rows, {token(i), part.begin, part.bytes});
      const Destination& from = source(i, term);
      return llSlot(comm, c.s_.handle, comm.rank, comm.at.llCombineRows, comm.rowBytesMax, args().rowBytes, from.rank,
                    from.index) +
             part.begin;
    }
    MOE_LANES Failure late(int i, int term) const {
      return lateRank(Phase::combineRows, source(i, term).rank, c.s_.epoch, c.s_.epoch - 1);
    }
    MOE_LANES const Destination& source(int i, int term) const {
      return c.s_.handle.sent.destinations[std::int64_t{token(i)} * c.s_.handle.destinationsMax + term];
    }
  };

  const S s_;
};

}  // namespace moe
