// What a step reports when it cannot go on. The first detector of a rank fills the record; the host turns it into the
// sentence of moeGetLastError (comm/recorder/failure_text.cc).
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
  // Without flags.
  puts,        // the transport has not taken earlier puts
  expertRows,  // rows of one of this rank's own experts
  count
};

// What a wait is for. Its flag i is that of rank first + i * step.
struct Awaited {
  Phase phase;
  int first, step;

  MOE_HOST_DEVICE constexpr int rank(int i) const { return first + i * step; }
};

enum class Fault : std::int32_t {
  none,
  timeout,       // peer: who did not come
  badIndex,      // peer: who passed it; index: token << 8 | entry; actual: the value; expected: the number of experts
  twice,         // the same; actual: the expert that an earlier entry of the token names
  capacity,      // peer: whose output, or rows of a combine; expected: rows it can hold; actual: rows that arrive
  disagreement,  // peer: whose terms are not like ours; index: which word; expected: ours; actual: theirs
  staging,       // peer: whose staging area; expected: rows it holds; actual: rows that arrive
  noGrads,       // peer: who has given no gradients of the weights; actual: rows that had arrived there
  elsewhere,     // HT: a rank of another domain has one of these faults; peer: this rank's rail peer there; actual: its
                 // result
  left,          // peer: who has left and did not come; the rest as of a timeout
};

// What a rank has sent is there before its goodbye is heard. This much longer a wait for it still lasts.
inline constexpr std::uint64_t kLeftGraceNs = 20'000'000;

// Peers, and other warps of this rank, wait for what it makes of its experts' rows. So that it is its own wait for
// those that ends first and names them, that one is shorter by this part of the timeout.
inline constexpr int kOwnWorkEarlier = 32;

// The reasons that a handle's fault word has: moeResult values.
inline constexpr std::uint32_t kBadArgument = 1, kBadUsage = 2;

// A communicator's is written once, a handle's again after its next route. `ready` is stored last, with release; the
// rest is valid when it is not zero.
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

// A rank whose word of what must agree is not like ours.
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

// A rank that has too little of what `fault` names.
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
// An entry of rank `peer` that cannot be. `place`: token << 8 | entry.
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
// A fault of a rank in the domain of `railPeer`, whose handles have the fault word `result`.
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
// A rank for which `phase` waits in vain.
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

// Rows of a local expert of this rank, of which word `word` of CombineArgs::ready tells: expert << 32 | word.
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
