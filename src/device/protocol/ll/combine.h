// Low-latency combine of all layouts but RANK_MAJOR, whose rows are made here. Each rank that a token went to stores
// one row to the token's owner, in landing words (landing.h). The owner takes the rows as they come and sums them,
// first those of its domain in rank order. Ranks of other domains put their rows, with a flag after them. Flags:
// README.md, "LL combine that lands".
#pragma once

#include "device/protocol/combine/prepare.h"
#include "device/protocol/core/seldom.h"

namespace moe {

// Parts of the arrived rows, and the places to which they return. With `kHere`, these are the rows of owners in this
// domain, and they go to their owners. Otherwise they are the rows of other domains, and they go to where they are put
// from. Other rows have no place. The list begins with this rank's own rows, because in FLAT order all ranks would
// store to the same rank at the same time.
template <Lands Warp, bool kHere>
struct HandedBack {
  static constexpr bool kMayLeave = kHere;
  const StepParams& p;
  PartShare share;
  Flag leftIn;  // only rows that the first part of this combine has not sent; 0: all rows

  MOE_LANES int count() const { return share.count(); }
  MOE_LANES const Parts& parts() const { return share.parts; }
  MOE_LANES PartOf at(int i) const {
    const int rows = *p.handle.arriving.rows, first = p.handle.arriving.rankOffsets[p.comm.rank];
    PartOf part = share.at(i);
    part.row += part.row < rows - first ? first : first - rows;
    return part;
  }
  MOE_LANES std::uint8_t* place(int row) const {
    const CommView& c = p.comm;
    if (leftIn != 0 && p.handle.arriving.sentIn[row] == leftIn) return nullptr;
    const Arrival at = arrivalOf(p.handle, row);
    const bool remote = Warp::kPuts && c.split() && !c.inDomain(at.from);
    if (remote == kHere) return nullptr;
    return llSlot(c, p.handle, kHere ? at.from : c.rank, c.at.llCombineRows, c.rowBytesMax, p.combine.wireBytes,
                  kHere ? c.rank : at.from, at.index);
  }
};

// A warp's share of HandedBack.
template <Lands Warp, bool kHere>
struct SharedBack {
  WarpIndex w;
  Flag leftIn = 0;

  MOE_LANES HandedBack<Warp, kHere> items(const StepParams& p) const {
    return {p, shareOf({0, *p.handle.arriving.rows}, p.combine.arriving, p.combine.rowBytes, w), leftIn};
  }
};

// A token's rows in the order of its destinations, then the biases: a list for reduceRows.
template <class S>
struct LandedSums {
  const S& s;
  int biases;
  PartShare share;

