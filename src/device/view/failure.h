// The record of a failure that stops a step. The rank's first step to detect a failure fills the record. The host turns
// it into the sentence of moeGetLastError (comm/recorder/failure_text.cc).
#pragma once

#include "device/lanes.h"

namespace moe {

enum class Phase : std::int32_t {
  none,
  routeCounts,        // the peer's counts
  routeHeaders,       // the peer's row headers
  dispatchOutput,     // HT: the peer's "my output is writable"
  dispatchRows,       // the peer's rows
  dispatchSlots,      // LL: the peer still reads the slots of an earlier operation
  combineSlots,       // LL: the peer still reads the rows of an earlier combine
  combineRows,        // the peer's rows
  combineWeights,     // the peer's weights
  combineDone,        // HT: the peer still reads this rank's rows
  ownWarps,           // the other warps of this rank's step
  dispatchRails,      // HT: the rail peer's rows
  dispatchRailsFree,  // HT: the rail peer still forwards rows of an earlier dispatch
  combineRails,       // HT: the rail peer's sums
  combineRailsFree,   // HT: the rail peer still reads the sums of an earlier combine
  // Waits for something other than a flag.
  puts,        // the transport has not taken earlier puts
  expertRows,  // rows of one of this rank's own experts
  count
};

// The purpose of a wait. Flag i of the wait is that of rank first + i * step.
struct Awaited {
  Phase phase;
  int first, step;

  MOE_HOST_DEVICE constexpr int rank(int i) const { return first + i * step; }
};

enum class Fault : std::int32_t {
  none,
  timeout,       // peer: the rank that did not arrive in time
  badIndex,      // peer: the rank that passed the entry; index: token << 8 | entry;
                 // actual: the value; expected: the number of experts
  twice,         // as badIndex; actual: the expert that an earlier entry of the token names
  capacity,      // peer: the rank whose output, or rows of a combine, are too small;
                 // expected: rows that they hold; actual: rows that arrive
  disagreement,  // peer: the rank whose terms differ; index: the word that differs; expected: our terms; actual: theirs
  staging,    // peer: the rank whose staging area is too small; expected: rows that it holds; actual: rows that arrive
  noGrads,    // peer: the rank that gave no gradients of the weights; actual: rows that had arrived there
  elsewhere,  // HT: a rank of another domain has one of these faults; peer: this
              // rank's rail peer there; actual: the result code
  left,       // peer: the rank that left while it was awaited; the rest as in a timeout
  voided,     // the communicator has recovered since the handle's route; peer: this rank
};

// All data that a rank sent arrives before its goodbye is seen. A wait for that rank goes on this much longer after the
// goodbye.
inline constexpr std::uint64_t kLeftGraceNs = 20'000'000;

// Some waits are shorter than others by this part of the timeout, because other warps of the rank, and peers, wait for
// what follows them. The shorter wait ends first, so that the failure names its cause. Such waits are for rows of this
// rank's own experts, and for slots: a block without tokens does not wait for slots, but for the rows of all blocks.
inline constexpr int kSoonerPart = 32;

// A wait for warps of this rank lasts longer. They may wait for peers themselves: a dispatch beside its route waits for
// the route, which has waited for counts up to three times by then. It must not be the first to say that it took long.
inline constexpr int kOwnWaits = 4;

MOE_HOST_DEVICE constexpr bool endsSooner(Phase phase) {
  return phase == Phase::expertRows || phase == Phase::dispatchSlots || phase == Phase::combineSlots;
}
// How long a wait lasts, in the unit of `timeout`.
template <class Time>
MOE_HOST_DEVICE constexpr Time longestWait(Phase phase, Time timeout) {
  if (phase == Phase::ownWarps) return timeout * kOwnWaits;
  return endsSooner(phase) ? timeout - timeout / kSoonerPart : timeout;
}

// The values that a handle's fault word takes: moeResult values.
inline constexpr std::uint32_t kBadArgument = 1, kBadUsage = 2;

// The record of a communicator is written once. The record of a handle is written again after its next route. `ready`
// is stored last, with release; the other fields are valid when it is not zero.
struct Failure {
  std::uint64_t ready;
  Fault fault;
  Phase phase;
  std::int32_t peer;
  std::int32_t reserved;
  std::int64_t index;
  std::int64_t expected;
  std::int64_t actual;
};

MOE_HOST_DEVICE constexpr std::uint32_t resultOf(const Failure& why) {
  if (why.fault == Fault::elsewhere) return static_cast<std::uint32_t>(why.actual);
  return why.fault == Fault::disagreement ? kBadUsage : kBadArgument;
}

// A rank whose terms differ from ours in word `word`.
MOE_HOST_DEVICE constexpr Failure disagreement(Phase phase, int peer, std::uint64_t ours, std::uint64_t theirs,
                                               int word = 0) {
  return {.ready = 0,
          .fault = Fault::disagreement,
          .phase = phase,
          .peer = peer,
          .reserved = 0,
          .index = word,
          .expected = static_cast<std::int64_t>(ours),
          .actual = static_cast<std::int64_t>(theirs)};
}

// A rank that has too little of the resource that `fault` names.
MOE_HOST_DEVICE constexpr Failure tooLittle(Fault fault, Phase phase, int peer, std::int64_t has, std::int64_t needs) {
  return {.ready = 0,
          .fault = fault,
          .phase = phase,
          .peer = peer,
          .reserved = 0,
          .index = 0,
          .expected = has,
          .actual = needs};
}
// An invalid entry of rank `peer`. `place`: token << 8 | entry.
MOE_HOST_DEVICE constexpr Failure badEntry(Fault fault, int peer, std::int64_t place, std::int64_t experts,
                                           std::int64_t id) {
  return {.ready = 0,
          .fault = fault,
          .phase = Phase::none,
          .peer = peer,
          .reserved = 0,
          .index = place,
          .expected = experts,
          .actual = id};
}
// A fault of a rank in the domain of `railPeer`. The handles there have the fault word `result`.
MOE_HOST_DEVICE constexpr Failure faultElsewhere(Phase phase, int railPeer, std::uint64_t result) {
  return {.ready = 0,
          .fault = Fault::elsewhere,
          .phase = phase,
          .peer = railPeer,
          .reserved = 0,
          .index = 0,
          .expected = 0,
          .actual = static_cast<std::int64_t>(result)};
}
// A rank that did not arrive in time in a wait of `phase`.
MOE_HOST_DEVICE constexpr Failure lateRank(Phase phase, int peer, std::uint64_t awaited, std::uint64_t seen) {
  return {.ready = 0,
          .fault = Fault::timeout,
          .phase = phase,
          .peer = peer,
          .reserved = 0,
          .index = 0,
          .expected = static_cast<std::int64_t>(awaited),
          .actual = static_cast<std::int64_t>(seen)};
}

// Rows of a local expert of this rank, which word `word` of CombineArgs::ready announces. The index is expert << 32 |
// word.
MOE_HOST_DEVICE constexpr Failure lateExpert(int rank, int expert, std::int64_t word, std::uint32_t awaited,
                                             std::uint32_t seen) {
  return {.ready = 0,
          .fault = Fault::timeout,
          .phase = Phase::expertRows,
          .peer = rank,
          .reserved = 0,
          .index = std::int64_t{expert} << 32 | word,
          .expected = awaited,
          .actual = seen};
}

}  // namespace moe
