// The combines that bring nothing beside the rows. One reads rows in their slots (combinesFromSlots), and most decoders
// run it in each layer. The other is for rows that land at their owners (landsPlainly). They have code of their own,
// because the general code (Combine, LlCombine) takes longer than such a step should. Words and slots are the same.
// README.md, "Combine from slots", "Dispatch to places, combine from places".
//
// A warp of the policy is a block here. The last of several blocks has no rows. It sends and compares the terms, and
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

// False for places of a token's destinations that are not in use.
MOE_LANES bool isRank(const CommView& c, const Destination& to) {
  return static_cast<unsigned>(to.rank) < static_cast<unsigned>(c.nranks);
}

// The state words of a combine in one call, with their values before the call. They are looked up at once.
struct LlCombineWords {
  std::uint64_t epoch, number;
  std::uint32_t uncombined, used, fault;

  // `counts`: for each channel, the number of operations that hand over rows as this one does.
  MOE_LANES LlCombineWords(const StepParams& p, const std::uint64_t* counts)
      : epoch(p.comm.state->epoch[combineChannel(p.handle)]),
        number(counts[combineChannel(p.handle)]),
        uncombined(p.comm.state->llUncombined[p.handle.llSet]),
        used(p.comm.state->llUsed[p.handle.llSet]),
        fault(p.handle.state->fault) {}

  MOE_LANES void hold(const auto& warp) { warp.hold(epoch, number, uncombined, used, fault); }
  MOE_LANES Operation operation(const StepParams& p) const { return {combineChannel(p.handle), epoch + 1, number + 1}; }
};

// Sends a word to all ranks. It has no fence, so the data that the word announces must have been released before.
MOE_LANES void llTell(const Combining auto& s, const std::uint64_t& area, Flag word) {
  const CommView& c = s.comm;
  s.warp.endPublish(
      c.domainSize, [&](int i) { return c.template in<Flag>(c.domainFirst + i, area) + c.rank; }, word);
}
// The word itself contains the terms.
MOE_LANES void llTellTerms(const Combining auto& s) {
  llTell(s, llFlags(s.comm, s.handle, s.comm.at.llCombineSizes), flagWord(s.epoch, s.args.terms));
}
// Waits for the terms of all ranks. Terms that differ are reported. False: they did not come.
MOE_LANES bool llAwaitTerms(const Combining auto& s) {
  const std::uint64_t sizes = llFlags(s.comm, s.handle, s.comm.at.llCombineSizes);
  return s.waitForAll(sizes, s.epoch, Phase::combineRows, [&](int from, Flag word) {
    const auto theirs = static_cast<unsigned>(flagValue(word));
    if (theirs == s.args.terms || areLost(theirs)) return;
    s.warp.laneFail(s.comm, disagreement(Phase::combineRows, from, s.args.terms, theirs));
  });
}
// For a combine that follows a combine of the same set (waitForReaders).
template <Moves Warp>
MOE_SELDOM bool llAwaitReaders(Warp warp, const StepParams& p, WarpIndex w, Operation operation, bool writes) {
  return waitForReaders(CombineSession<Warp>(warp, p, w, operation), writes);
}

template <Blocks Warp>
class LlSlotCombine {
 public:
  static MOE_LANES void run(const Warp& warp, const StepParams& p, WarpIndex warpOfAll) {
    const WarpIndex w{warpOfAll.index, warpOfAll.count, warpOfAll.count};
    const LlShare share = LlShare::of(p.combine.tokens, w.count > 1, w);
    const std::uint64_t began = warp.follow();
    LlCombineWords words(p, p.comm.state->handed[goesInWaves(p.handle) ? 1 : 0]);
    if (w.index == 0) {
      warp.beginPublish();  // other ranks wait for this rank's word alone
      words.hold(warp);
    }
    LlSlotCombine(warp, p, w, share, words).run(began, words);
  }

 private:
  MOE_LANES LlSlotCombine(const Warp& warp, const StepParams& p, WarpIndex w, const LlShare& share,
                          const LlCombineWords& words)
      : s_(warp, p, w, words.operation(p)), share_(share) {}

  // All flags are sent and awaited in mayRead, while the last lanes look up rows.
  MOE_LANES void run(std::uint64_t began, const LlCombineWords& words) const {
    bool silent = false;
    const LlRowPart part = LlRowPart::of(share_, s_.args.rowBytes);
    const Sums sums{*this, began, words.uncombined, words.fault, silent, biasCount(s_.args), part};
    if (!s_.warp.reduceRows(s_.comm, sums)) return;
    if (isLast(s_.w) && llAwaitTerms(s_)) endCombineSend<true>(s_, silent);
  }
  MOE_LANES bool meet(std::uint64_t began, std::uint32_t uncombined, std::uint32_t fault, bool& silent) const {
    std::uint64_t epoch = s_.epoch, number = s_.number;
    if (s_.stopped(uncombined, fault, epoch, number)) return false;
    silent = givesZeros(s_, fault);
    if (!silent && s_.w.index == 0) tellReady();
    s_.warp.noteStart(began);
    s_.noteBegin();
    if (uncombined == 0 && !llAwaitReaders(s_.warp, s_.p, s_.w, s_.operation(), silent || isLast(s_.w))) return false;
    if (isLast(s_.w)) llTellTerms(s_);
    if (silent) llGiveZeros(s_.warp, s_.p, s_.w, s_.operation());
    const bool apart = isLast(s_.w) && s_.w.count > 1;  // this block reads no rows
    return apart || s_.waitForAll(s_.area.ready, s_.number, Phase::combineRows);
  }

