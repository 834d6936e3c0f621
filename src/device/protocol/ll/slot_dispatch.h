// A dispatch that routes, of RANK_MAJOR rows that stay in their slots and bring nothing else (dispatchesIntoSlots): what
// most decoders run in each layer. A step of few tokens waits for instructions, so it has code of its own, which does
// nothing that such a dispatch does not need. What ranks tell each other is what LlRouteDispatch tells. README.md,
// "Dispatch into slots".
//
// A warp of the policy is a block here: all its lanes work together.
#pragma once

#include "device/protocol/ll/route_dispatch.h"
#include "device/view/steps.h"

namespace moe {

static_assert(kNoCast == 0 && kSlotRanksMax <= 32, "dispatchesIntoSlots, and a bit for each rank");

// Where some tokens of a block go, at most kLlTokensAtOnce. A word has the ranks of a token, and one the tokens of a
// rank. In the tables only what ranks use is used.
template <class Tables>
class LlSlotPlaces {
 public:
  MOE_LANES LlSlotPlaces(const Tables& tables, Range tokens) : t_(tables), h_(tables.handle), tokens_(tokens) {}

  // All lanes of the block. Looked up at once: ids and weights of these tokens, ids of all tokens before them, whether
  // to stop, and whether slots must be waited for. False: the rank is to stop.
  MOE_LANES bool count() const {
    const int own = size() * h_.topk, words = own + 2;
    clear();
    t_.warp.template collect<1>(
        words + tokens_.begin,
        [&](int i) {
          if (i < own) return entry(tokens_.begin * h_.topk + i);
          if (i < words) return Look{wordBeside(i - own), 0.0f};
          return Look{ranksOf(i - words), 0.0f};
        },
        [&](int i, const Look& look) {
          if (i < own) return laneKeep(i, look);
          if (i < words) return laneKeepWord(i - own, look.bits);
          laneCount(look.bits);
        });
    return *t_.word(kLlStops) == 0;
  }
  // Known then: the set's last operation was a dispatch.
  MOE_LANES bool waitsForSlots() const { return *t_.word(kLlWaits) != 0; }

  // As LlTelling wants it.
  MOE_LANES int first() const { return tokens_.begin; }
  MOE_LANES int size() const { return tokens_.end - tokens_.begin; }
  MOE_LANES int id(int token, int k) const { return t_.ids()[(token - tokens_.begin) * h_.topk + k]; }
  MOE_LANES float weight(int token, int k) const { return t_.weights()[(token - tokens_.begin) * h_.topk + k]; }
  // Bucket: of experts, which need no places here, and then of ranks.
  MOE_LANES int positionOf(int token, int bucket) const { return positionAt(token, bucket - h_.map.experts); }
  MOE_LANES int positionAt(int token, int rank) const {
    const std::uint32_t before = (1u << (token - tokens_.begin)) - 1;
    return static_cast<int>(t_.before()[rank]) + bitCount(t_.users()[rank] & before);
  }
  MOE_LANES bool goesTo(int token, int rank) const { return (bits(token) >> rank & 1) != 0; }
  MOE_LANES Destination of(int token, int ordinal) const {
    std::uint32_t left = bits(token);
    MOE_ROLLED
    for (int i = 0; i < ordinal; ++i) left &= left - 1;
    if (left == 0) return {kNoRank, 0, 0, 0, 0};
    const int rank = bitCount((left & (0u - left)) - 1);
    return {static_cast<std::int16_t>(rank), 0, positionAt(token, rank), 0, 0};
  }
  MOE_LANES int destinations(int token) const { return bitCount(bits(token)); }
  MOE_LANES int localDestinations(int token) const { return destinations(token); }

 private:
  // What a lane looks up: an id with its weight, a word, or the ranks of a token.
  struct Look {
    std::uint32_t bits;
    float weight;
  };
  static constexpr std::uint32_t kUnused = ~0u;

  MOE_LANES std::uint32_t bits(int token) const { return t_.ranks()[token - tokens_.begin]; }

  MOE_LANES void clear() const {
    const int ranks = h_.map.nranks;
    t_.warp.each(2 * ranks + size() + int{kLlWords}, [&](int i) {
      if (i < ranks) {
        t_.before()[i] = 0;
      } else if (i < 2 * ranks) {
        t_.users()[i - ranks] = 0;
      } else if (i < 2 * ranks + size()) {
        t_.ranks()[i - 2 * ranks] = 0;
      } else {
        *t_.word(static_cast<LlWord>(i - 2 * ranks - size())) = 0;
      }
    });
  }

