// Low-latency dispatch: rows go to slots [source][index] of the handle's set, from where the receiver delivers them.
// RANK_MAJOR rows may stay where they came, and this rank's own rows need no slot if they are delivered in the same
// step. Flags: docs/internals/protocol.md, "LL dispatch".
#pragma once

#include "device/protocol/deliver.h"
#include "device/protocol/push.h"
#include "device/protocol/remote.h"
#include "device/view/ll_slots.h"

namespace moe {

// The rows that go to slots: not this rank's own if they go straight from its input to its output, while those of
// others are on their way. Rows that are cast, and those of two steps, wait in slots.
struct LlSlotRows {
  int except;  // rank

  MOE_LANES bool any(int) const { return true; }
  MOE_LANES bool takes(const Destination& to) const { return to.rank != except; }
};

// The slots of one payload: where they are at a receiver, what a row for other domains is put from, and how long a row
// may be and is.
struct LlPayload {
  const CommView& c;
  const HandleView& h;
  std::uint64_t slots, outArea;
  int bytesMax;
  std::uint32_t bytes;

  // As Outgoing wants it.
  MOE_LANES Sink place(const Destination& to) const {
    return {llSlot(c, h, to.rank, slots, bytesMax, bytes, c.rank, to.index), nullptr, to.rank == c.rank};
  }
  MOE_LANES Sink out(int token) const {
    return {c.mine<std::uint8_t>(llOutOffset(c, h, outArea, bytesMax, bytes, token)), nullptr, true};
  }
  // Where a row has come.
  MOE_LANES const std::uint8_t* arrived(int row) const {
    const Arrival at = arrivalOf(h, row);
    return llSlot(c, h, c.rank, slots, bytesMax, bytes, at.from, at.index);
  }
};

// A range [begin, end) of this rank's arriving rows. Rows from `gapAt` on are stored `gap` rows later.
struct LlRows {
  const HandleView& h;
  int begin, end, gapAt, gap;

  MOE_LANES int row(int number) const { return number < gapAt ? number : number + gap; }
};
MOE_LANES LlRows llOwnRows(const CommView& c, const HandleView& h) {
  return {h, h.arriving.rankOffsets[c.rank], h.arriving.rankOffsets[c.rank + 1], 0, 0};
}
MOE_LANES LlRows llRowsOfOthers(const CommView& c, const HandleView& h) {
  const int first = h.arriving.rankOffsets[c.rank], own = h.arriving.rankOffsets[c.rank + 1] - first;
  return {h, 0, *h.arriving.rows - own, first, own};
}

// Rows from the caller's input if that is given, else from their slots: all of what is in a slot, or its first bytes.
struct LlArrived {
  LlPayload payload;
  const std::uint8_t* in;
  std::uint32_t rowBytes;

  MOE_LANES const std::uint8_t* source(int row) const {
    if (in != nullptr) return in + std::int64_t{headToken(*keptHeader(payload.h, row))} * rowBytes;
    return payload.arrived(row);
  }
  MOE_LANES int copies(int row) const { return layoutCopies(payload.h, row); }
  MOE_LANES int place(int row, int copy) const { return layoutRow(payload.h, row, copy); }
};

template <Moves Warp>
class LlDispatch {
 public:
  MOE_LANES LlDispatch(const Warp& warp, const StepParams& p, WarpIndex w)
      : s(warp, p, w, operation(p)), d_(p.dispatch) {}

  MOE_LANES void run() const {
    const bool uncombined = s.comm.state->llUncombined[s.handle.llSet] != 0;
    if (s.stopped()) return;
    if (s.sends) {
      if (uncombined && !waitForSlots()) return;
      if (s.w.index == 0) sendTerms();
      sendRows();
      s.announce(rowFlags(), Meeting::rows, s.w);
      if (s.split()) putToRemoteRanks();
      if (isLast(s.w)) endSend();
    }
    if (s.receives) receive();
  }

 private:
  static MOE_LANES Operation operation(const StepParams& p) {
    const Channel channel = llChannel(kLlDispatchChannel, p.handle.llSet);
    return {channel, operationEpoch(p, channel, p.handle.state->dispatchEpoch), 0};
  }