  MOE_LANES void tellReady() const { llTell(s_, s_.area.ready, flagWord(s_.number)); }

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
      return {out + part.begin, part.size, sent().destinationCount[token(i)] + biases};
    }
    MOE_LANES const std::uint8_t* term(int i, int term) const {
      const int rows = biases == 0 ? term + 1 : sent().destinationCount[token(i)];
      if (term >= rows) return biasRow(args(), term - rows, {token(i), part.begin, part.size});
      const int places = combine.s_.handle.destinationsMax;
      const Destination to = sent().destinations[std::int64_t{token(i)} * places + term];
      const CommView& c = combine.s_.comm;
      if (!isRank(c, to)) return nullptr;
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

// For a combine whose rows land where rows or words of another operation may be (llBeginLanding).
template <Lands Warp>
MOE_SELDOM bool llFreePlaces(Warp warp, const StepParams& p, WarpIndex w, Operation operation, bool uncombined,
                             bool used) {
  return llBeginLanding(CombineSession<Warp>(warp, p, w, operation), uncombined, used, isLast(w));
}

// `kBrings`: a combine of a handle whose combines bring the weights of the rows (Step::llWeightsCombine).
template <Blocks Warp, bool kBrings>
requires Lands<Warp>
class LlPlacedCombine {
 public:
  static MOE_LANES void run(const Warp& warp, const StepParams& p, WarpIndex warpOfAll) {
    const WarpIndex w{warpOfAll.index, warpOfAll.count, warpOfAll.count};
    const LlShare tokens = LlShare::of(p.combine.tokens, w.count > 1, w);
    const std::uint64_t began = warp.follow();
    const LlCombineWords words(p, p.comm.state->handed[0]);
    LlPlacedCombine(warp, p, w, words).run(began, tokens, words);
  }

 private:
  using S = CombineSession<Warp>;

  MOE_LANES LlPlacedCombine(const Warp& warp, const StepParams& p, WarpIndex w, const LlCombineWords& words)
      : s_(warp, p, w, kBrings ? withWeights(p, words.operation(p)) : words.operation(p)) {}

  MOE_LANES void run(std::uint64_t began, const LlShare& tokens, const LlCombineWords& words) const {
    std::uint32_t fault = words.fault, uncombined = words.uncombined, used = words.used;
    std::uint64_t epoch = s_.epoch;
    // The other offsets are read soon after this one.
    auto rows = static_cast<std::uint32_t>(s_.handle.arriving.rankOffsets[s_.comm.nranks]);
    if constexpr (kBrings) {
      std::uint64_t weights = s_.weights;
      s_.warp.hold(weights);
    }
    if (s_.stopped(fault, uncombined, used, epoch, rows)) return;
    const bool silent = givesZeros(s_, fault), last = isLast(s_.w);
    if (uncombined == 0 || used != 0) {
      s_.warp.noteStart(began);  // before a wait
      if (!llFreePlaces(s_.warp, s_.p, s_.w, s_.operation(), uncombined != 0, used != 0)) return;
    } else {
      s_.noteBegin();
      if (last) llTellTerms(s_);
    }
    if (kBrings && !bringWeights(s_)) return;
    if (silent) {
      llLandZeros(s_.warp, s_.p, s_.w, s_.operation());
    } else {
      handBack(LlShare::of(static_cast<int>(rows), s_.w.count > 1, s_.w));
    }
    s_.warp.noteStart(began);
    if (last) {
      llEndLanding(s_, silent, false);
      if (!llAwaitTerms(s_)) return;
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
      return {out + part.begin, part.size, layoutCopies(h, row)};
    }
    MOE_LANES const std::uint8_t* term(int i, int term) const {
      return givenRow(c.s_.p, {share.first + i, part.begin, part.size}, term);
    }
  };
  struct MadeWeighted : Made {
    MOE_LANES float weight(int i, int term) const {
      const Quad* header = this->header(i);
      return kBrings ? broughtWeight(this->c.s_, header[0], header[1 + term]) : entryWeight(header[1 + term]);
    }
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
      return {out + part.begin, part.size, landed(i) + biases};
    }
    MOE_LANES const std::uint8_t* term(int i, int term) const {
      const CommView& comm = c.s_.comm;
      const int rows = biases == 0 ? term + 1 : landed(i);
      if (term >= rows) return biasRow(args(), term - rows, {token(i), part.begin, part.size});
      const Destination& from = source(i, term);
      if (!isRank(comm, from)) return nullptr;
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
