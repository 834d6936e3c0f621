// Low-latency dispatch of a handle that was routed before.
#pragma once

#include "device/protocol/ll/payloads.h"
#include "device/view/terms.h"

namespace moe {

MOE_LANES LlRows llOwnRows(const CommView& c, const HandleView& h) {
  return {h, h.arriving.rankOffsets[c.rank], h.arriving.rankOffsets[c.rank + 1], 0, 0};
}
MOE_LANES LlRows llRowsOfOthers(const CommView& c, const HandleView& h) {
  const int first = h.arriving.rankOffsets[c.rank], own = h.arriving.rankOffsets[c.rank + 1] - first;
  return {h, 0, *h.arriving.rows - own, first, own};
}

// Rows of a payload in their slots.
struct LlKeptSlots {
  LlPayload payload;
  MOE_LANES const std::uint8_t* operator()(int row) const { return payload.arrived(arrivalOf(payload.h, row)); }
};
// Rows from the caller's input if that is given, else from their slots. `rowBytes` may be less than a slot holds: then
// it counts the slot's first bytes.
struct LlKeptSource {
  LlKeptSlots slotOf;
  const std::uint8_t* in;
  std::uint32_t rowBytes;

  MOE_LANES const std::uint8_t* operator()(int row) const {
    if (in != nullptr) return in + std::int64_t{headToken(*keptHeader(slotOf.payload.h, row))} * rowBytes;
    return slotOf(row);
  }
};

// The terms of rank `from` that differ from this rank's, if any. One lane calls it.
template <Moves Warp>
MOE_LANES Failure termsFault(const Warp& warp, const StepParams& p, int from) {
  const std::uint64_t ours = p.dispatch.terms;
  const auto theirs = warp.laneLoad(p.comm.mine<std::uint64_t>(llSizesOffset(p.comm, p.handle, from)));
  return theirs == ours || areLost(theirs) ? Failure{} : disagreement(Phase::dispatchRows, from, ours, theirs);
}
template <Moves Warp>
MOE_SELDOM void keepTermsFault(Warp warp, const StepParams& p) {
  keepFirstFault(warp, p.handle, allRanks(p.comm), [&](int from) { return termsFault(warp, p, from); });
}

template <Moves Warp>
MOE_SELDOM void llSendPayloads(Warp warp, const StepParams& p, WarpIndex w) {
  llSendPieces(LlSlots<Warp>(warp, p), RoutedLists{p.handle}, {0, p.dispatch.tokens}, w);
}
template <Moves Warp>
MOE_SELDOM void llTakePayloads(Warp warp, const StepParams& p, WarpIndex w) {
  const LlSlots<Warp> s(warp, p);
  llTakePieces(s, {0, *p.handle.arriving.rows}, KeptArrivals{p.handle, 0}, LlKeptSlots{s.side()}, w);
}

template <Moves Warp>
class LlDispatch {
 public:
  MOE_LANES LlDispatch(const Warp& warp, const StepParams& p, WarpIndex w) : s(warp, p, w), d_(p.dispatch) {}

  MOE_LANES void run() const {
    const bool uncombined = s.comm.state->llUncombined[s.handle.llSet] != 0, silent = deliversNothing(s);
    if (s.stopped()) return;
    if (s.sends) {
      if (uncombined && !waitForSlots()) return;
      if (s.w.index == 0) sendTerms();
      llSendRows<PartShare>(s, RoutedLists{s.handle}, {0, d_.tokens}, s.w, LlAlways{});
      if (d_.payloads.count != 0) llSendPayloads(s.warp, s.p, s.w);
      s.announceRows(
          s.rowFlags(), [](int) { return 0; }, Meeting::rows, s.w);
      if (s.split()) putToRemoteRanks();
      if (isLast(s.w)) llEndSend(s, silent);
    }
    if (s.receives) receive(silent);
  }

 private:
  // ---- Sending

  // Before the slots of the set's last dispatch are written again, all ranks must have taken its rows. After a combine
  // there is nothing to wait for, because the combine waited until all ranks had reached it. Otherwise each rank
  // announces it now that its stream is here.
  MOE_LANES bool waitForSlots() const {
    const std::uint64_t free = llFlags(s.comm, s.handle, s.comm.at.llFree);
    tellFree(s, free);
    return s.waitForAll(free, s.epoch, Phase::dispatchSlots);
  }

