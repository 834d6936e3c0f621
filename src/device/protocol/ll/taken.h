// The metadata that a dispatch that routes sends to each receiver beside its rows, and how a receiver uses it.
//
// At the receiver the flags say how many rows came from each source. From the metadata each block computes offsets and
// final rows, and fills the handle's tables of arriving rows. Each block counts for itself, and handles some rows at a
// time.
#pragma once

#include "device/protocol/ll/exchange.h"
#include "device/protocol/ll/places.h"
#include "device/protocol/route/empty.h"
#include "device/protocol/route/refusal.h"
#include "device/view/terms.h"

namespace moe {

// ---- The metadata for each receiver: terms and counts, and the header of every row

// The metadata from rank `from`.
template <class T>
MOE_LANES T* llToldBy(const CommView& c, const HandleView& h, int from) {
  return c.mine<T>(llToldOffset(c, h, c.at.llTold, from));
}

// The terms of a dispatch, which are in the second Quad of its metadata.
MOE_LANES std::uint64_t llTermsTold(const Quad& dispatch) {
  return std::uint64_t{dispatch.y} << 32 | dispatch.x;
}

// Where this rank writes its metadata for rank `to`: in that rank's window, or in its own, from where it is put.
MOE_LANES std::uint8_t* llToldTo(const StepParams& p, bool remote, int to) {
  const CommView& c = p.comm;
  if (remote) return c.mine<std::uint8_t>(llToldOffset(c, p.handle, c.far->at.llToldOut, to));
  return c.in<std::uint8_t>(to, llToldOffset(c, p.handle, c.at.llTold, c.rank));
}

// Sends the first invalid entry to all ranks. One warp calls it.
template <Moves Warp>
MOE_SELDOM void llTellBadEntry(Warp warp, const StepParams& p) {
  storeBadEntry(warp, p, allRanks(p.comm), [&](int to) {
    const bool remote = Warp::kPuts && !p.comm.inDomain(to);
    return reinterpret_cast<Quad*>(llToldTo(p, remote, to)) + 2;
  });
}

// Which of n items warp `warp` of `warps` handles. If there are lanes enough, each lane has at most one item, and only
// as many warps as needed have items.
template <class Warp>
MOE_LANES Slice lanesOf(int n, int warp, int warps) {
  if (n > warps * Warp::kLanes) return sliceOf(n, {warp, warps, 1});
  const int before = warp * Warp::kLanes, left = n - before;
  return {before, left < 0 ? 0 : left < Warp::kLanes ? left : Warp::kLanes};
}

// The sender's side. `Places` says which token at hand goes where (ll/places.h).
template <LlSending S, class Places>
struct LlTelling {
  const S& s;
  const Places& places;

  // Stores the headers of the tokens at hand, and the handle's tables of sent rows. The last warps of the block do it,
  // because the first ones have parts of rows. Different warps store entries and heads, because the code differs.
  MOE_LANES void storeHeaders(int warp, int warps) const {
    const HandleView& h = s.handle;
    const int entries = places.size() * h.topk, heads = places.size() * h.destinationsMax;
    const int back = warps - 1 - warp, pairs = (warps + 1) / 2;
    if (warps == 1 || back % 2 == 0) {
      const Slice slice = lanesOf<typename S::Policy>(entries, back / 2, pairs);
      s.warp.forEach(slice.count, [&](int i) {
        const int at = h.byTopk.of(slice.begin + i);
        laneStoreEntry(places.first() + at, slice.begin + i - at * h.topk);
      });
    }
    if (warps == 1 || back % 2 != 0) {
      const Slice slice = lanesOf<typename S::Policy>(heads, back / 2, warps == 1 ? 1 : warps / 2);
      s.warp.forEach(slice.count, [&](int i) {
        const int item = slice.begin + i, at = item / h.destinationsMax;
        laneStoreHead(places.first() + at, item - at * h.destinationsMax);
      });
    }
  }

