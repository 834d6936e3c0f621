// The expert side of combine. It makes one row for each arrived token, where the token's owner can read it, and stores
// the gradients of the weights at the owner.
#pragma once

#include "device/protocol/combine/coded.h"
#include "device/view/terms.h"

namespace moe {

// The combine record that rank `from` sends to `rank`.
MOE_LANES CombineRecord* combineRecord(const CommView& c, std::uint64_t epoch, int rank, int from) {
  const int at = parityOf(epoch) * c.nranks + from;
  return c.in<CombineRecord>(rank, c.at.htCombines) + at;
}

// ---- Rows that the first part of a combine leaves to the second. The first part has few multiprocessors, because it
// runs alongside the kernel that makes the rows. When that kernel has ended, the second part has more. Only LL leaves
// rows, because no rank waits there for a flag after the rows. Combines that carry weights leave no rows, because the
// second part does not wait for weights.
MOE_LANES bool leavesRows(const StepParams& p) {
  return p.combine.leaves != 0 && p.phases == kSendPhase && p.combine.arriving.count == 1 && p.combine.grads == 0 &&
         p.handle.weighted == 0 && !p.comm.split();
}

// ---- One row for each arrived token. `Items` are parts of rows in FLAT order, at(0) to at(count() - 1). place(row)
// tells where the row is made; NULL: it is not made. Sums take ChosenItems.

// The items that are made now: of n items from `begin` on, those whose bit in `mask` is set. The mask repeats every 32
// items.
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

// The items as a ReadyList. An item is ready when the kernel that makes the rows of this rank's experts has made all
// rows of the item's token here. An item that is not made waits for nothing.
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
  // Only rows in one piece may be left, because the second part does not know which parts of a row have been sent.
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

// Copies, for layouts with a row per token.
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
    return {row == nullptr ? nullptr : row + part.begin, nullptr, !kLand};  // false, because most rows land at peers
  }
};

// The sum of a token's rows here, in top-k order of its experts.
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

// Zeros. They are sent if nothing that arrived here counts, because owners wait for rows.
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

// The next pick of ready items, and the scan after it.
struct NextReady {
  ReadyPick pick;
  ReadyScan scan;
};
// A separate function, because code that waits must not take registers from code that moves rows. The arguments are
// passed by value, because references would force objects into memory. For the same reason it looks up the items again.
template <Moves Warp, class Share>
MOE_SELDOM NextReady nextReady(Warp warp, const StepParams& p, Share share, ReadyScan scan) {
  using Items = decltype(share.items(p));
  const ReadyPick pick = warp.pickReady(p.comm, AwaitedItems<Items>{p, share.items(p)}, scan);
  return {pick, scan};
}

// Notes that the chosen rows have been sent, so that the second part skips them.
template <class Items>
MOE_LANES void noteSent(const auto& s, const ChosenItems<Items>& chosen) {
  s.warp.forEach(chosen.count(), [&](int i) {
    if ((chosen.mask >> (i % 32) & 1) != 0) s.handle.arriving.sentIn[chosen.at(i).row] = s.epoch;
  });
}

// Makes all rows as they become ready, or at once if the caller gives no ready words or the rows were left by the first
// part. False: some rows were not ready in time. `zeros` makes zeros instead; only for rows in a wire format, since
// others have prepareZeroRows. Without kWaits it never waits for ready words. `share` gives this warp's items:
// items(params).
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
    auto now = allOf(share.items(s.p));  // looked up after the wait, so that its registers are free during the wait
    if (waits) now.choose(next.pick);
    prepareChosen<kLand>(s, now, zeros);  // called in this one place, because its code is long
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

// A share of the rows, made in the place where owners read them.
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

// A warp's share of one wave of rows; without waves, of all rows.
template <bool kInWaves>
struct PreparedWave {
  WarpIndex w;
  int wave;

  MOE_LANES PreparedShare items(const StepParams& p) const {
    const int without = p.combine.ownRows != 0 ? p.comm.rank : kNoRank;
    return {p, partsOf(arrivingRows(p.handle, kInWaves, wave, without), p.combine.arriving, p.combine.rowBytes, w)};
  }
};

MOE_LANES bool prepares(const CombineArgs& a) {
  return a.inPlace == 0 || a.grads != 0;
}

