// The common part of the plain dispatches that route: how rows leave, and the counts for the handle and the host. Their
// warps are blocks, and they bring nothing beside the rows, or the scales of their cast. A step of few tokens waits for
// instructions, so they have code of their own, which does nothing that they do not need. Their metadata is that of
// LlRouteDispatch. README.md, "Dispatch into slots".
//
// A warp of the policy is a block here: all its lanes work together. The last of several blocks has no rows. It counts
// the users of all buckets, sends these counts, and reads the metadata of the other ranks. Work that needs only the
// call's arguments is done before the step follows its predecessor.
#pragma once

#include "device/protocol/ll/route_dispatch.h"
#include "device/protocol/ll/slot_places.h"
#include "device/view/steps.h"

namespace moe {

static_assert(kNoCast == 0 && kSlotRanksMax <= 32, "routesPlainly, and a bit for each rank");
static_assert(kCastTypeBits == kCastTypes && castBlockElements(kFp8CastLast) == 128 &&
                  castBlockElements(kFp8CastLast + 1) != 128,
              "castsToFp8");

// What a dispatch casts its rows to: nothing, one of the formats of castsToFp8(), or any format.
enum class RowCast { none, fp8, any };

// A block with its tables.
template <Blocks Warp>
struct PlainBlock : LlBlock<Warp, true> {
  static constexpr bool kPrepared = true;
  using LlBlock<Warp, true>::LlBlock;
};

// For a dispatch that follows a dispatch of the same set. The first block also tells others that slots are free.
template <Moves Warp>
MOE_SELDOM bool llAwaitSlots(Warp warp, const StepParams& p, WarpIndex w, Operation operation) {
  const LlSession<Warp> s(warp, p, w, operation);
  const std::uint64_t free = llFlags(s.comm, s.handle, s.comm.at.llFree);
  tellFree(s, free);
  return s.waitForAll(free, s.epoch, Phase::dispatchSlots);
}

// For a dispatch in two parts, when the last block has sent.
template <Moves Warp>
MOE_SELDOM void llEndFirstPart(Warp warp, const StepParams& p, WarpIndex w, Operation operation) {
  llEndSend(LlSession<Warp>(warp, p, w, operation), false);
}

// `kPlaced`: the receivers move rows to places, perhaps by experts. `kCast`: rows are cast when they leave. `kMore`:
// the handle may merge, and the last block fills arrays for the caller (asksForMore).
template <Blocks Warp, bool kPlaced, RowCast kCast, bool kMore>
class LlBlockDispatch {
 protected:
  static constexpr bool kCasts = kCast != RowCast::none;
  using S = LlSession<Warp>;
  using Tables = PlainBlock<Warp>;
  using Places = LlSlotPlaces<Warp, kPlaced, kMore>;
  using Counts = LlSlotCounts<Warp, kMore>;
  using Taken = LlTaken<Tables>;

  // The block's tokens, and its part of each of their rows.
  struct Share : LlShare {
    LlRowPart part;
    std::uint64_t source;  // address of the part of the first token
    int firstRank;         // goes first: blocks begin with different ranks, so that all links are in use

    MOE_LANES Share(const DispatchArgs& d, const CommView& c, WarpIndex w)
        : LlShare(LlShare::of(d.tokens, w.count > 1, w)),
          part(kCasts ? LlRowPart::of(*this, static_cast<std::uint32_t>(d.cast.elements), kCastTileElements)
                      : LlRowPart::of(*this, d.rowBytes)),
          source(reinterpret_cast<std::uint64_t>(d.rows) + static_cast<std::uint64_t>(first) * givenBytes(d) +
                 std::uint64_t{part.begin} * unitBytes(d)),
          firstRank((w.index + c.rank + 1) % c.nranks) {}
  };
  // Bytes of one of the caller's rows, and of a unit of LlRowPart.
  static MOE_LANES std::uint32_t unitBytes(const DispatchArgs& d) {
    return kCasts ? static_cast<std::uint32_t>(elementBytes(d.cast.rowType)) : 1;
  }
  static MOE_LANES std::uint32_t givenBytes(const DispatchArgs& d) {
    return kCasts ? static_cast<std::uint32_t>(d.cast.elements) * unitBytes(d) : d.rowBytes;
  }