  // The leading block calls it; it has counted experts too. `warp` is one of its `warps`. `refuses`: an entry is
  // invalid, so the ranks make an empty route.
  MOE_LANES void storeCounts(int warp, int warps, bool refuses) const {
    const HandleView& h = s.handle;
    const Slice slice = sliceOf(h.map.experts + h.map.nranks, {warp, warps, 1});
    Quad handle = termsOf(h);
    if (refuses) handle.w |= kRouteRefused;
    s.warp.forEach(slice.count, [&](int i) {
      const int bucket = slice.begin + i, count = places.total(bucket), experts = h.map.experts;
      h.sent.totals[bucket] = count;
      if (bucket < experts) return laneStoreExpert(bucket, count);
      const int rank = bucket - experts;
      *llLastRows(s.comm, h, rank) = count;
      auto* head = reinterpret_cast<Quad*>(told(rank));
      const std::uint64_t terms = s.args.terms;
      s.warp.laneStore(head, handle);
      s.warp.laneStore(head + 1,
                       Quad{static_cast<std::uint32_t>(terms), static_cast<std::uint32_t>(terms >> 32), 0, 0});
    });
    if (refuses && warp == 0) llTellBadEntry(s.warp, s.p);
  }

 private:
  MOE_LANES std::uint8_t* told(int to) const { return llToldTo(s.p, s.isRemote(to), to); }
  MOE_LANES Quad* header(int to, int index) const {
    return reinterpret_cast<Quad*>(told(to) + llToldHeader(s.comm, s.handle, index));
  }

  // How many of a token's entries are for experts of `rank`, before entry k and in total.
  MOE_LANES Sums entriesFor(int token, int k, int rank) const {
    const HandleView& h = s.handle;
    return laneSums<8>(h.topk, k, [&](int other) {
      const int id = places.id(token, other);
      return id >= 0 && h.map.isOn(id, rank) ? 1 : 0;
    });
  }

  MOE_LANES void laneStoreExpert(int expert, int count) const {
    const int to = s.handle.map.rankOf(expert), local = static_cast<int>(s.handle.map.local(expert, to));
    s.warp.laneStore(reinterpret_cast<std::int32_t*>(told(to)) + kToldWords + local, count);
  }

  MOE_LANES void laneStoreEntry(int token, int k) const {
    const HandleView& h = s.handle;
    const int entry = token * h.topk + k, id = places.id(token, k);
    const float weight = places.weight(token, k);
    h.sent.ids[entry] = id;
    h.sent.weights[entry] = weight;
    if (id < 0) return;
    const int to = h.map.rankOf(id), row = expertRows(h) ? places.positionOf(token, id) : 0;
    s.warp.laneStore(header(to, places.positionOf(token, h.map.experts + to)) + 1 + entriesFor(token, k, to).before,
                     makeEntry(h.map.local(id, to), k, weight, row));
  }

  MOE_LANES void laneStoreHead(int token, int ordinal) const {
    const HandleView& h = s.handle;
    const Destination to = places.of(token, ordinal);
    h.sent.destinations[std::int64_t{token} * h.destinationsMax + ordinal] = to;
    if (ordinal == 0) {
      h.sent.localCount[token] = places.localDestinations(token);
      h.sent.destinationCount[token] = places.destinations(token);
    }
    if (to.rank == kNoRank) return;
    if (s.isRemote(to.rank)) h.rails.outgoing[static_cast<std::int64_t>(to.rank) * h.tokensMax + to.index] = token;
    s.warp.laneStore(header(to.rank, to.index), makeHead(token, waveOf(s.handle, token, s.args.tokens), 0, s.comm.rank,
                                                         entriesFor(token, 0, to.rank).all));
  }
};

// The number of rows that go to a rank. Valid when all warps have announced their rows. The handle's number may be
// wrong then, because its route may have become empty.
MOE_LANES int llRowsTo(const LlSending auto& s, int to) {
  return s.warp.laneLoad(llLastRows(s.comm, s.handle, to));
}
// The put of the metadata for a remote rank. Valid when all warps have stored their part of it.
MOE_LANES Put llToldPut(const LlSending auto& s, int to) {
  const CommView& c = s.comm;
  return putBytes(to, llToldOffset(c, s.handle, c.at.llTold, c.rank),
                  llToldOffset(c, s.handle, c.far->at.llToldOut, to),
                  static_cast<std::uint32_t>(llToldHeader(c, s.handle, llRowsTo(s, to))), s.epoch);
}

// The outcome of a dispatch that routes, from the metadata of all ranks: a bit for each thing that is wrong.
enum LlVerdict : std::uint32_t {
  kLlGood = 0,
  kLlRefused = 1,   // a rank has an invalid entry: the route is empty, on all ranks
  kLlDiffers = 2,   // ranks have passed different values: nothing is delivered, on all ranks
  kLlStranger = 4,  // a rank's handle differs from ours: it is reported, and the communicator fails
};

// Some arriving rows of a block, in FLAT order.
struct LlHand {
  int begin, end;
  bool first;  // these are the first rows of the block
};

// Words that a lane has looked up, of a header, of terms, or of counts.
struct LlTold {
  static constexpr int kWords = 8;
  std::uint32_t words[kWords];

