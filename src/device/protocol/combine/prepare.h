// The expert side of combine: one row per token that came, where the token's owner can read it, and the gradients of
// the weights at the owner.
#pragma once

#include "device/protocol/combine/coded.h"

namespace moe {

// What rank `from` says to a rank.
MOE_LANES CombineRecord* combineRecord(const CommView& c, std::uint64_t epoch, int rank, int from) {
  const int at = parityOf(epoch) * c.nranks + from;
  return c.in<CombineRecord>(rank, c.at.htCombines) + at;
}

// ---- Rows that the first part of a combine leaves to the second. The first has few multiprocessors, beside the kernel
// that makes the rows; when that has ended, there are more. LL alone, where nobody waits for a flag behind rows, and
// not with weights of the combine's own, which the first part has brought.
MOE_LANES bool leavesRows(const StepParams& p) {
  return p.combine.leaves != 0 && p.phases == kSendPhase && p.combine.arriving.count == 1 && p.combine.grads == 0 &&
         p.handle.weighted == 0 && !p.comm.split();
}

// ---- One row per token of those that came. `Items` are parts of rows in FLAT order, at(0) to at(count() - 1), and say
// where such a row is made, place(row): nowhere if that is NULL. Sums take ChosenItems.

// Those of the items that are made now: of `count` from `begin` on, each for which `mask` has a bit, again and again.
template <class Items>
struct ChosenItems {
  Items items;
  int begin, n;
  std::uint32_t mask;

  MOE_LANES int count() const { return n; }
  MOE_LANES PartOf at(int i) const { return items.at(begin + i); }
  MOE_LANES std::uint8_t* place(int i, int row) const {
    return (mask >> (i % 32) & 1) != 0 ? items.place(row) : nullptr;
  }
  MOE_LANES const Parts& parts() const { return items.parts(); }
  MOE_LANES void choose(const ReadyPick& pick) {
    begin = pick.begin;
    n = 1;
    mask = pick.mask;
    MOE_ROLLED
    for (std::uint32_t behind = mask >> 1; behind != 0; behind >>= 1) ++n;
  }
};
template <class Items>
MOE_LANES ChosenItems<Items> allOf(const Items& items) {
  return {items, 0, items.count(), ~0u};
}

// The items, as such that wait until the kernel that makes the rows of this rank's experts has made theirs: an item
// needs all of its token's rows here. One that is made nowhere needs none.
template <class Items>
struct AwaitedItems {
  const StepParams& p;
  Items items;

  MOE_LANES int count() const { return items.count(); }
  MOE_LANES int words(int i) const {
    const int row = items.at(i).row;
    return items.place(row) != nullptr ? layoutCopies(p.handle, row) : 0;
  }
  MOE_LANES const std::uint32_t* word(int i, int copy) const {
    return p.combine.ready.words + number(entryOf(i, copy));
  }
  MOE_LANES std::uint32_t target() const { return p.combine.ready.value; }
  // A row leaves in one piece, or others would not know which parts of it have left.
  MOE_LANES bool mayLeave() const {
    if constexpr (Items::kMayLeave) return leavesRows(p);
    return false;
  }
  MOE_LANES AllWords all() const {
    const ReadyWords& ready = p.combine.ready;
    const int experts = p.handle.map.count(p.comm.rank);
    const int each = ready.wordsEach, blocks = each == 0 ? ready.blocks(p.handle.arriving.expertOffsets[experts]) : 0;
    return {ready.words, each == 0 ? blocks : experts * each};
  }
  MOE_LANES Failure late(int i, int copy, std::uint32_t seen) const {
    const Quad& entry = entryOf(i, copy);
    return lateExpert(p.comm.rank, entryExpert(entry), number(entry), target(), seen);
  }

 private:
  MOE_LANES const Quad& entryOf(int i, int copy) const { return keptHeader(p.handle, items.at(i).row)[1 + copy]; }
  MOE_LANES std::int64_t number(const Quad& entry) const {
    return p.combine.ready.number(entryExpert(entry), entryRow(entry));
  }
};

// A copy, of layouts with a row per token.
template <bool kLand, class Items>
struct PreparedCopies {
  static constexpr bool kLanding = kLand;
  const StepParams& p;
  Items items;

