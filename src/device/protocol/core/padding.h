// Padding: the stores of a dispatch to rows of its outputs for which no row arrives, if the caller asks for them. These
// are rows after the last one, alignment rows, and unused slots. Only this rank writes them, because peers write only
// the rows that they send.
//
// Scales in blocks, and payloads in blocks, have places for such rows even where the rows themselves do not exist.
// Their owner stores zeros there, because a tensor core loads whole blocks. README.md, "Scales in blocks of 128 rows".
#pragma once

#include "device/policy/contract.h"
#include "device/protocol/core/shares.h"

namespace moe {

// The parts of an output that arriving rows fill.
struct Filled {
  const std::int32_t *rowsPerExpert, *expertOffsets, *rankOffsets;  // as in Arriving
  int layoutRows;
};

// An array in blocks, which has `words` words for each row.
struct Blocked {
  const ScaleGrid& grid;
  std::uint32_t* out;
  int words;
};

template <Moves Warp>
class ScalePads {
 public:
  MOE_LANES ScalePads(const Warp& policy, const HandleView& h, const DispatchArgs& d, const Blocked& blocked, int rank,
                      const Filled& filled)
      : warp(policy), h_(h), d_(d), blocked_(blocked), grid_(blocked.grid), rank_(rank), filled_(filled) {}

  // Fills the places after the rows of each group: to the end of the group's last block or, with kPadRows, to the end
  // of all its blocks. Warps divide the groups, and the blocks after the last group, among them. A warp that went
  // through all groups would wait for loads of each group's rows.
  MOE_LANES void run(WarpIndex team) const {
    const int n = groups(), each = n > 0 && n < team.count ? team.count / n : 1;  // warps per group
    const int own = team.index / each;                                            // idle warps have no group
    MOE_ROLLED
    for (int i = own; i < n; i += team.count) fillGroup(i, {team.index % each, each, team.blocks});
    fillGroup(n, team);
  }
  MOE_LANES void runOverAll(WarpIndex team) const { fill(0, blocks(), 0, team); }

 private:
  MOE_LANES void fillGroup(int i, WarpIndex team) const {
    const int first = firstBlock(i), rows = rowsOf(i);
    const std::int64_t end = (d_.padding & kPadRows) != 0 ? firstBlock(i + 1) : first + scaleBlocks(rows);
    fill(first + rows / kScaleBlockRows, static_cast<int>(end), rows % kScaleBlockRows, team);
  }
  // Stores zeros to blocks [block, end). The first `rows` rows of the first block are in use and keep their words.
  MOE_LANES void fill(int block, int end, int rows, WarpIndex team) const {
    if (block >= end) return;
    const Slice columns = sliceOf((end - block) * blocked_.words, team);
    std::uint32_t* from = blocked_.out + block * grid_.rowStride;
    MOE_ROLLED
    for (int i = columns.begin; i < columns.begin + columns.count; ++i) {
      std::uint32_t* column = from + std::int64_t{i} * kScaleColumnWords;
      const int there = i < blocked_.words ? rows : 0;
      warp.forEach(kScaleColumnWords, [&](int word) {
        if (rowOfColumnWord(word) >= there) column[word] = 0;
      });
    }
  }

  // ---- Groups of rows. The last one, number groups(), has the blocks after all groups.

  MOE_LANES int groups() const {
    if (h_.layout == Layout::flat) return 1;
    return h_.layout == Layout::rankMajor ? h_.map.nranks : h_.map.count(rank_);
  }
  MOE_LANES int rowsOf(int i) const {
    if (i == groups()) return 0;
    if (h_.layout == Layout::flat) return filled_.layoutRows;
    if (h_.layout == Layout::rankMajor) return filled_.rankOffsets[i + 1] - filled_.rankOffsets[i];
    return filled_.rowsPerExpert[i];
  }
  MOE_LANES int firstBlock(int i) const {
    if (i > groups() || (h_.layout == Layout::flat && i > 0)) return blocks();
    if (h_.layout == Layout::flat) return 0;
    if (h_.layout == Layout::expertMajor) return grid_.firstBlock(filled_.expertOffsets[i], i);
    return i * static_cast<int>(scaleBlocks(grid_.group));
  }
  // The number of blocks that the output has room for.
  MOE_LANES int blocks() const {
    if (h_.layout == Layout::flat) return static_cast<int>(scaleBlocks(d_.capacity));
    if (h_.layout != Layout::expertMajor) return groups() * static_cast<int>(scaleBlocks(grid_.group));
    return static_cast<int>((d_.capacity + std::int64_t{grid_.slack} * groups()) / kScaleBlockRows);
  }

  const Warp& warp;
  const HandleView& h_;
  const DispatchArgs& d_;
  const Blocked blocked_;
  const ScaleGrid& grid_;
  const int rank_;
  const Filled& filled_;
};

// Stores an element of the caller's topkIdx. For layouts with a row per token.
MOE_LANES void laneStoreId(const HandleView& h, const DispatchArgs& d, std::int64_t place, int id) {
  if (d.outTopkIdx == nullptr) return;
  if (h.wideIndex != 0) static_cast<std::int64_t*>(d.outTopkIdx)[place] = id;
  if (h.wideIndex == 0) static_cast<std::int32_t*>(d.outTopkIdx)[place] = id;
}

// The gaps of an output, which are rows for which no row arrives: one at the end of each group of rows, and one after
// the last row.
struct Gaps {
  const HandleView& h;
  int rank;
  const Filled& filled;
  std::int64_t capacity;  // rows of the output