  static MOE_LANES LlTold of(const Quad& a, const Quad& b) { return {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}}; }
  MOE_LANES Quad quad(int n) const {
    const int first = 4 * n;
    return {words[first], words[first + 1], words[first + 2], words[first + 3]};
  }
};

// Reports a rank whose handle differs from ours, if it is not lost. `x` to `w`: its terms. They are no Quad, because
// nvcc 13.0 crashes if a function that is not inlined takes one by value (compute_100, -lineinfo).
template <Core Warp>
MOE_SELDOM bool llReportStranger(Warp warp, const StepParams& p, int from, std::uint32_t x, std::uint32_t y,
                                 std::uint32_t z, std::uint32_t w) {
  const Failure why = handleFault(termsOf(p.handle), {x, y, z, w}, from);
  if (why.fault == Fault::none) return false;
  warp.laneFail(p.comm, why);
  return true;
}

template <class Tabled>
class LlTaken {
 public:
  MOE_LANES explicit LlTaken(const Tabled& block)
      : block_(block), c_(block.comm), h_(block.handle), t_(block), experts_(block.handle.map.count(block.comm.rank)) {}

  // Waits for the rows of all ranks, and computes where those of each rank begin. False if they did not come.
  MOE_LANES bool await(const std::uint64_t& flags, std::uint64_t epoch) const {
    block_.warp.forEach(1, [&](int) { *t_.word(kLlVerdict) = kLlGood; });
    if (!awaitRows(flags, epoch)) return false;
    block_.warp.forEach(c_.nranks + 1, [&](int from) { laneFindOffset(from); });
    return true;
  }

  // Only waits for the rows of all ranks, and does not clear kLlVerdict.
  MOE_LANES bool awaitRows(const std::uint64_t& flags, std::uint64_t epoch) const {
    return block_.waitForAll(flags, epoch, Phase::dispatchRows, [&](int from, Flag word) {
      const int rows = flagRows(word);
      t_.rankRows()[from] = rows < h_.tokensMax ? rows : h_.tokensMax;  // a rank whose handle differs may send more
    });
  }
  // Valid after awaitRows(): the number of rows of the ranks before `rank`.
  MOE_LANES int rowsBefore(int rank) const {
    int sum = 0;
    MOE_ROLLED
    for (int from = 0; from < rank; ++from) sum += t_.rankRows()[from];
    return sum;
  }

  MOE_LANES int laneFindOffset(int rank) const { return t_.rankOffsets()[rank] = rowsBefore(rank); }

  // This block's rows.
  MOE_LANES Slice slice() const { return sliceOf(rows(), block_.w); }

