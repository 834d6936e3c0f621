// One warp's part in one operation: its arguments, its epoch, and how it signals and awaits other warps and ranks.
// Every step is an object that has a session. Helpers of several steps take one as an argument.
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

// Whether this warp ends epochs. The last warp does, because the first has other work to do for all.
MOE_LANES bool isLast(WarpIndex w) {
  return w.index == w.count - 1;
}

// An operation's place in its channel. A sending step starts the channel's next epoch. A receiving step takes the epoch
// that the handle's sending step noted.
struct Operation {
  Channel channel;
  std::uint64_t epoch;
  std::uint64_t number;       // the value that the words of its waves reach; the epoch,
                              // unless operations are counted separately
  std::uint64_t weights = 0;  // combines that carry weights: number of such combines, including this one
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

  // Whether there is more than one domain. Always false for a policy that cannot put, so that its code contains nothing
  // for other domains.
  MOE_LANES bool split() const { return Warp::kPuts && comm.split(); }
  // True if this rank reaches `other` only by puts.
  MOE_LANES bool isRemote(int other) const { return split() && !comm.inDomain(other); }
  // Whether the operation uses rails, which HT does across domains.
  MOE_LANES bool takesRails() const { return Warp::kPuts && handle.hasRails(); }

  // Checks ranks with faultOf(rank). False: one of them has a fault, which is then reported.
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

  // ---- The begin and the end of an epoch

  template <class... Looked>
  MOE_LANES bool stopped(Looked&... looked) const {
    return warp.stopped(comm, looked...);
  }

  // Every warp of a sending step calls this when it has read the state that changes at the end of an epoch.
  MOE_LANES void noteBegin() const { warp.mark(&comm.state->begun[channel], Meeting::begin, w); }

  // True if every warp has read the state that changes at the end of this epoch.
  MOE_LANES bool allHaveBegun() const { return waitForWarps(&comm.state->begun[channel], epoch); }

  // Ends the epoch: one warp sets the next epoch and calls `last`, which changes other state of the epoch. It waits
  // until every warp has read that state. Nothing that follows in this step may read it.
  template <class Last>
  MOE_LANES void endEpoch(Last last) const {
    if (!allHaveBegun()) return;
    warp.forEach(1, [&](int) {
      comm.state->epoch[channel] = epoch;
      last();
    });
  }

  // ---- Flags. An `area` is passed by reference, so that it stays an operand in constant memory.

  // True if a private word that this rank's warps count up has reached `value`.
  MOE_LANES bool waitForWarps(Flag* word, std::uint64_t value) const {
    return warp.waitAll(comm, word, 1, value, Awaited{Phase::ownWarps, comm.rank, 0});
  }

  MOE_LANES void publish(Flag* flag, Flag word) const {
    warp.publishAll(
        1, [&](int) { return flag; }, word);
  }

  // Tells every rank of the domain that this rank has reached epoch `value`, in word [this rank] of the flags at
  // `area`. One warp does it.
  MOE_LANES void tell(const std::uint64_t& area, std::uint64_t value, std::uint32_t content = 0) const {
    warp.publishAll(
        comm.domainSize, [&](int i) { return comm.in<Flag>(comm.domainFirst + i, area) + comm.rank; },
        flagWord(value, content));
  }

  // Tells every rank of the domain the same, by all warps of a team together. The words reach the next epoch when the
  // last warp has called.
  MOE_LANES void announce(const std::uint64_t& area, Meeting meeting, WarpIndex team) const {
    warp.announce(
        comm.domainSize, [&](int i) { return comm.in<Flag>(comm.domainFirst + i, area) + comm.rank; }, meeting, team);
  }

  // The same for flags that count rows. Each block adds its moreOf(i) to the number of rows in the flag of rank
  // domainFirst + i.
  template <class MoreOf>
  MOE_LANES void announceRows(const std::uint64_t& area, MoreOf moreOf, Meeting meeting, WarpIndex team) const {
    warp.announceRows(
        comm.domainSize, [&](int i) { return comm.in<Flag>(comm.domainFirst + i, area) + comm.rank; }, moreOf, meeting,
        team);
  }

  // True if the flags [from] at `area` of this rank's window have reached `value`. The variants wait for some ranks,
  // for all ranks, for those of the domain, or for this rank's own flag, which all its warps announce.
  MOE_LANES bool waitForRanks(const std::uint64_t& area, Range ranks, std::uint64_t value, Phase phase) const {
    return warp.waitAll(comm, comm.mine<Flag>(area) + ranks.begin, ranks.end - ranks.begin, value,
                        Awaited{phase, ranks.begin, 1});
  }
  MOE_LANES bool waitForAll(const std::uint64_t& area, std::uint64_t value, Phase phase) const {
    return waitForRanks(area, allRanks(comm), value, phase);
  }
  // Waits for all ranks, and calls take(rank, word) with each flag as it was found.
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

// The policy operations that helpers require of their session.
template <class S>
concept AnySession = Core<typename S::Policy>;
template <class S>
concept Computing = Computes<typename S::Policy>;
template <class S>
concept Moving = Moves<typename S::Policy>;

}  // namespace moe