  // The epoch is not known before rows have left: to compute it at once would be to wait for a look-up.
  MOE_LANES LlBlockDispatch(const Warp& warp, const StepParams& p, WarpIndex w, const Share& share)
      : LlBlockDispatch(warp, p, w, share, {llChannel(kLlDispatchChannel, p.handle.llSet), 0, 0}) {}
  MOE_LANES LlBlockDispatch(const Warp& warp, const StepParams& p, WarpIndex w, const Share& share,
                            const Operation& operation)
      : s_(warp, p, w, operation),
        t_(warp, p, w, operation),
        share_(share),
        started_(p.comm.state->epoch[operation.channel]),
        uncombined_(p.comm.state->llUncombined[p.handle.llSet]) {}

  // Dispatch: a class that derives from this one.
  template <class Dispatch>
  static MOE_LANES void runAs(const Warp& warp, const StepParams& p, WarpIndex warpOfAll) {
    const WarpIndex w{warpOfAll.index, warpOfAll.count, warpOfAll.count};
    const LlTables tables(warp, p.handle, w.index);
    const Share share(p.dispatch, p.comm, w);
    Places::prepare(warp, p, tables, share.first);
    const std::uint64_t began = warp.follow();
    Dispatch dispatch(warp, p, w, share);
    S& s = dispatch.s_;
    if (s.sends ? !dispatch.send(began) : warp.stopped(p.comm)) return;
    s.epoch = dispatch.t_.epoch = dispatch.epoch();
    warp.noteStart(began);
    if (s.receives) return dispatch.receive();
    if (isLast(w)) llEndFirstPart(warp, p, w, s.operation());
  }

  // ---- Sending

  // The block's part of the rows of some tokens, on its way to their slots.
  struct Leaving {
    const LlBlockDispatch& d;
    const Places& places;
    std::uint64_t began;

    template <class Start>
    MOE_LANES bool mayPlace(Start start) const {
      return d.mayGo(places, began, start);
    }
    MOE_LANES int count() const { return places.size(); }
    MOE_LANES int sinksMax() const { return d.s_.comm.nranks; }
    MOE_LANES const std::uint8_t* given(int i) const {
      const auto before = static_cast<std::uint64_t>(places.first() + i - d.share_.first) * givenBytes(d.s_.args);
      return reinterpret_cast<const std::uint8_t*>(d.share_.source + before);
    }
    MOE_LANES int rankOf(int turn) const {
      const int next = d.share_.firstRank + turn;
      return next < d.s_.comm.nranks ? next : next - d.s_.comm.nranks;
    }
  };
  // A list for streamRows.
  struct Rows : Leaving {
    MOE_LANES CopyJob job(int i) const { return {this->given(i), this->d.share_.part.size, this->d.s_.comm.nranks}; }
    MOE_LANES Sink sink(int i, int turn) const {
      const int rank = this->rankOf(turn);
      std::uint8_t* slot = this->places.slot(i, rank);
      return {slot == nullptr ? nullptr : slot + this->d.share_.part.begin, nullptr, rank == this->d.s_.comm.rank};
    }
  };
  // A list for castRows. In its slot a row is one piece of memory.
  struct Casts : Leaving {
    static constexpr bool kFp8Alone = kCast == RowCast::fp8;
    MOE_LANES int rowType() const { return cast().rowType; }
    MOE_LANES CastRule rule() const { return {cast().type, cast().inputScale, cast().globalScale, cast().rowWeights}; }
    MOE_LANES CastJob job(int i) const {
      const float weight = cast().rowWeights != nullptr ? cast().rowWeights[this->places.first() + i] : 1.0f;
      return {this->given(i), static_cast<int>(this->d.share_.part.size), this->d.s_.comm.nranks, weight};
    }
    MOE_LANES CastSink sink(int i, int turn) const {
      std::uint8_t* slot = this->places.slot(i, this->rankOf(turn));
      if (slot == nullptr) return {};
      const int begin = static_cast<int>(this->d.share_.part.begin), type = cast().type;
      CastSink place = castPiece(slot, cast().codeBytes);
      place.codes += castCodeBytes(type, begin);
      place.scales += std::ptrdiff_t{begin / kCastTileElements} * castScaleBytes(type);
      return place;
    }

