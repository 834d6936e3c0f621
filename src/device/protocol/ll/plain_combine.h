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
  prepareZeroRows<false>(s, PreparedWave<false>{w, 0}.items(p));
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

  explicit MOE_LANES LlCombineWords(const StepParams& p)
      : epoch(p.comm.state->epoch[channelOf(p)]),
        number(p.comm.state->handed[0][channelOf(p)]),
        uncombined(p.comm.state->llUncombined[p.handle.llSet]),
        used(p.comm.state->llUsed[p.handle.llSet]),
        fault(p.handle.state->fault) {}

  MOE_LANES void hold(const auto& warp) { warp.hold(epoch, number, uncombined, used, fault); }
  // Computes from the words, and so waits for them. `more`: 0 in a step that only receives. A set serves one operation
  // at a time, so that step finds the epoch of its sending step.
  MOE_LANES Operation operation(const StepParams& p, std::uint64_t more = 1) const {
    return {channelOf(p), epoch + more, number + more};
  }

  static MOE_LANES Channel channelOf(const StepParams& p) { return llChannel(kLlCombineChannel, p.handle.llSet); }
};

// A word that this rank sends to all ranks. It has no fence, so the data that the word announces must have been
// released before.
template <Blocks Warp>
class LlTargets {
 public:
  // `area`: the flags of all ranks in a window. Lanes find their flags here.
  MOE_LANES LlTargets(const Warp& warp, const CommView& c, std::uint64_t area)
      : warp_(warp), c_(c), area_(area), first_(warp.laneTarget(c.domainSize, flags())) {}

  MOE_LANES void tell(Flag word) const { warp_.endPublish(c_.domainSize, flags(), word, first_); }

 private:
  MOE_LANES auto flags() const {
    return [c = &c_, area = area_](int i) { return c->template in<Flag>(c->domainFirst + i, area) + c->rank; };
  }

  const Warp& warp_;
  const CommView& c_;
  std::uint64_t area_;
  Flag* first_;
};
// The word itself contains the terms.
MOE_LANES void llTellTerms(const Combining auto& s) {
  LlTargets(s.warp, s.comm, llFlags(s.comm, s.handle, s.comm.at.llCombineSizes)).tell(flagWord(s.epoch, s.args.terms));
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
    const LlTargets ready(warp, p.comm, llFlags(p.comm, p.handle, p.comm.at.llCombineReady));
    const std::uint64_t began = warp.follow();
    LlCombineWords words(p);
    if (w.index == 0) {
      warp.beginPublish();  // other ranks wait for this rank's word alone
      words.hold(warp);
    }
    LlSlotCombine(warp, p, w, share, ready, words).run(began);
  }

 private:
  using S = CombineSession<Warp>;

  MOE_LANES LlSlotCombine(const Warp& warp, const StepParams& p, WarpIndex w, const LlShare& share,
                          const LlTargets<Warp>& ready, LlCombineWords& words)
      : warp_(warp), p_(p), w_(w), share_(share), ready_(ready), words_(words) {}

  // Valid when the words have come.
  MOE_LANES S session() const { return {warp_, p_, w_, words_.operation(p_)}; }

  // All flags are sent and awaited in mayRead, while the last lanes look up rows.
  MOE_LANES void run(std::uint64_t began) const {
    bool silent = false;
    const Sums sums{*this, began, silent, biasCount(p_.combine), LlRowPart::of(share_, p_.combine.rowBytes)};
    if (!warp_.reduceRows(p_.comm, sums) || !isLast(w_)) return;
    const S s = session();
    if (llAwaitTerms(s)) endCombineSend<true>(s, silent);
  }
  MOE_LANES bool meet(std::uint64_t began, bool& silent) const {
    if (warp_.stopped(p_.comm, words_.uncombined, words_.fault, words_.epoch, words_.number)) return false;
    const S s = session();
    silent = givesZeros(s, words_.fault);
    if (!silent && w_.index == 0) ready_.tell(flagWord(s.number));
    warp_.noteStart(began);
    s.noteBegin();
    if (words_.uncombined == 0 && !llAwaitReaders(warp_, p_, w_, s.operation(), silent || isLast(w_))) return false;
    if (isLast(w_)) llTellTerms(s);
    if (silent) llGiveZeros(warp_, p_, w_, s.operation());
    const bool apart = isLast(w_) && w_.count > 1;  // this block reads no rows
    return apart || s.waitForAll(s.area.ready, s.number, Phase::combineRows);
  }

  // A list for reduceRows: the sums of the block's tokens, or of its part of one token.
  struct Sums {
    const LlSlotCombine& combine;
    std::uint64_t began;
    bool& silent;
    int biases;
    LlRowPart part;

    MOE_LANES const CombineArgs& args() const { return combine.p_.combine; }
    MOE_LANES const HandleView& handle() const { return combine.p_.handle; }
    MOE_LANES const Sent& sent() const { return handle().sent; }
    MOE_LANES int token(int i) const { return combine.share_.first + i; }

    MOE_LANES int count() const { return combine.share_.end - combine.share_.first; }
    MOE_LANES int rowType() const { return args().rowType; }
    MOE_LANES int termsMax() const { return handle().destinationsMax + biases; }
    MOE_LANES bool mayRead() const { return combine.meet(began, silent); }
    MOE_LANES SumJob job(int i) const {
      std::uint8_t* out = args().out + std::int64_t{token(i)} * args().rowBytes;
      return {out + part.begin, part.size, sent().destinationCount[token(i)] + biases};
    }
    MOE_LANES const std::uint8_t* term(int i, int term) const {
      const int rows = biases == 0 ? term + 1 : sent().destinationCount[token(i)];
      if (term >= rows) return biasRow(args(), term - rows, {token(i), part.begin, part.size});
      const Destination to = sent().destinations[std::int64_t{token(i)} * handle().destinationsMax + term];
      const CommView& c = combine.p_.comm;
      if (!isRank(c, to)) return nullptr;
      return llSlot(c, handle(), to.rank, c.at.llCombineRows, c.rowBytesMax, args().rowBytes, c.rank, to.index) +
             part.begin;
    }
  };

  const Warp& warp_;
  const StepParams& p_;
  const WarpIndex w_;
  const LlShare share_;
  const LlTargets<Warp>& ready_;
  LlCombineWords& words_;
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

