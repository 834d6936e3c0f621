// What a dispatch that routes tells each receiver beside its rows: terms and counts, and the header of every row.
#pragma once

#include "device/protocol/ll_exchange.h"
#include "device/protocol/route/route_count.h"

namespace moe {

// Where rank `from` tells this one.
MOE_LANES std::uint64_t llToldBy(const AnySession auto& s, int from) {
  return llToldOffset(s.comm, s.handle, s.comm.at.llTold, from);
}

// The sender's side. `Users` says which token goes where (ll_users.h).
template <LlSending S, class Users>
struct LlTelling {
  const S& s;
  const Users& users;

  // All warps share out the Quads of all headers, and with them the handle's tables of what is sent. Numbers begin at
  // the middle warp, since the first ones have more parts of rows where those are few.
  MOE_LANES void storeHeaders() const {
    const HandleView& h = s.handle;
    const int each = h.topk + h.destinationsMax;
    const Slice slice = sliceOf(s.args.tokens * each, {(s.w.index + s.w.count / 2) % s.w.count, s.w.count, s.w.blocks});
    s.warp.forEach(slice.count, [&](int i) {
      const int token = h.byItems.of(slice.begin + i), k = slice.begin + i - token * each;
      if (k < h.topk) return laneStoreEntry(token, k);
      laneStoreHead(token, k - h.topk);
    });
  }

  // The warps of the first block, which has counted experts too. `w`: among all warps of the step.
  MOE_LANES void storeCounts(WarpIndex w) const {
    const HandleView& h = s.handle;
    const Slice slice = sliceOf(h.buckets(), {w.index / w.blocks, w.count / w.blocks, 1});
    s.warp.forEach(slice.count, [&](int i) {
      const int bucket = slice.begin + i, count = users.total(bucket), experts = h.map.experts;
      h.sent.totals[bucket] = count;
      if (bucket < experts) return laneStoreExpert(bucket, count);
      auto* head = reinterpret_cast<Quad*>(told(bucket - experts));
      const std::uint64_t terms = s.args.terms;
      s.warp.laneStore(head, h.terms);
      s.warp.laneStore(head + 1, Quad{static_cast<std::uint32_t>(terms), static_cast<std::uint32_t>(terms >> 32),
                                      static_cast<std::uint32_t>(count), 0});
    });
  }

  // What waits for a remote rank, when all warps have stored theirs.
  MOE_LANES Put blockPut(int to) const {
    const CommView& c = s.comm;
    const int rows = s.handle.sent.totals[s.handle.map.experts + to];
    return putBytes(to, llToldOffset(c, s.handle, c.at.llTold, c.rank),
                    llToldOffset(c, s.handle, c.far->at.llToldOut, to),
                    static_cast<std::uint32_t>(llToldHeader(c, s.handle, rows)), s.epoch);
  }

 private:
  // Where this rank writes what it tells rank `to`.
  MOE_LANES std::uint8_t* told(int to) const {
    const CommView& c = s.comm;
    if (s.isRemote(to)) return c.template mine<std::uint8_t>(llToldOffset(c, s.handle, c.far->at.llToldOut, to));
    return c.template in<std::uint8_t>(to, llToldOffset(c, s.handle, c.at.llTold, c.rank));
  }
  MOE_LANES Quad* header(int to, int index) const {
    return reinterpret_cast<Quad*>(told(to) + llToldHeader(s.comm, s.handle, index));
  }

  // How many of a token's entries are for experts of `rank`: before entry k, and in all.
  MOE_LANES Sums entriesFor(int token, int k, int rank) const {
    const HandleView& h = s.handle;
    return laneSums<8>(h.topk, k, [&](int other) {
      return h.map.isOn(static_cast<int>(indexAt(h, s.p.route, token * h.topk + other)), rank) ? 1 : 0;
    });
  }

  MOE_LANES void laneStoreExpert(int expert, int count) const {
    const int to = s.handle.map.rankOf(expert), local = static_cast<int>(s.handle.map.local(expert, to));
    s.warp.laneStore(reinterpret_cast<std::int32_t*>(told(to)) + kToldWords + local, count);
  }

  MOE_LANES void laneStoreEntry(int token, int k) const {
    const HandleView& h = s.handle;
    const RouteArgs& route = s.p.route;
    const int entry = token * h.topk + k, expert = static_cast<int>(indexAt(h, route, entry));
    const float weight = route.topkWeights != nullptr ? route.topkWeights[entry] : 1.0f;
    h.sent.ids[entry] = expert;
    h.sent.weights[entry] = weight;
    if (expert < 0 || expert >= h.map.experts) return;
    const int to = h.map.rankOf(expert), row = expertRows(h) ? users.positionOf(token, expert) : 0;
    s.warp.laneStore(header(to, users.positionOf(token, h.map.experts + to)) + 1 + entriesFor(token, k, to).before,
                     makeEntry(h.map.local(expert, to), k, weight, row));
  }

  MOE_LANES void laneStoreHead(int token, int ordinal) const {
    const HandleView& h = s.handle;
    const Destination to = users.of(token, ordinal);
    h.sent.destinations[std::int64_t{token} * h.destinationsMax + ordinal] = to;
    if (ordinal == 0) {
      h.sent.localCount[token] = users.localDestinations(token);
      h.sent.destinationCount[token] = users.destinations(token);
    }
    if (to.rank == kNoRank) return;
    if (s.isRemote(to.rank)) h.rails.outgoing[static_cast<std::int64_t>(to.rank) * h.tokensMax + to.index] = token;
    s.warp.laneStore(header(to.rank, to.index),
                     makeHead(token, waveOf(token, s.args.tokens), 0, s.comm.rank, entriesFor(token, 0, to.rank).all));
  }
};

}  // namespace moe