  // Looks up the headers of the rows at hand, and with a block's first rows the metadata of all ranks. `s`: the session
  // of each warp; the block's first warp adds up the counts of experts. True if the rows may go to their places.
  MOE_LANES bool look(const AnySession auto& s, const LlHand& hand) const {
    const int quads = (hand.end - hand.begin) * h_.headerStride(), ranks = hand.first ? c_.nranks : 0;
    const int experts = hand.first && countsExperts() ? experts_ : 0;
    block_.warp.forEach(quads + ranks + experts, [&](int i) {
      if (i < quads) return laneLook(hand, i);
      if (i < quads + ranks) return laneJudge(i - quads, laneTerms(i - quads));
      laneAddUp(i - quads - ranks, laneCounts(i - quads - ranks));
    });
    if ((verdict() & (kLlRefused | kLlStranger)) != 0) return false;
    if (hand.first && needsOffsets()) {
      if (s.w.inBlock == 0) addUpExperts(s.warp);
      block_.warp.forEach(0, [](int) {});
    }
    return verdict() == kLlGood && layoutRows() <= block_.p.dispatch.capacity;
  }
  // The work of look() on one lane, in two parts. laneTerms and laneJudge load and check the terms of rank `from`.
  // laneCounts and laneAddUp load the numbers of entries that the ranks have for local expert e, and add them up over
  // all ranks and over the ranks before each.
  // The header of row `index` of a source.
  MOE_LANES const Quad* headerFrom(int from, int index) const { return told({from, index}); }
  MOE_LANES LlTold laneTerms(int from) const { return LlTold::of(laneToldQuad(from, 0), laneToldQuad(from, 1)); }
  MOE_LANES void laneJudge(int from, const LlTold& terms) const {
    Quad handle = terms.quad(0);
    std::uint32_t verdict = (handle.w & kRouteRefused) != 0 ? kLlRefused : kLlGood;
    handle.w &= ~kRouteRefused;
    const Quad ours = Tabled::kPlain ? h_.terms : termsOf(h_);
    const bool same = handle.x == ours.x && handle.y == ours.y && handle.z == ours.z && handle.w == ours.w;
    if (!same && llReportStranger(block_.warp, block_.p, from, handle.x, handle.y, handle.z, handle.w)) {
      verdict |= kLlStranger;
    }
    const std::uint64_t told = llTermsTold(terms.quad(1));
    if (told != block_.p.dispatch.terms && !areLost(told)) verdict |= kLlDiffers;
    if (verdict != kLlGood) block_.warp.laneOr(t_.word(kLlVerdict), verdict);
  }
  MOE_LANES LlTold laneCounts(int e) const { return laneCountsFrom(0, e); }
  MOE_LANES void laneAddUp(int e, const LlTold& counts) const {
    int sum = 0;
    LlTold some = counts;
    MOE_ROLLED
    for (int first = 0;;) {
      MOE_UNROLLED
      for (int j = 0; j < LlTold::kWords; ++j) {
        if (first + j >= c_.nranks) continue;
        t_.entriesBefore()[(first + j) * experts_ + e] = sum;
        sum += static_cast<int>(some.words[j]);
      }
      first += LlTold::kWords;
      if (first >= c_.nranks) break;
      some = laneCountsFrom(first, e);
    }
    t_.rowsPerExpert()[e] = sum;
  }
  // Only the sum over all ranks of the entries for local expert e.
  MOE_LANES int laneAddUpExpert(int e) const {
    return t_.rowsPerExpert()[e] = laneSums<8>(c_.nranks, 0, [&](int from) { return laneToldCount(from, e); }).all;
  }
  // The number of entries that rank `from` has for local expert e.
  MOE_LANES std::int32_t laneToldCount(int from, int e) const {
    return block_.warp.laneLoad(toldBy<std::int32_t>(from) + kToldWords + e);
  }
  MOE_LANES std::uint32_t verdict() const { return *t_.word(kLlVerdict); }

  MOE_LANES int rows() const { return t_.rankOffsets()[c_.nranks]; }
  MOE_LANES int layoutRows() const {
    return moe::layoutRows(h_, c_.rank, rows(), h_.layout == Layout::expertMajor ? t_.expertOffsets()[experts_] : 0);
  }
  MOE_LANES const std::int32_t* expertOffsets() const { return t_.expertOffsets(); }
  MOE_LANES Filled filled() const { return {t_.rowsPerExpert(), t_.expertOffsets(), t_.rankOffsets(), layoutRows()}; }

  // Stores the counts of arriving rows for the handle and for the host. The host gets all counts but `rows`. The first
  // block calls it.
  MOE_LANES void keepCounts(std::uint32_t ticket) const {
    block_.warp.forEach(c_.nranks + experts_, [&](int i) {
      if (i >= c_.nranks) {
        const int e = i - c_.nranks;
        h_.arriving.rowsPerExpert[e] = t_.rowsPerExpert()[e];
        h_.countsPerExpert()[e] = countWord(ticket, t_.rowsPerExpert()[e]);
        if (expertRows(h_)) h_.arriving.expertOffsets[e] = t_.expertOffsets()[e];
        return;
      }
      h_.arriving.rankOffsets[i] = t_.rankOffsets()[i];
      h_.countsPerRank()[i] = countWord(ticket, t_.rankOffsets()[i + 1] - t_.rankOffsets()[i]);
      if (i > 0) return;
      h_.arriving.rankOffsets[c_.nranks] = *h_.arriving.rows = h_.sent.flatRowsOf[c_.rank] = rows();
      if (expertRows(h_)) h_.arriving.expertOffsets[experts_] = t_.expertOffsets()[experts_];
      h_.sent.layoutRowsOf[c_.rank] = layoutRows();
      h_.counts->layoutRows = countWord(ticket, layoutRows());
    });
  }

  // ---- Rows at hand, in FLAT order

