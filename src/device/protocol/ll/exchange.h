// The common part of both LL dispatches: the one on a known route, and the one that routes. Rows go to slots
// [source][index] of the handle's set, and the receiver delivers them from there. RANK_MAJOR rows may stay in their
// slots. This rank's own rows need no slot if they are delivered in the same step. Flags: README.md, "LL dispatch".
#pragma once

#include "device/protocol/core/deliver.h"
#include "device/protocol/core/push.h"
#include "device/protocol/core/remote.h"
#include "device/view/ll_slots.h"

namespace moe {

// The rows that go to slots. This rank's own rows do not, if they go straight from its input to its output. Rows that
// are cast, and rows whose dispatch is divided into two steps, always go to slots.
struct LlSlotRows {
  int except;  // rank

  MOE_LANES bool any(int) const { return true; }
  MOE_LANES bool takes(const Destination& to) const { return to.rank != except; }
};

// The slots of one payload: where they are at a receiver, where rows for other domains are put from, and the largest
// and the present size of a row.
struct LlPayload {
  const CommView& c;
  const HandleView& h;
  std::uint64_t slots, outArea;
  int bytesMax;
  std::uint32_t bytes;

  // The place of a sent row, for Outgoing.
  MOE_LANES Sink place(const Destination& to) const {
    return {llSlot(c, h, to.rank, slots, bytesMax, bytes, c.rank, to.index), nullptr, to.rank == c.rank};
  }
  MOE_LANES Sink out(int token) const {
    return {c.mine<std::uint8_t>(llOutOffset(c, h, outArea, bytesMax, bytes, token)), nullptr, true};
  }
  // The slot of a row that has come.
  MOE_LANES const std::uint8_t* arrived(const Arrival& at) const {
    return llSlot(c, h, c.rank, slots, bytesMax, bytes, at.from, at.index);
  }
};

// The same for cast rows: one piece, with scales behind the codes.
struct LlCastPlaces {
  static constexpr bool kScatters = false;
  LlPayload rows;
  std::uint32_t codeBytes;

  MOE_LANES CastSink place(const Destination& to) const { return castPiece(rows.place(to).row, codeBytes); }
  MOE_LANES CastSink out(int token) const { return castPiece(rows.out(token).row, codeBytes); }
};

// A range [begin, end) of this rank's arriving rows. Rows from `gapAt` on are stored `gap` rows later.
struct LlRows {
  const HandleView& h;
  int begin, end, gapAt, gap;

  MOE_LANES int row(int number) const { return number < gapAt ? number : number + gap; }
};

// The slots of side payload. `split`: there are other domains.
MOE_LANES LlPayload llSide(const StepParams& p, bool split) {
  const CommView& c = p.comm;
  return {c, p.handle, c.at.llSide, split ? c.far->at.llSideOut : 0, c.sideBytesMax, p.dispatch.sideBytes};
}

// A session of an LL dispatch.
template <Moves Warp>
struct LlSession : Session<Warp> {
  const DispatchArgs& args;

  MOE_LANES LlSession(const Warp& policy, const StepParams& params, WarpIndex index)
      : LlSession(policy, params, index, operationOf(params)) {}
  MOE_LANES LlSession(const Warp& policy, const StepParams& params, WarpIndex index, const Operation& operation)
      : Session<Warp>(policy, params, index, operation), args(params.dispatch) {}

  static MOE_LANES Operation operationOf(const StepParams& params) {
    const Channel channel = llChannel(kLlDispatchChannel, params.handle.llSet);
    return {channel, operationEpoch(params, channel, params.handle.state->dispatchEpoch), 0};
  }

  MOE_LANES std::uint64_t rowFlags() const { return llFlags(this->comm, this->handle, this->comm.at.llRowsReady); }
  MOE_LANES LlPayload rows() const {
    const CommView& c = this->comm;
    return {c, this->handle, c.at.llRows, this->split() ? c.far->at.llRowsOut : 0, c.rowBytesMax, args.rowBytes};
  }
  MOE_LANES LlPayload side() const { return llSide(this->p, this->split()); }
};
template <class S>
concept LlSending = Moving<S> && requires(const S s) {
  s.rowFlags();
  s.side();
};

// ---- Sending

// For rows that wait for nothing.
struct LlAlways {
  MOE_LANES bool ready() const { return true; }
};

// A list for streamRows whose rows go when `ready` says so.
template <class To, class Share, class Ready>
struct RowsWhenReady : PayloadOut<To, Share> {
  const Ready& ready_;

