// Low-latency dispatch that routes: expert ids go in and rows come out, in one hop. Nothing is exchanged before the
// rows. Each block counts what it needs of its own rank's ids (ll_users.h), and behind the rows every rank tells its
// receivers how many there are and what they are (ll_told.h). Flags: docs/internals/protocol.md, "LL dispatch that
// routes".
#pragma once

#include "device/protocol/ll_payloads.h"
#include "device/protocol/ll_users.h"
#include "device/protocol/ll_verdict.h"

namespace moe {

// `w`: among all warps; `mover`: among those that move rows. A block's tables are looked at, not made.
template <Gathers Warp>
MOE_SELDOM void llSendPayloads(Warp warp, const StepParams& p, WarpIndex w, WarpIndex mover) {
  const auto& wide = warp.wide();
  const LlBlock<typename Warp::Wide> block(wide, p, w, {});
  llSendPieces(LlSlots<Warp>(warp, p), LlUsers(block), mover);
}
template <Gathers Warp>
MOE_SELDOM void llTakePayloads(Warp warp, const StepParams& p, WarpIndex w, WarpIndex mover) {
  const auto& wide = warp.wide();
  const LlBlock<typename Warp::Wide> block(wide, p, w, {});
  const LlTaken taken(block);
  const LlSlots<Warp> s(warp, p);
  llTakePieces(s, LlTakenRows<LlBlock<typename Warp::Wide>>{taken, s.side(), nullptr, 0}, taken.rows(), mover);
}

template <Gathers Warp>
class LlRouteDispatch {
 public:
  // `wide`: warp.wide(). Not kept here: in an object that points into itself nothing stays in registers.
  MOE_LANES LlRouteDispatch(const Warp& warp, const typename Warp::Wide& wide, const StepParams& p, WarpIndex w)
      : s_(warp, p, w), mover_(warp, p, moverOf(p, w)), block_(wide, p, w, S::operationOf(p)) {}

  MOE_LANES void run() const {
    const bool uncombined = s_.comm.state->llUncombined[s_.handle.llSet] != 0;
    if (block_.stopped()) return;
    if (s_.sends && !send(uncombined)) return;
    if (s_.receives) receive();
  }

 private:
  using S = LlSession<Warp>;
  using Block = LlBlock<typename Warp::Wide>;

  // A warp among those that move rows and headers. The first block has more to count than the others, and tells it. On
  // a GPU it does nothing else, so that the others need not wait for it.
  static MOE_LANES WarpIndex moverOf(const StepParams& p, WarpIndex w) {
    if (!countsApart(p, w)) return w;
    const int blocks = w.blocks - 1, inBlock = w.index / w.blocks;
    return {inBlock * blocks + w.index % w.blocks - 1, w.count / w.blocks * blocks, blocks};
  }
  static MOE_LANES bool countsApart(const StepParams& p, WarpIndex w) {
    return p.dispatch.countingBlock != 0 && w.blocks > 1;
  }
  MOE_LANES bool moves() const { return block_.w.index != 0 || !countsApart(s_.p, s_.w); }

  // ---- Sending

  // False if a wait failed. A route that this rank refuses is sent like others, without the entries that cannot be.
  MOE_LANES bool send(bool uncombined) const {
    const LlUsers<Block> users(block_);
    users.count();
    if (uncombined && !waitForSlots()) return false;
    const LlTelling<S, LlUsers<Block>> telling{mover_, users};
    if (block_.w.index == 0) telling.storeCounts(s_.w, users.refuses());
    if (moves()) {
      telling.storeHeaders();
      llSendRows(mover_, users);
      if (s_.args.payloads.count != 0) llSendPayloads(s_.warp, s_.p, s_.w, mover_.w);
    }
    s_.announce(s_.rowFlags(), Meeting::rows, s_.w);
    if (s_.split()) putToRemoteRanks(telling);
    if (isLast(s_.w)) llEndSend(s_, false);
    return true;
  }

  // As in LlDispatch, but the warps of a block wait together.
  MOE_LANES bool waitForSlots() const {
    const std::uint64_t free = llFlags(s_.comm, s_.handle, s_.comm.at.llFree);
    tellFree(s_, free);
    return block_.waitForAll(free, s_.epoch, Phase::dispatchSlots);
  }