  MOE_LANES int count() const { return items.count(); }
  MOE_LANES int sinksMax() const { return 1; }
  MOE_LANES CopyJob job(int i) const {
    const PartOf part = items.at(i);
    return {givenRow(p, part, 0), part.bytes, 1};
  }
  MOE_LANES Sink sink(int i, int) const {
    const PartOf part = items.at(i);
    std::uint8_t* row = items.place(part.row);
    return {row == nullptr ? nullptr : row + part.begin, nullptr, !kLand};  // most land at peers
  }
};

// The sum of the rows of its experts here, in top-k order.
template <bool kLand, class Items>
struct PreparedSums {
  static constexpr bool kLanding = kLand;
  const StepParams& p;
  Items items;

  MOE_LANES int count() const { return items.count(); }
  MOE_LANES int rowType() const { return p.combine.rowType; }
  MOE_LANES int termsMax() const { return p.handle.topk; }
  MOE_LANES SumJob job(int i) const {
    const PartOf part = items.at(i);
    std::uint8_t* row = items.place(i, part.row);
    return row == nullptr ? SumJob{} : SumJob{row + part.begin, part.bytes, layoutCopies(p.handle, part.row)};
  }
  MOE_LANES const std::uint8_t* term(int i, int term) const { return givenRow(p, items.at(i), term); }
};
template <bool kLand, class Items, class S>
struct PreparedWeightedSums : PreparedSums<kLand, Items> {
  const S& s;

  MOE_LANES float weight(int i, int term) const {
    const Quad* header = keptHeader(this->p.handle, this->items.at(i).row);
    return s.weights != 0 ? broughtWeight(s, header[0], header[1 + term]) : entryWeight(header[1 + term]);
  }
};

// Zeros: of what came here nothing is to count, and owners wait for rows.
template <bool kLand, class Items>
struct PreparedZeros {
  static constexpr bool kLanding = kLand;
  const StepParams& p;
  Items items;

  MOE_LANES int count() const { return items.count(); }
  MOE_LANES int rowType() const { return kBf16; }  // zeros have the same bits in all types
  MOE_LANES int termsMax() const { return 1; }
  MOE_LANES SumJob job(int i) const {
    const PartOf part = items.at(i);
    std::uint8_t* row = items.place(part.row);
    return row == nullptr ? SumJob{} : SumJob{row + part.begin, part.bytes, 0};
  }
  MOE_LANES const std::uint8_t* term(int, int) const { return nullptr; }
};

template <bool kLand, Combining S, class Items>
MOE_LANES void prepareChosen(const S& s, const ChosenItems<Items>& chosen, bool zeros) {
  if constexpr (S::kCoded) {
    prepareCoded<kLand>(s, chosen, zeros);
  } else if (!expertRows(s.handle)) {
    s.warp.streamRows(PreparedCopies<kLand, Items>{s.p, chosen.items});
  } else if (s.args.weighted != 0) {
    s.warp.reduceRows(s.comm, PreparedWeightedSums<kLand, ChosenItems<Items>, S>{{s.p, chosen}, s});
  } else {
    s.warp.reduceRows(s.comm, PreparedSums<kLand, ChosenItems<Items>>{s.p, chosen});
  }
}

// A pick, and the scan behind it.
struct NextReady {
  ReadyPick pick;
  ReadyScan scan;
};
// A function of its own: what waits must not take registers from what moves rows. By value, as what is referred to
// would lie in memory. It finds the items again, for the same reason.
template <Moves Warp, class Share>
MOE_SELDOM NextReady nextReady(Warp warp, const StepParams& p, Share share, ReadyScan scan) {
  using Items = decltype(share.items(p));
  const ReadyPick pick = warp.pickReady(p.comm, AwaitedItems<Items>{p, share.items(p)}, scan);
  return {pick, scan};
}

// What was chosen has been sent, as the second part must know.
template <class Items>
MOE_LANES void noteSent(const auto& s, const ChosenItems<Items>& chosen) {
  s.warp.forEach(chosen.count(), [&](int i) {
    if ((chosen.mask >> (i % 32) & 1) != 0) s.handle.arriving.sentIn[chosen.at(i).row] = s.epoch;
  });
}

// All of them, as they become ready; at once if the caller says nothing of that, or if they were left. False if some
// did not. `zeros`: instead, of rows in a wire format alone. Others have prepareZeroRows. Without kWaits there is no
// such wait. `share` has this warp's: items(params).
template <bool kLand, bool kWaits = true, Combining S, class Share>
MOE_LANES bool prepareRows(const S& s, const Share& share, bool zeros) {
  using Items = decltype(share.items(s.p));
  const bool waits = kWaits && s.args.ready.words != nullptr && s.sends && !zeros;
  ReadyScan scan;
  MOE_ROLLED
  do {
    NextReady next{};
    if constexpr (kWaits) {
      if (waits) {
        next = nextReady(s.warp, s.p, share, scan);
        if (next.pick.mask == 0) return next.pick.begin != ReadyPick::kInVain;
        scan = next.scan;
      }
    }
    auto now = allOf(share.items(s.p));  // behind the wait, during which its registers are free
    if (waits) now.choose(next.pick);
    prepareChosen<kLand>(s, now, zeros);  // here alone: it is long when compiled
    if constexpr (kWaits && Items::kMayLeave) {
      if (waits && leavesRows(s.p)) noteSent(s, now);
    }
  } while (waits);
  return true;
}

template <bool kLand, Combining S, class Items>
MOE_LANES void prepareZeroRows(const S& s, const Items& items) {
  s.warp.reduceRows(s.comm, PreparedZeros<kLand, Items>{s.p, items});
}

// A share of the rows, to where they are read.
struct PreparedShare {
  static constexpr bool kMayLeave = false;
  const StepParams& p;
  ArrivingParts<ArrivingRows> shared;

