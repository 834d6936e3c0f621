// What every step does at its two ends: which epoch it belongs to, and who leaves last.
#pragma once

#include "device/views.h"

namespace moe {

MOE_LANES int parityOf(std::uint64_t epoch) {
  return static_cast<int>(epoch % kParities);
}

// The epoch of an operation: a sending step starts the channel's next one, a receiving step of its own takes the one
// that the handle's sending step noted. No warp changes either word before all warps of the step have read it.
MOE_LANES std::uint64_t operationEpoch(const CommView& c, Channel channel, int phases, std::uint64_t started) {
  return (phases & kSendPhase) != 0 ? c.state->epoch[channel] + 1 : started;
}

// The acknowledgements of one generation of a buffer, [from], at rank `rank`. A sender of epoch e waits for its own
// generation's words to reach e - generations; a receiver stores e there when it has taken what it got.
MOE_LANES Flag* ackFlags(const CommView& c, int rank, std::uint64_t area, std::uint64_t epoch, int generations) {
  return c.in<Flag>(rank, area) + static_cast<std::int64_t>(epoch % static_cast<unsigned>(generations)) * c.nranks;
}

template <class Warp>
MOE_LANES bool waitForAcks(const Warp& warp, const CommView& c, std::uint64_t area, std::uint64_t epoch,
                           int generations, Phase phase) {
  const auto before = static_cast<std::uint64_t>(generations);
  return epoch <= before ||
         warp.waitAll(c, ackFlags(c, c.rank, area, epoch, generations), c.nranks, epoch - before, phase);
}

template <class Warp>
MOE_LANES void acknowledge(const Warp& warp, const CommView& c, std::uint64_t area, std::uint64_t epoch,
                           int generations) {
  warp.publishAll(
      c.nranks, [&](int to) { return ackFlags(c, to, area, epoch, generations) + c.rank; }, flagWord(epoch));
}

// Every warp leaves a step through here, also after a failure. `last` runs in the warp that leaves last, when no other
// warp of the step reads or writes anything any more.
template <class Warp, class Last>
MOE_LANES void leave(const Warp& warp, const CommView& c, WarpIndex w, Last last) {
  if (warp.arrive(c, Meeting::leaving, w.count)) last();
}

// Tells every rank, by its word [this rank] of the flags at `area`, that what it waits for in `epoch` is there. `area`
// is a reference so that it stays an operand in constant memory.
template <class Warp>
MOE_LANES void announce(const Warp& warp, const CommView& c, const std::uint64_t& area, std::uint64_t epoch) {
  warp.publishAll(
      c.nranks, [&](int to) { return c.in<Flag>(to, area) + c.rank; }, flagWord(epoch));
}

// The same, by the last warp of this rank that has sent its rows.
template <class Warp>
MOE_LANES void announceWhenSent(const Warp& warp, const CommView& c, const std::uint64_t& area, std::uint64_t epoch,
                                WarpIndex w) {
  if (!warp.arrive(c, Meeting::rowsSent, w.count)) return;
  announce(warp, c, area, epoch);
}

// Entries [begin, begin + count) of n are this warp's: consecutive, so that order is kept.
struct Slice {
  int begin, count;
};
MOE_LANES Slice sliceOf(int n, WarpIndex w) {
  const int each = (n + w.count - 1) / w.count;
  const int begin = each * w.index < n ? each * w.index : n;
  return {begin, begin + each < n ? each : n - begin};
}

// Items i, i + count, ... of n are this warp's: how many.
MOE_LANES int stridedCount(int n, WarpIndex w) {
  return w.index < n ? (n - w.index + w.count - 1) / w.count : 0;
}

// A row part: item = row * parts + part.
struct PartOf {
  int row;
  std::uint32_t begin, bytes;
};
MOE_LANES PartOf partOf(const Parts& parts, std::uint32_t rowBytes, int item) {
  const int row = item / parts.count;
  const std::uint32_t begin = static_cast<std::uint32_t>(item - row * parts.count) * parts.bytes;
  const std::uint32_t left = rowBytes - begin;
  return {row, begin, left < parts.bytes ? left : parts.bytes};
}

}  // namespace moe
