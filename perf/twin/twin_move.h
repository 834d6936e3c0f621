// The twin's rows (twin/twin_ht_dispatch.h): bulk copies into shared memory and, to other ranks, out of it, loads ahead
// of stores; what stays here is stored by the lanes. All lanes look up where rows go. GPU code, from sm_90 on.
#pragma once

#include "device/policy/cuda/bulk_warp.h"
#include "perf/twin/twin_wait.h"

namespace moe::perf::twin {

inline constexpr int kMovingWarps = 8;  // of a block
inline constexpr int kStages = kBulkStages;
inline constexpr int kKeepBatch = 7;  // 16-byte pieces of a lane at once

// A stage's contents go to sinks[i], for each bit i: in other ranks' memory and in this one's.
struct StagedPiece {
  std::uint8_t* const* sinks;
  unsigned away, here;
  std::uint32_t offset, bytes;
};

// Shared memory of a warp that moves rows: where its next ones go, in turns, and what is in its stages.
struct MoveDesk {
  std::uint8_t* sinks[2][kLanes];
  StagedPiece pieces[kStages];
  std::uint64_t full[kStages];
};

struct Pipe {
  MoveDesk& desk;
  std::uint8_t* stages;
  std::uint32_t stageBytes;
  std::uint32_t loads = 0, stores = 0;
  int loadAt = 0, storeAt = 0;
  std::uint32_t parity = 0;  // of the stage that is stored next

  MOE_LANES std::uint8_t* stage(int at) const { return stages + static_cast<std::uint32_t>(at) * stageBytes; }
  MOE_LANES std::uint32_t full(int at) const { return cuda_bulk::sharedAddress(desk.full + at); }
};

MOE_LANES void keepPiece(std::uint8_t* out, std::uint32_t from, std::uint32_t bytes) {
  constexpr int kQuad = sizeof(Quad), kAtOnce = kLanes * kKeepBatch;
  auto* to = reinterpret_cast<Quad*>(out) + lane();
  int left = static_cast<int>(bytes) / kQuad - lane();
  from += lane() * kQuad;
  for (; left > kAtOnce - kLanes; left -= kAtOnce, to += kAtOnce, from += kAtOnce * kQuad) {
    Quad piece[kKeepBatch];
#pragma unroll
    for (int i = 0; i < kKeepBatch; ++i) piece[i] = cuda_bulk::loadQuad(from + i * kLanes * kQuad);
#pragma unroll
    for (int i = 0; i < kKeepBatch; ++i) to[i * kLanes] = piece[i];
  }
  for (; left > 0; left -= kLanes, to += kLanes, from += kLanes * kQuad) *to = cuda_bulk::loadQuad(from);
}

// Bytes of this rank's own memory always come: if not, the GPU has a defect.
MOE_LANES bool storePiece(const CommView& c, Pipe& pipe) {
  const StagedPiece piece = pipe.desk.pieces[pipe.storeAt];
  Patience patience;
  bool good = true;
  while (good && !cuda_bulk::tryWait(pipe.full(pipe.storeAt), pipe.parity)) {
    good = patience.lasts(c, {0, Fault::timeout, Phase::ownWarps, c.rank, 0, 0, 0, 0});
  }
  if (!__all_sync(kAll, good)) return false;
  std::uint8_t* const from = pipe.stage(pipe.storeAt);
  if (lane() == 0) {
    for (unsigned left = piece.away; left != 0; left &= left - 1) {
      cuda_bulk::store(piece.sinks[__ffs(static_cast<int>(left)) - 1] + piece.offset, from, piece.bytes);
    }
    cuda_bulk::commit();
  }
  for (unsigned left = piece.here; left != 0; left &= left - 1) {
    keepPiece(piece.sinks[__ffs(static_cast<int>(left)) - 1] + piece.offset, cuda_bulk::sharedAddress(from),
              piece.bytes);
  }
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
                       std::uint8_t* const* sinks, unsigned away, unsigned here) {
  for (std::uint32_t offset = 0; offset < rowBytes; offset += pipe.stageBytes) {
    if (pipe.loads - pipe.stores == kStages - 1 && !storePiece(c, pipe)) return false;
    __syncwarp();  // every lane has read what was in the stage
    if (lane() == 0) {
      const std::uint32_t bytes = min(rowBytes - offset, pipe.stageBytes);
      const std::uint32_t full = pipe.full(pipe.loadAt), stage = cuda_bulk::sharedAddress(pipe.stage(pipe.loadAt));
      cuda_bulk::waitRead<1>();  // all but the latest store have left their stages
      pipe.desk.pieces[pipe.loadAt] = {sinks, away, here, offset, bytes};
      cuda_bulk::expectBytes(full, bytes);
      cuda_bulk::load(stage, row + offset, bytes, full);
    }
    __syncwarp();
    ++pipe.loads;
    if (++pipe.loadAt == kStages) pipe.loadAt = 0;
  }
  return true;
}

// Tokens first, first + stride, ... are a warp's; `atOnce` of them are looked up together, a lane for each destination.
// These take turns to be the first: in rank order all ranks would store to the same one at the same time.
struct WarpTokens {
  const CommView& c;
  const HandleView& h;
  int tokens, first, stride, atOnce;

