// Waves: shares of an HT operation's tokens that are handed over one by one, so that local work is done while later
// rows are still travelling. See docs/decisions/0016-waves.md.
#pragma once

#include "device/protocol/core/session.h"
#include "device/rows/row_header.h"
#include "device/view/steps.h"

namespace moe {

// The wave of a token, if its operation goes in waves.
MOE_LANES int waveOf(const HandleView& h, int token, int tokens) {
  return token * h.waves / tokens;
}
// The number of waves of an operation. One that does not go in waves has one.
template <bool kInWaves>
MOE_LANES int wavesOf(const HandleView& h) {
  return kInWaves ? h.waves : 1;
}
MOE_LANES Range tokensOfWave(int waves, int wave, int tokens) {
  return {(wave * tokens + waves - 1) / waves, ((wave + 1) * tokens + waves - 1) / waves};
}

// The number of a channel's operations that hand over rows as this one does. HT dispatches do it at once or in waves,
// as their layout demands. The words by which an operation hands over its rows reach this number.
MOE_LANES std::uint64_t& handedCount(const CommView& c, const HandleView& h, Channel channel) {
  return c.state->handed[channel == kHtDispatchChannel && dispatchesInWaves(h) ? 1 : 0][channel];
}
// The operation of an HT step, or of an LL step whose rows are read where they lie. `started`, `handed`: epoch and
// number that the handle's sending step noted.
MOE_LANES Operation handedOperation(const StepParams& p, Channel channel, std::uint64_t started, std::uint64_t handed) {
  const bool sends = (p.phases & kSendPhase) != 0;
  return {channel, operationEpoch(p, channel, started), sends ? handedCount(p.comm, p.handle, channel) + 1 : handed};
}

// The flags [from] of a wave, or of a parity.
MOE_LANES std::uint64_t waveFlags(const CommView& c, std::uint64_t area, int wave) {
  return area + static_cast<std::uint64_t>(wave * c.nranks) * sizeof(Flag);
}

// The words by which this rank hands over all its waves, to all ranks of its domain: n = domainSize * waves words.
struct WaveWords {
  const CommView& c;
  std::uint64_t area;

  MOE_LANES Flag* operator()(int i) const {
    const int wave = i / c.domainSize, to = c.domainFirst + i % c.domainSize;
    return c.in<Flag>(to, waveFlags(c, area, wave)) + c.rank;
  }
};
// One warp hands over all waves, or a team does it together.
MOE_LANES void tellWaves(const AnySession auto& s, std::uint64_t area) {
  s.warp.publishAll(s.comm.domainSize * s.handle.waves, WaveWords{s.comm, area}, flagWord(s.number));
}
MOE_LANES void announceWaves(const AnySession auto& s, std::uint64_t area, WarpIndex team) {
  s.warp.announce(s.comm.domainSize * s.handle.waves, WaveWords{s.comm, area}, Meeting::waves, team);
}
// Announces a wave. Warps may be several waves apart, so each wave has its own words and its own meeting, and shares
// do not mix.
MOE_LANES void announceWave(const AnySession auto& s, std::uint64_t area, int wave, WarpIndex team) {
  s.announce(waveFlags(s.comm, area, wave), static_cast<Meeting>(static_cast<int>(Meeting::waves) + wave), team);
}
// Waits for a wave. HT waves are handed over within the domain.
MOE_LANES bool waitForWave(const AnySession auto& s, std::uint64_t area, int wave, Phase phase) {
  return s.waitForDomain(waveFlags(s.comm, area, wave), s.number, phase);
}

// Runs the waves of an operation. take() runs one wave after handOver(). If handOver(wave) or take(wave) returns false,
// it ends.
template <bool kInWaves, class HandOver, class Take>
MOE_LANES bool inWaves(const HandleView& h, HandOver handOver, Take take) {
  if constexpr (!kInWaves) {
    return handOver(0) && take(0);
  } else {
    MOE_ROLLED
    for (int wave = 0; wave < h.waves + 1; ++wave) {
      if (wave < h.waves && !handOver(wave)) return false;
      if (wave >= 1 && !take(wave - 1)) return false;
    }
    return true;
  }
}

// Whether a warp hands over all waves, and with which warps it shares the waves that not all warps share.
struct WaveRole {
  bool makes;
  int together;
  WarpIndex team;
};
// The first warps of each block make rows. On machines without blocks, all warps of the step are divided. A step with
// too few warps is not divided.
MOE_LANES WaveRole waveRoleOf(const Makers& division, WarpIndex w) {
  const bool blocks = w.blocks != w.count;
  const int each = blocks ? w.count / w.blocks : w.count, makers = division.makers;
  if (makers <= 0 || makers >= each) return {true, 0, w};
  const int left = blocks ? makers * w.blocks : makers;
  const bool makes = w.index < left;
  const int first = makes ? 0 : left, count = makes ? left : w.count - left;
  if (!blocks) return {makes, division.together, {w.index - first, count, count}};
  return {makes, division.together, {w.index - first, count, w.blocks, makes ? makers : each - makers, w.inBlock}};
}
// Runs the waves of an operation whose warps are divided, so that rows are taken while others are made. Warps that take
// would only wait for the first wave, so they help to make it. Warps that make help to take the last waves. If
// handOver(wave, team, last) or take(wave, team, first) returns false, it ends. `last`: the warp hands over no further
// wave; `first`: it has taken none yet.
template <class HandOver, class Take>
MOE_LANES bool inDividedWaves(const HandleView& h, const WaveRole& role, WarpIndex w, HandOver handOver, Take take) {
  const int made = role.makes ? h.waves : 1, first = role.makes ? role.together : 0;
  MOE_ROLLED
  for (int wave = 0; wave < made; ++wave) {
    if (!handOver(wave, wave == 0 ? w : role.team, wave == made - 1)) return false;
  }
  MOE_ROLLED
  for (int wave = first; wave < h.waves; ++wave) {
    if (!take(wave, wave >= role.together ? w : role.team, wave == first)) return false;
  }
  return true;
}

// Runs the waves of an operation over rails. forward() runs one wave after handOver(), and take() one wave after
// forward().
template <class HandOver, class Forward, class Take>
MOE_LANES bool inWavesOverRails(const HandleView& h, HandOver handOver, Forward forward, Take take) {
  MOE_ROLLED
  for (int wave = 0; wave < h.waves + 2; ++wave) {
    if (wave < h.waves && !handOver(wave)) return false;
    if (wave >= 1 && wave <= h.waves && !forward(wave - 1)) return false;
    if (wave >= 2 && !take(wave - 2)) return false;
  }
  return true;
}

// The first row, in FLAT order, of the rows that a source sends from this wave on.
MOE_LANES int waveStart(const HandleView& h, int wave, int from) {
  return wave < h.waves ? h.arriving.waveStart[wave * h.map.nranks + from] : h.arriving.rankOffsets[from + 1];
}

// Notes the waves that begin with or after an arriving row. One lane calls it for each row. `before` is the wave of the
// source's previous row, -1 for its first; `end` is after the source's last row.
MOE_LANES void laneNoteWaves(const HandleView& h, int row, int from, int before, int wave, int end) {
  for (int v = before + 1; v <= wave; ++v) h.arriving.waveStart[v * h.map.nranks + from] = row;
  if (row + 1 < end) return;
  for (int v = wave + 1; v < h.waves; ++v) h.arriving.waveStart[v * h.map.nranks + from] = end;
}
MOE_LANES void laneNoteNoRows(const HandleView& h, int from, int end) {
  for (int v = 0; v < h.waves; ++v) h.arriving.waveStart[v * h.map.nranks + from] = end;
}

// The arriving rows of a wave, with numbers [begin, end). Numbers continue from wave to wave, so that warps take turns
// across waves.
struct ArrivingRows {
  const HandleView& h;
  bool inWaves;
  int wave, begin, end;
  const std::int32_t* list;  // row numbers; NULL: they follow from waveStart()
  int without;               // the rank whose rows are left out; kNoRank: none

