// High-throughput dispatch across domains. A row is stored to its places in this domain and, once, to this rank's
// window, from where it is put to the rail peers of the other domains that it goes to; rows that come over the rails
// are forwarded to their places here. To the receiver it is as if the forwarder had sent them. Forwarding belongs to
// the sending phase: rails must be free for the next dispatch whatever the caller does in between.
#pragma once

#include "device/protocol/ht_dispatch.h"

namespace moe {

// The first of a domain's tokens, in order, that is not before `token`. Uniform.
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

// One payload as it goes over the rails: where it comes in, where it goes out from, and how long a row is and may be.
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

// One payload of rows that came over the rails, to their places in this domain: a list for streamRows.
template <class Dispatch>
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
    const Sink to = here.finalPlace(rows.h.rails.to[row.table * rows.h.railDestinationsMax() + turn]);
    return {(payload == Payload::rows ? to.row : to.side) + part.begin, nullptr, to.here};
  }
};

template <Moves Warp>
class HtDispatchRails {
 public:
  MOE_LANES HtDispatchRails(const Warp& warp, const StepParams& p, WarpIndex w)
      : here_(warp, p, {w, w}), s(here_.s), d_(p.dispatch) {}

  MOE_LANES void run() const {
    if (s.stopped()) return;
    if (s.sends && !(here_.begin() && outputsAreGood() && railsAreFree(s, words()))) return;
    inWavesOverRails([&](int wave) { return !s.sends || sendWave(wave); },
                     [&](int wave) { return !s.sends || forwardWave(wave); },
                     [&](int wave) { return !s.receives || here_.take(wave); });
  }

 private:
  using Here = HtDispatch<kHtWaves, Duty::all, Warp>;

  MOE_LANES RailWords words() const {
    const RemoteLayout& at = s.comm.far->at;
    return {kDispatchRails, at.htRailWaves, at.htRailsFree, d_.terms, Phase::dispatchRails, Phase::dispatchRailsFree};
  }

  // The domains do not see each other's outputs, so that not all ranks would know: this ends the communicator.
  MOE_LANES bool outputsAreGood() const {
    return s.allAreGood(domainRanks(s.comm), [&](int to) { return here_.faultOf(to); });
  }

  MOE_LANES bool sendWave(int wave) const {
    const Range tokens = tokensOfWave(kHtWaves, wave, d_.tokens);
    here_.push(tokens, AllRows{});
    return sendOverRails(s, words(), wave, [&](int domain) {
      const Range rows{firstOutgoing(s.handle, domain, tokens.begin), firstOutgoing(s.handle, domain, tokens.end)};
      MOE_ROLLED
      for (int side = 0; side < 2; ++side) putRows(rows, domain, side == 0 ? Payload::rows : Payload::side, wave);
    });
  }

  // The rows that go to `domain`, to the rail peer there.
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

  MOE_LANES bool forwardWave(int wave) const {
    if (!railsHaveCome(s, words(), wave)) return false;
    MOE_ROLLED
    for (int side = 0; side < (d_.sideBytes != 0 ? 2 : 1); ++side) {
      forward(wave, side == 0 ? Payload::rows : Payload::side, side == 0 ? d_.parts : Parts{1, d_.sideBytes});
    }
    announceWave(s, here_.rowFlags(), wave, s.w);
    if (wave < kHtWaves - 1) return true;
    freeRails(s, words());
    here_.endSend();
    return true;
  }
  MOE_LANES void forward(int wave, Payload payload, const Parts& parts) const {
    const RailRows rows{s.handle, wave};
    const RailPayload rail = railPayload(s.p, payload);
    s.warp.streamRows(Forwarded<Here>{here_, rows, payload, rail, shareOf({0, rows.count()}, parts, rail.bytes, s.w)});
  }

  Here here_;
  const Session<Warp> s;  // here_'s: a copy, so that the compiler keeps it in registers
  const DispatchArgs& d_;
};

}  // namespace moe
