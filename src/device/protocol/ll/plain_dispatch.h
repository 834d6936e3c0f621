// The dispatches that route, with nothing beside the rows: of RANK_MAJOR rows that stay in their slots, which most
// decoders run in each layer (README.md, "Dispatch into slots"), and of rows that go to their places ("Dispatch to
// places"). Their warps are blocks.
#pragma once

#include "device/protocol/ll/block_dispatch.h"

namespace moe {

// Rows stay in their slots.
template <Blocks Warp>
class LlSlotDispatch : LlBlockDispatch<Warp, false> {
 public:
  static MOE_LANES void run(const Warp& warp, const StepParams& p, WarpIndex w) {
    Base::template runAs<LlSlotDispatch>(warp, p, w);
  }

 private:
  using Base = LlBlockDispatch<Warp, false>;
  friend Base;
  using Base::Base, Base::s_, Base::t_;
  using typename Base::Kept, typename Base::Taken;

  MOE_LANES void receive() const {
    const Taken taken(t_);
    const bool last = isLast(s_.w), describing = describes(s_.args);
    const Kept kept = this->lookAtKept();
    if (!taken.await(s_.rowFlags(), s_.epoch)) return;
    const Slice mine = keptHere(taken.rows());
    for (int done = 0; done == 0 || done < mine.count; done += kLlRowsAtOnce) {
      const int left = mine.count - done;
      const Slice rows{mine.begin + done, left < kLlRowsAtOnce ? left : kLlRowsAtOnce};
      look(taken, rows, done == 0, last, describing);
      if (describing && taken.verdict() == kLlGood && rows.count > 0) describe(taken, rows);
    }
    this->keepRoute(taken, kept);
  }

  // The arriving rows whose headers this block keeps.
  MOE_LANES Slice keptHere(int rows) const {
    const int keepers = s_.w.count > 1 ? s_.w.count - 1 : 1;
    return s_.w.index < keepers ? sliceOf(rows, {s_.w.index, keepers, keepers}) : Slice{0, 0};
  }
  // Looks up at once the headers of some rows, which the handle keeps, and with the first rows the metadata of all
  // ranks: terms, for a block that computes the verdict, and counts, for the last block.
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
        if (i - termsAt < terms) taken.laneJudge(i - termsAt, taken.laneTerms(i - termsAt));
        return;
      }
      if (i >= quads) return;
      const int at = h.byHeader.of(i);
      const Quad quad = taken.laneHeaderQuad(rows.begin + at, i - at * stride);
      kept[i] = quad;
      if (describing) t_.headers()[i] = quad;
    });
  }
  // Fills the caller's arrays about rows that have been looked up.
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
};

// Rows go to their places.
template <Blocks Warp>
class LlPlacedDispatch : LlBlockDispatch<Warp, true> {
 public:
  static MOE_LANES void run(const Warp& warp, const StepParams& p, WarpIndex w) {
    Base::template runAs<LlPlacedDispatch>(warp, p, w);
  }

 private:
  using Base = LlBlockDispatch<Warp, true>;
  friend Base;
  using Base::Base, Base::s_, Base::t_, Base::share_;
  using typename Base::Kept, typename Base::Tables, typename Base::Taken;

  MOE_LANES void receive() const {
    const Taken taken(t_);
    const Kept kept = this->lookAtKept();
    if (!taken.await(s_.rowFlags(), s_.epoch)) return;
    const LlShare mine = LlShare::of(taken.rows(), s_.w.count > 1, s_.w);
    const LlRowPart part = LlRowPart::of(mine, s_.args.rowBytes);
    const bool last = isLast(s_.w);
    MOE_ROLLED
    for (int begin = mine.first; begin < mine.end || (last && begin == mine.first); begin += kLlRowsAtOnce) {
      const int end = mine.end - begin < kLlRowsAtOnce ? mine.end : begin + kLlRowsAtOnce;
      const LlHand hand{begin, end, begin == mine.first};
      const bool delivered = s_.warp.streamRows(Delivered{*this, taken, hand, part});
      if ((taken.verdict() & (kLlRefused | kLlStranger)) != 0) break;
      if (mine.sharer == 0) keepHeaders(taken, hand, delivered && describes(s_.args));
    }
    this->keepRoute(taken, kept);
  }

  // A list for streamRows that brings a block's part of some rows from their slots to their places.
  struct Delivered {
    const LlPlacedDispatch& d;
    const Taken& taken;
    LlHand hand;
    LlRowPart part;

