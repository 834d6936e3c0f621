// The twin's rows to other ranks (twin_ht_dispatch.h): bulk copies into shared memory and out of it, loads ahead of
// stores. Lane 0 issues, all lanes look up where rows go. GPU code, from sm_90 on.
#pragma once

#include "device/cuda_bulk_warp.h"
#include "twin_wait.h"

namespace moe::perf::twin {

inline constexpr int kAwayWarps = 8;  // of a block
inline constexpr int kStages = kBulkStages;

// A stage's contents go to sinks[i], for each bit i of `live`.
struct StagedPiece {
  std::uint8_t* const* sinks;
  unsigned live;
  std::uint32_t offset, bytes;
};

// Shared memory of a warp that pushes: where its next rows go, in turns, and what is in its stages.
struct AwayDesk {
  std::uint8_t* sinks[2][kLanes];
  StagedPiece pieces[kStages];
  std::uint64_t full[kStages];
};

struct Pipe {
  AwayDesk& desk;
  std::uint8_t* stages;
  std::uint32_t stageBytes;
  std::uint32_t loads = 0, stores = 0;
  int loadAt = 0, storeAt = 0;
  std::uint32_t parity = 0;  // of the stage that is stored next

  MOE_LANES std::uint8_t* stage(int at) const { return stages + static_cast<std::uint32_t>(at) * stageBytes; }
  MOE_LANES std::uint32_t full(int at) const { return cuda_bulk::sharedAddress(desk.full + at); }
};

// Bytes of this rank's own memory always come: if not, the GPU has a defect.
MOE_LANES bool storePiece(const CommView& c, Pipe& pipe) {
  const StagedPiece piece = pipe.desk.pieces[pipe.storeAt];
  Patience patience;
  while (!cuda_bulk::tryWait(pipe.full(pipe.storeAt), pipe.parity)) {
    if (!patience.lasts(c, {0, Fault::timeout, Phase::ownWarps, c.rank, 0, 0, 0, 0})) return false;
  }
  for (unsigned left = piece.live; left != 0; left &= left - 1) {
    cuda_bulk::store(piece.sinks[__ffs(static_cast<int>(left)) - 1] + piece.offset, pipe.stage(pipe.storeAt),
                     piece.bytes);
  }
  cuda_bulk::commit();
  ++pipe.stores;
  if (++pipe.storeAt == kStages) pipe.storeAt = 0, pipe.parity ^= 1;
  return true;
}

MOE_LANES bool storeUpTo(const CommView& c, Pipe& pipe, std::uint32_t pieces) {
  while (static_cast<std::int32_t>(pieces - pipe.stores) > 0) {
    if (!storePiece(c, pipe)) return false;
  }
  return true;
}

MOE_LANES bool moveRow(const CommView& c, Pipe& pipe, const std::uint8_t* row, std::uint32_t rowBytes,
                       std::uint8_t* const* sinks, unsigned live) {
  for (std::uint32_t offset = 0; offset < rowBytes; offset += pipe.stageBytes) {
    if (pipe.loads - pipe.stores == kStages - 1 && !storePiece(c, pipe)) return false;
    const std::uint32_t bytes = min(rowBytes - offset, pipe.stageBytes);
    const std::uint32_t full = pipe.full(pipe.loadAt), stage = cuda_bulk::sharedAddress(pipe.stage(pipe.loadAt));
    cuda_bulk::waitRead<1>();  // all but the latest store have left their stages
    pipe.desk.pieces[pipe.loadAt] = {sinks, live, offset, bytes};
    cuda_bulk::expectBytes(full, bytes);
    cuda_bulk::load(stage, row + offset, bytes, full);
    ++pipe.loads;
    if (++pipe.loadAt == kStages) pipe.loadAt = 0;
  }
  return true;
}

// Tokens first, first + stride, ... are a warp's; `atOnce` of them are looked up together, a lane for each destination.
// These take turns to be the first: in rank order all ranks would store to the same one at the same time.
struct AwayTokens {
  const CommView& c;
  const HandleView& h;
  int tokens, first, stride, atOnce;

  MOE_LANES AwayTokens(const StepParams& p)
      : c(p.comm),
        h(p.handle),
        tokens(p.dispatch.tokens),
        first(static_cast<int>(blockIdx.x + threadIdx.x / kLanes * gridDim.x)),
        stride(kAwayWarps * static_cast<int>(gridDim.x)),
        atOnce(kLanes / p.handle.slots) {}

  MOE_LANES Destination lookUp(int begin) const {
    const int job = lane() / h.slots, token = begin + job * stride;
    if (job >= atOnce || token >= tokens) return {kNoRank, 0, 0, 0};
    return h.destinations[std::int64_t{token} * h.slots + (lane() + c.rank + token - job * h.slots) % h.slots];
  }
};

// Sends one payload; `next` are the first tokens' destinations. False if it came to a bad end.
MOE_LANES bool pushAway(const AwayTokens& mine, Destination next, std::uint8_t* const* bases, const std::uint8_t* from,
                        std::uint32_t rowBytes, Pipe& pipe) {
  const unsigned all = kAll >> (kLanes - mine.h.slots);
  bool good = true;
  std::uint32_t before = pipe.loads, latest = pipe.loads;  // pieces up to the last look-up but one, and up to the last
  for (int begin = mine.first, turn = 0; begin < mine.tokens; begin += mine.atOnce * mine.stride, turn ^= 1) {
    const Destination to = next;
    next = mine.lookUp(begin + mine.atOnce * mine.stride);
    if (lane() == 0) good = good && storeUpTo(mine.c, pipe, before);  // these sinks are overwritten now
    good = __shfl_sync(kAll, good, 0);
    if (!good) return false;
    std::uint8_t** sinks = pipe.desk.sinks[turn];
    const bool leaves = to.rank != kNoRank && to.rank != mine.c.rank;
    if (leaves) sinks[lane()] = bases[to.rank] + static_cast<std::int64_t>(to.flat) * rowBytes;
    const unsigned live = __ballot_sync(kAll, leaves);
    __syncwarp();
    if (lane() != 0) continue;
    for (int job = 0; job < mine.atOnce && good; ++job) {
      const unsigned ofJob = live >> (job * mine.h.slots) & all;
      if (ofJob == 0) continue;
      const std::int64_t token = begin + job * mine.stride;
      good = moveRow(mine.c, pipe, from + token * rowBytes, rowBytes, sinks + job * mine.h.slots, ofJob);
    }
    before = latest, latest = pipe.loads;
  }
  if (lane() == 0) good = good && storeUpTo(mine.c, pipe, pipe.loads);
  return __shfl_sync(kAll, good, 0);
}

}  // namespace moe::perf::twin
