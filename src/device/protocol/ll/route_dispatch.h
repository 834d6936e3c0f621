// Low-latency dispatch that routes: expert ids go in and rows come out, in one hop. Nothing is exchanged before the
// rows. Each block counts its own rank's ids, as far as it needs them, while its rows are on their way to registers
// (ll/places.h). Beside the rows, every rank sends its receivers metadata that says what the rows are (ll/taken.h). The
// flags say how many rows there are. Flags: README.md, "LL dispatch that routes".
#pragma once

#include "device/protocol/ll/payloads.h"
#include "device/protocol/ll/taken.h"

namespace moe {

// ---- What a rank does when the metadata of a rank, or its own output, is invalid. The functions are not inlined,
// because they are seldom needed. docs/internals/protocol.md, "Faults of a handle".

// All warps call it, each for its share of tokens. The first warp also keeps the fault.
template <Moves Warp>
MOE_SELDOM void llMakeEmptyRoute(Warp warp, const StepParams& p, WarpIndex w, Operation operation) {
  const Session<Warp> s(warp, p, w, operation);
  emptyTokens(s);
  if (w.index != 0) return;
  emptyCounts(s);
  int refuses = 0;  // if several ranks refuse, all ranks name the lowest
  MOE_ROLLED
  while ((warp.laneLoad(llToldBy<Quad>(p.comm, p.handle, refuses)).w & kRouteRefused) == 0) ++refuses;
  keepFault(warp, p.handle, faultTold(p.handle, refuses, warp.laneLoad(llToldBy<Quad>(p.comm, p.handle, refuses) + 2)));
  tellRows(s, 0, true);
}

// Keeps the reason why nothing was delivered. One warp calls it when the handle has the route.
template <Moves Warp>
MOE_SELDOM void llKeepFault(Warp warp, const StepParams& p, std::int64_t layoutRows) {
  const DispatchArgs& d = p.dispatch;
  if (layoutRows > d.capacity) {
    return keepFault(warp, p.handle,
                     tooLittle(Fault::capacity, Phase::dispatchOutput, p.comm.rank, d.capacity, layoutRows));
  }
  keepFirstFault(warp, p.handle, allRanks(p.comm), [&](int from) -> Failure {
    const std::uint64_t theirs = llTermsTold(warp.laneLoad(llToldBy<Quad>(p.comm, p.handle, from) + 1));
    return theirs == d.terms || areLost(theirs) ? Failure{} : disagreement(Phase::dispatchRows, from, d.terms, theirs);
  });
}

// These two functions are not inlined: they only read a block's tables, and registers are free again when they return.
// They compute values again that a caller could pass, because many of those would go through memory.
template <Gathers Warp>
MOE_SELDOM void llSendPayloads(Warp warp, const StepParams& p, WarpIndex w, int first) {
  using Wide = LlBlock<typename Warp::Wide, false>;
  const auto& wide = warp.wide();
  const Wide block(wide, p, w, {});
  const LlShare share = LlShare::of(p.dispatch, block.w);
  const LlPlaces<Wide> places(block, share, first);
  llSendPieces(LlSlots<Warp>(warp, p), places, {first, first + places.size()},
               share.team(w.inBlock, Warp::warpsOfBlock()));
}
template <Gathers Warp>
MOE_SELDOM void llTakePayloads(Warp warp, const StepParams& p, WarpIndex w, int begin, int end) {
  using Wide = LlBlock<typename Warp::Wide, false>;
  const auto& wide = warp.wide();
  const Wide block(wide, p, w, {});
  const LlTaken<Wide> taken(block);
  const LlSlots<Warp> s(warp, p);
  llTakePieces(s, {begin, end}, LlTakenArrivals<Wide>{taken, {begin, end, false}}, LlTakenSlots<Wide>{taken, s.side()},
               {w.inBlock, Warp::warpsOfBlock(), 1});
}

// A block's rows may go when the block has counted where they go. It looks up in the same round whether it must wait
// for slots.
template <class S, class Tabled>
struct LlReady {
  const S& s;
  const Tabled& block;
  const LlPlaces<Tabled>& places;

  MOE_LANES bool ready() const {
    std::uint64_t epoch = s.epoch;
    std::uint32_t uncombined = s.comm.state->llUncombined[s.handle.llSet];
    const bool goesOn = places.count();
    s.warp.hold(epoch, uncombined);
    return goesOn && (uncombined == 0 || !places.begin() || waitForSlots());
  }

 private:
  // Waits as LlDispatch does, but the warps of a block wait together.
  MOE_LANES bool waitForSlots() const {
    const std::uint64_t free = llFlags(s.comm, s.handle, s.comm.at.llFree);
    tellFree(s, free);
    return block.waitForAll(free, s.epoch, Phase::dispatchSlots);
  }
};

template <Gathers Warp, bool kPlain>
class LlRouteDispatch {
 public:
  // `wide`: warp.wide(). It is not a member, because an object that points into itself stays in memory.
  MOE_LANES LlRouteDispatch(const Warp& warp, const typename Warp::Wide& wide, const StepParams& p, WarpIndex w)
      : s_(warp, p, w), block_(wide, p, w, S::operationOf(p)), warps_(Warp::warpsOfBlock()), inBlock_(w.inBlock) {}

