// What a step does for the ranks of other domains, whose windows it cannot store to: it fills memory of its own window
// and puts it. The ranks are shared out among the warps; the one that serves a rank puts its rows and, behind them, its
// flag, when all warps of this rank have filled what is theirs.
#pragma once

#include "device/protocol/step.h"

namespace moe {

// Calls serve(rank) for the remote ranks of this warp, as long as it returns true.
template <class Serve>
MOE_LANES void forRemoteRanks(const CommView& c, WarpIndex w, Serve serve) {
  for (int i = w.index; i < c.remoteRanks(); i += w.count) {
    if (!serve(c.remoteRank(i))) return;
  }
}

// One put of `bytes` bytes, if there are any.
template <Core Warp>
MOE_LANES void putBlock(const Warp& warp, const CommView& c, int to, std::uint64_t target, std::uint64_t source,
                        std::int64_t bytes, std::uint64_t connection = 0) {
  warp.put(c, bytes > 0 ? 1 : 0,
           [&](int) { return putBytes(to, target, source, static_cast<std::uint32_t>(bytes), connection); });
}

// This rank's word of the flags at `area`, at a remote rank, behind all that was put there by that connection before.
MOE_LANES Put flagPut(const CommView& c, int to, std::uint64_t area, std::uint64_t epoch,
                      std::uint64_t connection = 0) {
  return putWord(to, area + static_cast<std::uint64_t>(c.rank) * sizeof(Flag), flagWord(epoch), connection);
}
template <Core Warp>
MOE_LANES void putFlag(const Warp& warp, const CommView& c, int to, std::uint64_t area, std::uint64_t epoch,
                       std::uint64_t connection = 0) {
  warp.put(c, 1, [&](int) { return flagPut(c, to, area, epoch, connection); });
}

// `tell` for all remote ranks, by one warp.
template <Core Warp>
MOE_LANES void tellRemote(const Warp& warp, const CommView& c, std::uint64_t area, std::uint64_t epoch) {
  if (!split(warp, c)) return;
  warp.put(c, c.remoteRanks(), [&](int i) { return flagPut(c, c.remoteRank(i), area, epoch); });
}

// One warp tells every rank that this rank's stream has come to an operation: what it read in the one before is free.
template <Core Warp>
MOE_LANES void tellFree(const Warp& warp, const CommView& c, const std::uint64_t& area, std::uint64_t epoch,
                        WarpIndex w) {
  if (w.index != 0) return;
  tell(warp, c, area, epoch);
  tellRemote(warp, c, area, epoch);
}

}  // namespace moe