  MOE_LANES std::uint64_t rowFlags() const { return llFlags(s.comm, s.handle, s.comm.at.llRowsReady); }
  MOE_LANES LlPayload rows() const {
    const std::uint64_t out = s.split() ? s.comm.far->at.llRowsOut : 0;
    return {s.comm, s.handle, s.comm.at.llRows, out, s.comm.rowBytesMax, d_.rowBytes};
  }
  MOE_LANES LlPayload side() const {
    const std::uint64_t out = s.split() ? s.comm.far->at.llSideOut : 0;
    return {s.comm, s.handle, s.comm.at.llSide, out, s.comm.sideBytesMax, d_.sideBytes};
  }

  // ---- Sending

  // The slots of the set's last dispatch are written again: everybody has taken the rows. After a combine there is
  // nothing to wait for, as it waited for everybody to come to it; else each rank says so now that its stream has come
  // here.
  MOE_LANES bool waitForSlots() const {
    const std::uint64_t free = llFlags(s.comm, s.handle, s.comm.at.llFree);
    tellFree(s, free);
    return s.waitForAll(free, s.epoch, Phase::dispatchSlots);
  }

  MOE_LANES void sendTerms() const {
    s.warp.forEach(s.comm.domainSize, [&](int i) {
      const std::uint64_t word = llSizesOffset(s.comm, s.handle, s.comm.rank);
      s.warp.laneStore(s.comm.template in<std::uint64_t>(s.comm.domainFirst + i, word), d_.terms);
    });
  }

  MOE_LANES void sendRows() const {
    using To = Outgoing<Session<Warp>, LlSlotRows, LlPayload>;
    const LlSlotRows which{d_.straight != 0 ? s.comm.rank : kNoRank};
    const Range tokens{0, d_.tokens};
    const To to{s, which, rows()};
    if (d_.cast.type != kNoCast) {
      const auto codes = static_cast<std::uint32_t>(d_.cast.elements);
      s.warp.castRows(CastOut<To>{to, d_, shareOf(tokens, d_.parts, codes, s.w)});
    } else {
      s.warp.streamRows(PayloadOut<To>{to, d_.rows, shareOf(tokens, d_.parts, d_.rowBytes, s.w)});
    }
    if (d_.sideBytes == 0) return;
    const To sideTo{s, which, side()};
    const Parts whole{1, d_.sideBytes};
    s.warp.streamRows(PayloadOut<To>{sideTo, d_.side, shareOf(tokens, whole, d_.sideBytes, s.w)});
  }

  // Rows, the word of their terms and the flag, to the remote ranks of this warp; each call by another connection.
  MOE_LANES void putToRemoteRanks() const {
    const std::uint64_t ready = rowFlags();
    forRemoteRanks(s, [&](int to) {
      if (!s.waitForOwn(ready, s.epoch)) return false;
      putPayload(rows(), to);
      if (d_.sideBytes != 0) putPayload(side(), to);
      // Together, so that the adapter is told once.
      s.warp.put(s.comm, 2, [&](int i) {
        return i == 0 ? putWord(to, llSizesOffset(s.comm, s.handle, s.comm.rank), d_.terms, s.epoch)
                      : flagPut(s.comm, to, ready, s.epoch, s.epoch);
      });
      return true;
    });
  }
  MOE_LANES void putPayload(const LlPayload& payload, int to) const {
    const CommView& c = s.comm;
    const HandleView& h = s.handle;
    const std::int32_t* tokens = h.rails.outgoing + static_cast<std::int64_t>(to) * h.tokensMax;
    s.warp.put(c, h.sent.totals[h.map.experts + to], [&](int i) {
      return putBytes(to, llSlotOffset(c, h, payload.slots, payload.bytesMax, payload.bytes, c.rank, i),
                      llOutOffset(c, h, payload.outArea, payload.bytesMax, payload.bytes, tokens[i]), payload.bytes,
                      s.epoch);
    });
  }

  // What a sending step leaves for the next one. Warps that have announced their rows have read what changes here.
  MOE_LANES void endSend() const {
    CommState* state = s.comm.state;
    const HandleView& h = s.handle;
    if (!s.waitForOwn(rowFlags(), s.epoch)) return;
    s.warp.forEach(1, [&](int) {
      state->epoch[s.channel] = s.epoch;
      state->llUncombined[h.llSet] = 1;
      if (h.layout == Layout::rankMajor) state->llUsed[h.llSet] = 1;
      h.state->dispatchEpoch = s.epoch;
    });
  }

  // ---- Receiving

