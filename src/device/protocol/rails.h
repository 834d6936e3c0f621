// High throughput across domains: a token crosses to a domain once, to the rank there with this rank's place, its rail
// peer, which forwards it to the final rows; the sums of combine come back the same way. Each rank serves one rail to
// each other domain, in waves. Flags: docs/internals/protocol.md, "Rails".
#pragma once

#include "device/protocol/remote.h"
#include "device/protocol/waves.h"

namespace moe {

enum Rails : int { kDispatchRails, kCombineRails };

// Rows of one payload in an area [domain][tokensMax] of at most `bytesMax` bytes each, packed.
MOE_LANES std::uint64_t railRow(const CommView& c, std::uint64_t area, int bytesMax, std::uint32_t bytes, int domain,
                                int index) {
  const std::int64_t part = std::int64_t{domain} * c.tokensMax * bytesMax;
  return area + static_cast<std::uint64_t>(part + std::int64_t{index} * bytes);
}

MOE_LANES std::uint64_t railFlags(const CommView& c, std::uint64_t area, int wave) {
  return area + static_cast<std::uint64_t>(wave * c.domains()) * sizeof(Flag);
}

// True if the words [domain] at `area` have reached `number`: those of the rail peers, and this rank's own.
template <Core Warp>
MOE_LANES bool waitForRails(const Warp& warp, const CommView& c, std::uint64_t area, std::uint64_t number,
                            Phase phase) {
  return warp.waitAll(c, c.mine<Flag>(area), c.domains(), number, Awaited{phase, c.rank - c.domainFirst, c.domainSize});
}

// This rank's word at `area`, of a rail peer, or of its own window.
template <Core Warp>
MOE_LANES void tellRail(const Warp& warp, const CommView& c, int domain, std::uint64_t area, std::uint64_t number,
                        std::uint64_t connection = 0) {
  const std::uint64_t word = area + static_cast<std::uint64_t>(c.domain()) * sizeof(Flag);
  if (domain == c.domain()) return publish(warp, c.mine<Flag>(word), flagWord(number));
  warp.put(c, 1, [&](int) { return putWord(c.railPeer(domain), word, flagWord(number), connection); });
}

// What must agree between rail peers; with the first wave.
MOE_LANES std::uint64_t railSizesOffset(const CommView& c, Rails rails, int domain) {
  return c.far->at.railSizes + static_cast<std::uint64_t>(rails * c.domains() + domain) * sizeof(std::uint64_t);
}
template <Core Warp>
MOE_LANES bool railSizesAgree(const Warp& warp, const CommView& c, Rails rails, Phase phase, std::uint64_t sizes) {
  return allAreGood(warp, c, {0, c.domains()}, [&](int domain) -> Failure {
    if (domain == c.domain()) return {};
    const auto theirs = warp.laneLoad(c.mine<std::uint64_t>(railSizesOffset(c, rails, domain)));
    return theirs == sizes ? Failure{} : disagreement(phase, c.railPeer(domain), sizes, theirs);
  });
}

// Each wave has a connection of its own.
MOE_LANES std::uint64_t connectionOfWave(int wave) {
  return static_cast<unsigned>(wave);
}

// The rails are shared out among the warps. When all warps have filled what goes over the rails in a wave, the one that
// serves a rail calls putRows(domain), and the wave's flag follows.
template <Core Warp, class PutRows>
MOE_LANES bool sendOverRails(const Warp& warp, const CommView& c, Rails rails, std::uint64_t sizes, std::uint64_t waves,
                             int wave, std::uint64_t number, WarpIndex w, PutRows putRows) {
  Flag* staged = &c.state->railStaged[rails][wave];
  warp.mark(staged, static_cast<Meeting>(static_cast<int>(Meeting::railWaves) + wave), w);
  MOE_ROLLED
  for (int domain = w.index; domain < c.domains(); domain += w.count) {
    if (domain != c.domain()) {
      if (!waitForWarps(warp, c, staged, number)) return false;
      putRows(domain);
      const std::uint64_t word = railSizesOffset(c, rails, c.domain());
      if (wave == 0)
        warp.put(c, 1, [&](int) { return putWord(c.railPeer(domain), word, sizes, connectionOfWave(wave)); });
    }
    tellRail(warp, c, domain, railFlags(c, waves, wave), number, connectionOfWave(wave));
  }
  return true;
}

// When all warps of this rank have read what came over the rails, its rail peers may send more.
template <Core Warp>
MOE_LANES void freeRails(const Warp& warp, const CommView& c, Rails rails, std::uint64_t area, std::uint64_t number,
                         WarpIndex w) {
  Flag* taken = &c.state->railsTaken[rails];
  warp.mark(taken, Meeting::railsTaken, w);
  if (w.index != 0 || !waitForWarps(warp, c, taken, number)) return;
  MOE_ROLLED
  for (int domain = 0; domain < c.domains(); ++domain) tellRail(warp, c, domain, area, number);
}

// Rows of a wave that come over the rails, numbered from 0 across the domains.
struct RailRows {
  const HandleView& h;
  int wave;

  MOE_LANES int first(int domain) const { return h.railStart[wave * h.domains + domain]; }
  MOE_LANES int end(int domain) const { return h.railStart[(wave + 1) * h.domains + domain]; }
  MOE_LANES int count() const {
    int rows = 0;
    MOE_ROLLED
    for (int domain = 0; domain < h.domains; ++domain) rows += end(domain) - first(domain);
    return rows;
  }
};
// Which row that is, and where its table is.
struct RailRow {
  int domain, index;
  std::int64_t table;
};
MOE_LANES RailRow railRowAt(const RailRows& rows, int number) {
  int domain = 0;
  MOE_ROLLED
  while (number >= rows.end(domain) - rows.first(domain)) {
    number -= rows.end(domain) - rows.first(domain);
    ++domain;
  }
  const int index = rows.first(domain) + number;
  return {domain, index, static_cast<std::int64_t>(domain) * rows.h.tokensMax + index};
}

}  // namespace moe
