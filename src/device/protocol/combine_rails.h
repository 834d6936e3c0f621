// HT combine across domains: for each token that came over a rail, this rank sums the rows that the token has in this
// domain, as if the token were its own, and puts the sum to the owner, its rail peer. That belongs to the sending
// phase, as with dispatch. The owner adds the sums of other domains to the rows of its own.
#pragma once

#include "device/protocol/combine.h"

namespace moe {

// Sums of a wave's rows for the owners in other domains, where they wait to be put: a list for reduceRows.
template <class Here>
struct RailSums {
  const Here& here;
  RailRows rows;
  PartShare share;

  MOE_LANES int count() const { return share.count(); }
  MOE_LANES int rowType() const { return here.s.args.rowType; }
  MOE_LANES int termsMax() const { return rows.h.destinationsMax; }
  MOE_LANES SumJob job(int i) const {
    const CommView& c = here.s.comm;
    const PartOf part = share.at(i);
    const RailRow row = railRowAt(rows, part.row);
    auto* out =
        c.mine<std::uint8_t>(railRow(c, c.far->at.railSumsOut, c.rowBytesMax, share.rowBytes, row.domain, row.index));
    return {out + part.begin, part.bytes, rows.h.rails.count[row.table]};
  }
  MOE_LANES const std::uint8_t* term(int i, int term) const {
    const PartOf part = share.at(i);
    const RailRow row = railRowAt(rows, part.row);
    return here.partialRow(rows.h.rails.to[row.table * rows.h.railDestinationsMax() + term]) + part.begin;
  }
};

template <Moves Warp>
class CombineRails {
 public:
  MOE_LANES CombineRails(const Warp& warp, const StepParams& p, WarpIndex w) : here_(warp, p, w), s(here_.s) {}

  MOE_LANES void run() const {
    if (s.stopped()) return;
    if (s.sends && !(bringWeights(s) && here_.begin(false) && railsAreFree(s, words()))) return;
    const auto handOver = [&](int wave) {
      if (s.sends) here_.handOver(wave);
      return true;
    };
    const auto forward = [&](int wave) { return !s.sends || forwardSums(wave); };
    const auto take = [&](int wave) {
      return !s.receives || (railsHaveCome(s, words(), wave) && rowsHaveCome(wave) && here_.sumRows(wave));
    };
    if (!inWavesOverRails(handOver, forward, take) || !s.receives) return;
    here_.end();
    freeRails(s, words());
  }

 private:
  using Here = Combine<kHtWaves, Warp>;

  MOE_LANES RailWords words() const {
    const RemoteLayout& at = s.comm.far->at;
    return {kCombineRails, at.htSumWaves, at.htSumsFree, s.args.terms, Phase::combineRails, Phase::combineRailsFree};
  }

  // The domains do not see each other's records, so that not all ranks would know of a bad one: this ends the
  // communicator.
  MOE_LANES bool rowsHaveCome(int wave) const {
    if (!waitForWave(s, s.area.ready, wave, Phase::combineRows)) return false;
    return wave != 0 || s.allAreGood(domainRanks(s.comm), [&](int from) { return here_.faultOf(from); });
  }

  MOE_LANES bool forwardSums(int wave) const {
    if (!rowsHaveCome(wave)) return false;
    const RailRows rows{s.handle, wave};
    s.warp.reduceRows(s.comm,
                      RailSums<Here>{here_, rows, shareOf({0, rows.count()}, s.args.parts, s.args.rowBytes, s.w)});
    if (!sendOverRails(s, words(), wave, [&](int domain) { putSums(rows, domain); })) return false;
    if (wave == kHtWaves - 1) here_.endSend();
    return true;
  }

  // The sums of a wave for the owner in `domain`; with the first wave, all gradients for it.
  MOE_LANES void putSums(const RailRows& rows, int domain) const {
    const CommView& c = s.comm;
    const RemoteLayout& at = c.far->at;
    const int peer = c.railPeer(domain), first = rows.first(domain);
    const auto rowIn = [&](std::uint64_t area, int part) {
      return railRow(c, area, c.rowBytesMax, s.args.rowBytes, part, first);
    };
    putBlock(s, peer,
             {rowIn(at.railSums, c.domain()), rowIn(at.railSumsOut, domain),
              std::int64_t{rows.end(domain) - first} * s.args.rowBytes, connectionOfWave(rows.wave)});
    if (rows.wave != 0 || s.args.grads == 0) return;
    const std::int64_t arrived = s.handle.rails.start[kHtWaves * s.handle.domains + domain];
    putBlock(s, peer,
             {railGradsRow(c, at.railGrads, c.domain(), 0), railGradsRow(c, at.railGradsOut, domain, 0),
              arrived * c.topkMax * static_cast<std::int64_t>(sizeof(float)), connectionOfWave(rows.wave)});
  }

  Here here_;
  const CombineSession<Warp> s;  // here_'s: a copy, so that the compiler keeps it in registers
};

}  // namespace moe
