// Payloads in LL: pieces go to the slots of side payload, and from there to the caller's arrays. These functions are
// not inlined, so that dispatches without payloads only have a test more.
#pragma once

#include "device/protocol/core/payloads.h"
#include "device/protocol/ll/exchange.h"

namespace moe {

// The part of a session that these functions need. A function that is not inlined cannot get its caller's session in
// registers.
template <Moves Warp>
struct LlSlots {
  using Policy = Warp;

  const Warp& warp;
  const StepParams& p;
  const CommView& comm;
  const HandleView& handle;

  MOE_LANES LlSlots(const Warp& policy, const StepParams& params)
      : warp(policy), p(params), comm(params.comm), handle(params.handle) {}

  MOE_LANES bool isRemote(int other) const { return Warp::kPuts && comm.split() && !comm.inDomain(other); }
  MOE_LANES LlPayload side() const { return llSide(p, Warp::kPuts && comm.split()); }
};

// Stores this warp's share of pieces. `lists`: as Outgoing needs it.
template <Moves Warp, class Lists>
MOE_LANES void llSendPieces(const LlSlots<Warp>& s, const Lists& lists, Range tokens, WarpIndex w) {
  const DispatchArgs& d = s.p.dispatch;
  using To = Outgoing<LlSlots<Warp>, LlSlotRows, LlPayload, Lists>;
  const To to{s, LlSlotRows{kNoRank}, s.side(), lists};
  forPieces(s, tokens, false, w, [&](int token, int piece) {
    const Quad quad = laneTokenPiece(d.payloads, token, piece);
    for (int i = 0; i < to.placesMax(); ++i) {
      std::uint8_t* row = to.place(token, i).row;
      if (row != nullptr) s.warp.laneStore(reinterpret_cast<Quad*>(row) + piece, quad);
    }
  });
}

// Brings pieces of rows from their slots, slotOf(row), to the caller's arrays.
template <Moves Warp>
MOE_LANES void llTakePieces(const LlSlots<Warp>& s, Range rows, const auto& arrivals, const auto& slotOf, WarpIndex w) {
  if (s.p.dispatch.outRows == nullptr) return;
  const auto pieceOf = [&](int row, int piece) {
    return s.warp.laneLoad(reinterpret_cast<const Quad*>(slotOf(row)) + piece);
  };
  deliverPayloads(s, LlRows{s.handle, rows.begin, rows.end, 0, 0}, arrivals, pieceOf, w);
}

}  // namespace moe
