// High-throughput dispatch across domains. A row is stored to its places in this domain and, once, to this rank's
// window, from where it is put to the rail peers of the other domains that it goes to; rows that come over the rails
// are forwarded to their places here. To the receiver it is as if the forwarder had sent them. Forwarding belongs to
// the sending phase: rails must be free for the next dispatch whatever the caller does in between.
#pragma once

#include "device/protocol/ht_dispatch.h"

namespace moe {

// The first of a domain's tokens, in order, that is not before `token`. Uniform.
MOE_LANES int firstOutgoing(const HandleView& h, int domain, int token) {
  const std::int32_t* tokens = h.outgoing + static_cast<std::int64_t>(domain) * h.tokensMax;
  int low = 0, high = h.totals[h.domainBucket(domain)];
  while (low < high) {
    const int middle = (low + high) / 2;
    if (tokens[middle] < token) low = middle + 1;
    if (tokens[middle] >= token) high = middle;
  }
  return low;
}

enum class Payload { rows, side };

// One payload as it goes over the rails: where it comes in, where it goes out from, and how long a row is and may be.
struct RailPayload {
  std::uint64_t in, out;
  int bytesMax;
  std::uint32_t bytes;
};
MOE_LANES RailPayload railPayload(const StepParams& p, Payload payload) {
  const CommView& c = p.comm;
  const RemoteLayout& at = c.far->at;
  if (payload == Payload::rows) return {at.railRows, at.railRowsOut, c.rowBytesMax, p.dispatch.rowBytes};
  return {at.railSide, at.railSideOut, c.sideBytesMax, p.dispatch.sideBytes};
}

// The rows [first, end) that go to `domain`, to the rail peer there.
template <Moves Warp>
MOE_LANES void putRailPayload(const Warp& warp, const StepParams& p, Range rows, int domain, Payload payload,
                              int wave) {
  const CommView& c = p.comm;
  const RailPayload rail = railPayload(p, payload);
  const std::int32_t* outgoing = p.handle.outgoing + static_cast<std::int64_t>(domain) * p.handle.tokensMax;
  warp.put(c, rail.bytes != 0 ? rows.end - rows.begin : 0, [&](int i) {
    const int row = rows.begin + i;
    return putBytes(c.railPeer(domain), railRow(c, rail.in, rail.bytesMax, rail.bytes, c.domain(), row),
                    rail.out + static_cast<std::uint64_t>(std::int64_t{outgoing[row]} * rail.bytes), rail.bytes,
                    connectionOfWave(wave));
  });
}

template <Moves Warp>
MOE_LANES bool railSendWave(const Warp& warp, const StepParams& p, std::uint64_t epoch, std::uint64_t number, int wave,
                            WarpIndex w) {
  const CommView& c = p.comm;
  const Range tokens = tokensOfWave(kHtWaves, wave, p.dispatch.tokens);
  pushTokens(warp, p, epoch, tokens, AllRows{}, w);
  return sendOverRails(
      warp, c, kDispatchRails, p.dispatch.terms, c.far->at.htRailWaves, wave, number, w, [&](int domain) {
        const Range rows{firstOutgoing(p.handle, domain, tokens.begin), firstOutgoing(p.handle, domain, tokens.end)};
        MOE_ROLLED
        for (int side = 0; side < 2; ++side) {
          putRailPayload(warp, p, rows, domain, side == 0 ? Payload::rows : Payload::side, wave);
        }
      });
}

// One payload of rows that came over the rails, to their places here.
template <Moves Warp>
MOE_LANES void forwardPayload(const Warp& warp, const StepParams& p, std::uint64_t epoch, const RailRows& rows,
                              Payload payload, const Parts& parts, WarpIndex w) {
  const CommView& c = p.comm;
  const HandleView& h = p.handle;
  const RailPayload rail = railPayload(p, payload);
  const Strided mine = stridedOf(0, rows.count() * parts.count, w);
  const auto item = [&](int i) { return partOf(parts, rail.bytes, mine.at(i)); };
  warp.streamRows(
      mine.count, h.railSlots(),
      [&](int i) {
        const PartOf part = item(i);
        const RailRow row = railRowAt(rows, part.row);
        const auto* from = c.mine<std::uint8_t>(railRow(c, rail.in, rail.bytesMax, rail.bytes, row.domain, row.index));
        return CopyJob{from + part.begin, part.bytes, h.railCount[row.table]};
      },
      [&](int i, int ordinal) {
        const PartOf part = item(i);
        const RailRow row = railRowAt(rows, part.row);
        const int turn = (ordinal + c.rank + row.index) % h.railCount[row.table];
        const Sink to = finalPlace(warp, p, epoch, h.railTo[row.table * h.railSlots() + turn]);
        return Sink{(payload == Payload::rows ? to.row : to.side) + part.begin, nullptr, to.here};
      });
}

template <Moves Warp>
MOE_LANES bool forwardWave(const Warp& warp, const StepParams& p, std::uint64_t epoch, std::uint64_t number, int wave,
                           WarpIndex w) {
  const CommView& c = p.comm;
  const DispatchArgs& d = p.dispatch;
  if (!waitForRails(warp, c, railFlags(c, c.far->at.htRailWaves, wave), number, Phase::dispatchRails)) return false;
  if (wave == 0 && !railSizesAgree(warp, c, kDispatchRails, Phase::dispatchRails, d.terms)) return false;
  const RailRows rows{p.handle, wave};
  MOE_ROLLED
  for (int side = 0; side < (d.sideBytes != 0 ? 2 : 1); ++side) {
    forwardPayload(warp, p, epoch, rows, side == 0 ? Payload::rows : Payload::side,
                   side == 0 ? d.parts : Parts{1, d.sideBytes}, w);
  }
  announceWave(warp, c, c.at.htRowWaves, wave, w);
  return true;
}

template <Moves Warp>
MOE_LANES void htDispatchRails(const Warp& warp, const StepParams& p, WarpIndex w) {
  const CommView& c = p.comm;
  HandleState* state = p.handle.state;
  const std::uint64_t epoch = operationEpoch(c, kHtDispatchChannel, p.phases, state->dispatchEpoch);
  const std::uint64_t number = handedNumber(c, p.handle, kHtDispatchChannel, p.phases, state->dispatchHanded);
  const bool sends = (p.phases & kSendPhase) != 0, receives = (p.phases & kReceivePhase) != 0;
  if (warp.stopped(c)) return;
  if (sends) {
    noteBegin(warp, c, kHtDispatchChannel, w);
    if (!outputsAreReady(warp, p, epoch, w)) return;
    if (!waitForRails(warp, c, c.far->at.htRailsFree, number - 1, Phase::dispatchRailsFree)) return;
  }
  const auto forward = [&](int wave) {
    if (!sends) return true;
    if (!forwardWave(warp, p, epoch, number, wave, w)) return false;
    if (wave < kHtWaves - 1) return true;
    freeRails(warp, c, kDispatchRails, c.far->at.htRailsFree, number, w);
    endHtSend(warp, p, epoch, number, w);
    return true;
  };
  inWavesOverRails([&](int wave) { return !sends || railSendWave(warp, p, epoch, number, wave, w); }, forward,
                   [&](int wave) {
                     return !receives || placeWave<kHtWaves, Duty::all>(warp, p, number, wave, {w, w});
                   });
}

}  // namespace moe
