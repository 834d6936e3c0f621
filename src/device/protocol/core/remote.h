// How a step reaches ranks of other domains. It cannot store to their windows, so it fills memory of its own window and
// puts from there. The ranks are divided among the warps. The warp that serves a rank waits until all warps of this
// rank have filled their parts. Then it puts the rows, and its flag after them.
#pragma once

#include "device/protocol/core/session.h"

namespace moe {

// Calls serve(rank) for the remote ranks of this warp, as long as it returns true.
template <class Serve>
MOE_LANES void forRemoteRanks(const AnySession auto& s, Serve serve) {
  for (int i = s.w.index; i < s.comm.remoteRanks(); i += s.w.count) {
    if (!serve(s.comm.remoteRank(i))) return;
  }
}

// A block of this rank's window, and its place in another rank's window.
struct Block {
  std::uint64_t target, source;
  std::int64_t bytes;
  std::uint64_t connection = 0;
};
// One put, if there are any bytes.
MOE_LANES void putBlock(const AnySession auto& s, int to, const Block& block) {
  s.warp.put(s.comm, block.bytes > 0 ? 1 : 0, [&](int) {
    return putBytes(to, block.target, block.source, static_cast<std::uint32_t>(block.bytes), block.connection);
  });
}

// The put of this rank's word of the flags at `area` to a remote rank. It arrives after everything that was put there
// over the same connection before.
MOE_LANES Put flagPut(const CommView& c, int to, std::uint64_t area, std::uint64_t epoch, std::uint64_t connection = 0,
                      int content = 0) {
  return putWord(to, area + static_cast<std::uint64_t>(c.rank) * sizeof(Flag), flagWord(epoch, content), connection);
}

MOE_LANES void putFlag(const AnySession auto& s, int to, std::uint64_t area) {
  s.warp.put(s.comm, 1, [&](int) { return flagPut(s.comm, to, area, s.epoch); });
}

// Does tell() for all remote ranks. One warp calls it.
MOE_LANES void tellRemote(const AnySession auto& s, std::uint64_t area) {
  if (!s.split()) return;
  s.warp.put(s.comm, s.comm.remoteRanks(), [&](int i) { return flagPut(s.comm, s.comm.remoteRank(i), area, s.epoch); });
}

// Tells every rank that this rank has reached an operation, so that the memory that its previous operation read is
// free. One warp does it.
MOE_LANES void tellFree(const AnySession auto& s, const std::uint64_t& area) {
  if (s.w.index != 0) return;
  s.tell(area, s.epoch);
  tellRemote(s, area);
}

}  // namespace moe