// ---- Terms of an LL combine. They have words of their own, so that rows need not wait for them. Ranks of other
// domains send them as values of flags, because their flags are put whole and are no sums of shares.

// True if this warp sends the terms to the domain. If rows do not land, it is neither the first warp, which hands rows
// over, nor the last, which has the fewest rows and therefore checks the others' terms.
MOE_LANES bool tellsTerms(WarpIndex w) {
  return w.index == (w.count > 2 ? w.count - 2 : 0);
}

MOE_LANES void tellTerms(const Combining auto& s) {
  s.tell(llFlags(s.comm, s.handle, s.comm.at.llCombineSizes), s.epoch, s.args.terms);
}

// Compares the terms of `ranks` with ours. The terms of other domains have arrived with their flags; it waits for those
// of this domain.
MOE_LANES bool termsAgree(const Combining auto& s, Range ranks) {
  const std::uint64_t area = llFlags(s.comm, s.handle, s.comm.at.llCombineSizes);
  if (!s.waitForDomain(area, s.epoch, Phase::combineRows)) return false;
  return s.allAreGood(ranks, [&](int from) -> Failure {
    const std::uint64_t words = s.isRemote(from) ? s.area.ready : area;
    const auto theirs = static_cast<unsigned>(flagValue(s.warp.laneLoad(s.comm.template mine<Flag>(words) + from)));
    if (theirs == s.args.terms || areLost(theirs)) return {};
    return disagreement(Phase::combineRows, from, s.args.terms, theirs);
  });
}

// For an LL combine that follows a combine of the same set. The rows and terms of the previous combine may be
// overwritten when every rank has read them. After a dispatch in between, every rank has. `writes`: this warp
// overwrites some of these rows or terms.
MOE_LANES bool waitForReaders(const Combining auto& s, bool writes) {
  const std::uint64_t free = llFlags(s.comm, s.handle, s.comm.at.llCombineFree);
  tellFree(s, free);
  return !writes || s.waitForAll(free, s.epoch, Phase::combineSlots);
}

// ---- Whether there are enough rows

MOE_LANES CombineRecord ownRecord(const CombineArgs& a) {
  return {a.rowsOffset,
          a.capacity,
          a.held,
          a.terms,
          static_cast<std::int16_t>(a.inPlace != 0 ? 0 : 1),
          static_cast<std::int8_t>(a.grads != 0 && a.weightGrads == nullptr ? 1 : 0),
          0};
}

// The fault of rank `from`, if its rows do not cover what had arrived there.
MOE_LANES Failure rowsFault(const HandleView& h, const CombineRecord& record, int from) {
  const std::int64_t arrived = h.sent.flatRowsOf[from], rows = h.sent.layoutRowsOf[from];
  if (arrived == 0) return {};
  if (rows > record.held) return tooLittle(Fault::capacity, Phase::combineRows, from, record.held, rows);
  if (record.gradsMiss != 0) return tooLittle(Fault::noGrads, Phase::combineRows, from, 0, arrived);
  const bool fits = record.prepared == 0 || arrived <= record.capacity;
  return fits ? Failure{} : tooLittle(Fault::staging, Phase::combineRows, from, record.capacity, arrived);
}

// The same check for LL, which has no records: each rank checks only its own rows.
MOE_LANES Failure llRowsFault(const StepParams& p) {
  const CombineArgs& a = p.combine;
  if (a.held == kAnyRows && (a.grads == 0 || a.weightGrads != nullptr)) return {};
  CombineRecord mine = ownRecord(a);
  mine.prepared = 0;  // rows lie in slots, of which there are always enough
  return rowsFault(p.handle, mine, p.comm.rank);
}
// Whether this rank gives zeros. An LL rank may have no valid rows, while others wait for its rows. `fault`: that of
// the handle.
MOE_LANES bool givesZeros(const Combining auto& s, std::uint32_t fault) {
  return fault != 0 || llRowsFault(s.p).fault != Fault::none;
}
// Keeps the fault. One warp calls it, after all warps have called givesZeros().
template <Moves Warp>
MOE_SELDOM void keepLlRowsFault(Warp warp, const StepParams& p) {
  const Failure why = llRowsFault(p);
  if (why.fault != Fault::none) keepFault(warp, p.handle, why);
}

// LL: puts the rows for remote owners, who cannot read them here, and their gradients. Each combine uses another
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
