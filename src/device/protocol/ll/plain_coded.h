// The LL combines of rows in a wire format that bring nothing beside them, with code of their own like those of
// plain_combine.h. Rows land at their owners (landsPlainly). RANK_MAJOR rows lie in slots of this rank, and owners read
// them there (codesInSlots), because rows that land need places that the caller has not written to. README.md,
// "Combine of coded rows".
//
// A warp of the policy is a block here. The last of several blocks has no rows. It sends and compares the terms, and
// ends the epoch.
#pragma once

#include "device/protocol/ll/plain_combine.h"

namespace moe {

// A block's part of coded rows.
MOE_LANES WirePart llWirePart(const CombineArgs& a, const LlShare& share) {
  const LlRowPart part = LlRowPart::of(share, static_cast<std::uint32_t>(a.elements), kWireUnit);
  const int begin = static_cast<int>(part.begin);
  return {begin, begin + static_cast<int>(part.size), share.sharer, share.sharers};
}

// `kLand`: rows land at their owners.
template <Blocks Warp, bool kLand>
requires Lands<Warp> && Codes<Warp>
class LlPlainCoded {
 public:
  static MOE_LANES void run(const Warp& warp, const StepParams& p, WarpIndex warpOfAll) {
    const WarpIndex w{warpOfAll.index, warpOfAll.count, warpOfAll.count};
    const std::uint64_t began = warp.follow();
    LlCombineWords words(p);
    auto rows = static_cast<std::uint32_t>(p.handle.arriving.rankOffsets[p.comm.nranks]);
    if (warp.stopped(p.comm, words.fault, words.uncombined, words.used, words.epoch, words.number, rows)) return;
    LlPlainCoded(warp, p, w, words.operation(p)).run(began, words, static_cast<int>(rows));
  }

 private:
  using S = CombineSession<Warp, true>;

  MOE_LANES LlPlainCoded(const Warp& warp, const StepParams& p, WarpIndex w, const Operation& operation)
      : s_(warp, p, w, operation) {}

  // `rows`: how many have come.
  MOE_LANES void run(std::uint64_t began, const LlCombineWords& words, int rows) const {
    const bool silent = givesZeros(s_, words.fault);
    if (!begin(began, words)) return;
    handBack(LlShare::of(rows, s_.w.count > 1, s_.w), silent);
    if (!kLand) s_.announce(s_.area.ready, Meeting::rows, s_.w);
    s_.warp.noteStart(began);
    if (isLast(s_.w)) {
      end(silent);
      if (!llAwaitTerms(s_)) return;
    }
    takeBack(LlShare::of(s_.args.tokens, s_.w.count > 1, s_.w));
  }

  // Waits until rows may be written.
  MOE_LANES bool begin(std::uint64_t began, const LlCombineWords& words) const {
    const bool last = isLast(s_.w);
    if (words.uncombined == 0 || (kLand && words.used != 0)) {
      s_.warp.noteStart(began);  // before a wait
      if (kLand) return llFreePlaces(s_.warp, s_.p, s_.w, s_.operation(), words.uncombined != 0, words.used != 0);
      if (!llAwaitReaders(s_.warp, s_.p, s_.w, s_.operation(), true)) return false;
    }
    s_.noteBegin();
    if (last) llTellTerms(s_);
    return true;
  }
  MOE_LANES void end(bool silent) const {
    if constexpr (kLand) {
      llEndLanding(s_, silent, false);
    } else {
      endCombineSend<true>(s_, silent);
    }
  }

  MOE_LANES void handBack(const LlShare& share, bool zeros) const {
    const Made made{*this, share, zeros};
    if constexpr (kLand) {
      s_.warp.reduceRows(s_.comm, MadeWeighted{made});
    } else {
      s_.warp.reduceRows(s_.comm, made);
    }
  }
  MOE_LANES void takeBack(const LlShare& share) const {
    const Owned owned{*this, biasCount(s_.args), share};
    if constexpr (kLand) {
      s_.warp.reduceRows(s_.comm, OwnedLanded{owned});
    } else {
      s_.warp.reduceRows(s_.comm, owned);
    }
  }

