// The dispatches that route and bring nothing beside the rows, or the scales of their cast. In one, RANK_MAJOR rows
// stay in their slots (README.md, "Dispatch into slots"). In the other, rows go to their places ("Dispatch to places").
// Most decoders run one of them in each layer. Their warps are blocks.
#pragma once

#include "device/protocol/ll/block_dispatch.h"

namespace moe {

// Rows stay in their slots.
template <Blocks Warp>
class LlSlotDispatch : LlBlockDispatch<Warp, false, RowCast::none, false> {
 public:
  static MOE_LANES void run(const Warp& warp, const StepParams& p, WarpIndex w) {
    Base::template runAs<LlSlotDispatch>(warp, p, w);
  }

 private:
  using Base = LlBlockDispatch<Warp, false, RowCast::none, false>;
  friend Base;
  using Base::Base, Base::s_, Base::t_;
  using typename Base::Kept, typename Base::Taken;

  MOE_LANES void receive() const {
    const Taken taken(t_);
    const Kept kept = this->lookAtKept();
    if (!taken.awaitRows(s_.rowFlags(), s_.epoch)) return;
    const int keepers = s_.w.count > 1 ? s_.w.count - 1 : 1;
    if (s_.w.index < keepers) keepHeaders(taken, keepers);
    if (isLast(s_.w)) keepCounts(taken, kept);
  }

  // Keeps the headers of rows `own index, own index + keepers, ...` of each source, a Quad per lane. If the caller
  // wants rows described, it also looks up the terms of all ranks, because nothing is described if they differ.
  MOE_LANES void keepHeaders(const Taken& taken, int keepers) const {
    const HandleView& h = s_.handle;
    const int ranks = s_.comm.nranks, stride = h.headerStride(), quads = ranks * stride;
    const auto keep = [&](int i) {
      const int from = h.byHeader.of(i), quad = i - from * stride, rows = t_.rankRows()[from];
      Quad* const kept = h.arriving.headers + std::int64_t{taken.rowsBefore(from)} * stride + quad;
      MOE_ROLLED
      for (int index = s_.w.index; index < rows; index += keepers) {
        const int at = index * stride;
        kept[at] = s_.warp.laneLoad(taken.headerFrom(from, index) + quad);
      }
    };
    if (!describes(s_.args)) return s_.warp.each(quads, keep);
    const int termsAt = wholeWarps<Warp>(quads);
    s_.warp.forEach(termsAt + ranks, [&](int i) {
      if (i >= termsAt) return taken.laneJudge(i - termsAt, taken.laneTerms(i - termsAt));
      if (i < quads) keep(i);
    });
    if (taken.verdict() == kLlGood) describeHeaders(taken, keepers);
  }
  // Describes these rows, with a lane for each place of a token of a source. The lane looks up the whole header.
  MOE_LANES void describeHeaders(const Taken& taken, int keepers) const {
    const HandleView& h = s_.handle;
    s_.warp.each(s_.comm.nranks * h.topk, [&](int i) {
      const int from = h.byTopk.of(i), k = i - from * h.topk, rows = t_.rankRows()[from];
      MOE_ROLLED
      for (int index = s_.w.index; index < rows; index += keepers) {
        laneDescribePlace(taken.headerFrom(from, index), from * h.tokensMax + index, k);
      }
    });
  }
  // Describes place k of the token of row `row` of the layout.
  MOE_LANES void laneDescribePlace(const Quad* header, int row, int k) const {
    constexpr int kAtOnce = 8;
    const HandleView& h = s_.handle;
    const DispatchArgs& d = s_.args;
    const Quad head = s_.warp.laneLoad(header);
    int id = d.invalidId;
    float weight = 0.0f;
    MOE_ROLLED
    for (int first = 0;;) {
      Quad entries[kAtOnce];
      MOE_UNROLLED
      for (int j = 0; j < kAtOnce; ++j)
        entries[j] = s_.warp.laneLoad(header + 1 + (first + j < h.topk ? first + j : 0));
      MOE_UNROLLED
      for (int j = 0; j < kAtOnce; ++j) {
        if (first + j >= headEntries(head) || entryTopk(entries[j]) != k) continue;
        id = d.idBase + entryExpert(entries[j]);
        weight = entryWeight(entries[j]);
      }
      first += kAtOnce;
      if (first >= h.topk) break;
    }
    const std::int64_t place = std::int64_t{row} * h.topk + k;
    if (k == 0 && d.outSourceIndex != nullptr) d.outSourceIndex[row] = headSource(head) * h.tokensMax + headToken(head);
    if (d.outTopkWeights != nullptr) d.outTopkWeights[place] = weight;
    laneStoreId(h, d, place, id);
  }