  // The row with this number, in FLAT order.
  MOE_LANES int row(int number) const {
    if (!inWaves) return number + (without != kNoRank && number >= firstLeftOut() ? leftOut() : 0);
    if (list != nullptr) return list[number];
    int left = number - begin;
    MOE_ROLLED
    for (int from = 0; from < h.map.nranks; ++from) {
      if (from == without) continue;
      const int first = waveStart(h, wave, from), rows = waveStart(h, wave + 1, from) - first;
      if (left < rows) return first + left;
      left -= rows;
    }
    return 0;
  }
  MOE_LANES int firstLeftOut() const { return h.arriving.rankOffsets[without]; }
  MOE_LANES int leftOut() const { return h.arriving.rankOffsets[without + 1] - firstLeftOut(); }
};
MOE_LANES ArrivingRows arrivingRows(const HandleView& h, bool inWaves, int wave, int without = kNoRank) {
  if (!inWaves) {
    ArrivingRows all{h, false, 0, 0, *h.arriving.rows, nullptr, without};
    if (without != kNoRank) all.end -= all.leftOut();
    return all;
  }
  int begin = 0, end = 0;
  MOE_ROLLED
  for (int from = 0; from < h.map.nranks; ++from) {
    if (from == without) continue;
    begin += waveStart(h, wave, from) - h.arriving.rankOffsets[from];
    end += waveStart(h, wave + 1, from) - h.arriving.rankOffsets[from];
  }
  return {h, true, wave, begin, end, nullptr, without};
}

// Parts of such rows, as warps divide them. Rows have numbers [begin, end); row(number) is in FLAT order.
template <class Rows>
struct ArrivingParts {
  Rows rows;
  PartShare share;

  MOE_LANES int count() const { return share.count(); }
  MOE_LANES PartOf at(int i) const {
    PartOf part = share.at(i);
    part.row = rows.row(part.row);
    return part;
  }
};
template <class Rows>
MOE_LANES ArrivingParts<Rows> partsOf(const Rows& rows, const Parts& parts, std::uint32_t rowBytes, WarpIndex w) {
  return {rows, shareOf({rows.begin, rows.end}, parts, rowBytes, w)};
}

}  // namespace moe
