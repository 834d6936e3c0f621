// A block of lanes that share scratch memory, in a dispatch that routes: its session, and its tables.
#pragma once

#include "device/protocol/core/session.h"

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

}  // namespace moe
