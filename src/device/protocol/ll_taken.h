// The receiver's side of a dispatch that routes: what the ranks have told becomes offsets, final rows, and the handle's
// tables of what arrives. Each block does the counting for itself.
#pragma once

#include "device/protocol/ll_told.h"
#include "device/protocol/route/route_empty.h"
#include "device/view/ll_tables.h"

namespace moe {

// What becomes of a dispatch that routes, by what all ranks have told: a bit for each thing that is wrong.
enum LlVerdict : std::uint32_t {
  kLlGood = 0,
  kLlRefused = 1,   // a rank has an entry that cannot be: the route is empty, on all ranks
  kLlDiffers = 2,   // ranks have passed different values: nothing is delivered, on all ranks
  kLlStranger = 4,  // a handle is not like ours: reported, and the communicator ends
};

template <class Block>
class LlTaken {
 public:
  MOE_LANES explicit LlTaken(const Block& block)
      : block_(block),
        c_(block.comm),
        h_(block.handle),
        t_(block.tables),
        experts_(block.handle.map.count(block.comm.rank)) {}

  // Looks up what all ranks have told, and fills the block's tables unless the route is empty or a rank a stranger.
  // After the rows' flags. `s`: the session of each warp; the block's first one adds up.
  MOE_LANES std::uint32_t count(const AnySession auto& s) const {
    if (!s.sends) block_.warp.forEach(1, [&](int) { t_.faulty[1] = kLlGood; });  // else it is, since LlUsers::count
    block_.warp.forEach(c_.nranks + (countsExperts() ? experts_ : 0), [&](int i) {
      if (i >= c_.nranks) return laneCountExpert(i - c_.nranks);
      laneCountRank(i);
    });
    const std::uint32_t verdict = t_.faulty[1];
    if ((verdict & (kLlRefused | kLlStranger)) != 0) return verdict;
    block_.warp.forEach(c_.nranks + 1, [&](int from) {
      t_.rankOffsets[from] = laneSums<8>(from, 0, [&](int earlier) { return t_.rankRows[earlier]; }).all;
    });
    if (!countsExperts()) return verdict;
    if (s.w.index < s.w.blocks) addUpExperts(s.warp);
    block_.warp.forEach(0, [](int) {});
    return verdict;
  }

  MOE_LANES int rows() const { return t_.rankOffsets[c_.nranks]; }
  MOE_LANES int layoutRows() const {
    return moe::layoutRows(h_, c_.rank, rows(), expertRows(h_) ? t_.expertOffsets[experts_] : 0);
  }
  MOE_LANES const std::int32_t* expertOffsets() const { return t_.expertOffsets; }
  MOE_LANES Filled filled() const { return {t_.rowsPerExpert, t_.expertOffsets, t_.rankOffsets, layoutRows()}; }

  // The first block: what arrives, for the handle and for the host, which is told all but `rows`.
  MOE_LANES void keepCounts(std::uint32_t ticket) const {
    block_.warp.forEach(c_.nranks + experts_, [&](int i) {
      if (i >= c_.nranks) {
        const int e = i - c_.nranks;
        h_.arriving.rowsPerExpert[e] = t_.rowsPerExpert[e];
        h_.hostPerExpert()[e] = countWord(ticket, t_.rowsPerExpert[e]);
        h_.arriving.expertOffsets[e] = t_.expertOffsets[e];
        return;
      }
      h_.arriving.rankOffsets[i] = t_.rankOffsets[i];
      h_.hostPerRank()[i] = countWord(ticket, t_.rankOffsets[i + 1] - t_.rankOffsets[i]);
      if (i > 0) return;
      h_.arriving.rankOffsets[c_.nranks] = *h_.arriving.rows = h_.sent.flatRowsOf[c_.rank] = rows();
      h_.arriving.expertOffsets[experts_] = t_.expertOffsets[experts_];
      h_.sent.layoutRowsOf[c_.rank] = layoutRows();
      h_.hostCounts->layoutRows = countWord(ticket, layoutRows());
    });
  }
  // ---- Rows, in FLAT order

  MOE_LANES Arrival arrival(int row) const { return arrivalOf(t_.rankOffsets, c_.nranks, row); }
  MOE_LANES const Quad* header(const Arrival& at) const {
    return reinterpret_cast<const Quad*>(llToldBy<std::uint8_t>(c_, h_, at.from) + llToldHeader(c_, h_, at.index));
  }
  MOE_LANES Quad laneHead(int row) const { return block_.warp.laneLoad(header(arrival(row))); }
  MOE_LANES Quad laneEntry(const Arrival& at, int copy) const { return block_.warp.laneLoad(header(at) + 1 + copy); }
  // The row of the layout where arriving row `row` has its copy number `copy`.
  MOE_LANES int place(int row, int copy) const {
    if (h_.layout == Layout::flat) return row;
    const Arrival at = arrival(row);
    if (h_.layout == Layout::rankMajor) return at.from * h_.tokensMax + at.index;
    return entryPlace(at.from, laneEntry(at, copy));
  }