// By what the rows are multiplied that a rank sums: by nothing, by the weights of the dispatch, or by those that the
// combine brings.
enum class RowWeights { none, kept, brought };

template <Blocks Warp, RowWeights kWeights>
requires Lands<Warp>
class LlPlacedCombine {
  static constexpr bool kBrings = kWeights == RowWeights::brought;

 public:
  static MOE_LANES void run(const Warp& warp, const StepParams& p, WarpIndex warpOfAll) {
    const WarpIndex w{warpOfAll.index, warpOfAll.count, warpOfAll.count};
    const LlShare tokens = LlShare::of(p.combine.tokens, w.count > 1, w);
    const std::uint64_t began = warp.follow();
    LlCombineWords words(p);
    std::uint64_t weighted = kBrings ? p.comm.state->weighted[words.channelOf(p)] : 0;
    // The other offsets are read soon after this one.
    auto rows = static_cast<std::uint32_t>(p.handle.arriving.rankOffsets[p.comm.nranks]);
    if (warp.stopped(p.comm, words.fault, words.uncombined, words.used, words.epoch, words.number, weighted, rows))
      return;
    Operation operation = words.operation(p, (p.phases & kSendPhase) != 0 ? 1 : 0);
    operation.weights = kBrings ? weighted + 1 : 0;
    LlPlacedCombine(warp, p, w, operation).run(began, tokens, words, static_cast<int>(rows));
  }

 private:
  using S = CombineSession<Warp>;

  MOE_LANES LlPlacedCombine(const Warp& warp, const StepParams& p, WarpIndex w, const Operation& operation)
      : s_(warp, p, w, operation) {}

  // `rows`: how many have come.
  MOE_LANES void run(std::uint64_t began, const LlShare& tokens, const LlCombineWords& words, int rows) const {
    const bool last = isLast(s_.w);
    if (s_.sends && !send(began, words, rows)) return;
    s_.warp.noteStart(began);
    if (s_.sends && last) llEndLanding(s_, givesZeros(s_, words.fault), false);
    if (!s_.receives || (last && !llAwaitTerms(s_))) return;
    s_.warp.reduceRows(s_.comm, Owned{*this, biasCount(s_.args), tokens, LlRowPart::of(tokens, s_.args.rowBytes)});
  }

  // False if a wait failed.
  MOE_LANES bool send(std::uint64_t began, const LlCombineWords& words, int rows) const {
    const bool silent = givesZeros(s_, words.fault);
    if (words.uncombined == 0 || words.used != 0) {
      s_.warp.noteStart(began);  // before a wait
      if (!llFreePlaces(s_.warp, s_.p, s_.w, s_.operation(), words.uncombined != 0, words.used != 0)) return false;
    } else {
      s_.noteBegin();
      if (isLast(s_.w)) llTellTerms(s_);
    }
    if (kBrings && !bringWeights(s_)) return false;
    if (silent) {
      llLandZeros(s_.warp, s_.p, s_.w, s_.operation());
    } else {
      handBack(LlShare::of(rows, s_.w.count > 1, s_.w));
    }
    return true;
  }

  MOE_LANES void handBack(const LlShare& share) const {
    const Made made{*this, share, LlRowPart::of(share, s_.args.rowBytes)};
    if constexpr (kWeights == RowWeights::none) {
      s_.warp.reduceRows(s_.comm, made);
    } else {
      s_.warp.reduceRows(s_.comm, MadeWeighted{made});
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
