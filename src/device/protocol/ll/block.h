// A block of lanes that share scratch memory, in a dispatch that routes: its session, its tables, which tokens it
// sends, and which parts of their rows a warp of it.
#pragma once

#include "device/protocol/core/session.h"
#include "device/protocol/core/shares.h"

namespace moe {

// The session of a block, with its tables. `kIsPlain`: of a dispatch that carries nothing special.
template <Computes Wide, bool kIsPlain>
struct LlBlock : Session<Wide> {
  static constexpr bool kPlain = kIsPlain;

  MOE_LANES LlBlock(const Wide& policy, const StepParams& params, WarpIndex own, const Operation& operation)
      : Session<Wide>(policy, params, {own.block(), own.blocks, own.blocks}, operation), memory_(memory()) {}

  MOE_LANES std::uint32_t* earlier() const { return memory_ + at().earlier; }
  MOE_LANES std::uint32_t* before() const { return memory_ + at().before; }
  MOE_LANES std::uint32_t* users() const { return memory_ + at().users; }
  MOE_LANES std::uint32_t* ranks() const { return memory_ + at().ranks; }
  MOE_LANES std::uint32_t* word(LlWord which) const { return memory_ + at().words + which; }
  MOE_LANES std::int32_t* ids() const { return table<std::int32_t>(at().ids); }
  MOE_LANES float* weights() const { return table<float>(at().weights); }
  MOE_LANES std::int32_t* lastRows() const { return table<std::int32_t>(at().lastRows); }
  MOE_LANES std::int32_t* rankRows() const { return table<std::int32_t>(at().rankRows); }
  MOE_LANES std::int32_t* rankOffsets() const { return table<std::int32_t>(at().rankOffsets); }
  MOE_LANES std::int32_t* expertOffsets() const { return table<std::int32_t>(at().expertOffsets); }
  MOE_LANES std::int32_t* rowsPerExpert() const { return table<std::int32_t>(at().rowsPerExpert); }
  MOE_LANES std::int32_t* entriesBefore() const { return table<std::int32_t>(at().entriesBefore); }
  MOE_LANES Quad* headers() const { return table<Quad>(at().headers); }

 private:
  MOE_LANES const LlTableLayout& at() const { return this->handle.llTables; }
  template <class T>
  MOE_LANES T* table(int words) const {
    return reinterpret_cast<T*>(memory_ + words);
  }
  MOE_LANES std::uint32_t* memory() const {
    std::uint8_t* memory = this->warp.scratchMemory();
    if constexpr (Wide::kScratchBytes < kLlTableBytesMax) {
      const std::int64_t bytes = llTableBytes(at());
      if (bytes > Wide::kScratchBytes) memory = this->handle.sent.tables.blocks + this->w.index * bytes;
    }
    return reinterpret_cast<std::uint32_t*>(memory);
  }

  std::uint32_t* memory_;
};

// The tokens [first, end) of a block. Where there are blocks enough, two `sharers` share a token, and this is number
// `sharer`.
struct LlShare {
  int first, end, sharer, sharers;
  bool leads;  // knows of all tokens, and tells counts: it has the last token, or counts apart

  // `block`: among all blocks. With `countingBlock` the last of several counts, and moves no rows, as the others would
  // wait for it. No division where there are blocks enough.
  static MOE_LANES LlShare of(const DispatchArgs& d, WarpIndex block) {
    const bool apart = d.countingBlock != 0 && block.count > 1;
    const int tokens = d.tokens, movers = apart ? block.count - 1 : block.count;
    const int sharers = tokens > 0 && tokens * 2 <= movers ? 2 : 1;
    const int number = sharers == 2 ? block.index / 2 : block.index, sharer = block.index - number * sharers;
    const int each = tokens <= movers ? 1 : (tokens + movers - 1) / movers;
    const bool counts = apart && block.index == movers;
    const int first = counts ? tokens : number * each < tokens ? number * each : 0;
    const int end = counts ? tokens : number * each >= tokens ? 0 : first + each < tokens ? first + each : tokens;
    const bool last = tokens > 0 ? end == tokens && sharer == 0 : block.index == 0;
    return {first, end, sharer, sharers, apart ? counts : last};
  }

  // Warp `warp` of a block's `warps` among all that share these tokens' rows.
  MOE_LANES WarpIndex team(int warp, int warps) const { return {warp * sharers + sharer, warps * sharers, sharers}; }
};

// A warp's parts of the rows of some tokens. A team mostly has a warp for each part of a row.
struct LlParts {
  Range tokens;
  Parts parts;
  std::uint32_t rowBytes;
  WarpIndex team;
  int each;  // of a row: this warp's

  static MOE_LANES LlParts of(Range tokens, const Parts& parts, std::uint32_t rowBytes, WarpIndex team) {
    const int left = parts.count - team.index;
    const int each = left <= 0 ? 0 : left <= team.count ? 1 : (left + team.count - 1) / team.count;
    return {tokens, parts, rowBytes, team, each};
  }
  MOE_LANES int count() const { return (tokens.end - tokens.begin) * each; }
  MOE_LANES PartOf at(int i) const {
    const int token = each == 1 ? i : i / each, part = team.index + (i - token * each) * team.count;
    const std::uint32_t begin = static_cast<std::uint32_t>(part) * parts.bytes, left = rowBytes - begin;
    return {tokens.begin + token, begin, left < parts.bytes ? left : parts.bytes};
  }
};

}  // namespace moe
