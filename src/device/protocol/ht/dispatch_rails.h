// High-throughput dispatch across domains. A row is stored to its places in this domain. It is also stored once to this
// rank's window, and put from there to the rail peers of the other domains that it goes to. Rows that arrive over the
// rails are forwarded to their places here. The receiver sees no difference from rows that the forwarder has sent.
// Forwarding belongs to the sending phase, because the rails must be free for the next dispatch, whatever the caller
// does in between.
#pragma once

#include "device/protocol/ht/dispatch.h"

namespace moe {

// The index of the first token for `domain` that is not before `token`. Uniform.
MOE_LANES int firstOutgoing(const HandleView& h, int domain, int token) {
  const std::int32_t* tokens = h.rails.outgoing + static_cast<std::int64_t>(domain) * h.tokensMax;
  int low = 0, high = h.sent.totals[h.domainBucket(domain)];
  while (low < high) {
    const int middle = (low + high) / 2;
    if (tokens[middle] < token) low = middle + 1;
    if (tokens[middle] >= token) high = middle;
  }
  return low;
}

enum class Payload { rows, side };

// One payload on the rails: the area that it arrives in, the area that it is put from, and the size and the maximal
// size of a row.
struct RailPayload {
  std::uint64_t in, out;
  int bytesMax;
  std::uint32_t bytes;

  MOE_LANES std::uint64_t arriving(const CommView& c, int domain, int row) const {
    return railRow(c, in, bytesMax, bytes, domain, row);
  }
};
MOE_LANES RailPayload railPayload(const StepParams& p, Payload payload) {
  const CommView& c = p.comm;
  const RemoteLayout& at = c.far->at;
  if (payload == Payload::rows) return {at.railRows, at.railRowsOut, c.rowBytesMax, p.dispatch.rowBytes};
  return {at.railSide, at.railSideOut, c.sideBytesMax, p.dispatch.sideBytes};
}

// Copies one payload of rows that arrived over the rails to their places in this domain: a list for streamRows.
// `kCast`: it copies the codes of rows that are cast.
template <class Dispatch, bool kCast>
struct Forwarded {
  const Dispatch& here;
  RailRows rows;
  Payload payload;
  RailPayload rail;
  PartShare share;

  MOE_LANES int count() const { return share.count(); }
  MOE_LANES int sinksMax() const { return rows.h.railDestinationsMax(); }
  MOE_LANES CopyJob job(int i) const {
    const PartOf part = share.at(i);
    const RailRow row = railRowAt(rows, part.row);
    const CommView& c = here.s.comm;
    const auto* from = c.mine<std::uint8_t>(rail.arriving(c, row.domain, row.index));
    return {from + part.begin, part.bytes, rows.h.rails.count[row.table]};
  }
  MOE_LANES Sink sink(int i, int ordinal) const {
    const PartOf part = share.at(i);
    const RailRow row = railRowAt(rows, part.row);
    const int turn = (ordinal + here.s.comm.rank + row.index) % rows.h.rails.count[row.table];
    const Destination& which = rows.h.rails.to[row.table * rows.h.railDestinationsMax() + turn];
    if constexpr (kCast) return {here.codePlace(which) + part.begin, nullptr, which.rank == here.s.comm.rank};
    const Sink to = here.finalPlace(which);
    return {(payload == Payload::rows ? to.row : to.side) + part.begin, nullptr, to.here};
  }
};

template <bool kCasts, Moves Warp>
class HtDispatchRails {
  using Here = HtDispatch<HtKind{true, Duty::all, kCasts}, Warp>;

 public:
  MOE_LANES HtDispatchRails(const Warp& warp, const StepParams& p, WarpIndex w)
      : HtDispatchRails(Here(warp, p, {w, w}), p) {}
  // Resumes an operation as another object (core/seldom.h).
  MOE_LANES HtDispatchRails(const Warp& warp, const StepParams& p, WarpIndex w, const Operation& which)
      : HtDispatchRails(Here(warp, p, {w, w}, which), p) {}

