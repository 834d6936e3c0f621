// What a dispatch stores to the rows of its outputs that no row arrives for, if the caller asks for it: rows behind the
// last one, alignment rows, and unused slots. These rows are this rank's alone, since peers write only the rows that
// they send.
#pragma once

#include "device/policy/contract.h"
#include "device/protocol/shares.h"

namespace moe {

// Stores an element of the caller's topkIdx, of layouts with a row per token.
MOE_LANES void laneStoreId(const HandleView& h, const DispatchArgs& d, std::int64_t place, int id) {
  if (d.outTopkIdx == nullptr) return;
  if (h.wideIndex != 0) static_cast<std::int64_t*>(d.outTopkIdx)[place] = id;
  if (h.wideIndex == 0) static_cast<std::int32_t*>(d.outTopkIdx)[place] = id;
}

// What the rows that arrive take up of an output.
struct Filled {
  const std::int32_t *rowsPerExpert, *expertOffsets, *rankOffsets;  // as in Arriving
  int layoutRows;
};

template <Moves Warp>
class Padding {
 public:
  MOE_LANES Padding(const Warp& policy, const StepParams& p, const Filled& filled)
      : warp(policy), rank_(p.comm.rank), h_(p.handle), d_(p.dispatch), filled_(filled) {}

  // Most gaps are short, so each is shared out from another warp on.
  MOE_LANES void run(WarpIndex team) const {
    MOE_ROLLED
    for (int i = 0; i <= groups(); ++i) fill(gapAt(i), {(team.index + i) % team.count, team.count, team.blocks});
  }

  // As if nothing had come, as far as the output has room.
  MOE_LANES void runOverAll(WarpIndex team) const {
    const std::int64_t rows = open() || filled_.layoutRows > d_.capacity ? d_.capacity : filled_.layoutRows;
    fill({0, static_cast<int>(rows)}, team);
  }

 private:
  MOE_LANES bool open() const { return h_.layout == Layout::flat || h_.layout == Layout::expertMajor; }

  MOE_LANES void fill(Range gap, WarpIndex team) const {
    const Slice mine = sliceOf(gap.end - gap.begin, team);
    const Range rows{gap.begin + mine.begin, gap.begin + mine.begin + mine.count};
    if ((d_.padding & kPadIndices) != 0) padIndices(rows);
    if ((d_.padding & kPadRows) != 0) padRows(rows);
  }

  // Groups of rows that may end with a gap: those of an expert or of a source.
  MOE_LANES int groups() const {
    if (h_.layout == Layout::flat) return 0;
    return expertRows(h_) ? h_.map.count(rank_) : h_.map.nranks;
  }

  // The gap at the end of group `i`. Number groups() is the gap behind the last row; layouts of a fixed size have none.
  MOE_LANES Range gapAt(int i) const {
    const std::int32_t* count = filled_.rowsPerExpert;
    const std::int32_t* offsets = filled_.expertOffsets;
    if (i == groups()) return {filled_.layoutRows, open() ? static_cast<int>(d_.capacity) : filled_.layoutRows};
    if (h_.layout == Layout::expertMajor) return {offsets[i] + count[i], offsets[i + 1]};
    if (h_.layout == Layout::rankMajor) {
      const int rows = filled_.rankOffsets[i + 1] - filled_.rankOffsets[i];
      return {i * h_.tokensMax + rows, (i + 1) * h_.tokensMax};
    }
    const int each = h_.map.nranks * h_.tokensMax;
    return {i * each + count[i], (i + 1) * each};
  }

  MOE_LANES void padIndices(Range rows) const {
    constexpr int kRowsAtOnce = 32;
    const bool perExpert = expertRows(h_);
    const int each = perExpert ? 1 : h_.topk;
    MOE_ROLLED
    for (int first = rows.begin; first < rows.end; first += kRowsAtOnce) {
      const int count = rows.end - first < kRowsAtOnce ? rows.end - first : kRowsAtOnce;
      warp.forEach(count * each, [&](int i) {
        const std::int64_t place = std::int64_t{first} * each + i;
        if (d_.outTopkWeights != nullptr) d_.outTopkWeights[place] = 0.0f;
        if (!perExpert) laneStoreId(h_, d_, place, d_.invalidId);
        if (d_.outSourceIndex != nullptr && i < count) d_.outSourceIndex[first + i] = -1;
      });
    }
  }

  MOE_LANES void padRows(Range rows) const {
    const bool casts = d_.cast.type != kNoCast;
    const std::uint32_t bytes = casts ? static_cast<std::uint32_t>(d_.cast.elements) : d_.rowBytes;
    MOE_ROLLED
    for (int row = rows.begin; row < rows.end; ++row) {
      zero(d_.outRows + std::int64_t{row} * bytes, bytes);
      if (d_.sideBytes != 0) zero(d_.outSide + std::int64_t{row} * d_.sideBytes, d_.sideBytes);
      if (casts) warp.forEach(d_.cast.words, [&](int word) { *scaleWord(d_.cast, row, word) = 0; });
    }
  }

  MOE_LANES void zero(std::uint8_t* row, std::uint32_t bytes) const {
    auto* quads = reinterpret_cast<Quad*>(row);
    warp.forEach(static_cast<int>(bytes / sizeof(Quad)), [&](int i) { warp.laneStore(quads + i, Quad{}); });
  }

  const Warp& warp;
  int rank_;
  const HandleView& h_;
  const DispatchArgs& d_;
  const Filled& filled_;
};

// By value: of references, a GPU would keep the caller's in memory.
template <Moves Warp>
MOE_SELDOM void padOutputs(Warp warp, const StepParams& p, Filled filled, WarpIndex team) {
  Padding<Warp>(warp, p, filled).run(team);
}

}  // namespace moe