  MOE_LANES int count() const { return shared.count(); }
  MOE_LANES PartOf at(int i) const { return shared.at(i); }
  MOE_LANES const Parts& parts() const { return shared.share.parts; }
  MOE_LANES std::uint8_t* place(int row) const {
    const CommView& c = p.comm;
    const HandleView& h = p.handle;
    const std::uint32_t bytes = p.combine.wireBytes;
    if (h.lowLatency == 0) {
      return c.mine<std::uint8_t>(p.combine.rowsOffset) + static_cast<std::int64_t>(row) * bytes;
    }
    const Arrival at = arrivalOf(h, row);
    return llSlot(c, h, c.rank, c.at.llCombineRows, c.rowBytesMax, bytes, at.from, at.index);
  }
};

// A warp's share of one wave of them.
template <int kWaves>
struct PreparedWave {
  WarpIndex w;
  int wave;

  MOE_LANES PreparedShare items(const StepParams& p) const {
    return {p, partsOf(arrivingRows(p.handle, kWaves, wave), p.combine.arriving, p.combine.rowBytes, w)};
  }
};

MOE_LANES bool prepares(const CombineArgs& a) {
  return a.inPlace == 0 || a.grads != 0;
}

// ---- What must agree in an LL combine: words of their own, so that rows need not wait for them; with the flags of
// other domains, which are no sums of shares

// One warp tells the domain. In combines that do not land neither the first, which hands rows over, nor the last, which
// has the fewest and so looks at what the others say.
MOE_LANES bool tellsTerms(WarpIndex w) {
  return w.index == (w.count > 2 ? w.count - 2 : 0);
}

MOE_LANES void tellTerms(const Combining auto& s) {
  s.tell(llFlags(s.comm, s.handle, s.comm.at.llCombineSizes), s.epoch, s.args.terms);
}

// Looks at the terms of `ranks`. Those of other domains came with their flags; for others it waits.
MOE_LANES bool termsAgree(const Combining auto& s, Range ranks) {
  const std::uint64_t area = llFlags(s.comm, s.handle, s.comm.at.llCombineSizes);
  if (!s.waitForDomain(area, s.epoch, Phase::combineRows)) return false;
  return s.allAreGood(ranks, [&](int from) -> Failure {
    const std::uint64_t words = s.isRemote(from) ? s.area.ready : area;
    const auto theirs = static_cast<unsigned>(flagValue(s.warp.laneLoad(s.comm.template mine<Flag>(words) + from)));
    return theirs == s.args.terms ? Failure{} : disagreement(Phase::combineRows, from, s.args.terms, theirs);
  });
}

// LL, right after a combine of the same set: what that one made, and its terms, may be written again when every rank
// has read it. With a dispatch in between, everybody has.
MOE_LANES bool waitForReaders(const Combining auto& s, bool silent) {
  const std::uint64_t free = llFlags(s.comm, s.handle, s.comm.at.llCombineFree);
  tellFree(s, free);
  const bool writes = prepares(s.args) || silent || tellsTerms(s.w);
  return !writes || s.waitForAll(free, s.epoch, Phase::combineSlots);
}

// ---- Whether there are rows enough

MOE_LANES CombineRecord ownRecord(const CombineArgs& a) {
  return {a.rowsOffset,
          a.capacity,
          a.held,
          a.terms,
          static_cast<std::int16_t>(a.inPlace != 0 ? 0 : 1),
          static_cast<std::int16_t>(a.grads != 0 && a.weightGrads == nullptr ? 1 : 0)};
}

// What rank `from` lacks for the rows that had arrived there, if anything.
MOE_LANES Failure rowsFault(const HandleView& h, const CombineRecord& record, int from) {
  const std::int64_t arrived = h.sent.flatRowsOf[from], rows = h.sent.layoutRowsOf[from];
  if (arrived == 0) return {};
  if (rows > record.held) return tooLittle(Fault::capacity, Phase::combineRows, from, record.held, rows);
  if (record.gradsMiss != 0) return tooLittle(Fault::noGrads, Phase::combineRows, from, 0, arrived);
  const bool fits = record.prepared == 0 || arrived <= record.capacity;
  return fits ? Failure{} : tooLittle(Fault::staging, Phase::combineRows, from, record.capacity, arrived);
}

// LL has no records: what a rank lacks for what had arrived there is its own matter.
MOE_LANES Failure llRowsFault(const StepParams& p) {
  const CombineArgs& a = p.combine;
  if (a.held == kAnyRows && (a.grads == 0 || a.weightGrads != nullptr)) return {};
  CombineRecord mine = ownRecord(a);
  mine.prepared = 0;  // in slots, of which there are enough
  return rowsFault(p.handle, mine, p.comm.rank);
}
// So of LL a rank may have nothing that counts, while the others wait for its rows: it gives zeros.
// `fault`: the handle's.
MOE_LANES bool givesZeros(const Combining auto& s, std::uint32_t fault) {
  return fault != 0 || llRowsFault(s.p).fault != Fault::none;
}
// Kept by one warp, when all have asked that.
template <Moves Warp>
MOE_SELDOM void keepLlRowsFault(Warp warp, const StepParams& p) {
  const Failure why = llRowsFault(p);
  if (why.fault != Fault::none) keepFault(warp, p.handle, why);
}

// LL: the rows that wait for remote owners, who cannot read them here, and their gradients; each call by another
// connection.
MOE_LANES void llPutSums(const Combining auto& s) {
  const CommView& c = s.comm;
  const HandleView& h = s.handle;
  const std::uint32_t rowBytes = s.args.wireBytes;
  forRemoteRanks(s, [&](int to) {
    if (!s.waitForOwn(s.area.ready, s.number)) return false;
    const std::int64_t rows = h.arriving.rankOffsets[to + 1] - h.arriving.rankOffsets[to];
    putBlock(s, to,
             {llSlotOffset(c, h, c.far->at.llCombineIn, c.rowBytesMax, rowBytes, c.rank, 0),
              llSlotOffset(c, h, c.at.llCombineRows, c.rowBytesMax, rowBytes, to, 0), rows * rowBytes, s.number});
    if (s.args.grads != 0) {
      putBlock(s, to,
               {llGradsRow(c, h, c.far->at.llGradsIn, c.rank, 0), llGradsRow(c, h, c.far->at.llGradsOut, to, 0),
                rows * c.topkMax * static_cast<std::int64_t>(sizeof(float)), s.number});
    }
    const std::uint64_t flag = s.area.ready + static_cast<unsigned>(c.rank) * sizeof(Flag);
    s.warp.put(c, 1, [&](int) { return putWord(to, flag, flagWord(s.number, s.args.terms), s.number); });
    return true;
  });
}

}  // namespace moe