   private:
    MOE_LANES const CastArgs& cast() const { return this->d.s_.args.cast; }
  };

  // False if a wait failed, or the rank is to stop. The first block also tells others that slots are free.
  MOE_LANES bool send(std::uint64_t began) const {
    MOE_ROLLED
    for (int first = share_.first; first < share_.end || (s_.w.index == 0 && first == share_.first);) {
      if (first != share_.first) Places::prepareAgain(s_.warp, s_.p, s_.w.index, first);
      const int end = share_.end - first < kLlTokensAtOnce ? share_.end : first + kLlTokensAtOnce;
      const Places places(s_.warp, s_.p, t_, {first, end});
      if (!leave(Leaving{*this, places, began})) return false;
      first += kLlTokensAtOnce;
    }
    if (share_.leads && !tellCounts(began)) return false;
    s_.announceRows(
        s_.rowFlags(), [&](int rank) { return share_.leads ? Counts::moreTo(s_.p, t_, rank) : 0; }, Meeting::rows,
        s_.w);
    return true;
  }
  MOE_LANES bool leave(const Leaving& rows) const {
    if constexpr (kCasts) {
      return s_.warp.castRows(Casts{rows});
    } else {
      return s_.warp.streamRows(Rows{rows});
    }
  }
  // All lanes call it. The loads of rows begin after the look-ups. The last lanes store headers, because the first
  // ones look up where rows go.
  template <class Start>
  MOE_LANES bool mayGo(const Places& places, std::uint64_t began, Start start) const {
    std::uint32_t waits = uncombined_;
    if (!places.count(start, waits)) return false;
    if (waits != 0 && !waitForSlots(began)) return false;
    if (share_.sharer == 0) places.storeHeaders();
    return true;
  }
  MOE_LANES bool tellCounts(std::uint64_t began) const {
    if (share_.first < share_.end) Places::prepareAgain(s_.warp, s_.p, s_.w.index, 0);
    const Counts counts(s_.warp, s_.p, t_);
    std::uint32_t waits = uncombined_;
    if (!counts.count(waits)) return false;
    if (waits != 0 && !waitForSlots(began)) return false;
    counts.store();
    return true;
  }
  MOE_LANES bool waitForSlots(std::uint64_t began) const {
    s_.warp.noteStart(began);
    return llAwaitSlots(s_.warp, s_.p, s_.w, {s_.channel, epoch(), 0});
  }
  // Valid when started_ has come. Holding it keeps the compiler from adding earlier. A set serves one operation at a
  // time, so a receiving step finds the epoch of its sending step there.
  MOE_LANES std::uint64_t epoch() const {
    std::uint64_t started = started_;
    s_.warp.hold(started);
    return started + (s_.sends ? 1 : 0);
  }

  // ---- Counts and faults, which the last block keeps

  // One lane of the last block calls it when the flags of all ranks have come. A sending step has noted this before.
  MOE_LANES void laneNoteWhole() const {
    if (s_.sends) llLaneNoteSent(s_, false);
  }

  // Words that the last block looks up before the wait.
  struct Kept {
    std::uint32_t ticket, fault;
  };
  MOE_LANES Kept lookAtKept() const {
    const bool last = isLast(s_.w);
    Kept kept{last ? latestRoute(s_.handle) : 0, last ? s_.handle.state->fault : 0};
    s_.warp.hold(kept.ticket, kept.fault);
    return kept;
  }

  // Lanes of the last block keep counts for the handle and for the host as soon as they know them. If the route turns
  // out to be refused, other counts follow.
  MOE_LANES void laneKeepExpert(const Taken& taken, const Kept& kept, int e) const {
    const std::int32_t count = taken.laneAddUpExpert(e);
    s_.handle.arriving.rowsPerExpert[e] = count;
    s_.handle.countsPerExpert()[e] = countWord(kept.ticket, count);
  }
  // `rank` may be the number of ranks. `before`: the rows of the ranks before it.
  MOE_LANES void laneKeepRank(const Kept& kept, int rank, int before) const {
    s_.handle.arriving.rankOffsets[rank] = before;
    if (rank < s_.comm.nranks) s_.handle.countsPerRank()[rank] = countWord(kept.ticket, t_.rankRows()[rank]);
  }