  MOE_LANES void run() const {
    if (!s_.sends && block_.stopped()) return;
    if (s_.sends && !send()) return;
    if (s_.receives) receive();
  }

 private:
  using S = LlSession<Warp>;
  using Tabled = LlBlock<typename Warp::Wide, kPlain>;
  using Places = LlPlaces<Tabled>;
  using Taken = LlTaken<Tabled>;

  // ---- Sending

  // False if a wait failed, or the rank is to stop. A route that this rank refuses is sent like others, without the
  // invalid entries.
  MOE_LANES bool send() const {
    int first = shareAgain().first;
    MOE_ROLLED
    for (;; first += kLlTokensAtOnce) {
      const LlShare share = shareAgain();
      if (!sendTokens(share, Places(block_, share, first))) return false;
      if (first + kLlTokensAtOnce >= shareAgain().end) break;
    }
    const LlShare share = shareAgain();
    const Places last(block_, share, first);
    if (share.leads) LlTelling<S, Places>{s_, last}.storeCounts(inBlock_, warps_, last.refuses());
    s_.announceRows(
        s_.rowFlags(), [&](int i) { return share.leads ? last.moreTo(s_.comm.domainFirst + i) : 0; }, Meeting::rows,
        s_.w);
    if (s_.split()) putToRemoteRanks();
    if (isLast(s_.w)) llEndSend(s_, false);
    return true;
  }

  // The share is computed anew where it is needed, because a value that is kept while rows move would go through
  // memory.
  MOE_LANES LlShare shareAgain() const {
    auto index = static_cast<std::uint32_t>(block_.w.index);
    if constexpr (!kPlain) s_.warp.hold(index);
    return LlShare::of(s_.args, {static_cast<int>(index), block_.w.count, block_.w.blocks});
  }

  // Sends the tokens at hand: rows, then the data beside them, and headers.
  MOE_LANES bool sendTokens(const LlShare& share, const Places& places) const {
    const LlReady<S, Tabled> ready{s_, block_, places};
    const Range tokens{places.first(), places.first() + places.size()};
    const WarpIndex team = share.team(inBlock_, warps_);
    if (!llSendRows<LlParts, !kPlain>(s_, places, tokens, team, ready)) return false;
    if (shareAgain().sharer == 0) LlTelling<S, Places>{s_, places}.storeHeaders(inBlock_, warps_);
    if (!kPlain && s_.args.payloads.count != 0) llSendPayloads(s_.warp, s_.p, s_.w, places.first());
    return true;
  }

  // Puts rows, then metadata and the flag. The last two go together, so that the adapter is notified once.
  MOE_LANES void putToRemoteRanks() const {
    const auto rowsTo = [&](int to) { return llRowsTo(s_, to); };
    llPutToRemoteRanks(s_, rowsTo, [&](int to) {
      s_.warp.put(s_.comm, 2, [&](int i) {
        return i == 0 ? llToldPut(s_, to) : flagPut(s_.comm, to, s_.rowFlags(), s_.epoch, s_.epoch, rowsTo(to));
      });
    });
  }

  // ---- Receiving

  MOE_LANES void receive() const {
    const Taken taken(block_);
    std::uint32_t ticket = block_.w.index == 0 ? latestRoute(s_.handle) : 0;  // looked up before the wait
    s_.warp.hold(ticket);
    if (!taken.await(s_.rowFlags(), s_.epoch)) return;
    const Slice slice = taken.slice();
    const int end = slice.begin + slice.count;
    LlHand hand{slice.begin, end - slice.begin < kLlRowsAtOnce ? end : slice.begin + kLlRowsAtOnce, true};
    const bool delivers = placeRows(taken, hand);
    if ((taken.verdict() & kLlStranger) != 0) return;
    if ((taken.verdict() & kLlRefused) != 0) {
      describeNothing(s_.warp, s_.p, Filled{nullptr, nullptr, nullptr, layoutRows(s_.handle, s_.comm.rank, 0, 0)},
                      s_.w);
      llMakeEmptyRoute(s_.warp, s_.p, s_.w, s_.operation());
    } else {
      keepRoute(taken, ticket, delivers);
      MOE_ROLLED
      for (;;) {
        if (!kPlain && delivers) takeBeside(taken, hand);
        keepHeaders(taken, hand, delivers && describes(s_.args));
        if (hand.end >= end) break;
        hand = {hand.end, end - hand.end < kLlRowsAtOnce ? end : hand.end + kLlRowsAtOnce, false};
        placeRows(taken, hand);
      }
    }
    if (!kPlain && s_.handle.arrivals != 0) announceArrivals(s_, 0, {0, s_.handle.map.count(s_.comm.rank)}, s_.w);
  }