  MOE_LANES bool mayPlace() const { return ready_.ready(); }
};

// Stores this warp's share of the rows of tokens. `lists`: as Outgoing needs it. `Share`: a warp's parts of rows.
// `ready`: its ready() is called once, before lists are read; if it is false, nothing is stored, and the result is
// false. `kMore`: rows may be cast, or have side payload.
template <class Share, bool kMore = true, class Lists, class Ready>
MOE_LANES bool llSendRows(const LlSending auto& s, const Lists& lists, Range tokens, WarpIndex team,
                          const Ready& ready) {
  using S = std::remove_cvref_t<decltype(s)>;
  using To = Outgoing<S, LlSlotRows, LlPayload, Lists>;
  const DispatchArgs& d = s.args;
  const LlSlotRows which{d.straight != 0 ? s.comm.rank : kNoRank};
  if (kMore && d.cast.type != kNoCast) {
    using Cast = Outgoing<S, LlSlotRows, LlCastPlaces, Lists>;
    const Cast to{s, which, {s.rows(), d.cast.codeBytes}, lists};
    const auto elements = static_cast<std::uint32_t>(d.cast.elements);
    if (!ready.ready()) return false;
    s.warp.castRows(CastOut<Cast, Share>{to, d, Share::of(tokens, d.parts, elements, team)});
  } else {
    const To to{s, which, s.rows(), lists};
    const PayloadOut<To, Share> rows{to, d.rows, Share::of(tokens, d.parts, d.rowBytes, team)};
    if (!s.warp.streamRows(RowsWhenReady<To, Share, Ready>{rows, ready})) return false;
  }
  if (!kMore || d.side == nullptr) return true;
  const To sideTo{s, which, s.side(), lists};
  const Parts whole{1, d.sideBytes};
  return s.warp.streamRows(PayloadOut<To, Share>{sideTo, d.side, Share::of(tokens, whole, d.sideBytes, team)});
}

// Puts one payload's rows to a remote rank. All warps must have stored their rows before.
MOE_LANES void llPutRows(const LlSending auto& s, const LlPayload& payload, int to, int rows) {
  const CommView& c = s.comm;
  const HandleView& h = s.handle;
  const std::int32_t* tokens = h.rails.outgoing + static_cast<std::int64_t>(to) * h.tokensMax;
  s.warp.put(c, rows, [&](int i) {
    return putBytes(to, llSlotOffset(c, h, payload.slots, payload.bytesMax, payload.bytes, c.rank, i),
                    llOutOffset(c, h, payload.outArea, payload.bytesMax, payload.bytes, tokens[i]), payload.bytes,
                    s.epoch);
  });
}

// Puts rowsTo(rank) rows to each remote rank of this warp, then calls putRest(rank). The epoch chooses the
// connection, so that successive dispatches use different ones.
template <class RowsTo, class PutRest>
MOE_LANES void llPutToRemoteRanks(const LlSending auto& s, RowsTo rowsTo, PutRest putRest) {
  const std::uint64_t ready = s.rowFlags();
  forRemoteRanks(s, [&](int to) {
    if (!s.waitForOwn(ready, s.epoch)) return false;
    llPutRows(s, s.rows(), to, rowsTo(to));
    if (s.args.sideBytes != 0) llPutRows(s, s.side(), to, rowsTo(to));
    putRest(to);
    return true;
  });
}

// Notes what a sending step leaves for the next one. One lane calls it when all warps have announced their rows,
// because by then they have read the words that change here. `silent`: true if the handle discarded operations when the
// step began.
MOE_LANES void llLaneNoteSent(const LlSending auto& s, bool silent) {
  CommState* state = s.comm.state;
  const HandleView& h = s.handle;
  state->epoch[s.channel] = s.epoch;
  state->llUncombined[h.llSet] = 1;
  if (h.layout == Layout::rankMajor) state->llUsed[h.llSet] = 1;
  h.state->dispatchEpoch = s.epoch;
  h.state->silent = silent ? 1 : 0;
}
MOE_LANES void llEndSend(const LlSending auto& s, bool silent) {
  if (s.waitForOwn(s.rowFlags(), s.epoch)) s.warp.forEach(1, [&](int) { llLaneNoteSent(s, silent); });
}

// ---- Receiving

// Keeps the fault of an output that is too small. The fault is this rank's alone, because the peers have done their
// part. It is kept when all warps of this rank have sent, because by then they have read the words that change.
MOE_LANES void llRefuse(const LlSending auto& s, std::int64_t arriving) {
  if (s.w.index != 0 || !s.waitForOwn(s.rowFlags(), s.epoch)) return;
  keepFault(s.warp, s.handle,
            tooLittle(Fault::capacity, Phase::dispatchOutput, s.comm.rank, s.args.capacity, arriving));
}

// Delivers the scales of rows that lie in slots, slotOf(row). Each lane has one word, because scales are few.
MOE_LANES void llDeliverScales(const LlSending auto& s, const LlRows& rows, const auto& arrivals, const auto& slotOf,
                               WarpIndex team) {
  const CastArgs& cast = s.args.cast;
  if (cast.outScales == nullptr) return;
  const auto scalesOf = [&](int row) { return ArrivedScales::behind(slotOf(row), cast.codeBytes); };
  deliverScales<1>(s, rows, arrivals, scalesOf, team);
}

}  // namespace moe