  MOE_LANES void receive() const {
    if (s.handle.sent.layoutRowsOf[s.comm.rank] > d_.capacity) return refuse();
    describeRows(s, s.w);
    // Rows that stay in their slots need one warp that waits, and one look.
    const bool stay =
        d_.outRows == nullptr && d_.cast.outScales == nullptr && d_.sideBytes == 0 && s.handle.arrivals == 0;
    if (stay && s.w.index != 0) return;
    const bool straight = d_.straight != 0;
    MOE_ROLLED
    for (int turn = straight ? 0 : 1; turn < 2; ++turn) {
      const bool own = turn == 0;
      if (!own && !(s.waitForAll(rowFlags(), s.epoch, Phase::dispatchRows) && termsAgree())) return;
      deliver(own ? llOwnRows(s.comm, s.handle) : straight ? llRowsOfOthers(s.comm, s.handle) : allRows(), own);
    }
    deliverScales();
    if (s.handle.arrivals != 0) announceArrivals(s, 0, {0, s.handle.map.count(s.comm.rank)}, s.w);
  }

  // An output that is too small is its owner's fault alone: the peers have done their part. Reported when all warps of
  // this rank have sent, as the peers wait for them.
  MOE_LANES void refuse() const {
    if (s.w.index != 0 || !s.waitForOwn(rowFlags(), s.epoch)) return;
    s.warp.forEach(1, [&](int) {
      const std::int64_t arriving = s.handle.sent.layoutRowsOf[s.comm.rank];
      s.warp.laneFail(s.comm, tooLittle(Fault::capacity, Phase::dispatchOutput, s.comm.rank, d_.capacity, arriving));
    });
  }

  // True if all ranks' terms are this rank's; else one of them is reported. After the rows' flags.
  MOE_LANES bool termsAgree() const {
    return s.allAreGood(allRanks(s.comm), [&](int from) -> Failure {
      const std::uint64_t word = llSizesOffset(s.comm, s.handle, from);
      const auto theirs = s.warp.laneLoad(s.comm.template mine<std::uint64_t>(word));
      return theirs == d_.terms ? Failure{} : disagreement(Phase::dispatchRows, from, d_.terms, theirs);
    });
  }

  MOE_LANES LlRows allRows() const { return {s.handle, 0, *s.handle.arriving.rows, 0, 0}; }

  // Both payloads of some rows; this rank's `own` from the caller's input.
  MOE_LANES void deliver(const LlRows& which, bool own) const {
    const std::uint32_t outBytes = d_.cast.type != kNoCast ? static_cast<std::uint32_t>(d_.cast.elements) : d_.rowBytes;
    deliverPayload(which, {rows(), own ? d_.rows : nullptr, outBytes}, d_.outRows, d_.arriving);
    if (d_.sideBytes == 0) return;
    deliverPayload(which, {side(), own ? d_.side : nullptr, d_.sideBytes}, d_.outSide, Parts{1, d_.sideBytes});
  }
  MOE_LANES void deliverPayload(const LlRows& which, const LlArrived& from, std::uint8_t* out,
                                const Parts& parts) const {
    if (out == nullptr) return;
    s.warp.streamRows(Delivered<LlRows, LlArrived>{partsOf(which, parts, from.rowBytes, s.w), from, out});
  }

  // Word by word: neighbouring lanes take neighbouring rows of a token-contiguous output, else neighbouring words.
  MOE_LANES void deliverScales() const {
    const CastArgs& cast = d_.cast;
    if (cast.outScales == nullptr) return;
    const LlPayload payload = rows();
    const int count = *s.handle.arriving.rows;
    const Slice slice = sliceOf(count * cast.words, s.w);
    s.warp.forEach(slice.count, [&](int i) {
      const int item = slice.begin + i;
      const int row = cast.rowStride == 1 ? item % count : item / cast.words;
      const int word = cast.rowStride == 1 ? item / count : item % cast.words;
      const std::uint8_t* scales = payload.arrived(row) + cast.elements;
      const auto value = s.warp.laneLoad(reinterpret_cast<const std::uint32_t*>(scales) + word);
      for (int copy = 0; copy < layoutCopies(s.handle, row); ++copy) {
        const int to = layoutRow(s.handle, row, copy);
        *scaleWord(cast, to, word) = value;
      }
    });
  }

  const Session<Warp> s;
  const DispatchArgs& d_;
};

}  // namespace moe
