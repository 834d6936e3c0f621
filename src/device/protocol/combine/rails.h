// HT combine across domains: for each token that came over a rail, this rank sums the rows that the token has in this
// domain, as if the token were its own, and puts the sum to the owner, its rail peer. That belongs to the sending
// phase, as with dispatch. The owner adds the sums of other domains to the rows of its own.
#pragma once

#include "device/protocol/combine/combine.h"

namespace moe {

// Sums of a wave's rows for the owners in other domains, where they wait to be put: a list for reduceRows.
template <class Here>
struct RailSums {
  const Here& here;
  RailRows waveRows;
  PartShare share;

  MOE_LANES const CombineArgs& args() const { return here.s.args; }
  MOE_LANES int count() const { return share.count(); }
  MOE_LANES int rows(int i) const { return waveRows.h.rails.count[railRowAt(waveRows, share.at(i).row).table]; }
  MOE_LANES int rowType() const { return here.s.args.rowType; }
  MOE_LANES int termsMax() const { return waveRows.h.destinationsMax; }
  MOE_LANES SumJob job(int i) const {
    const CommView& c = here.s.comm;
    const PartOf part = share.at(i);
    const RailRow row = railRowAt(waveRows, part.row);
    auto* out =
        c.mine<std::uint8_t>(railRow(c, c.far->at.railSumsOut, c.rowBytesMax, args().wireBytes, row.domain, row.index));
    return {out + part.begin, part.bytes, waveRows.h.rails.count[row.table]};
  }
  MOE_LANES const std::uint8_t* term(int i, int term) const {
    const PartOf part = share.at(i);
    const RailRow row = railRowAt(waveRows, part.row);
    return here.partialRow(waveRows.h.rails.to[row.table * waveRows.h.railDestinationsMax() + term]) + part.begin;
  }
};

template <Moves Warp, bool kCoded = false>
class CombineRails {
  using Here = Combine<kHtWaves, Warp, kCoded>;
  using Sums = std::conditional_t<kCoded, OfCoded<RailSums<Here>, true>, RailSums<Here>>;

 public:
  MOE_LANES CombineRails(const Warp& warp, const StepParams& p, WarpIndex w) : CombineRails(Here(warp, p, w)) {}
  // Of an operation that goes on here (core/seldom.h).
  MOE_LANES CombineRails(const Warp& warp, const StepParams& p, WarpIndex w, const Operation& which)
      : CombineRails(Here(warp, p, w, which)) {}

  MOE_LANES void run() const {
    if (s.stopped()) return;
    std::uint32_t fault = knownFault(s);
    if (s.sends && !(here_.begin(false) && railsAreFree(s, words()))) return;
    const auto handOver = [&](int wave) { return !s.sends || here_.handOver(wave, fault != 0); };
    const auto forward = [&](int wave) { return !s.sends || forwardSums(wave, fault); };
    const auto take = [&](int wave) { return !s.receives || sumWave(wave, fault); };
    if (!inWavesOverRails(handOver, forward, take) || !s.receives) return;
    if (fault != 0) {
      sumNothing(s.warp, s.p, s.w);
      const auto keep = [](const CombineRails& rails) { rails.keepFault(); };
      if (isLast(s.w) && s.allHaveBegun()) seldom<CombineRails>(s, keep, s.w, s.operation());
      here_.endReading();
    } else {
      here_.end();
    }
    freeRails(s, words());
  }

  MOE_LANES void keepFault() const {
    keepRailsFault(s, words(), [&](int from) { return here_.faultOf(from); });
  }

 private:
  MOE_LANES explicit CombineRails(const Here& here) : here_(here), s(here_.s) {}

  MOE_LANES RailWords words(std::uint32_t fault = 0) const {
    const RemoteLayout& at = s.comm.far->at;
    const std::uint64_t terms = fault != 0 ? fault : s.args.terms;
    return {kCombineRails, at.htSumWaves, at.htSumsFree, terms, Phase::combineRails, Phase::combineRailsFree};
  }

  // All ranks of this domain know from its records whether anything is wrong here, and tell their rail peers with the
  // first wave.
  MOE_LANES bool forwardSums(int wave, std::uint32_t& fault) const {
    if (!waitForWave(s, s.area.ready, wave, Phase::combineRows)) return false;
    if (wave == 0 && fault == 0) fault = here_.recordsFault();
    const bool silent = fault != 0;
    const RailRows rows{s.handle, wave};
    const PartShare share = shareOf({0, silent ? 0 : rows.count()}, s.args.parts, s.args.rowBytes, s.w);
    s.warp.reduceRows(s.comm, Sums{here_, rows, share});
    const auto putRows = [&](int domain) {
      if (!silent) putSums(rows, domain);
    };
    if (!sendOverRails(s, words(fault), wave, putRows)) return false;
    if (wave == kHtWaves - 1) here_.endSend(silent);
    return true;
  }

  // The first wave brings what other domains say: then all ranks of all domains know whether there are sums.
  MOE_LANES bool sumWave(int wave, std::uint32_t& fault) const {
    if (!railsHaveCome(s, words(), wave) || !waitForWave(s, s.area.ready, wave, Phase::combineRows)) return false;
    if (wave == 0 && fault == 0) fault = railsFault(s, words());
    return fault != 0 || here_.sumRows(wave);
  }

  // The sums of a wave for the owner in `domain`; with the first wave, all gradients for it.
  MOE_LANES void putSums(const RailRows& rows, int domain) const {
    const CommView& c = s.comm;
    const RemoteLayout& at = c.far->at;
    const int peer = c.railPeer(domain), first = rows.first(domain);
    const auto rowIn = [&](std::uint64_t area, int part) {
      return railRow(c, area, c.rowBytesMax, s.args.wireBytes, part, first);
    };
    putBlock(s, peer,
             {rowIn(at.railSums, c.domain()), rowIn(at.railSumsOut, domain),
              std::int64_t{rows.end(domain) - first} * s.args.wireBytes, connectionOfWave(rows.wave)});
    if (rows.wave != 0 || s.args.grads == 0) return;
    const std::int64_t arrived = s.handle.rails.start[kHtWaves * s.handle.domains + domain];
    putBlock(s, peer,
             {railGradsRow(c, at.railGrads, c.domain(), 0), railGradsRow(c, at.railGradsOut, domain, 0),
              arrived * c.topkMax * static_cast<std::int64_t>(sizeof(float)), connectionOfWave(rows.wave)});
  }

  Here here_;
  const CombineSession<Warp, kCoded> s;  // here_'s: a copy, so that the compiler keeps it in registers
};

}  // namespace moe