  MOE_LANES std::uint32_t expertOf(std::int64_t id) const {
    return id >= 0 && id < h_.map.experts ? static_cast<std::uint32_t>(id) : kUnused;
  }
  MOE_LANES Look entry(int at) const {
    const RouteArgs& route = t_.p.route;
    const float weight = route.topkWeights != nullptr ? route.topkWeights[at] : 1.0f;
    return {expertOf(givenIndexAt(h_, route, at)), weight};
  }
  MOE_LANES std::uint32_t wordBeside(int i) const {
    if (i == 0) return t_.warp.laneStopped(t_.comm) ? 1 : 0;
    return t_.comm.state->llUncombined[h_.llSet];
  }
  MOE_LANES std::uint32_t ranksOf(int token) const {
    const void* ids = t_.p.route.topkIdx;
    return h_.wideIndex != 0 ? ranksAmong(static_cast<const std::int64_t*>(ids) + token * h_.topk)
                             : ranksAmong(static_cast<const std::int32_t*>(ids) + token * h_.topk);
  }
  // Looked up side by side.
  template <class Id>
  MOE_LANES std::uint32_t ranksAmong(const Id* ids) const {
    constexpr int kAtOnce = 8;
    std::uint32_t ranks = 0;
    MOE_ROLLED
    for (int first = 0; first < h_.topk; first += kAtOnce) {
      Id id[kAtOnce];
      MOE_UNROLLED
      for (int j = 0; j < kAtOnce; ++j) id[j] = first + j < h_.topk ? ids[first + j] : Id{-1};
      MOE_UNROLLED
      for (int j = 0; j < kAtOnce; ++j) {
        const std::uint32_t expert = expertOf(id[j]);
        if (expert != kUnused) ranks |= 1u << h_.map.rankOf(static_cast<int>(expert));
      }
    }
    return ranks;
  }

  MOE_LANES void laneKeep(int at, const Look& look) const {
    t_.ids()[at] = static_cast<std::int32_t>(look.bits);
    t_.weights()[at] = look.weight;
    if (look.bits == kUnused) return;
    const int token = h_.byTopk.of(at), rank = h_.map.rankOf(static_cast<int>(look.bits));
    t_.warp.laneOr(t_.ranks() + token, 1u << rank);
    t_.warp.laneOr(t_.users() + rank, 1u << token);
  }
  MOE_LANES void laneKeepWord(int i, std::uint32_t word) const {
    if (word != 0) t_.warp.laneOr(t_.word(i == 0 ? kLlStops : kLlWaits), 1);
  }
  // A token before these.
  MOE_LANES void laneCount(std::uint32_t ranks) const {
    MOE_ROLLED
    for (; ranks != 0; ranks &= ranks - 1) {
      t_.warp.laneAdd(t_.before() + bitCount((ranks & (0u - ranks)) - 1), 1);
    }
  }

  const Tables& t_;
  const HandleView& h_;
  Range tokens_;
};

template <Blocks Warp>
class LlSlotDispatch {
 public:
  MOE_LANES LlSlotDispatch(const Warp& warp, const StepParams& p, WarpIndex w)
      : s_(warp, p, {w.index, w.count, w.count}),
        t_(warp, p, {w.index, w.count, w.count}, s_.operation()),
        share_(LlShare::of(p.dispatch, s_.w)) {}

  MOE_LANES void run() const {
    if (send()) receive();
  }

 private:
  using S = LlSession<Warp>;
  using Tables = LlBlock<Warp, true>;
  using Places = LlSlotPlaces<Tables>;
  using Taken = LlTaken<Tables>;

  // ---- Sending

  // The block's part of the rows of some tokens, to their slots: a list for streamRows.
  struct Rows {
    const LlSlotDispatch& d;
    const Places& places;
    std::uint32_t begin, bytes;  // of each row

    MOE_LANES bool mayPlace() const { return d.mayGo(places); }
    MOE_LANES int count() const { return places.size(); }
    MOE_LANES int sinksMax() const { return d.s_.comm.nranks; }
    MOE_LANES CopyJob job(int i) const {
      const DispatchArgs& args = d.s_.args;
      return {args.rows + std::int64_t{places.first() + i} * args.rowBytes + begin, bytes, d.s_.comm.nranks};
    }
    MOE_LANES Sink sink(int i, int rank) const {
      const int token = places.first() + i;
      if (!places.goesTo(token, rank)) return {nullptr, nullptr, false};
      const Destination to{static_cast<std::int16_t>(rank), 0, places.positionAt(token, rank), 0, 0};
      return {d.s_.rows().place(to).row + begin, nullptr, false};
    }
  };

  // False if a wait failed, or the rank is to stop.
  MOE_LANES bool send() const {
    // The first block also tells others that slots are free.
    MOE_ROLLED
    for (int first = share_.first; first < share_.end || (s_.w.index == 0 && first == share_.first);) {
      if (first != share_.first) s_.warp.forEach(0, [](int) {});  // the tables are for other tokens now
      const int end = share_.end - first < kLlTokensAtOnce ? share_.end : first + kLlTokensAtOnce;
      if (!sendTokens(Places(t_, {first, end}))) return false;
      first += kLlTokensAtOnce;
    }
    const int tokens = s_.args.tokens;
    const LlPlaces<Tables> all(t_, {tokens, tokens, 0, 1, true}, tokens);
    if (share_.leads) {
      if (!LlReady<S, Tables>{s_, t_, all}.ready()) return false;
      LlTelling<S, LlPlaces<Tables>>{s_, all}.storeCounts(0, 1, all.refuses());
    }
    s_.announceRows(
        s_.rowFlags(), [&](int rank) { return share_.leads ? all.moreTo(rank) : 0; }, Meeting::rows, s_.w);
    return true;
  }