  // Stores counts for the handle and the host, and fills output rows that nothing arrives for. Without `delivers` the
  // handle gets the route, and the caller nothing.
  MOE_LANES void keepRoute(const Taken& taken, std::uint32_t ticket, bool delivers) const {
    if (block_.w.index == 0) taken.keepCounts(ticket);
    if (s_.w.index == 0) {
      const bool hadFault = beginRoute(s_);
      if (delivers) copyExpertOffsets(s_, taken.expertOffsets());
      if (!delivers) llKeepFault(s_.warp, s_.p, taken.layoutRows());
      tellRows(s_, taken.rows(), hadFault || !delivers);
    }
    if (!delivers) return describeNothing(s_.warp, s_.p, taken.filled(), s_.w);
    if (!kPlain && s_.args.padding != 0) padOutputs(s_.warp, s_.p, taken.filled(), s_.w);
  }

  MOE_LANES WarpIndex blockTeam() const { return {inBlock_, warps_, 1}; }

  // Brings the rows at hand to their places; true if they were delivered. Headers are looked up in any case.
  MOE_LANES bool placeRows(const Taken& taken, const LlHand& hand) const {
    const DispatchArgs& d = s_.args;
    if (d.outRows == nullptr) return taken.look(s_, hand);
    const std::uint32_t bytes = !kPlain && d.cast.type != kNoCast ? d.cast.codeBytes : d.rowBytes;
    const LlParts share = LlParts::of({hand.begin, hand.end}, d.arriving, bytes, blockTeam());
    return s_.warp.streamRows(LlDelivered<S, Tabled>{
        s_, share, {taken, hand}, {{taken, s_.rows()}, d.straight != 0 ? d.rows : nullptr, bytes}, d.outRows});
  }

  // Delivers the data that came beside the current rows.
  MOE_LANES void takeBeside(const Taken& taken, const LlHand& hand) const {
    const DispatchArgs& d = s_.args;
    const LlRows rows{s_.handle, hand.begin, hand.end, 0, 0};
    const LlTakenArrivals<Tabled> arrivals{taken, hand};
    if (d.outRows != nullptr && d.sideBytes != 0 && d.outSide != nullptr) {
      const PartShare share = shareOf({hand.begin, hand.end}, Parts{1, d.sideBytes}, d.sideBytes, blockTeam());
      const LlTakenSource<Tabled> from{{taken, s_.side()}, d.straight != 0 ? d.side : nullptr, d.sideBytes};
      s_.warp.streamRows(
          Delivered<LlRows, LlTakenArrivals<Tabled>, LlTakenSource<Tabled>>{{rows, share}, arrivals, from, d.outSide});
    }
    llDeliverScales(s_, rows, arrivals, LlTakenSlots<Tabled>{taken, s_.rows()}, blockTeam());
    if (d.payloads.count != 0) llTakePayloads(s_.warp, s_.p, s_.w, hand.begin, hand.end);
  }

  // Keeps the headers of the rows at hand in the handle, with final rows. If `describing`, it also fills the caller's
  // arrays from them.
  MOE_LANES void keepHeaders(const Taken& taken, const LlHand& hand, bool describing) const {
    const HandleView& h = s_.handle;
    const Slice slice = lanesOf<Warp>((hand.end - hand.begin) * h.topk, warps_ - 1 - inBlock_, warps_);
    const auto rowOf = [&](int i) { return h.byTopk.of(slice.begin + i); };
    if (describing && !expertRows(h)) {
      s_.warp.forEach(slice.count, [&](int i) {
        const int row = rowOf(i);
        laneDescribeNothing(h, s_.args, taken.place(hand, hand.begin + row, 0), slice.begin + i - row * h.topk);
      });
      block_.warp.forEach(0, [](int) {});  // the lanes of a row may be of several warps
    }
    s_.warp.forEach(slice.count, [&](int i) {
      const int row = rowOf(i);
      taken.laneKeepEntry(s_.args, hand, hand.begin + row, slice.begin + i - row * h.topk, describing);
    });
  }

  const S s_;
  const Tabled block_;
  const int warps_, inBlock_;
};

// A dispatch that carries nothing special has short code of its own, because a step of few tokens waits mostly for its
// instructions.
template <Moves Warp>
MOE_LANES bool llIsPlain(const StepParams& p) {
  const HandleView& h = p.handle;
  const DispatchArgs& d = p.dispatch;
  return d.cast.type == kNoCast && d.sideBytes == 0 && d.padding == 0 && h.placement == nullptr && h.merges == 0 &&
         h.arrivals == 0 && !(Warp::kPuts && p.comm.split());
}
template <Gathers Warp>
MOE_LANES void llRouteDispatch(const Warp& warp, const StepParams& p, WarpIndex w) {
  const auto& wide = warp.wide();
  if (llIsPlain<Warp>(p)) {
    LlRouteDispatch<Warp, true>(warp, wide, p, w).run();
  } else {
    LlRouteDispatch<Warp, false>(warp, wide, p, w).run();
  }
}

}  // namespace moe