  MOE_LANES Arrival arrival(int row) const { return arrivalOf(t_.rankOffsets(), c_.nranks, row); }
  MOE_LANES const Quad* header(const LlHand& hand, int row) const {
    return t_.headers() + (row - hand.begin) * h_.headerStride();
  }
  // The token of a row, loaded before the row's header is looked up with the others.
  MOE_LANES int laneToken(int row) const { return headToken(block_.warp.laneLoad(told(arrival(row)))); }
  // A Quad of a row's header, loaded in the same way.
  MOE_LANES Quad laneHeaderQuad(int row, int quad) const { return block_.warp.laneLoad(told(arrival(row)) + quad); }
  MOE_LANES int copies(const LlHand& hand, int row) const {
    return expertRows(h_) ? headEntries(*header(hand, row)) : 1;
  }
  // Entry n of a row gets its final row in the table of headers, for steps without a table of counts.
  MOE_LANES void lanePlace(const LlHand& hand, int row, int n) const {
    Quad* came = t_.headers() + (row - hand.begin) * h_.headerStride();
    if (n >= headEntries(came[0])) return;
    const int e = entryExpert(came[1 + n]);
    const int before = laneSums<8>(arrival(row).from, 0, [&](int from) { return laneToldCount(from, e); }).all;
    came[1 + n].w = static_cast<std::uint32_t>(groupOf(e) + before + entryRow(came[1 + n]));
  }
  // Where the group of expert e begins, or where all of them end, when experts are counted. Each lane sums for itself,
  // because a scan makes the lanes meet several times.
  MOE_LANES void laneFindExpertOffset(int e) const {
    const std::int32_t* rows = t_.rowsPerExpert();
    const bool wholeRows = h_.alignment == 1;
    t_.expertOffsets()[e] = wholeRows ? laneSums<8>(e, 0, [&](int i) { return rows[i]; }).all
                                      : laneSums<8>(e, 0, [&](int i) { return h_.groupRows(rows[i]); }).all;
  }
  // The row of the layout where a row has its copy number `copy`.
  MOE_LANES int place(const LlHand& hand, int row, int copy) const {
    if (h_.layout == Layout::flat) return row;
    const Arrival at = arrival(row);
    if (h_.layout == Layout::rankMajor) return at.from * h_.tokensMax + at.index;
    return entryPlace(at.from, header(hand, row)[1 + copy]);
  }

  // Keeps entry n of a row, if the row has that many, in the handle and, if `describing`, in the caller's arrays. The
  // lane of entry 0 keeps the head too.
  MOE_LANES void laneKeepEntry(const DispatchArgs& d, const LlHand& hand, int row, int n, bool describing) const {
    const Quad* came = header(hand, row);
    const Quad head = came[0];
    if (n >= headEntries(head)) return;
    Quad entry = came[1 + n];
    Quad* kept = h_.arriving.headers + static_cast<std::int64_t>(row) * h_.headerStride();
    if (n == 0) kept[0] = head;
    if (expertRows(h_)) entry.w = static_cast<std::uint32_t>(entryPlace(arrival(row).from, entry));
    kept[1 + n] = entry;
    if (!describing) return;
    laneDescribe(h_, d, head, entry, n, expertRows(h_) ? entryRow(entry) : place(hand, row, 0));
  }

 private:
  template <class T>
  MOE_LANES const T* toldBy(int from) const {
    if constexpr (Tabled::kPrepared) {
      return reinterpret_cast<const T*>(t_.toldBy()[from]);
    } else {
      return llToldBy<T>(c_, h_, from);
    }
  }
  MOE_LANES const Quad* told(const Arrival& at) const {
    return reinterpret_cast<const Quad*>(toldBy<std::uint8_t>(at.from) + llToldHeader(c_, h_, at.index));
  }
  MOE_LANES Quad laneToldQuad(int from, int n) const { return block_.warp.laneLoad(toldBy<Quad>(from) + n); }

  // A block counts experts if rows have places by experts; the first block does so in any case, for the handle.
  MOE_LANES bool countsExperts() const { return expertRows(h_) || block_.w.index == 0; }
  // True if this block must know where the groups of experts begin: the first block, for the handle, and blocks that
  // store to places which depend on it.
  MOE_LANES bool needsOffsets() const {
    const DispatchArgs& d = block_.p.dispatch;
    if (!expertRows(h_)) return false;
    if (block_.w.index == 0 || h_.layout == Layout::expertMajor) return true;
    return d.cast.type != kNoCast || d.payloads.count != 0 || d.padding != 0;
  }