  // Headers and the handle's tables of what is sent by the last lanes, as the first ones have parts of rows.
  MOE_LANES bool sendTokens(const Places& places) const {
    const std::uint32_t whole = s_.args.rowBytes, half = (whole / 2 + 15) / 16 * 16;
    const std::uint32_t begin = share_.sharer * half, bytes = share_.sharers == 1 ? whole : begin == 0 ? half : whole - half;
    if (!s_.warp.streamRows(Rows{*this, places, begin, bytes})) return false;
    if (share_.sharer != 0) return true;
    const HandleView& h = s_.handle;
    const LlTelling<S, Places> telling{s_, places};
    const int entries = places.size() * h.topk, heads = places.size() * h.destinationsMax;
    s_.warp.each(entries, [&](int i) {
      const int at = h.byTopk.of(i);
      telling.laneStoreEntry(places.first() + at, i - at * h.topk);
    });
    s_.warp.each(heads, [&](int i) {
      const int at = i / h.destinationsMax;
      telling.laneStoreHead(places.first() + at, i - at * h.destinationsMax);
    });
    return true;
  }

  // All lanes, when the row is on its way to them.
  MOE_LANES bool mayGo(const Places& places) const {
    if (!places.count()) return false;
    return !places.waitsForSlots() || waitForSlots();
  }
  MOE_LANES bool waitForSlots() const {
    const std::uint64_t free = llFlags(s_.comm, s_.handle, s_.comm.at.llFree);
    tellFree(s_, free);
    return s_.waitForAll(free, s_.epoch, Phase::dispatchSlots);
  }

  // ---- Receiving

  MOE_LANES void receive() const {
    const Taken taken(t_);
    const bool last = isLast(s_.w), describing = describes(s_.args);
    std::uint32_t ticket = last ? latestRoute(s_.handle) : 0;  // looked up before the wait
    s_.warp.hold(ticket);
    if (!taken.await(s_.rowFlags(), s_.epoch)) return;
    if (last) llNoteSent(s_, false);  // this rank's own rows are there too
    const Slice mine = keptHere(taken.rows());
    keepHeaders(taken, mine);
    if (!last && !describing) return;
    taken.lookAtRanks(last);
    const std::uint32_t verdict = taken.verdict();
    if (describing && verdict == kLlGood) describe(taken, mine);
    if (last && (verdict & kLlStranger) == 0) keepRoute(taken, ticket, verdict);
  }

  // Of the rows that came, those whose headers this block keeps. The last of several has other things to do.
  MOE_LANES Slice keptHere(int rows) const {
    const int keepers = s_.w.count > 1 ? s_.w.count - 1 : 1;
    return s_.w.index < keepers ? sliceOf(rows, {s_.w.index, keepers, keepers}) : Slice{0, 0};
  }
  MOE_LANES void keepHeaders(const Taken& taken, Slice rows) const {
    const HandleView& h = s_.handle;
    const int stride = h.headerStride();
    Quad* kept = h.arriving.headers + std::int64_t{rows.begin} * stride;
    s_.warp.forEach(rows.count * stride, [&](int i) {
      const int at = h.byHeader.of(i);
      kept[i] = taken.laneHeaderQuad(rows.begin + at, i - at * stride);
    });
  }
  MOE_LANES void describe(const Taken& taken, Slice rows) const {
    const HandleView& h = s_.handle;
    const auto each = [&](auto tell) {
      s_.warp.forEach(rows.count * h.topk, [&](int i) {
        const int at = h.byTopk.of(i), row = rows.begin + at;
        const Arrival from = taken.arrival(row);
        tell(row, from.from * h.tokensMax + from.index, i - at * h.topk);
      });
    };
    each([&](int, int place, int k) { laneDescribeNothing(h, s_.args, place, k); });
    each([&](int row, int place, int n) {
      const Quad head = taken.laneHeaderQuad(row, 0), entry = taken.laneHeaderQuad(row, 1 + n);
      if (n < headEntries(head)) laneDescribe(h, s_.args, head, entry, n, place);
    });
  }

  // The last block: what the handle and the host get to know.
  MOE_LANES void keepRoute(const Taken& taken, std::uint32_t ticket, std::uint32_t verdict) const {
    if ((verdict & kLlRefused) != 0) {
      return llMakeEmptyRoute(s_.warp, s_.p, WarpIndex{0, 1, 1}, s_.operation());
    }
    taken.keepCounts(ticket);
    const bool hadFault = beginRoute(s_), delivers = verdict == kLlGood;
    if (!delivers) llKeepFault(s_.warp, s_.p, taken.layoutRows());
    tellRows(s_, taken.rows(), hadFault || !delivers);
  }

  const S s_;
  const Tables t_;
  const LlShare share_;
};

}  // namespace moe