  // The ranks of this domain find its faults before they send anything, and tell their rail peers with the first wave.
  MOE_LANES void run() const {
    if (s.stopped()) return;
    std::uint32_t fault = knownFault(s);
    if (s.sends) s.noteBegin();
    if (s.sends && !(here_.begin() && railsAreFree(s, words()))) return;
    if (s.sends && fault == 0) fault = here_.outputsFault();
    inWavesOverRails(
        s.handle, [&](int wave) { return !s.sends || sendWave(wave, fault); },
        [&](int wave) { return !s.sends || forwardWave(wave, fault); },
        [&](int wave) { return !s.receives || (fault != 0 ? takeNothing(wave) : here_.take(wave)); });
  }

 private:
  MOE_LANES void keepFault() const {
    keepRailsFault(s, words(), [&](int to) { return here_.faultOf(to); });
  }
  MOE_LANES HtDispatchRails(const Here& here, const StepParams& p) : here_(here), s(here_.s), d_(p.dispatch) {}
  MOE_LANES RailWords words(std::uint32_t fault = 0) const {
    const RemoteLayout& at = s.comm.far->at;
    const std::uint64_t terms = fault != 0 ? fault : d_.terms;
    return {kDispatchRails, at.htRailWaves, at.htRailsFree, terms, Phase::dispatchRails, Phase::dispatchRailsFree};
  }

  MOE_LANES bool sendWave(int wave, std::uint32_t fault) const {
    const Range tokens = tokensOfWave(s.handle.waves, wave, d_.tokens);
    if (fault == 0) here_.push(tokens, AllRows{});
    return sendOverRails(s, words(fault), wave, [&](int domain) {
      if (fault != 0) return;
      const Range rows{firstOutgoing(s.handle, domain, tokens.begin), firstOutgoing(s.handle, domain, tokens.end)};
      MOE_ROLLED
      for (int side = 0; side < 2; ++side) putRows(rows, domain, side == 0 ? Payload::rows : Payload::side, wave);
    });
  }

  // Puts the rows for `domain` to the rail peer there.
  MOE_LANES void putRows(Range rows, int domain, Payload payload, int wave) const {
    const RailPayload rail = railPayload(s.p, payload);
    const std::int32_t* outgoing = s.handle.rails.outgoing + static_cast<std::int64_t>(domain) * s.handle.tokensMax;
    s.warp.put(s.comm, rail.bytes != 0 ? rows.end - rows.begin : 0, [&](int i) {
      const int row = rows.begin + i;
      return putBytes(s.comm.railPeer(domain), rail.arriving(s.comm, s.comm.domain(), row),
                      rail.out + static_cast<std::uint64_t>(std::int64_t{outgoing[row]} * rail.bytes), rail.bytes,
                      connectionOfWave(wave));
    });
  }

  // Forwards a wave. The first wave carries the words of other domains; with them all ranks of all domains know whether
  // anything is delivered.
  MOE_LANES bool forwardWave(int wave, std::uint32_t& fault) const {
    if (!railsHaveCome(s, words(), wave)) return false;
    if (wave == 0 && fault == 0) fault = railsFault(s, words());
    const bool silent = fault != 0;
    if constexpr (kCasts) {
      if (!silent) forwardCast(wave);
    } else {
      MOE_ROLLED
      for (int side = 0; !silent && side < (d_.sideBytes != 0 ? 2 : 1); ++side) {
        forward(wave, side == 0 ? Payload::rows : Payload::side, side == 0 ? d_.parts : Parts{1, d_.sideBytes});
      }
    }
    announceWave(s, here_.rowFlags(), wave, s.w);
    if (wave < s.handle.waves - 1) return true;
    const auto keep = [](const HtDispatchRails& rails) { rails.keepFault(); };
    if (silent && isLast(s.w) && s.allHaveBegun()) seldom<HtDispatchRails>(s, keep, s.w, s.operation());
    freeRails(s, words());
    here_.endSend(silent);
    return true;
  }

