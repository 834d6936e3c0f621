// A dispatch that routes, of RANK_MAJOR rows that stay in their slots and bring nothing else (dispatchesIntoSlots):
// what most decoders run in each layer. A step of few tokens waits for instructions, so it has code of its own, which
// does nothing that such a dispatch does not need. What ranks tell each other is what LlRouteDispatch tells. README.md,
// "Dispatch into slots".
//
// A warp of the policy is a block here: all its lanes work together. The last of several blocks has no rows. It counts
// what all tokens use, tells that, and takes what others have told. What needs nothing but the call's arguments is done
// before the step follows its predecessor.
#pragma once

#include "device/protocol/ll/route_dispatch.h"
#include "device/protocol/ll/slot_places.h"
#include "device/view/steps.h"

namespace moe {

static_assert(kNoCast == 0 && kSlotRanksMax <= 32, "dispatchesIntoSlots, and a bit for each rank");

template <Blocks Warp>
class LlSlotDispatch {
 public:
  static MOE_LANES void run(const Warp& warp, const StepParams& p, WarpIndex warpOfAll) {
    const WarpIndex w{warpOfAll.index, warpOfAll.count, warpOfAll.count};
    const LlTables tables(warp, p.handle, w.index);
    const Share share(p.dispatch, w);
    LlSlotPlaces<Warp>::prepare(warp, p, tables);
    const std::uint64_t began = warp.follow();
    LlSlotDispatch(warp, p, w, share).run(began);
  }

 private:
  using S = LlSession<Warp>;
  using Tables = LlBlock<Warp, true>;
  using Places = LlSlotPlaces<Warp>;
  using Counts = LlSlotCounts<Warp>;
  using Taken = LlTaken<Tables>;

  // The block's tokens, and its part of each of their rows.
  struct Share : LlShare {
    LlRowPart part;
    std::uint64_t source;  // address of the first one's

    MOE_LANES Share(const DispatchArgs& d, WarpIndex w)
        : LlShare(LlShare::of(d.tokens, w.count > 1, w)),
          part(LlRowPart::of(*this, d.rowBytes)),
          source(reinterpret_cast<std::uint64_t>(d.rows) + static_cast<std::uint64_t>(first) * d.rowBytes +
                 part.begin) {}
  };

  MOE_LANES LlSlotDispatch(const Warp& warp, const StepParams& p, WarpIndex w, const Share& share)
      : s_(warp, p, w), t_(warp, p, w, s_.operation()), share_(share) {}

  MOE_LANES void run(std::uint64_t began) const {
    if (!send(began)) return;
    s_.warp.noteStart(began);
    receive();
  }

  // ---- Sending

  // The block's part of the rows of some tokens, to their slots: a list for streamRows.
  struct Rows {
    const LlSlotDispatch& d;
    const Places& places;
    std::uint64_t began;

    MOE_LANES bool mayPlace() const { return d.mayGo(places, began); }
    MOE_LANES int count() const { return places.size(); }
    MOE_LANES int sinksMax() const { return d.s_.comm.nranks; }
    MOE_LANES CopyJob job(int i) const {
      const auto before = static_cast<std::uint64_t>(places.first() + i - d.share_.first) * d.s_.args.rowBytes;
      return {reinterpret_cast<const std::uint8_t*>(d.share_.source + before), d.share_.part.bytes, d.s_.comm.nranks};
    }
    MOE_LANES Sink sink(int i, int rank) const {
      std::uint8_t* slot = places.slot(i, rank);
      return {slot == nullptr ? nullptr : slot + d.share_.part.begin, nullptr, rank == d.s_.comm.rank};
    }
  };

