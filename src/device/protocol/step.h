// What every step does at its ends: which epoch it belongs to, how its warps share the work, and what they tell the
// peers.
#pragma once

#include "device/policy/contract.h"
#include "device/view/views.h"

namespace moe {

struct Range {
  int begin, end;
};

MOE_LANES Range allRanks(const CommView& c) {
  return {0, c.nranks};
}
MOE_LANES Range domainRanks(const CommView& c) {
  return {c.domainFirst, c.domainFirst + c.domainSize};
}

// More than one domain. Never so for a policy that cannot put: its code has nothing of what other domains need.
template <Core Warp>
MOE_LANES bool split(const Warp&, const CommView& c) {
  return Warp::kPuts && c.split();
}
// True if this rank reaches `other` by puts alone.
template <Core Warp>
MOE_LANES bool isRemote(const Warp& warp, const CommView& c, int other) {
  return split(warp, c) && !c.inDomain(other);
}
// HT takes rails.
template <Core Warp>
MOE_LANES bool takesRails(const Warp&, const HandleView& h) {
  return Warp::kPuts && h.hasRails();
}

MOE_LANES int parityOf(std::uint64_t epoch) {
  return static_cast<int>(epoch % kParities);
}

// The epoch of an operation: a sending step starts the channel's next one, a receiving step of its own takes the one
// that the handle's sending step noted.
MOE_LANES std::uint64_t operationEpoch(const CommView& c, Channel channel, int phases, std::uint64_t started) {
  return (phases & kSendPhase) != 0 ? c.state->epoch[channel] + 1 : started;
}

// True if all warps of this rank have done what a private word of theirs counts.
template <Core Warp>
MOE_LANES bool waitForWarps(const Warp& warp, const CommView& c, Flag* word, std::uint64_t epoch) {
  return warp.waitAll(c, word, 1, epoch, Awaited{Phase::ownWarps, c.rank, 0});
}

// Every warp of a sending step says here that it has read what begins and ends with an epoch.
template <Core Warp>
MOE_LANES void noteBegin(const Warp& warp, const CommView& c, Channel channel, WarpIndex w) {
  warp.mark(&c.state->begun[channel], Meeting::begin, w);
}

// The warp that ends epochs: the first has other things to do for all.
MOE_LANES bool isLast(WarpIndex w) {
  return w.index == w.count - 1;
}

// One warp moves on to the next epoch, and by `last` what goes with it, when every warp has read what that changes:
// nothing that comes after in this step may read it.
template <Core Warp, class Last>
MOE_LANES void endEpoch(const Warp& warp, const CommView& c, Channel channel, std::uint64_t epoch, Last last) {
  if (!waitForWarps(warp, c, &c.state->begun[channel], epoch)) return;
  warp.forEach(1, [&](int) {
    c.state->epoch[channel] = epoch;
    last();
  });
}

// Looks at ranks [begin, end), by faultOf(rank); false if something is wrong, which is then reported.
template <Core Warp, class FaultOf>
MOE_LANES bool allAreGood(const Warp& warp, const CommView& c, Range ranks, FaultOf faultOf) {
  const int faults = warp.scanInOrder(
      ranks.end - ranks.begin,
      [&](int i) {
        const Failure failure = faultOf(ranks.begin + i);
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

template <Core Warp>
MOE_LANES void publish(const Warp& warp, Flag* flag, Flag word) {
  warp.publishAll(
      1, [&](int) { return flag; }, word);
}

// One warp tells every rank of the domain, by its word [this rank] of the flags at `area`, that what it waits for in
// `epoch` is there. `area` is a reference so that it stays an operand in constant memory.
template <Core Warp>
MOE_LANES void tell(const Warp& warp, const CommView& c, const std::uint64_t& area, std::uint64_t epoch) {
  warp.publishAll(
      c.domainSize, [&](int i) { return c.in<Flag>(c.domainFirst + i, area) + c.rank; }, flagWord(epoch));
}

// The same by all warps of a team together: the words reach the next epoch when the last of them has called.
template <Core Warp>
MOE_LANES void announce(const Warp& warp, const CommView& c, const std::uint64_t& area, Meeting meeting,
                        WarpIndex team) {
  warp.announce(
      c.domainSize, [&](int i) { return c.in<Flag>(c.domainFirst + i, area) + c.rank; }, meeting, team);
}

// True if the flags [from] at `area` of this rank's window have reached `epoch`: of some ranks, of all, of the
// domain's, or this rank's own, to which all its warps announce.
template <Core Warp>
MOE_LANES bool waitForRanks(const Warp& warp, const CommView& c, const std::uint64_t& area, Range ranks,
                            std::uint64_t epoch, Phase phase) {
  return warp.waitAll(c, c.mine<Flag>(area) + ranks.begin, ranks.end - ranks.begin, epoch,
                      Awaited{phase, ranks.begin, 1});
}
template <Core Warp>
MOE_LANES bool waitForAll(const Warp& warp, const CommView& c, const std::uint64_t& area, std::uint64_t epoch,
                          Phase phase) {
  return waitForRanks(warp, c, area, allRanks(c), epoch, phase);
}
template <Core Warp>
MOE_LANES bool waitForDomain(const Warp& warp, const CommView& c, const std::uint64_t& area, std::uint64_t epoch,
                             Phase phase) {
  return waitForRanks(warp, c, area, domainRanks(c), epoch, phase);
}
template <Core Warp>
MOE_LANES bool waitForOwn(const Warp& warp, const CommView& c, const std::uint64_t& area, std::uint64_t epoch) {
  return waitForWarps(warp, c, c.mine<Flag>(area) + c.rank, epoch);
}

}  // namespace moe