  // Receives a wave of a dispatch that delivers nothing. Ranks of this domain may have stored rows before they learned
  // of the fault. Therefore the output is left alone, and belongs to the caller again, only when all of them have
  // announced their waves.
  MOE_LANES bool takeNothing(int wave) const {
    if (!waitForWave(s, here_.rowFlags(), wave, Phase::dispatchRows)) return false;
    if (wave == s.handle.waves - 1) describeNothing(s.warp, s.p, filledRows(s.handle, s.comm.rank), s.w);
    here_.announceExperts(wave);
    return true;
  }
  MOE_LANES void forward(int wave, Payload payload, const Parts& parts) const {
    const RailRows rows{s.handle, wave};
    const RailPayload rail = railPayload(s.p, payload);
    using List = Forwarded<Here, false>;
    s.warp.streamRows(List{here_, rows, payload, rail, shareOf({0, rows.count()}, parts, rail.bytes, s.w)});
  }
  // Codes are at the beginning of a row, scales at its end.
  MOE_LANES void forwardCast(int wave) const {
    const RailRows rows{s.handle, wave};
    const RailPayload rail = railPayload(s.p, Payload::rows);
    const PartShare share = shareOf({0, rows.count()}, codeParts(), d_.cast.codeBytes, s.w);
    s.warp.streamRows(Forwarded<Here, true>{here_, rows, Payload::rows, rail, share});
    forwardScales(rows);
    if (d_.payloads.count != 0) return forwardPayloads(rows);
    if (d_.sideBytes != 0) forward(wave, Payload::side, Parts{1, d_.sideBytes});
  }
  MOE_LANES void forwardPayloads(const RailRows& rows) const {
    const RailPayload rail = railPayload(s.p, Payload::side);
    forPieces(s, {0, rows.count()}, false, s.w, [&](int number, int piece) {
      const RailRow row = railRowAt(rows, number);
      const auto* from = s.comm.template mine<std::uint8_t>(rail.arriving(s.comm, row.domain, row.index));
      const Quad quad = s.warp.laneLoad(reinterpret_cast<const Quad*>(from) + piece);
      const Destination* to = s.handle.rails.to + row.table * s.handle.railDestinationsMax();
      for (int n = 0; n < s.handle.rails.count[row.table]; ++n) here_.storePiece(to[n], piece, quad);
    });
  }
  // The parts of a row's codes, from the parts of its elements.
  MOE_LANES Parts codeParts() const {
    return {d_.parts.count, static_cast<std::uint32_t>(castCodeBytes(d_.cast.type, static_cast<int>(d_.parts.bytes)))};
  }
  MOE_LANES void forwardScales(const RailRows& rows) const {
    const CastArgs& cast = d_.cast;
    const RailPayload rail = railPayload(s.p, Payload::rows);
    const Slice slice = sliceOf(rows.count() * cast.words, s.w);
    s.warp.forEach(slice.count, [&](int i) {
      const int item = slice.begin + i, word = item % cast.words;
      const RailRow row = railRowAt(rows, item / cast.words);
      const auto* from = s.comm.template mine<std::uint8_t>(rail.arriving(s.comm, row.domain, row.index));
      const auto value = s.warp.laneLoad(reinterpret_cast<const std::uint32_t*>(from + cast.codeBytes) + word);
      const Destination* to = s.handle.rails.to + row.table * s.handle.railDestinationsMax();
      for (int n = 0; n < s.handle.rails.count[row.table]; ++n) {
        const CastSink place = here_.castPlace(to[n]);
        s.warp.laneStore(reinterpret_cast<std::uint32_t*>(place.scales) + word * place.wordStride, value);
      }
    });
  }

  Here here_;
  const Session<Warp> s;  // a copy of the session of here_, so that the compiler keeps it in registers
  const DispatchArgs& d_;
};

}  // namespace moe