  // Rows, and behind them what is told and the flag: together, so that the adapter is told once.
  // How many there are each block has counted: in the handle that may be nothing already.
  MOE_LANES void putToRemoteRanks(const LlTelling<S, LlUsers<Block>>& telling) const {
    const auto rowsTo = [&](int to) { return telling.rowsTo(to); };
    llPutToRemoteRanks(s_, rowsTo, [&](int to) {
      s_.warp.put(s_.comm, 2, [&](int i) {
        return i == 0 ? telling.blockPut(to) : flagPut(s_.comm, to, s_.rowFlags(), s_.epoch, s_.epoch);
      });
    });
  }

  // ---- Receiving

  MOE_LANES void receive() const {
    const LlTaken<Block> taken(block_);
    const std::uint32_t ticket = block_.w.index == 0 ? latestRoute(s_.handle) : 0;  // looked up before the wait
    if (!block_.waitForAll(s_.rowFlags(), s_.epoch, Phase::dispatchRows)) return;
    const std::uint32_t verdict = taken.count(s_);
    if ((verdict & kLlStranger) != 0) return;
    if ((verdict & kLlRefused) != 0) {
      describeNothing(s_.warp, s_.p, Filled{nullptr, nullptr, nullptr, layoutRows(s_.handle, s_.comm.rank, 0, 0)},
                      s_.w);
      llMakeEmptyRoute(s_.warp, s_.p, s_.w, s_.operation());
    } else {
      receiveRows(taken, ticket, verdict == kLlGood && taken.layoutRows() <= s_.args.capacity);
    }
    if (s_.handle.arrivals != 0) announceArrivals(s_, 0, {0, s_.handle.map.count(s_.comm.rank)}, s_.w);
  }

  // `delivers`: else the handle gets the route, and the caller nothing.
  MOE_LANES void receiveRows(const LlTaken<Block>& taken, std::uint32_t ticket, bool delivers) const {
    if (block_.w.index == 0) taken.keepCounts(ticket);
    if (s_.w.index == 0) {
      const bool hadFault = beginRoute(s_);
      if (delivers) copyExpertOffsets(s_, taken.expertOffsets());
      if (!delivers) llKeepFault(s_.warp, s_.p, taken.layoutRows());
      tellRows(s_, taken.rows(), hadFault || !delivers);
    }
    if (!delivers) describeNothing(s_.warp, s_.p, taken.filled(), s_.w);
    if (!moves()) return;
    keepHeaders(taken, delivers && describes(s_.args));
    if (delivers) deliver(taken);
  }

  MOE_LANES void deliver(const LlTaken<Block>& taken) const {
    if (s_.args.padding != 0) padOutputs(s_.warp, s_.p, taken.filled(), mover_.w);
    if (s_.args.outRows == nullptr && s_.args.cast.outScales == nullptr) return;
    llDeliver(mover_, LlRows{s_.handle, 0, taken.rows(), 0, 0},
              [&](const LlPayload& payload, const std::uint8_t* in, std::uint32_t bytes) {
                return LlTakenRows<Block>{taken, payload, s_.args.straight != 0 ? in : nullptr, bytes};
              });
    llDeliverScales(mover_, LlTakenRows<Block>{taken, s_.rows(), nullptr, 0}, taken.rows());
    if (s_.args.payloads.count != 0) llTakePayloads(s_.warp, s_.p, s_.w, mover_.w);
  }

  // The handle keeps the headers, with final rows, and `describing` the caller's arrays are filled from them. Numbers
  // begin at the middle warp: the first ones already do other things.
  MOE_LANES void keepHeaders(const LlTaken<Block>& taken, bool describing) const {
    const HandleView& h = s_.handle;
    const WarpIndex w{(mover_.w.index + mover_.w.count / 2) % mover_.w.count, mover_.w.count, mover_.w.blocks};
    const Slice slice = sliceOf(taken.rows(), w);
    const int items = slice.count * h.topk;
    if (describing && !expertRows(h)) {
      s_.warp.forEach(items, [&](int i) {
        const int row = h.byTopk.of(i);
        laneDescribeNothing(h, s_.args, taken.place(slice.begin + row, 0), i - row * h.topk);
      });
    }
    s_.warp.forEach(items, [&](int i) {
      const int row = h.byTopk.of(i);
      taken.laneKeepEntry(s_.args, slice.begin + row, i - row * h.topk, describing);
    });
  }

  const S s_, mover_;
  const Block block_;
};

}  // namespace moe