  MOE_LANES int count() const { return groups() + 1; }
  MOE_LANES Range at(int i) const {
    const std::int32_t* rows = filled.rowsPerExpert;
    const std::int32_t* offsets = filled.expertOffsets;
    if (i == groups()) return {filled.layoutRows, open() ? static_cast<int>(capacity) : filled.layoutRows};
    if (h.layout == Layout::expertMajor) return {offsets[i] + rows[i], offsets[i + 1]};
    if (h.layout == Layout::rankMajor) {
      const int came = filled.rankOffsets[i + 1] - filled.rankOffsets[i];
      return {i * h.tokensMax + came, (i + 1) * h.tokensMax};
    }
    const int each = h.map.nranks * h.tokensMax;
    return {i * each + rows[i], (i + 1) * each};
  }
  // A warp's share of a gap. Most gaps are short, so the shares of each gap begin at another warp.
  MOE_LANES Range share(int i, WarpIndex team) const {
    return shareOf(at(i), {(team.index + i) % team.count, team.count, team.blocks});
  }
  // A warp's share of all rows, as if none had arrived, but at most what the output has room for.
  MOE_LANES Range shareOfAll(WarpIndex team) const {
    const std::int64_t rows = open() || filled.layoutRows > capacity ? capacity : filled.layoutRows;
    return shareOf({0, static_cast<int>(rows)}, team);
  }

 private:
  // Layouts of a fixed size have nothing after the last row.
  MOE_LANES bool open() const { return h.layout == Layout::flat || h.layout == Layout::expertMajor; }
  static MOE_LANES Range shareOf(Range rows, WarpIndex team) {
    const Slice mine = sliceOf(rows.end - rows.begin, team);
    return {rows.begin + mine.begin, rows.begin + mine.begin + mine.count};
  }
  // Groups of rows: one per expert or per source.
  MOE_LANES int groups() const {
    if (h.layout == Layout::flat) return 0;
    return expertRows(h) ? h.map.count(rank) : h.map.nranks;
  }
};

template <Moves Warp>
class Padding {
 public:
  MOE_LANES Padding(const Warp& policy, const StepParams& p, const Filled& filled)
      : warp(policy), h_(p.handle), d_(p.dispatch), gaps_{p.handle, p.comm.rank, filled, p.dispatch.capacity} {}

  MOE_LANES void run(WarpIndex team) const {
    MOE_ROLLED
    for (int i = 0; i < gaps_.count(); ++i) fill(gaps_.share(i, team));
    if ((d_.padding & kPadScales) == 0) return;
    forBlocked([&](const ScalePads<Warp>& pads) { pads.run(team); });
  }

  // Pads all rows, as if none had arrived, but at most what the output has room for.
  MOE_LANES void runOverAll(WarpIndex team) const {
    fill(gaps_.shareOfAll(team));
    constexpr int kAll = kPadRows | kPadScales;
    if ((d_.padding & kAll) != kAll) return;
    forBlocked([&](const ScalePads<Warp>& pads) { pads.runOverAll(team); });
  }

 private:
  // Calls `body` for everything that lies in blocks of 128 rows: scales, and payloads.
  template <class Body>
  MOE_LANES void forBlocked(Body body) const {
    MOE_ROLLED
    for (int i = 0; i <= d_.payloads.count; ++i) {
      const PayloadWords* payload = i > 0 ? d_.payloads.payload + (i - 1) : nullptr;
      const ScaleGrid& grid = payload != nullptr ? payload->grid : d_.cast.grid;
      std::uint32_t* out = payload != nullptr ? payload->out : d_.cast.outScales;
      if (grid.blocked == 0 || out == nullptr) continue;
      const int words = payload != nullptr ? payload->end - payload->first : d_.cast.words;
      body(ScalePads<Warp>(warp, h_, d_, {grid, out, words}, gaps_.rank, gaps_.filled));
    }
  }

  MOE_LANES void fill(Range rows) const {
    if ((d_.padding & kPadIndices) != 0) padIndices(rows);
    if ((d_.padding & kPadRows) != 0) padRows(rows);
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
    const std::uint32_t bytes = casts ? d_.cast.codeBytes : d_.rowBytes;
    MOE_ROLLED
    for (int row = rows.begin; row < rows.end; ++row) {
      zero(d_.outRows + std::int64_t{row} * bytes, bytes);
      if (d_.outSide != nullptr) zero(d_.outSide + std::int64_t{row} * d_.sideBytes, d_.sideBytes);
      if (casts) padWords(d_.cast.outScales, d_.cast.grid, d_.cast.words, row);
      MOE_ROLLED
      for (int i = 0; i < d_.payloads.count; ++i) {
        const PayloadWords& payload = d_.payloads.payload[i];
        padWords(payload.out, payload.grid, payload.end - payload.first, row);
      }
    }
  }

  // Words in blocks are left to ScalePads.
  MOE_LANES void padWords(std::uint32_t* out, const ScaleGrid& grid, int count, int row) const {
    if (grid.blocked != 0) return;
    std::uint32_t* words = out + grid.rowStart(row);
    warp.forEach(count, [&](int word) { words[word * grid.wordStride] = 0; });
  }

  MOE_LANES void zero(std::uint8_t* row, std::uint32_t bytes) const {
    auto* quads = reinterpret_cast<Quad*>(row);
    warp.forEach(static_cast<int>(bytes / sizeof(Quad)), [&](int i) { warp.laneStore(quads + i, Quad{}); });
  }

  const Warp& warp;
  const HandleView& h_;
  const DispatchArgs& d_;
  const Gaps gaps_;
};

// The arguments are passed by value, because a GPU would keep the caller's objects in memory if they were references.
template <Moves Warp>
MOE_SELDOM void padOutputs(Warp warp, const StepParams& p, Filled filled, WarpIndex team) {
  Padding<Warp>(warp, p, filled).run(team);
}

}  // namespace moe