  MOE_LANES const CombineArgs& args() const { return s.args; }
  MOE_LANES int count() const { return share.count(); }
  MOE_LANES int rowType() const { return s.args.rowType; }
  MOE_LANES int termsMax() const { return s.handle.destinationsMax + biases; }
  MOE_LANES SumJob job(int i) const {
    const PartOf part = share.at(i);
    std::uint8_t* out = s.args.out + static_cast<std::int64_t>(part.row) * s.args.rowBytes;
    return {out + part.begin, part.bytes, s.handle.sent.destinationCount[part.row] + biases};
  }
  MOE_LANES int rows(int i) const { return s.handle.sent.destinationCount[share.at(i).row]; }
  MOE_LANES int landed(int i) const { return s.handle.sent.localCount[share.at(i).row]; }
  MOE_LANES const std::uint8_t* term(int i, int term) const {
    const CommView& c = s.comm;
    const PartOf part = share.at(i);
    const int bias = term - s.handle.sent.destinationCount[part.row];
    if (bias >= 0) return biasRow(s.args, bias, part);
    const Destination& from = source(part.row, term);
    const std::uint64_t area = s.isRemote(from.rank) ? c.far->at.llCombineIn : c.at.llCombineRows;
    return llSlot(c, s.handle, c.rank, area, c.rowBytesMax, s.args.wireBytes, from.rank, from.index) + part.begin;
  }
  MOE_LANES Failure late(int i, int term) const {
    return lateRank(Phase::combineRows, source(share.at(i).row, term).rank, s.epoch, s.epoch - 1);
  }
  MOE_LANES const Destination& source(int row, int term) const {
    return s.handle.sent.destinations[row * s.handle.destinationsMax + term];
  }
};

// ---- Common to steps whose rows land

// Called if no dispatch came since the set's last combine. Rows overwrite those of that combine, so every rank must
// have taken them. If a dispatch came in between, every rank has taken them.
MOE_LANES bool llWaitForTakers(const Combining auto& s) {
  const std::uint64_t free = llFlags(s.comm, s.handle, s.comm.at.llCombineFree);
  tellFree(s, free);
  return s.waitForAll(free, s.epoch, Phase::combineSlots);
}

// Rows of RANK_MAJOR operations may lie where rows will land, and the caller may have written there after its dispatch.
// These places are emptied before peers hear of this combine. Peers send nothing before that.
MOE_LANES void llEmptyPlaces(const Combining auto& s) {
  const CommView& c = s.comm;
  const int ofRank = c.llTokensMax * (c.rowBytesMax / static_cast<int>(sizeof(Quad)));
  auto* places = c.template mine<Quad>(llSetOffset(c, s.handle, c.at.llCombineRows, c.rowBytesMax));
  for (std::int64_t i = 0; i < c.nranks; ++i) {
    const Slice slice = sliceOf(ofRank, s.w);
    Quad* place = places + i * ofRank + slice.begin;
    s.warp.forEach(slice.count, [&](int n) { s.warp.laneStore(place + n, Quad{}); });
  }
}

// Runs before this rank's rows go. Waits until their places are free; the warp with `tells` also sends the terms to the
// domain. `uncombined`, `used`: as in CommState. False if a wait failed.
MOE_LANES bool llBeginLanding(const Combining auto& s, bool uncombined, bool used, bool tells) {
  if (!uncombined && !llWaitForTakers(s)) return false;
  if (used) llEmptyPlaces(s);
  s.noteBegin();
  if (tells) {
    if (used && !s.waitForWarps(&s.comm.state->begun[s.channel], s.epoch)) return false;
    tellTerms(s);
  }
  return !used || s.waitForDomain(llFlags(s.comm, s.handle, s.comm.at.llCombineSizes), s.epoch, Phase::combineSlots);
}

// Notes what a sending step leaves for the next one. One warp calls it. `hasFlags`: flags follow the rows.
MOE_LANES void llEndLanding(const Combining auto& s, bool silent, bool hasFlags) {
  CommState* state = s.comm.state;
  HandleState* handle = s.handle.state;
  if (silent && s.allHaveBegun()) keepLlRowsFault(s.warp, s.p);
  s.endEpoch([&] {
    handle->combineEpoch = s.epoch;
    handle->combineHanded = s.number;
    handle->combineLeft = leavesRows(s.p) && !silent ? s.epoch : 0;
    handle->silent = 0;
    if (hasFlags) state->handed[0][s.channel] = s.number;
    noteWeights(s);
    state->llUncombined[s.handle.llSet] = state->llUsed[s.handle.llSet] = 0;
  });
}

MOE_LANES Operation llLandingOperation(const StepParams& p) {
  const Channel channel = combineChannel(p.handle);
  const HandleState* state = p.handle.state;
  const bool sends = (p.phases & kSendPhase) != 0;
  return withWeights(p, {channel, operationEpoch(p, channel, state->combineEpoch),
                         sends ? p.comm.state->handed[0][channel] + 1 : state->combineHanded});
}

template <Lands Warp, bool kCoded = false>
class LlCombine {
 public:
  MOE_LANES LlCombine(const Warp& warp, const StepParams& p, WarpIndex w)
      : LlCombine(warp, p, w, llLandingOperation(p)) {}
  // Resumes an operation (core/seldom.h).
  MOE_LANES LlCombine(const Warp& warp, const StepParams& p, WarpIndex w, const Operation& which)
      : s(warp, p, w, which) {}