  // Looks up terms and counts of all ranks at once, keeps the counts, and ends the route.
  MOE_LANES void keepCounts(const Taken& taken, const Kept& kept) const {
    const HandleView& h = s_.handle;
    const int ranks = s_.comm.nranks, experts = h.map.count(s_.comm.rank);
    const int offsetsAt = wholeWarps<Warp>(experts), termsAt = offsetsAt + wholeWarps<Warp>(ranks + 1);
    const int noteAt = termsAt + wholeWarps<Warp>(ranks);
    s_.warp.forEach(noteAt + 1, [&](int i) {
      if (i < experts) {
        this->laneKeepExpert(taken, kept, i);
      } else if (i >= offsetsAt && i - offsetsAt <= ranks) {
        this->laneKeepRank(kept, i - offsetsAt, taken.laneFindOffset(i - offsetsAt));
      } else if (i >= termsAt && i - termsAt < ranks) {
        taken.laneJudge(i - termsAt, taken.laneTerms(i - termsAt));
      } else if (i == noteAt) {
        this->laneNoteWhole();
      }
    });
    this->keepRoute(taken, kept);
  }
};

// Rows go to their places. `kCast`: they may be cast when they leave, and then their scales go to places too. `kMore`:
// rows of RANK_MAJOR may stay in their slots; see also LlBlockDispatch.
template <Blocks Warp, RowCast kCast, bool kMore>
class LlPlacedDispatch : LlBlockDispatch<Warp, true, kCast, kMore> {
 public:
  static MOE_LANES void run(const Warp& warp, const StepParams& p, WarpIndex w) {
    Base::template runAs<LlPlacedDispatch>(warp, p, w);
  }

 private:
  using Base = LlBlockDispatch<Warp, true, kCast, kMore>;
  friend Base;
  using Base::Base, Base::s_, Base::t_, Base::share_;
  using Base::kCasts;
  using typename Base::Kept, typename Base::Tables, typename Base::Taken;

  MOE_LANES void receive() const {
    const Taken taken(t_);
    const Kept kept = this->lookAtKept();
    if (!taken.await(s_.rowFlags(), s_.epoch)) return;
    if (isLast(s_.w)) keepSent(kept);
    const LlShare mine = LlShare::of(taken.rows(), s_.w.count > 1, s_.w);
    const LlRowPart part = LlRowPart::of(mine, placedBytes());
    const bool last = isLast(s_.w);
    MOE_ROLLED
    for (int begin = mine.first; begin < mine.end || (last && begin == mine.first); begin += kLlRowsAtOnce) {
      const int end = mine.end - begin < kLlRowsAtOnce ? mine.end : begin + kLlRowsAtOnce;
      const LlHand hand{begin, end, begin == mine.first};
      const bool delivered = s_.warp.streamRows(Delivered{*this, taken, kept, hand, part});
      if ((taken.verdict() & (kLlRefused | kLlStranger)) != 0) break;
      if (mine.sharer == 0) keepHeaders(taken, hand, delivered && describes(s_.args));
    }
    this->keepRoute(taken, kept);
  }

  // The last block calls it when the flags of all ranks have come. This rank's own rows are there too.
  MOE_LANES void keepSent(const Kept& kept) const {
    const int ranks = s_.comm.nranks, noteAt = wholeWarps<Warp>(ranks + 1);
    s_.warp.each(noteAt + 1, [&](int i) {
      if (i == noteAt) return this->laneNoteWhole();
      if (i <= ranks) this->laneKeepRank(kept, i, t_.rankOffsets()[i]);
    });
  }

  // Bytes of a row at its place: its codes, if it was cast.
  MOE_LANES std::uint32_t placedBytes() const { return kCasts ? s_.args.cast.codeBytes : s_.args.rowBytes; }

  // A list for streamRows that brings a block's part of some rows from their slots to their places. The scales of a row
  // are words behind its codes, and go with its first part.
  struct Delivered {
    static constexpr bool kSides = kCasts;
    const LlPlacedDispatch& d;
    const Taken& taken;
    const Kept& kept;
    LlHand hand;
    LlRowPart part;