  MOE_LANES WarpTokens(const StepParams& p)
      : c(p.comm),
        h(p.handle),
        tokens(p.dispatch.tokens),
        first(static_cast<int>(blockIdx.x + threadIdx.x / kLanes * gridDim.x)),
        stride(kMovingWarps * static_cast<int>(gridDim.x)),
        atOnce(kLanes / p.handle.slots) {}

  MOE_LANES Destination lookUp(int begin) const {
    const int job = lane() / h.slots, token = begin + job * stride;
    if (job >= atOnce || token >= tokens) return {kNoRank, 0, 0, 0};
    return h.destinations[std::int64_t{token} * h.slots + (lane() + c.rank + token - job * h.slots) % h.slots];
  }
};

// Moves one payload; `next` are the first tokens' destinations. False if it came to a bad end.
MOE_LANES bool movePayload(const WarpTokens& mine, Destination next, std::uint8_t* const* bases,
                           const std::uint8_t* from, std::uint32_t rowBytes, Pipe& pipe) {
  const unsigned ofFirst = kAll >> (kLanes - mine.h.slots);
  std::uint32_t before = pipe.loads, latest = pipe.loads;  // pieces up to the last look-up but one, and up to the last
  for (int begin = mine.first, turn = 0; begin < mine.tokens; begin += mine.atOnce * mine.stride, turn ^= 1) {
    const Destination to = next;
    next = mine.lookUp(begin + mine.atOnce * mine.stride);
    if (!storeUpTo(mine.c, pipe, before)) return false;  // these sinks are overwritten now
    __syncwarp();
    std::uint8_t** sinks = pipe.desk.sinks[turn];
    if (to.rank != kNoRank) sinks[lane()] = bases[to.rank] + static_cast<std::int64_t>(to.flat) * rowBytes;
    const unsigned away = __ballot_sync(kAll, to.rank != kNoRank && to.rank != mine.c.rank);
    const unsigned here = __ballot_sync(kAll, to.rank == mine.c.rank);
    __syncwarp();
    for (int job = 0; job < mine.atOnce; ++job) {
      const unsigned ofJob = ofFirst << (job * mine.h.slots);
      if (((away | here) & ofJob) == 0) continue;
      const std::int64_t token = begin + job * mine.stride;
      if (!moveRow(mine.c, pipe, from + token * rowBytes, rowBytes, sinks, away & ofJob, here & ofJob)) return false;
    }
    before = latest, latest = pipe.loads;
  }
  return storeUpTo(mine.c, pipe, pipe.loads);
}

}  // namespace moe::perf::twin