  MOE_LANES void sendTerms() const {
    s.warp.forEach(s.comm.domainSize, [&](int i) {
      const std::uint64_t word = llSizesOffset(s.comm, s.handle, s.comm.rank);
      s.warp.laneStore(s.comm.template in<std::uint64_t>(s.comm.domainFirst + i, word), d_.terms);
    });
  }

  // Puts rows, then the word of their terms and the flag. The last two go together, so that the adapter is
  // notified once.
  MOE_LANES void putToRemoteRanks() const {
    const auto rowsTo = [&](int to) { return s.handle.sent.totals[s.handle.map.experts + to]; };
    llPutToRemoteRanks(s, rowsTo, [&](int to) {
      s.warp.put(s.comm, 2, [&](int i) {
        return i == 0 ? putWord(to, llSizesOffset(s.comm, s.handle, s.comm.rank), d_.terms, s.epoch)
                      : flagPut(s.comm, to, s.rowFlags(), s.epoch, s.epoch);
      });
    });
  }

  // ---- Receiving

  // `silent`: nothing is delivered. The step waits for the rows all the same, so that their slots are free afterwards.
  MOE_LANES void receive(bool silent) const {
    const std::int64_t rows = s.handle.sent.layoutRowsOf[s.comm.rank];
    bool delivers = !silent && rows <= d_.capacity;
    if (delivers) {
      describeRows(s, s.w);
    } else {
      describeNothing(s.warp, s.p, filledRows(s.handle, s.comm.rank), s.w);
    }
    // For rows that stay in their slots one warp is enough: it waits and compares the terms.
    const bool stay =
        d_.outRows == nullptr && d_.cast.outScales == nullptr && d_.sideBytes == 0 && s.handle.arrivals == 0;
    if (stay && s.w.index != 0) return;
    const bool straight = d_.straight != 0;
    MOE_ROLLED
    for (int turn = straight ? 0 : 1; turn < 2; ++turn) {
      const bool own = turn == 0;
      if (!own && !s.waitForAll(s.rowFlags(), s.epoch, Phase::dispatchRows)) return;
      if (!own) delivers = delivers && termsAgree();
      if (delivers)
        deliver(own ? llOwnRows(s.comm, s.handle) : straight ? llRowsOfOthers(s.comm, s.handle) : allRows(), own);
    }
    if (delivers) {
      llDeliverScales(s, allRows(), KeptArrivals{s.handle, 0}, LlKeptSlots{s.rows()}, s.w);
      if (d_.payloads.count != 0) llTakePayloads(s.warp, s.p, s.w);
    } else if (!silent) {
      keepRefusal(rows);
    }
    if (s.handle.arrivals != 0) announceArrivals(s, 0, {0, s.handle.map.count(s.comm.rank)}, s.w);
  }

  MOE_LANES void keepRefusal(std::int64_t rows) const {
    if (rows > d_.capacity) return llRefuse(s, rows);
    if (s.w.index == 0) keepTermsFault(s.warp, s.p);
  }

  // True if the terms of all ranks are the same. Valid after the rows' flags.
  MOE_LANES bool termsAgree() const {
    return areGood(s, allRanks(s.comm), [&](int from) { return termsFault(s.warp, s.p, from); });
  }

  MOE_LANES LlRows allRows() const { return {s.handle, 0, *s.handle.arriving.rows, 0, 0}; }

  // Delivers rows and side payload of some rows. With `own`, they come from the caller's input.
  MOE_LANES void deliver(const LlRows& which, bool own) const {
    const std::uint32_t bytes = d_.cast.type != kNoCast ? d_.cast.codeBytes : d_.rowBytes;
    const auto move = [&](const LlKeptSource& from, std::uint8_t* out, const Parts& parts) {
      if (out == nullptr) return;
      s.warp.streamRows(Delivered<LlRows, KeptArrivals, LlKeptSource>{
          partsOf(which, parts, from.rowBytes, s.w), {s.handle, 0}, from, out});
    };
    move({{s.rows()}, own ? d_.rows : nullptr, bytes}, d_.outRows, d_.arriving);
    if (d_.sideBytes != 0) {
      move({{s.side()}, own ? d_.side : nullptr, d_.sideBytes}, d_.outSide, Parts{1, d_.sideBytes});
    }
  }

  const LlSession<Warp> s;
  const DispatchArgs& d_;
};

}  // namespace moe
