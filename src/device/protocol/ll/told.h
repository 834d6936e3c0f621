// What a dispatch that routes tells each receiver beside its rows: terms and counts, and the header of every row.
#pragma once

#include "device/protocol/ll/exchange.h"
#include "device/protocol/route/refusal.h"
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

// The items of n of warp `warp` of `warps`: only as many warps as needed have some, each one for each lane.
template <class Warp>
MOE_LANES Slice lanesOf(int n, int warp, int warps) {
  if (n > warps * Warp::kLanes) return sliceOf(n, {warp, warps, 1});
  const int before = warp * Warp::kLanes, left = n - before;
  return {before, left < 0 ? 0 : left < Warp::kLanes ? left : Warp::kLanes};
}

// The sender's side. `Places` says which token at hand goes where (ll/places.h).
template <LlSending S, class Places>
struct LlTelling {
  const S& s;
  const Places& places;

  // The headers of the tokens at hand, and with them the handle's tables of what is sent: by the last warps of the
  // block, as the first ones have parts of rows. Entries and heads by different warps, which need different code.
  MOE_LANES void storeHeaders(int warp, int warps) const {
    const HandleView& h = s.handle;
    const int entries = places.size() * h.topk, heads = places.size() * h.destinationsMax;
    const int back = warps - 1 - warp, pairs = (warps + 1) / 2;
    if (warps == 1 || back % 2 == 0) {
      const Slice slice = lanesOf<typename S::Policy>(entries, back / 2, pairs);
      s.warp.forEach(slice.count, [&](int i) {
        const int at = h.byTopk.of(slice.begin + i);
        laneStoreEntry(places.first() + at, slice.begin + i - at * h.topk);
      });
    }
    if (warps == 1 || back % 2 != 0) {
      const Slice slice = lanesOf<typename S::Policy>(heads, back / 2, warps == 1 ? 1 : warps / 2);
      s.warp.forEach(slice.count, [&](int i) {
        const int item = slice.begin + i, at = item / h.destinationsMax;
        laneStoreHead(places.first() + at, item - at * h.destinationsMax);
      });
    }
  }

  // The leading block, which has counted experts too. `warp`: of its `warps`. `refuses`: an entry cannot be, and the
  // ranks make an empty route.
  MOE_LANES void storeCounts(int warp, int warps, bool refuses) const {
    const HandleView& h = s.handle;
    const Slice slice = sliceOf(h.map.experts + h.map.nranks, {warp, warps, 1});
    Quad handle = termsOf(h);
    if (refuses) handle.w |= kRouteRefused;
    s.warp.forEach(slice.count, [&](int i) {
      const int bucket = slice.begin + i, count = places.total(bucket), experts = h.map.experts;
      h.sent.totals[bucket] = count;
      if (bucket < experts) return laneStoreExpert(bucket, count);
      const int rank = bucket - experts;
      *llLastRows(s.comm, h, rank) = count;
      auto* head = reinterpret_cast<Quad*>(told(rank));
      const std::uint64_t terms = s.args.terms;
      s.warp.laneStore(head, handle);
      s.warp.laneStore(head + 1,
                       Quad{static_cast<std::uint32_t>(terms), static_cast<std::uint32_t>(terms >> 32), 0, 0});
    });
    if (refuses && warp == 0) llTellBadEntry(s.warp, s.p);
  }

 private:
  MOE_LANES std::uint8_t* told(int to) const { return llToldTo(s.p, s.isRemote(to), to); }
  MOE_LANES Quad* header(int to, int index) const {
    return reinterpret_cast<Quad*>(told(to) + llToldHeader(s.comm, s.handle, index));
  }

  // How many of a token's entries are for experts of `rank`: before entry k, and in all.
  MOE_LANES Sums entriesFor(int token, int k, int rank) const {
    const HandleView& h = s.handle;
    return laneSums<8>(h.topk, k, [&](int other) {
      const int id = places.id(token, other);
      return id >= 0 && h.map.isOn(id, rank) ? 1 : 0;
    });
  }

  MOE_LANES void laneStoreExpert(int expert, int count) const {
    const int to = s.handle.map.rankOf(expert), local = static_cast<int>(s.handle.map.local(expert, to));
    s.warp.laneStore(reinterpret_cast<std::int32_t*>(told(to)) + kToldWords + local, count);
  }

  MOE_LANES void laneStoreEntry(int token, int k) const {
    const HandleView& h = s.handle;
    const int entry = token * h.topk + k, id = places.id(token, k);
    const float weight = places.weight(token, k);
    h.sent.ids[entry] = id;
    h.sent.weights[entry] = weight;
    if (id < 0) return;
    const int to = h.map.rankOf(id), row = expertRows(h) ? places.positionOf(token, id) : 0;
    s.warp.laneStore(header(to, places.positionOf(token, h.map.experts + to)) + 1 + entriesFor(token, k, to).before,
                     makeEntry(h.map.local(id, to), k, weight, row));
  }

  MOE_LANES void laneStoreHead(int token, int ordinal) const {
    const HandleView& h = s.handle;
    const Destination to = places.of(token, ordinal);
    h.sent.destinations[std::int64_t{token} * h.destinationsMax + ordinal] = to;
    if (ordinal == 0) {
      h.sent.localCount[token] = places.localDestinations(token);
      h.sent.destinationCount[token] = places.destinations(token);
    }
    if (to.rank == kNoRank) return;
    if (s.isRemote(to.rank)) h.rails.outgoing[static_cast<std::int64_t>(to.rank) * h.tokensMax + to.index] = token;
    s.warp.laneStore(header(to.rank, to.index),
                     makeHead(token, waveOf(token, s.args.tokens), 0, s.comm.rank, entriesFor(token, 0, to.rank).all));
  }
};

// How many rows go to a rank, when all warps have announced theirs. Not from the handle, whose route may be empty
// again.
MOE_LANES int llRowsTo(const LlSending auto& s, int to) {
  return s.warp.laneLoad(llLastRows(s.comm, s.handle, to));
}
// What waits for a remote rank, when all warps have stored theirs.
MOE_LANES Put llToldPut(const LlSending auto& s, int to) {
  const CommView& c = s.comm;
  return putBytes(to, llToldOffset(c, s.handle, c.at.llTold, c.rank),
                  llToldOffset(c, s.handle, c.far->at.llToldOut, to),
                  static_cast<std::uint32_t>(llToldHeader(c, s.handle, llRowsTo(s, to))), s.epoch);
}

}  // namespace moe
