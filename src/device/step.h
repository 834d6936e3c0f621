// What every step does at its ends: which epoch it belongs to, how its warps share the work, and what they tell the
// peers.
#pragma once

#include "device/views.h"

namespace moe {

MOE_LANES int parityOf(std::uint64_t epoch) {
  return static_cast<int>(epoch % kParities);
}

// The epoch of an operation: a sending step starts the channel's next one, a receiving step of its own takes the one
// that the handle's sending step noted.
MOE_LANES std::uint64_t operationEpoch(const CommView& c, Channel channel, int phases, std::uint64_t started) {
  return (phases & kSendPhase) != 0 ? c.state->epoch[channel] + 1 : started;
}

// Every warp of a sending step says here that it has read what begins and ends with an epoch.
template <class Warp>
MOE_LANES void noteBegin(const Warp& warp, const CommView& c, Channel channel, WarpIndex w) {
  warp.mark(&c.state->begun[channel], Meeting::begin, w);
}

// One warp moves on to the next epoch, and by `last` what goes with it, when every warp has read what that changes:
// nothing that comes after in this step may read it.
template <class Warp, class Last>
MOE_LANES void endEpoch(const Warp& warp, const CommView& c, Channel channel, std::uint64_t epoch, Last last) {
  if (!warp.waitAll(c, &c.state->begun[channel], 1, epoch, Phase::ownWarps)) return;
  warp.forEach(1, [&](int) {
    c.state->epoch[channel] = epoch;
    last();
  });
}

// Looks at every rank, by faultOf(rank); false if something is wrong, which is then reported.
template <class Warp, class FaultOf>
MOE_LANES bool allAreGood(const Warp& warp, const CommView& c, FaultOf faultOf) {
  const int faults = warp.scanInOrder(
      c.nranks,
      [&](int rank) {
        const Failure failure = faultOf(rank);
        if (failure.fault == Fault::none) return 0;
        warp.laneFail(c, failure);
        return 1;
      },
      [](int, int) {});
  return faults == 0;
}

// ---- Shares of the work

// Entries [begin, begin + count) of n are this warp's: consecutive, so that order is kept.
struct Slice {
  int begin, count;
};
MOE_LANES Slice sliceOf(int n, WarpIndex w) {
  const int each = (n + w.count - 1) / w.count;
  const int begin = each * w.index < n ? each * w.index : n;
  return {begin, begin + each < n ? each : n - begin};
}

struct Range {
  int begin, end;
};

// Of items [begin, end), those whose number is this warp's modulo the number of warps.
struct Strided {
  int first, count, stride;
  MOE_LANES int at(int i) const { return first + i * stride; }
};
MOE_LANES Strided stridedOf(int begin, int end, WarpIndex w) {
  const int ahead = w.index - begin % w.count, first = begin + (ahead < 0 ? ahead + w.count : ahead);
  return {first, first < end ? (end - first + w.count - 1) / w.count : 0, w.count};
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

// ---- Flags

// One warp tells every rank, by its word [this rank] of the flags at `area`, that what it waits for in `epoch` is
// there. `area` is a reference so that it stays an operand in constant memory.
template <class Warp>
MOE_LANES void tell(const Warp& warp, const CommView& c, const std::uint64_t& area, std::uint64_t epoch) {
  warp.publishAll(
      c.nranks, [&](int to) { return c.in<Flag>(to, area) + c.rank; }, flagWord(epoch));
}

// The same by all warps of a team together: the words reach the next epoch when the last of them has called.
template <class Warp>
MOE_LANES void announce(const Warp& warp, const CommView& c, const std::uint64_t& area, Meeting meeting,
                        WarpIndex team) {
  warp.announce(
      c.nranks, [&](int to) { return c.in<Flag>(to, area) + c.rank; }, meeting, team);
}

// True if the flags [from] at `area` of this rank's window have reached `epoch`.
template <class Warp>
MOE_LANES bool waitForAll(const Warp& warp, const CommView& c, const std::uint64_t& area, std::uint64_t epoch,
                          Phase phase) {
  return warp.waitAll(c, c.mine<Flag>(area), c.nranks, epoch, phase);
}

// True if all warps of this rank have announced `epoch` at `area`.
template <class Warp>
MOE_LANES bool waitForOwn(const Warp& warp, const CommView& c, const std::uint64_t& area, std::uint64_t epoch) {
  return warp.waitAll(c, c.mine<Flag>(area) + c.rank, 1, epoch, Phase::ownWarps);
}

}  // namespace moe
