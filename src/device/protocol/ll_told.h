// What a dispatch that routes tells each receiver beside its rows: terms and counts, and the header of every row.
#pragma once

#include "device/protocol/ll_exchange.h"
#include "device/protocol/route/route_refusal.h"
#include "device/view/terms.h"

namespace moe {

// What rank `from` tells this one.
template <class T>
MOE_LANES T* llToldBy(const CommView& c, const HandleView& h, int from) {
  return c.mine<T>(llToldOffset(c, h, c.at.llTold, from));
}

// A dispatch's terms, as the second Quad has them.
MOE_LANES std::uint64_t llTermsTold(const Quad& dispatch) {
  return std::uint64_t{dispatch.y} << 32 | dispatch.x;
}

// Where this rank writes what it tells rank `to`: there, or where it waits to be put.
MOE_LANES std::uint8_t* llToldTo(const StepParams& p, bool remote, int to) {
  const CommView& c = p.comm;
  if (remote) return c.mine<std::uint8_t>(llToldOffset(c, p.handle, c.far->at.llToldOut, to));
  return c.in<std::uint8_t>(to, llToldOffset(c, p.handle, c.at.llTold, c.rank));
}

// The first entry that cannot be, to all ranks. One warp.
template <Moves Warp>
MOE_SELDOM void llTellBadEntry(Warp warp, const StepParams& p) {
  storeBadEntry(warp, p, allRanks(p.comm), [&](int to) {
    const bool remote = Warp::kPuts && !p.comm.inDomain(to);
    return reinterpret_cast<Quad*>(llToldTo(p, remote, to)) + 2;
  });
}

// How many of a token's entries are for experts of `rank`: before entry k, and in all. idOf(entry): the physical one of
// an entry.
template <class IdOf>
MOE_LANES Sums entriesBy(const StepParams& p, int token, int k, int rank, IdOf idOf) {
  const HandleView& h = p.handle;
  return laneSums<8>(h.topk, k, [&](int other) {
    const int entry = token * h.topk + other;
    const std::int64_t id = idOf(entry);
    if (id < 0 || id >= h.map.experts || !h.map.isOn(static_cast<int>(id), rank)) return 0;
    return h.merges == 0 || takenEntry(h, p.route, entry).with == other ? 1 : 0;
  });
}
// The same of a handle with a placement. Templates may be in several kernels' files.
template <class Params>
MOE_SELDOM Sums placedEntriesFor(const Params& p, int token, int k, int rank) {
  return entriesBy(p, token, k, rank, [&](int entry) { return indexAt(p.handle, p.route, entry); });
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

  // The warps of the first block, which has counted experts too. `w`: among all warps of the step. `refuses`: an entry
  // cannot be, and the ranks make an empty route.
  MOE_LANES void storeCounts(WarpIndex w, bool refuses) const {
    const HandleView& h = s.handle;
    const Slice slice = sliceOf(h.map.experts + h.map.nranks, {w.index / w.blocks, w.count / w.blocks, 1});
    Quad handle = termsOf(h);
    if (refuses) handle.w |= kRouteRefused;
    s.warp.forEach(slice.count, [&](int i) {
      const int bucket = slice.begin + i, count = users.total(bucket), experts = h.map.experts;
      h.sent.totals[bucket] = count;
      if (bucket < experts) return laneStoreExpert(bucket, count);
      auto* head = reinterpret_cast<Quad*>(told(bucket - experts));
      const std::uint64_t terms = s.args.terms;
      s.warp.laneStore(head, handle);
      s.warp.laneStore(head + 1, Quad{static_cast<std::uint32_t>(terms), static_cast<std::uint32_t>(terms >> 32),
                                      static_cast<std::uint32_t>(count), 0});
    });
    if (refuses && w.index == 0) llTellBadEntry(s.warp, s.p);
  }

  MOE_LANES int rowsTo(int to) const { return users.total(s.handle.map.experts + to); }

  // What waits for a remote rank, when all warps have stored theirs.
  MOE_LANES Put blockPut(int to) const {
    const CommView& c = s.comm;
    return putBytes(to, llToldOffset(c, s.handle, c.at.llTold, c.rank),
                    llToldOffset(c, s.handle, c.far->at.llToldOut, to),
                    static_cast<std::uint32_t>(llToldHeader(c, s.handle, rowsTo(to))), s.epoch);
  }

 private:
  MOE_LANES std::uint8_t* told(int to) const { return llToldTo(s.p, s.isRemote(to), to); }
  MOE_LANES Quad* header(int to, int index) const {
    return reinterpret_cast<Quad*>(told(to) + llToldHeader(s.comm, s.handle, index));
  }

  // How many of a token's entries are for experts of `rank`: before entry k, and in all.
  MOE_LANES Sums entriesFor(int token, int k, int rank) const {
    if (s.handle.placement != nullptr) return placedEntriesFor(s.p, token, k, rank);
    return entriesBy(s.p, token, k, rank, [&](int entry) { return givenIndexAt(s.handle, s.p.route, entry); });
  }

  MOE_LANES void laneStoreExpert(int expert, int count) const {
    const int to = s.handle.map.rankOf(expert), local = static_cast<int>(s.handle.map.local(expert, to));
    s.warp.laneStore(reinterpret_cast<std::int32_t*>(told(to)) + kToldWords + local, count);
  }

  MOE_LANES void laneStoreEntry(int token, int k) const {
    const HandleView& h = s.handle;
    const int entry = token * h.topk + k;
    const TakenEntry taken = takenEntry(h, s.p.route, entry);
    const int expert = keptId(h, k, taken);
    h.sent.ids[entry] = expert;
    h.sent.weights[entry] = taken.weight;
    if (expert < 0) return;
    const int to = h.map.rankOf(expert), row = expertRows(h) ? users.positionOf(token, expert) : 0;
    s.warp.laneStore(header(to, users.positionOf(token, h.map.experts + to)) + 1 + entriesFor(token, k, to).before,
                     makeEntry(h.map.local(expert, to), k, taken.weight, row));
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