  // Valid after the look-ups: whether rows go to their places.
  MOE_LANES bool delivers(const Taken& taken) const {
    return taken.verdict() == kLlGood && taken.layoutRows() <= s_.args.capacity;
  }

  // Keeps the route for the handle and the host.
  MOE_LANES void keepRoute(const Taken& taken, const Kept& kept) const {
    if (!isLast(s_.w) || (taken.verdict() & kLlStranger) != 0) return;
    if ((taken.verdict() & kLlRefused) != 0) {
      if constexpr (kPlaced) describeNothing(s_.warp, s_.p, taken.filled(), WarpIndex{0, 1, 1});
      if constexpr (kMore) describeNoArrivals(s_.warp, s_.p);
      return llMakeEmptyRoute(s_.warp, s_.p, WarpIndex{0, 1, 1}, s_.operation());
    }
    const bool good = delivers(taken), usual = good && kept.fault == 0;
    tellCounts(taken, kept.ticket, usual);
    if constexpr (kPlaced) {
      if (good && s_.handle.layout == Layout::expertMajor) copyExpertOffsets(s_, taken.expertOffsets());
    }
    if (!usual) endUnusually(s_.warp, s_.p, s_.w, s_.operation(), good);
  }
  // Ends a route that ends a fault, or, if it is not `good`, one whose rows do not fit.
  static MOE_SELDOM void endUnusually(Warp warp, const StepParams& p, WarpIndex w, Operation operation, bool good) {
    const Tables t(warp, p, w, operation);
    const Taken taken(t);
    if (kPlaced && !good) describeNothing(warp, p, taken.filled(), WarpIndex{0, 1, 1});
    warp.forEach(0, [](int) {});
    beginRoute(t);
    if (kMore && !good) describeNoArrivals(warp, p);
    if (!good) llKeepFault(warp, p, taken.layoutRows());
    tellRows(t, taken.rows(), true);
  }
  // Stores the counts that were not known before the verdict. The host gets `rows` only if this call `ends` the route,
  // because nothing else changes after it.
  MOE_LANES void tellCounts(const Taken& taken, std::uint32_t ticket, bool ends) const {
    const HandleView& h = s_.handle;
    const int rows = taken.rows(), experts = h.map.count(s_.comm.rank);
    const bool grouped = kPlaced && h.layout == Layout::expertMajor;
    const bool addsUp = kMore && s_.comm.waits == nullptr && delivers(taken);
    const int told = kMore || grouped ? wholeWarps<Warp>(experts + 1) : 0;
    s_.warp.each(told + 1, [&](int i) {
      if (i < told) {
        if (i > experts) return;
        if (grouped) h.arriving.expertOffsets[i] = t_.expertOffsets()[i];
        if (!kMore || i == experts) return;
        const std::int32_t count = t_.rowsPerExpert()[i];
        if (s_.p.describe.rowsPerExpert != nullptr) s_.p.describe.rowsPerExpert[i] = count;
        if (addsUp && s_.p.tally.callRows != nullptr) s_.p.tally.callRows[i] += count;
        return;
      }
      const int layout = taken.layoutRows();
      *h.arriving.rows = h.sent.flatRowsOf[s_.comm.rank] = rows;
      h.sent.layoutRowsOf[s_.comm.rank] = layout;
      h.counts->layoutRows = countWord(ticket, layout);
      if (!ends) return;
      h.state->routes = ticket;
      s_.warp.laneStore(&h.counts->rows, countWord(ticket, rows));
    });
  }

  S s_;
  Tables t_;
  const Share share_;
  const std::uint64_t started_;     // the epoch of the set's last sending step
  const std::uint32_t uncombined_;  // not 0: the set's last operation was a dispatch
};

}  // namespace moe
