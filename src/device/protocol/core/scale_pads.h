// Scales in blocks, and payloads, have places for rows that no row arrives for. Their owner stores zeros there: a
// tensor core loads whole blocks. README.md, "Scales in blocks of 128 rows".
#pragma once

#include "device/policy/contract.h"
#include "device/protocol/core/shares.h"

namespace moe {

// What the rows that arrive take up of an output.
struct Filled {
  const std::int32_t *rowsPerExpert, *expertOffsets, *rankOffsets;  // as in Arriving
  int layoutRows;
};

// What lies in blocks: `words` of each row.
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

  // Behind the rows of each group: to the end of their last block or, with kPadRows, of all blocks. Warps share out the
  // groups, and what is behind all of them: a warp that went through all groups would wait for the rows of each.
  MOE_LANES void run(WarpIndex team) const {
    const int n = groups(), each = n > 0 && n < team.count ? team.count / n : 1;  // warps for a group
    const int own = team.index / each;                                            // idle ones have no group
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
  // Zeros to blocks [block, end), in the first of which `rows` rows are there.
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

  // ---- Groups of rows. The last one, number groups(), is what lies behind all of them.

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
  // All that the output has room for.
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

}  // namespace moe