  // A list for reduceRows: the coded sums of tokens' rows at this rank. `zeros`: owners wait for rows, but none counts.
  struct Made {
    static constexpr bool kLanding = kLand, kCodes = true, kReads = false;
    const LlPlainCoded& c;
    LlShare share;
    bool zeros;

    MOE_LANES int count() const { return share.end - share.first; }
    MOE_LANES int rowType() const { return c.s_.args.rowType; }
    MOE_LANES int termsMax() const { return kLand ? c.s_.handle.topk : 1; }
    MOE_LANES WireRow wire() const { return wireRowOf(c.s_.args); }
    MOE_LANES WirePart part(int) const { return llWirePart(c.s_.args, share); }
    MOE_LANES int coded(int) const { return 0; }
    MOE_LANES SumJob job(int i) const {
      const S& s = c.s_;
      const int row = share.first + i, rank = s.comm.rank;
      const Arrival at = arrivalOf(s.handle, row);
      std::uint8_t* out = llSlot(s.comm, s.handle, kLand ? at.from : rank, s.comm.at.llCombineRows, s.comm.rowBytesMax,
                                 s.args.wireBytes, kLand ? rank : at.from, at.index);
      return {out, s.args.rowBytes, zeros ? 0 : kLand ? layoutCopies(s.handle, row) : 1};
    }
    MOE_LANES const std::uint8_t* term(int i, int term) const {
      return givenRow(c.s_.p, {share.first + i, 0, 0}, term);
    }
  };
  // Rows without a weight are multiplied by 1, as in CodedSums.
  struct MadeWeighted : Made {
    MOE_LANES bool weighs() const { return this->c.s_.args.weighted != 0; }
    MOE_LANES float weight(int i, int term) const {
      const S& s = this->c.s_;
      if (!weighs()) return 1.0f;
      return entryWeight(keptHeader(s.handle, this->share.first + i)[1 + term]);
    }
  };

  // A list for reduceRows: the sums of tokens, from coded rows.
  struct Owned {
    static constexpr bool kCodes = false, kReads = true;
    const LlPlainCoded& c;
    int biases;
    LlShare share;

    MOE_LANES const CombineArgs& args() const { return c.s_.args; }
    MOE_LANES int token(int i) const { return share.first + i; }

    MOE_LANES int count() const { return share.end - share.first; }
    MOE_LANES int rowType() const { return args().rowType; }
    MOE_LANES int termsMax() const { return c.s_.handle.destinationsMax + biases; }
    MOE_LANES bool mayRead() const {
      const S& s = c.s_;
      return kLand || s.waitForAll(s.area.ready, s.number, Phase::combineRows);
    }
    MOE_LANES WireRow wire() const { return wireRowOf(args()); }
    MOE_LANES WirePart part(int) const { return llWirePart(args(), share); }
    MOE_LANES int coded(int i) const { return c.s_.handle.sent.destinationCount[token(i)]; }
    MOE_LANES SumJob job(int i) const {
      return {args().out + std::int64_t{token(i)} * args().rowBytes, args().rowBytes, coded(i) + biases};
    }
    MOE_LANES const std::uint8_t* term(int i, int term) const {
      const CommView& comm = c.s_.comm;
      const int rows = biases == 0 ? term + 1 : coded(i);
      if (term >= rows) return biasRow(args(), term - rows, {token(i), 0, 0});
      const Destination& from = source(i, term);
      if (!isRank(comm, from)) return nullptr;
      return llSlot(comm, c.s_.handle, kLand ? comm.rank : from.rank, comm.at.llCombineRows, comm.rowBytesMax,
                    args().wireBytes, kLand ? from.rank : comm.rank, from.index);
    }
    MOE_LANES const Destination& source(int i, int term) const {
      return c.s_.handle.sent.destinations[std::int64_t{token(i)} * c.s_.handle.destinationsMax + term];
    }
  };
  struct OwnedLanded : Owned {
    MOE_LANES int landed(int i) const { return this->coded(i); }
    MOE_LANES Failure late(int i, int term) const {
      const Flag epoch = this->c.s_.epoch;
      return lateRank(Phase::combineRows, this->source(i, term).rank, epoch, epoch - 1);
    }
  };

  const S s_;
};

}  // namespace moe