  // False if a wait failed, or the rank is to stop. The first block also tells others that slots are free.
  MOE_LANES bool send(std::uint64_t began) const {
    MOE_ROLLED
    for (int first = share_.first; first < share_.end || (s_.w.index == 0 && first == share_.first);) {
      if (first != share_.first) Places::prepareAgain(s_.warp, s_.p, t_);
      const int end = share_.end - first < kLlTokensAtOnce ? share_.end : first + kLlTokensAtOnce;
      const Places places(s_.warp, s_.p, t_, {first, end});
      if (!s_.warp.streamRows(Rows{*this, places, began})) return false;
      first += kLlTokensAtOnce;
    }
    if (share_.leads && !tellCounts(began)) return false;
    s_.announceRows(
        s_.rowFlags(), [&](int rank) { return share_.leads ? Counts::moreTo(s_.p, t_, rank) : 0; }, Meeting::rows,
        s_.w);
    return true;
  }
  // All lanes, when the rows are on their way to them. Headers are stored by the last lanes, as the first ones look up
  // where rows go.
  MOE_LANES bool mayGo(const Places& places, std::uint64_t began) const {
    if (!places.count()) return false;
    if (places.waitsForSlots() && !waitForSlots(began)) return false;
    if (share_.sharer == 0) places.storeHeaders();
    return true;
  }
  MOE_LANES bool tellCounts(std::uint64_t began) const {
    if (share_.first < share_.end) Places::prepareAgain(s_.warp, s_.p, t_);
    const Counts counts(s_.warp, s_.p, t_);
    if (!counts.count()) return false;
    if (counts.waitsForSlots() && !waitForSlots(began)) return false;
    counts.store();
    return true;
  }
  MOE_LANES bool waitForSlots(std::uint64_t began) const {
    s_.warp.noteStart(began);
    const std::uint64_t free = llFlags(s_.comm, s_.handle, s_.comm.at.llFree);
    tellFree(s_, free);
    return s_.waitForAll(free, s_.epoch, Phase::dispatchSlots);
  }

  // ---- Receiving

  MOE_LANES void receive() const {
    const Taken taken(t_);
    const bool last = isLast(s_.w), describing = describes(s_.args);
    // Looked up before the wait.
    std::uint32_t ticket = last ? latestRoute(s_.handle) : 0, fault = last ? s_.handle.state->fault : 0;
    s_.warp.hold(ticket, fault);
    if (!taken.await(s_.rowFlags(), s_.epoch)) return;
    const Slice mine = keptHere(taken.rows());
    for (int done = 0; done == 0 || done < mine.count; done += kLlRowsAtOnce) {
      const int left = mine.count - done;
      const Slice rows{mine.begin + done, left < kLlRowsAtOnce ? left : kLlRowsAtOnce};
      look(taken, rows, done == 0, last, describing);
      if (describing && taken.verdict() == kLlGood && rows.count > 0) describe(taken, rows);
    }
    if (last && (taken.verdict() & kLlStranger) == 0) keepRoute(taken, ticket, taken.verdict(), fault != 0);
  }