    template <class Start>
    MOE_LANES bool mayPlace(Start start) const {
      return d.look(taken, hand, start);
    }
    MOE_LANES int count() const { return hand.end - hand.begin; }
    MOE_LANES int sinksMax() const { return expertRows(d.s_.handle) ? d.s_.handle.topk : 1; }
    MOE_LANES CopyJob job(int i) const {
      const Arrival at = taken.arrival(hand.begin + i);
      const std::uint8_t* row = d.t_.arrived()[at.from] + std::int64_t{at.index} * d.s_.args.rowBytes;
      return {row + part.begin, part.bytes, sinksMax()};
    }
    MOE_LANES Sink sink(int i, int copy) const {
      if (copy >= taken.copies(hand, hand.begin + i)) return {nullptr, nullptr, true};
      const std::int64_t place = d.placeOf(taken, hand, hand.begin + i, copy);
      return {d.s_.args.outRows + place * d.s_.args.rowBytes + part.begin, nullptr, true};
    }
  };

  // Looks up at once the headers of the rows at hand and, with a block's first rows, the metadata of all ranks. Calls
  // start() meanwhile. True if the rows may go to their places.
  template <class Start>
  MOE_LANES bool look(const Taken& taken, const LlHand& hand, Start start) const {
    const HandleView& h = s_.handle;
    const bool byExpert = expertRows(h);
    const int stride = h.headerStride(), quads = (hand.end - hand.begin) * stride;
    const int terms = hand.first ? s_.comm.nranks : 0,
              experts = hand.first && (byExpert || isLast(s_.w)) ? h.map.count(s_.comm.rank) : 0;
    const int termsAt = wholeWarps<Warp>(quads), expertsAt = termsAt + wholeWarps<Warp>(terms);
    s_.warp.collectBeside(
        expertsAt + experts,
        [&](int i) -> LlTold {
          if (i >= expertsAt) return taken.laneCounts(i - expertsAt);
          if (i >= termsAt) return i - termsAt < terms ? taken.laneTerms(i - termsAt) : LlTold{};
          if (i >= quads) return {};
          const int at = h.byHeader.of(i);
          return LlTold::of(taken.laneHeaderQuad(hand.begin + at, i - at * stride), {});
        },
        [&](int i, const LlTold& told) {
          if (i >= expertsAt) return taken.laneAddUp(i - expertsAt, told);
          if (i >= termsAt) {
            if (i - termsAt < terms) taken.laneJudge(i - termsAt, told);
          } else if (i < quads) {
            t_.headers()[i] = told.quad(0);
          }
        },
        start);
    if ((taken.verdict() & (kLlRefused | kLlStranger)) != 0) return false;
    if (hand.first && byExpert && (isLast(s_.w) || h.layout == Layout::expertMajor)) taken.findExpertOffsets();
    if (byExpert) {
      s_.warp.forEach((hand.end - hand.begin) * h.topk, [&](int i) {
        const int at = h.byTopk.of(i);
        taken.lanePlace(hand, hand.begin + at, i - at * h.topk);
      });
    }
    return this->delivers(taken);
  }
  // Valid when the rows have been looked up.
  MOE_LANES int placeOf(const Taken& taken, const LlHand& hand, int row, int copy) const {
    return expertRows(s_.handle) ? entryRow(taken.header(hand, row)[1 + copy]) : taken.place(hand, row, copy);
  }

  // Keeps the headers of the rows at hand in the handle, with final rows. If `describing`, it also fills the caller's
  // arrays from them.
  MOE_LANES void keepHeaders(const Taken& taken, const LlHand& hand, bool describing) const {
    const HandleView& h = s_.handle;
    const int entries = (hand.end - hand.begin) * h.topk;
    if (describing && !expertRows(h)) {
      s_.warp.each(entries, [&](int i) {
        const int row = hand.begin + h.byTopk.of(i);
        laneDescribeNothing(h, s_.args, taken.place(hand, row, 0), i - (row - hand.begin) * h.topk);
      });
      s_.warp.forEach(0, [](int) {});
    }
    s_.warp.each(entries, [&](int i) {
      const int at = h.byTopk.of(i), row = hand.begin + at, n = i - at * h.topk;
      const Quad* came = taken.header(hand, row);
      const Quad head = came[0];
      if (n >= headEntries(head)) return;
      Quad* kept = h.arriving.headers + std::int64_t{row} * h.headerStride();
      if (n == 0) kept[0] = head;
      kept[1 + n] = came[1 + n];
      if (describing) laneDescribe(h, s_.args, head, came[1 + n], n, placeOf(taken, hand, row, n));
    });
  }
};

}  // namespace moe
