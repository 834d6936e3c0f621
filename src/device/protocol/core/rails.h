// High throughput across domains. A token crosses to a domain once: it goes to the rank there with this rank's place,
// its rail peer, which forwards it to the final rows. The sums of combine return the same way. Each rank serves one
// rail to each other domain, in waves. Flags: README.md, "Rails".
#pragma once

#include "device/protocol/core/handle_fault.h"
#include "device/protocol/core/remote.h"
#include "device/protocol/core/waves.h"

namespace moe {

enum Rails : int { kDispatchRails, kCombineRails };

// Where a row of one payload lies in an area [domain][tokensMax] of rows of at most `bytesMax` bytes. Rows are packed.
MOE_LANES std::uint64_t railRow(const CommView& c, std::uint64_t area, int bytesMax, std::uint32_t bytes, int domain,
                                int index) {
  const std::int64_t part = std::int64_t{domain} * c.tokensMax * bytesMax;
  return area + static_cast<std::uint64_t>(part + std::int64_t{index} * bytes);
}

MOE_LANES std::uint64_t railFlags(const CommView& c, std::uint64_t area, int wave) {
  return area + static_cast<std::uint64_t>(wave * c.domains()) * sizeof(Flag);
}

// Each wave has a connection of its own.
MOE_LANES std::uint64_t connectionOfWave(int wave) {
  return static_cast<unsigned>(wave);
}

// True if the words [domain] at `area` have reached `number`. These are the words of the rail peers and this rank's
// own.
MOE_LANES bool waitForRails(const AnySession auto& s, std::uint64_t area, std::uint64_t number, Phase phase) {
  const CommView& c = s.comm;
  return s.warp.waitAll(c, c.mine<Flag>(area), c.domains(), number,
                        Awaited{phase, c.rank - c.domainFirst, c.domainSize});
}

// Sets this rank's word at `area` in the window of a rail peer, or in its own window.
MOE_LANES void tellRail(const AnySession auto& s, int domain, std::uint64_t area, std::uint64_t connection = 0) {
  const CommView& c = s.comm;
  const std::uint64_t word = area + static_cast<std::uint64_t>(c.domain()) * sizeof(Flag);
  if (domain == c.domain()) return s.publish(c.mine<Flag>(word), flagWord(s.number));
  s.warp.put(c, 1, [&](int) { return putWord(c.railPeer(domain), word, flagWord(s.number), connection); });
}

// Where rail peers exchange the terms that must agree. Terms travel with the first wave.
MOE_LANES std::uint64_t railSizesOffset(const CommView& c, Rails rails, int domain) {
  return c.far->at.railSizes + static_cast<std::uint64_t>(rails * c.domains() + domain) * sizeof(std::uint64_t);
}

// Whether `said` is a fault word instead of terms. A rank whose domain delivers nothing sends the handle's fault word.
// Terms are larger than any fault word, because rows have a size.
MOE_LANES bool isRailFault(std::uint64_t said) {
  return said <= kBadUsage;
}

// The rails of one operation: their flags, and the terms that its rail peers must share.
struct RailWords {
  Rails rails;
  std::uint64_t waves, free;  // flags: `waves`: a wave's rows have arrived; `free`:
                              // everything that arrived has been read
  std::uint64_t terms;        // the word that this rank sends: terms or a fault word
  Phase rows, freed;          // the phases of waits for `waves` and for `free`
};

// The fault that the word of the rail peer in `domain` shows, if any. For one lane.
MOE_LANES Failure railFault(const AnySession auto& s, const RailWords& words, int domain) {
  const CommView& c = s.comm;
  if (domain == c.domain()) return {};
  const auto theirs = s.warp.laneLoad(c.mine<std::uint64_t>(railSizesOffset(c, words.rails, domain)));
  if (theirs == words.terms) return {};
  if (isRailFault(theirs)) {
    return faultElsewhere(words.rows, c.railPeer(domain), theirs);
  }
  return disagreement(words.rows, c.railPeer(domain), words.terms, theirs);
}
// The fault that the words of the rail peers show; 0: none. Valid after the first wave's flags. The ranks of a domain
// all send the same terms, or all send a fault word. Therefore, if one rank's word differs from another's, all ranks of
// all domains learn of it.
MOE_LANES std::uint32_t railsFault(const AnySession auto& s, const RailWords& words) {
  return faultAmong(s, {0, s.comm.domains()}, [&](int domain) { return railFault(s, words, domain); });
}
// Keeps the first fault in this domain, found by faultOf(rank), or else the first fault that rail peers report. One
// warp calls it before the rails are free for the rail peers' next words.
template <class FaultOf>
MOE_LANES void keepRailsFault(const AnySession auto& s, const RailWords& words, FaultOf faultOf) {
  const CommView& c = s.comm;
  keepFirstFault(s.warp, s.handle, {0, c.domainSize + c.domains()}, [&](int i) {
    return i < c.domainSize ? faultOf(c.domainFirst + i) : railFault(s, words, i - c.domainSize);
  });
}

// True if the rail peers have read everything that the previous operation sent them.
MOE_LANES bool railsAreFree(const AnySession auto& s, const RailWords& words) {
  return waitForRails(s, words.free, s.number - 1, words.freed);
}
// True if a wave's rows have arrived over all rails.
MOE_LANES bool railsHaveCome(const AnySession auto& s, const RailWords& words, int wave) {
  return waitForRails(s, railFlags(s.comm, words.waves, wave), s.number, words.rows);
}

// Divides the rails among the warps. When all warps have filled their parts of what a wave sends over the rails, the
// warp that serves a rail calls putRows(domain) and then sets the wave's flag.
template <class PutRows>
MOE_LANES bool sendOverRails(const AnySession auto& s, const RailWords& words, int wave, PutRows putRows) {
  const CommView& c = s.comm;
  Flag* staged = &c.state->railStaged[words.rails][wave];
  s.warp.mark(staged, static_cast<Meeting>(static_cast<int>(Meeting::railWaves) + wave), s.w);
  MOE_ROLLED
  for (int domain = s.w.index; domain < c.domains(); domain += s.w.count) {
    if (domain != c.domain()) {
      if (!s.waitForWarps(staged, s.number)) return false;
      putRows(domain);
      const std::uint64_t word = railSizesOffset(c, words.rails, c.domain());
      if (wave == 0)
        s.warp.put(c, 1, [&](int) { return putWord(c.railPeer(domain), word, words.terms, connectionOfWave(wave)); });
    }
    tellRail(s, domain, railFlags(c, words.waves, wave), connectionOfWave(wave));
  }
  return true;
}

// Allows the rail peers to send more, when all warps of this rank have read everything that arrived over the rails.
MOE_LANES void freeRails(const AnySession auto& s, const RailWords& words) {
  const CommView& c = s.comm;
  Flag* taken = &c.state->railsTaken[words.rails];
  s.warp.mark(taken, Meeting::railsTaken, s.w);
  if (s.w.index != 0 || !s.waitForWarps(taken, s.number)) return;
  MOE_ROLLED
  for (int domain = 0; domain < c.domains(); ++domain) tellRail(s, domain, words.free);
}

// The rows of a wave that arrive over the rails, numbered from 0 across the domains.
struct RailRows {
  const HandleView& h;
  int wave;

  MOE_LANES int first(int domain) const { return h.rails.start[wave * h.domains + domain]; }
  MOE_LANES int end(int domain) const { return h.rails.start[(wave + 1) * h.domains + domain]; }
  MOE_LANES int count() const {
    int rows = 0;
    MOE_ROLLED
    for (int domain = 0; domain < h.domains; ++domain) rows += end(domain) - first(domain);
    return rows;
  }
};
// The domain and index of a row that arrived over a rail, and the place of its table.
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