  // Of the rows that came, those whose headers this block keeps.
  MOE_LANES Slice keptHere(int rows) const {
    const int keepers = s_.w.count > 1 ? s_.w.count - 1 : 1;
    return s_.w.index < keepers ? sliceOf(rows, {s_.w.index, keepers, keepers}) : Slice{0, 0};
  }
  // Looks up, all at once, headers of some rows, which the handle keeps, and with the first of them what ranks have
  // told: terms, for a block that comes to a verdict, and counts, for the last one.
  MOE_LANES void look(const Taken& taken, Slice rows, bool first, bool last, bool describing) const {
    const HandleView& h = s_.handle;
    const int stride = h.headerStride(), quads = rows.count * stride;
    const int terms = first && (last || describing) ? s_.comm.nranks : 0,
              experts = last && first ? h.map.count(s_.comm.rank) : 0;
    const int termsAt = wholeWarps<Warp>(quads), expertsAt = termsAt + wholeWarps<Warp>(terms);
    Quad* kept = h.arriving.headers + std::int64_t{rows.begin} * stride;
    s_.warp.forEach(expertsAt + experts, [&](int i) {
      if (i >= expertsAt) return taken.laneAddUpExpert(i - expertsAt);
      if (i >= termsAt) {
        if (i - termsAt < terms) taken.laneLookAtTerms(i - termsAt);
        return;
      }
      if (i >= quads) return;
      const int at = h.byHeader.of(i);
      const Quad quad = taken.laneHeaderQuad(rows.begin + at, i - at * stride);
      kept[i] = quad;
      if (describing) t_.headers()[i] = quad;
    });
  }
  // Of rows that have been looked up.
  MOE_LANES void describe(const Taken& taken, Slice rows) const {
    const HandleView& h = s_.handle;
    const auto each = [&](auto tell) {
      s_.warp.each(rows.count * h.topk, [&](int i) {
        const int at = h.byTopk.of(i);
        const Arrival from = taken.arrival(rows.begin + at);
        tell(t_.headers() + at * h.headerStride(), from.from * h.tokensMax + from.index, i - at * h.topk);
      });
      s_.warp.forEach(0, [](int) {});
    };
    each([&](const Quad*, int place, int k) { laneDescribeNothing(h, s_.args, place, k); });
    each([&](const Quad* header, int place, int n) {
      if (n < headEntries(header[0])) laneDescribe(h, s_.args, header[0], header[1 + n], n, place);
    });
  }

  // The last block: what the handle and the host get to know.
  MOE_LANES void keepRoute(const Taken& taken, std::uint32_t ticket, std::uint32_t verdict, bool hadFault) const {
    if ((verdict & kLlRefused) != 0) {
      s_.warp.each(1, [&](int) { llLaneNoteSent(s_, false); });
      return llMakeEmptyRoute(s_.warp, s_.p, WarpIndex{0, 1, 1}, s_.operation());
    }
    const int rows = taken.rows();
    const bool usual = verdict == kLlGood && !hadFault;
    keepCounts(rows, ticket, usual);
    if (usual) return;
    s_.warp.forEach(0, [](int) {});
    beginRoute(s_);
    if (verdict != kLlGood) llKeepFault(s_.warp, s_.p, taken.layoutRows());
    tellRows(s_, rows, true);
  }
  // Counts, for the handle and for the host, who is told `rows` only if `ends`: nothing else changes.
  MOE_LANES void keepCounts(int rows, std::uint32_t ticket, bool ends) const {
    const HandleView& h = s_.handle;
    const int rank = s_.comm.rank, ranks = s_.comm.nranks, experts = h.map.count(rank);
    const int others = wholeWarps<Warp>(experts), end = others + wholeWarps<Warp>(ranks);
    s_.warp.each(end + 1, [&](int i) {
      if (i < experts) {
        const std::int32_t count = t_.rowsPerExpert()[i];
        h.arriving.rowsPerExpert[i] = count;
        h.hostPerExpert()[i] = countWord(ticket, count);
      } else if (i >= others && i < others + ranks) {
        const int from = i - others;
        h.arriving.rankOffsets[from] = t_.rankOffsets()[from];
        h.hostPerRank()[from] = countWord(ticket, t_.rankRows()[from]);
      } else if (i == end) {
        h.arriving.rankOffsets[ranks] = *h.arriving.rows = h.sent.flatRowsOf[rank] = rows;
        const int layout = layoutRows(h, rank, rows, 0);
        h.sent.layoutRowsOf[rank] = layout;
        h.hostCounts->layoutRows = countWord(ticket, layout);
        llLaneNoteSent(s_, false);  // this rank's own rows are there too
        if (!ends) return;
        h.state->routes = ticket;
        s_.warp.laneStore(&h.hostCounts->rows, countWord(ticket, rows));
      }
    });
  }

  const S s_;
  const Tables t_;
  const Share share_;
};

}  // namespace moe