  // Computes where the group of each expert begins. One warp calls it.
  template <class Warp>
  MOE_LANES void addUpExperts(const Warp& warp) const {
    const int groups = warp.scanInOrder(
        experts_, [&](int e) { return h_.groupRows(t_.rowsPerExpert()[e]); },
        [&](int e, int before) { t_.expertOffsets()[e] = before; });
    warp.forEach(1, [&](int) { t_.expertOffsets()[experts_] = groups; });
  }

  MOE_LANES void laneLook(const LlHand& hand, int i) const {
    const int at = h_.byHeader.of(i), quad = i - at * h_.headerStride();
    t_.headers()[i] = block_.warp.laneLoad(told(arrival(hand.begin + at)) + quad);
  }

  // The numbers of entries of ranks from `first` on; 0 where there is no rank.
  MOE_LANES LlTold laneCountsFrom(int first, int e) const {
    LlTold counts{};
    MOE_UNROLLED
    for (int j = 0; j < LlTold::kWords; ++j) {
      if (first + j < c_.nranks) counts.words[j] = static_cast<std::uint32_t>(laneToldCount(first + j, e));
    }
    return counts;
  }

  // The final row of an entry. The row in its header counts from the first entry of its source.
  MOE_LANES int entryPlace(int from, const Quad& entry) const {
    const int e = entryExpert(entry);
    return groupOf(e) + t_.entriesBefore()[from * experts_ + e] + entryRow(entry);
  }
  // The first row of an expert.
  MOE_LANES int groupOf(int e) const {
    return h_.layout == Layout::expertMajorPadded ? e * h_.map.nranks * h_.tokensMax : t_.expertOffsets()[e];
  }

  const Tabled& block_;
  const CommView& c_;
  const HandleView& h_;
  const Tabled& t_;
  const int experts_;
};

// The rows at hand, in the form of arrivals.
template <class Tabled>
struct LlTakenArrivals {
  const LlTaken<Tabled>& taken;
  LlHand hand;

  MOE_LANES int copies(int row) const { return taken.copies(hand, row); }
  MOE_LANES int place(int row, int copy) const { return taken.place(hand, row, copy); }
  MOE_LANES int expert(int row, int copy) const { return entryExpert(taken.header(hand, row)[1 + copy]); }
  MOE_LANES const std::int32_t* expertOffsets() const { return taken.expertOffsets(); }
};

// Rows of a payload in their slots.
template <class Tabled>
struct LlTakenSlots {
  const LlTaken<Tabled>& taken;
  LlPayload payload;
  MOE_LANES const std::uint8_t* operator()(int row) const { return payload.arrived(taken.arrival(row)); }
};
// The same; but if `in` is given, this rank's own rows are taken from the caller's input.
template <class Tabled>
struct LlTakenSource {
  LlTakenSlots<Tabled> slotOf;
  const std::uint8_t* in;
  std::uint32_t rowBytes;

  MOE_LANES const std::uint8_t* operator()(int row) const {
    const Arrival at = slotOf.taken.arrival(row);
    if (in == nullptr || at.from != slotOf.payload.c.rank) return slotOf.payload.arrived(at);
    return in + std::int64_t{slotOf.taken.laneToken(row)} * rowBytes;
  }
};

// A list for streamRows that brings the rows at hand to their places. The places are looked up while the rows are on
// their way.
template <class S, class Tabled>
struct LlDelivered {
  const S& s;
  LlParts share;
  LlTakenArrivals<Tabled> arrivals;
  LlTakenSource<Tabled> source;
  std::uint8_t* out;

  MOE_LANES bool mayPlace() const { return arrivals.taken.look(s, arrivals.hand); }
  MOE_LANES int count() const { return share.count(); }
  MOE_LANES int sinksMax() const { return expertRows(s.handle) ? s.handle.topk : 1; }
  MOE_LANES CopyJob job(int i) const {
    const PartOf part = share.at(i);
    return {source(part.row) + part.begin, part.bytes, sinksMax()};
  }
  MOE_LANES Sink sink(int i, int copy) const {
    const PartOf part = share.at(i);
    if (copy >= arrivals.copies(part.row)) return {nullptr, nullptr, true};
    return {out + std::int64_t{arrivals.place(part.row, copy)} * share.rowBytes + part.begin, nullptr, true};
  }
};

}  // namespace moe
