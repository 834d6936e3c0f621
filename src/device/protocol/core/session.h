// One warp's part in one operation: what it was given, which epoch it belongs to, and how it tells and waits for other
// warps and ranks. Every step is an object that has a session; helpers of several steps take one.
#pragma once

#include "device/policy/contract.h"
#include "device/protocol/core/shares.h"

namespace moe {

MOE_LANES Range allRanks(const CommView& c) {
  return {0, c.nranks};
}
MOE_LANES Range domainRanks(const CommView& c) {
  return {c.domainFirst, c.domainFirst + c.domainSize};
}

MOE_LANES int parityOf(std::uint64_t epoch) {
  return static_cast<int>(epoch % kParities);
}

// The warp that ends epochs: the first has other things to do for all.
MOE_LANES bool isLast(WarpIndex w) {
  return w.index == w.count - 1;
}

// An operation's place in its channel. A sending step starts the channel's next epoch; a receiving step of its own
// takes the one that the handle's sending step noted.
struct Operation {
  Channel channel;
  std::uint64_t epoch;
  std::uint64_t number;       // what the words reach by which its rows are handed over, if that is not the epoch
  std::uint64_t weights = 0;  // of a combine that brings weights: how many did so, with this one
};
MOE_LANES std::uint64_t operationEpoch(const StepParams& p, Channel channel, std::uint64_t started) {
  return (p.phases & kSendPhase) != 0 ? p.comm.state->epoch[channel] + 1 : started;
}

template <Core Warp>
struct Session {
  using Policy = Warp;

  const Warp& warp;
  const StepParams& p;
  const CommView& comm;
  const HandleView& handle;
  WarpIndex w;
  Channel channel;
  std::uint64_t epoch, number;
  bool sends, receives;

  MOE_LANES Session(const Warp& policy, const StepParams& params, WarpIndex index, const Operation& operation)
      : warp(policy),
        p(params),
        comm(params.comm),
        handle(params.handle),
        w(index),
        channel(operation.channel),
        epoch(operation.epoch),
        number(operation.number),
        sends((params.phases & kSendPhase) != 0),
        receives((params.phases & kReceivePhase) != 0) {}

  MOE_LANES Operation operation() const { return {channel, epoch, number}; }

  // ---- Ranks and domains

  // More than one domain. Never so for a policy that cannot put: its code has nothing of what other domains need.
  MOE_LANES bool split() const { return Warp::kPuts && comm.split(); }
  // True if this rank reaches `other` by puts alone.
  MOE_LANES bool isRemote(int other) const { return split() && !comm.inDomain(other); }
  // HT takes rails.
  MOE_LANES bool takesRails() const { return Warp::kPuts && handle.hasRails(); }

  // Looks at ranks, by faultOf(rank); false if something is wrong, which is then reported.
  template <class FaultOf>
  MOE_LANES bool allAreGood(Range ranks, FaultOf faultOf) const {
    const int faults = warp.scanInOrder(
        ranks.end - ranks.begin,
        [&](int i) {
          const Failure failure = faultOf(ranks.begin + i);
          if (failure.fault == Fault::none) return 0;
          warp.laneFail(comm, failure);
          return 1;
        },
        [](int, int) {});
    return faults == 0;
  }

  // ---- The epoch's ends

  template <class... Looked>
  MOE_LANES bool stopped(Looked&... looked) const {
    return warp.stopped(comm, looked...);
  }

  // Every warp of a sending step says here that it has read what begins and ends with an epoch.
  MOE_LANES void noteBegin() const { warp.mark(&comm.state->begun[channel], Meeting::begin, w); }

  // True if every warp has read what begins and ends with this epoch.
  MOE_LANES bool allHaveBegun() const { return waitForWarps(&comm.state->begun[channel], epoch); }

  // One warp moves on to the next epoch, and by `last` what goes with it, when every warp has read what that changes:
  // nothing that comes after in this step may read it.
  template <class Last>
  MOE_LANES void endEpoch(Last last) const {
    if (!allHaveBegun()) return;
    warp.forEach(1, [&](int) {
      comm.state->epoch[channel] = epoch;
      last();
    });
  }

  // ---- Flags. An `area` is a reference so that it stays an operand in constant memory.

  // True if all warps of this rank have done what a private word of theirs counts.
  MOE_LANES bool waitForWarps(Flag* word, std::uint64_t value) const {
    return warp.waitAll(comm, word, 1, value, Awaited{Phase::ownWarps, comm.rank, 0});
  }

  MOE_LANES void publish(Flag* flag, Flag word) const {
    warp.publishAll(
        1, [&](int) { return flag; }, word);
  }

  // One warp tells every rank of the domain, by its word [this rank] of the flags at `area`, that what it waits for in
  // `value`'s epoch is there.
  MOE_LANES void tell(const std::uint64_t& area, std::uint64_t value, std::uint32_t content = 0) const {
    warp.publishAll(
        comm.domainSize, [&](int i) { return comm.in<Flag>(comm.domainFirst + i, area) + comm.rank; },
        flagWord(value, content));
  }

  // The same by all warps of a team together: the words reach the next epoch when the last of them has called.
  MOE_LANES void announce(const std::uint64_t& area, Meeting meeting, WarpIndex team) const {
    warp.announce(
        comm.domainSize, [&](int i) { return comm.in<Flag>(comm.domainFirst + i, area) + comm.rank; }, meeting, team);
  }

  // The same of flags that count rows: that of rank domainFirst + i has changed by moreOf(i) of each block.
  template <class MoreOf>
  MOE_LANES void announceRows(const std::uint64_t& area, MoreOf moreOf, Meeting meeting, WarpIndex team) const {
    warp.announceRows(
        comm.domainSize, [&](int i) { return comm.in<Flag>(comm.domainFirst + i, area) + comm.rank; }, moreOf, meeting,
        team);
  }

  // True if the flags [from] at `area` of this rank's window have reached `value`: of some ranks, of all, of the
  // domain's, or this rank's own, to which all its warps announce.
  MOE_LANES bool waitForRanks(const std::uint64_t& area, Range ranks, std::uint64_t value, Phase phase) const {
    return warp.waitAll(comm, comm.mine<Flag>(area) + ranks.begin, ranks.end - ranks.begin, value,
                        Awaited{phase, ranks.begin, 1});
  }
  MOE_LANES bool waitForAll(const std::uint64_t& area, std::uint64_t value, Phase phase) const {
    return waitForRanks(area, allRanks(comm), value, phase);
  }
  // The same, and take(rank, word) for each as it was found.
  template <class Take>
  MOE_LANES bool waitForAll(const std::uint64_t& area, std::uint64_t value, Phase phase, Take take) const {
    return warp.waitAll(comm, comm.mine<Flag>(area), comm.nranks, value, Awaited{phase, 0, 1}, take);
  }
  MOE_LANES bool waitForDomain(const std::uint64_t& area, std::uint64_t value, Phase phase) const {
    return waitForRanks(area, domainRanks(comm), value, phase);
  }
  MOE_LANES bool waitForOwn(const std::uint64_t& area, std::uint64_t value) const {
    return waitForWarps(comm.mine<Flag>(area) + comm.rank, value);
  }
};

// What helpers ask of the session that they are given.
template <class S>
concept AnySession = Core<typename S::Policy>;
template <class S>
concept Computing = Computes<typename S::Policy>;
template <class S>
concept Moving = Moves<typename S::Policy>;

}  // namespace moe