  // Entry n of a row, if it has so many, for the handle and, `describing`, for the caller. The first one's lane keeps
  // the head too. Both loads are independent.
  MOE_LANES void laneKeepEntry(const DispatchArgs& d, int row, int n, bool describing) const {
    const Arrival at = arrival(row);
    const Quad* told = header(at);
    const Quad head = block_.warp.laneLoad(told);
    Quad entry = block_.warp.laneLoad(told + 1 + n);
    if (n >= headEntries(head)) return;
    Quad* kept = h_.arriving.headers + static_cast<std::int64_t>(row) * h_.headerStride();
    if (n == 0) kept[0] = head;
    if (expertRows(h_)) entry.w = static_cast<std::uint32_t>(entryPlace(at.from, entry));
    kept[1 + n] = entry;
    if (!describing) return;
    laneDescribe(h_, d, head, entry, n, expertRows(h_) ? entryRow(entry) : place(row, 0));
  }

 private:
  MOE_LANES Quad laneToldQuad(int from, int n) const { return block_.warp.laneLoad(llToldBy<Quad>(c_, h_, from) + n); }

  MOE_LANES std::int32_t laneToldCount(int from, int e) const {
    return block_.warp.laneLoad(llToldBy<std::int32_t>(c_, h_, from) + kToldWords + e);
  }

  // Where rows have places by experts, and the first block for the handle.
  MOE_LANES bool countsExperts() const { return expertRows(h_) || block_.w.index == 0; }

  // Where the group of each expert begins. One warp.
  template <class Warp>
  MOE_LANES void addUpExperts(const Warp& warp) const {
    const int groups = warp.scanInOrder(
        experts_, [&](int e) { return h_.groupRows(t_.rowsPerExpert[e]); },
        [&](int e, int before) { t_.expertOffsets[e] = before; });
    warp.forEach(1, [&](int) { t_.expertOffsets[experts_] = groups; });
  }

  MOE_LANES void laneCountRank(int from) const {
    Quad handle = laneToldQuad(from, 0);
    const Quad dispatch = laneToldQuad(from, 1);
    t_.rankRows[from] = static_cast<int>(dispatch.z);
    if ((handle.w & kRouteRefused) != 0) block_.warp.laneOr(t_.faulty + 1, kLlRefused);
    handle.w &= ~kRouteRefused;
    const Failure why = handleFault(termsOf(h_), handle, from);
    if (why.fault != Fault::none) {
      block_.warp.laneFail(c_, why);
      block_.warp.laneOr(t_.faulty + 1, kLlStranger);
    }
    if (llTermsTold(dispatch) != block_.p.dispatch.terms) block_.warp.laneOr(t_.faulty + 1, kLlDiffers);
  }

  // All entries for local expert e. Notes how many of them are of earlier sources.
  MOE_LANES void laneCountExpert(int e) const {
    constexpr int kAtOnce = 8;
    int sum = 0;
    MOE_ROLLED
    for (int first = 0; first < c_.nranks; first += kAtOnce) {
      std::int32_t counts[kAtOnce];
      MOE_UNROLLED
      for (int j = 0; j < kAtOnce; ++j) counts[j] = first + j < c_.nranks ? laneToldCount(first + j, e) : 0;
      MOE_UNROLLED
      for (int j = 0; j < kAtOnce; ++j) {
        if (first + j >= c_.nranks) continue;
        t_.entriesBefore[(first + j) * experts_ + e] = sum;
        sum += counts[j];
      }
    }
    t_.rowsPerExpert[e] = sum;
  }

  // The final row of an entry, whose header counts from its source's first.
  MOE_LANES int entryPlace(int from, const Quad& entry) const {
    const int e = entryExpert(entry);
    const int first = h_.layout == Layout::expertMajorPadded ? e * h_.map.nranks * h_.tokensMax : t_.expertOffsets[e];
    return first + t_.entriesBefore[from * experts_ + e] + entryRow(entry);
  }

  const Block& block_;
  const CommView& c_;
  const HandleView& h_;
  const LlTables& t_;
  const int experts_;
};

// Rows of a payload, as Delivered wants them: in their slots or, if `in` is given, this rank's own in the caller's
// input.
template <class Block>
struct LlTakenRows {
  const LlTaken<Block>& taken;
  LlPayload payload;
  const std::uint8_t* in;
  std::uint32_t rowBytes;

  MOE_LANES const std::uint8_t* slot(int row) const { return payload.arrived(taken.arrival(row)); }
  MOE_LANES const std::uint8_t* source(int row) const {
    const Arrival at = taken.arrival(row);
    if (in == nullptr || at.from != payload.c.rank) return payload.arrived(at);
    return in + std::int64_t{headToken(taken.laneHead(row))} * rowBytes;
  }
  MOE_LANES int copies(int row) const { return expertRows(payload.h) ? headEntries(taken.laneHead(row)) : 1; }
  MOE_LANES int place(int row, int copy) const { return taken.place(row, copy); }
  MOE_LANES int expert(int row, int copy) const { return entryExpert(taken.laneEntry(taken.arrival(row), copy)); }
  MOE_LANES const std::int32_t* expertOffsets() const { return taken.expertOffsets(); }
};

}  // namespace moe