  MOE_LANES void run() const {
    const HandleState* state = s.handle.state;
    std::uint32_t fault = state->fault;
    std::uint64_t epoch = s.epoch, number = s.number, left = state->combineLeft;
    if (s.stopped(fault, epoch, number, left)) return;
    const bool rest = !s.sends && left == s.epoch;
    const bool silent = s.sends && givesZeros(s, fault);
    if (s.sends && !begin()) return;
    if (silent && !kCoded) {
      if constexpr (!kCoded) {
        seldom<LlCombine>(
            s, [](const LlCombine& combine) { combine.handBackZeros(); }, s.w, s.operation());
      }
    } else if (s.sends || rest) {
      if (!handBack(silent, rest)) return;
    }
    if (s.sends) {
      if (s.args.grads != 0 && (kCoded || !silent)) pushWeightGrads(s, silent);
      if (hasFlags()) s.announce(s.area.ready, Meeting::rows, s.w);
      if (s.split()) llPutSums(s);
      if (isLast(s.w)) llEndLanding(s, silent, hasFlags());
    }
    if (s.receives) takeBack();
  }

  // Sends zeros as the rows and gradients that owners wait for, if nothing from this rank counts.
  MOE_LANES void handBackZeros() const {
    prepareZeroRows<true>(s, SharedBack<Warp, true>{s.w}.items(s.p));
    if (s.split()) prepareZeroRows<false>(s, SharedBack<Warp, false>{s.w}.items(s.p));
    if (s.args.grads != 0) pushWeightGrads(s, true);
  }

 private:
  using S = CombineSession<Warp, kCoded>;
  using Sums = std::conditional_t<kCoded, OfCoded<LandedSums<S>>, LandedSums<S>>;

  // False if a wait failed.
  MOE_LANES bool begin() const {
    const CommState* state = s.comm.state;
    const int set = s.handle.llSet;
    return llBeginLanding(s, state->llUncombined[set] != 0, state->llUsed[set] != 0, s.w.index == 0) && bringWeights(s);
  }

  // Rows of other domains and gradients need a flag; other rows do not. Combines with flags are counted, with the same
  // result on all ranks.
  MOE_LANES bool hasFlags() const { return s.split() || s.args.grads != 0; }

  // ---- The expert side

  // False if a wait failed. `rest`: only the rows that the first part has left.
  MOE_LANES bool handBack(bool zeros, bool rest) const {
    if (!prepareRows<true>(s, SharedBack<Warp, true>{s.w, rest ? s.epoch : 0}, zeros)) return false;
    return !s.split() || prepareRows<false>(s, SharedBack<Warp, false>{s.w}, zeros);
  }

  // ---- The owner

  // One warp checks whether the terms of the domain agree. If they do not, the others stop waiting for rows that never
  // come. The terms of other domains come with their flags.
  MOE_LANES void takeBack() const {
    if (s.w.index == 0 && !termsAgree(s, domainRanks(s.comm))) return;
    if (hasFlags() && !s.waitForAll(s.area.ready, s.number, Phase::combineRows)) return;
    if (s.split() && s.w.index == 0 && !termsAgree(s, allRanks(s.comm))) return;
    const Range tokens{0, s.args.tokens};
    const Sums sums{s, biasCount(s.args), shareOf(tokens, s.args.parts, s.args.rowBytes, s.w)};
    if (!s.warp.reduceRows(s.comm, sums)) return;
    if (s.args.outWeightGrads != nullptr) takeWeightGrads(s);
  }

  const S s;
};

}  // namespace moe