    template <class Start>
    MOE_LANES bool mayPlace(Start start) const {
      return d.look(taken, kept, hand, start);
    }
    MOE_LANES int count() const { return hand.end - hand.begin; }
    MOE_LANES int sinksMax() const { return expertRows(d.s_.handle) ? d.s_.handle.topk : 1; }
    MOE_LANES CopyJob job(int i) const {
      const Arrival at = taken.arrival(hand.begin + i);
      const DispatchArgs& a = d.s_.args;
      const std::uint8_t* row = d.t_.arrived()[at.from] + std::int64_t{at.index} * a.rowBytes;
      const std::uint32_t size = kMore && a.outRows == nullptr ? 0 : part.size;
      if constexpr (!kCasts) return {row + part.begin, size, sinksMax()};
      const std::uint32_t sides = part.begin == 0 && a.cast.outScales != nullptr ? a.rowBytes - a.cast.codeBytes : 0;
      return {row + part.begin, size, sinksMax(), row + a.cast.codeBytes, sides};
    }
    MOE_LANES Sink sink(int i, int copy) const {
      if (copy >= taken.copies(hand, hand.begin + i)) return {nullptr, nullptr, true};
      const int place = d.placeOf(taken, hand, hand.begin + i, copy);
      const DispatchArgs& a = d.s_.args;
      const bool stays = kMore && a.outRows == nullptr;
      std::uint8_t* row = stays ? nullptr : a.outRows + std::int64_t{place} * d.placedBytes() + part.begin;
      if constexpr (!kCasts) return {row, nullptr, true};
      const bool scales = part.begin == 0 && a.cast.outScales != nullptr;
      return {row, scales ? reinterpret_cast<std::uint8_t*>(a.cast.outScales + a.cast.grid.rowStart(place)) : nullptr,
              true};
    }
    // The words of a row's scales.
    MOE_LANES int sideWords() const { return d.s_.args.cast.words; }
    MOE_LANES std::int64_t sideStride() const { return d.s_.args.cast.grid.wordStride; }
  };

  // Looks up at once the headers of the rows at hand and, with a block's first rows, the metadata of all ranks. Calls
  // start() meanwhile. True if the rows may go to their places.
  template <class Start>
  MOE_LANES bool look(const Taken& taken, const Kept& kept, const LlHand& hand, Start start) const {
    const HandleView& h = s_.handle;
    const bool byExpert = expertRows(h);
    const int stride = h.headerStride(), quads = (hand.end - hand.begin) * stride;
    const bool counts = hand.first && (isLast(s_.w) || h.layout == Layout::expertMajor);
    const int terms = hand.first ? s_.comm.nranks : 0, experts = counts ? h.map.count(s_.comm.rank) : 0;
    const int termsAt = wholeWarps<Warp>(quads), expertsAt = termsAt + wholeWarps<Warp>(terms);
    s_.warp.collectBeside(
        expertsAt + experts,
        [&](int i) -> LlTold {
          if (i >= expertsAt) {
            laneCountExpert(taken, kept, i - expertsAt);
            return {};
          }
          if (i >= termsAt) return i - termsAt < terms ? taken.laneTerms(i - termsAt) : LlTold{};
          if (i >= quads) return {};
          const int at = h.byHeader.of(i);
          return LlTold::of(taken.laneHeaderQuad(hand.begin + at, i - at * stride), {});
        },
        [&](int i, const LlTold& told) {
          if (i < quads) {
            t_.headers()[i] = told.quad(0);
          } else if (i >= termsAt && i - termsAt < terms) {
            taken.laneJudge(i - termsAt, told);
          }
        },
        start);
    if ((taken.verdict() & (kLlRefused | kLlStranger)) != 0) return false;
    if (byExpert) {
      if (counts && h.layout == Layout::expertMajor) {
        s_.warp.forEach(experts + 1, [&](int e) { taken.laneFindExpertOffset(e); });
      }
      s_.warp.forEach((hand.end - hand.begin) * h.topk, [&](int i) {
        const int at = h.byTopk.of(i);
        taken.lanePlace(hand, hand.begin + at, i - at * h.topk);
      });
    }
    return this->delivers(taken);
  }
  MOE_LANES void laneCountExpert(const Taken& taken, const Kept& kept, int expert) const {
    if (!isLast(s_.w)) {
      taken.laneAddUpExpert(expert);
      return;
    }
    this->laneKeepExpert(taken, kept, expert);
    if constexpr (kMore) laneDescribeSources(taken, expert);
  }
  // Stores for the caller where the rows of each source begin in an expert's group, and how many there are.
  MOE_LANES void laneDescribeSources(const Taken& taken, int expert) const {
    const int ranks = s_.comm.nranks;
    std::int64_t* ranges = s_.p.describe.layoutRange;
    if (ranges == nullptr) return;
    int before = 0;
    MOE_ROLLED
    for (int from = 0; from < ranks; ++from) {
      const int rows = taken.laneToldCount(from, expert);
      ranges[std::int64_t{expert} * ranks + from] = std::int64_t{before} << 32 | rows;
      before += rows;
    }
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
