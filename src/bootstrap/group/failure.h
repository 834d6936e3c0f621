// News about ranks that no longer do their part, how frames carry it, and how sentences name ranks. It includes waits
// that ended by their deadlines: which rank waited for which, and which rank is to blame, as far as these waits show.
// The code is pure; node.h explains how ranks learn of late waits.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "moecomm.h"

namespace moe::bootstrap {

// A group goes on after a failure with a new generation (Node::recover). News of a generation count for that one only.
// Generations are numbered modulo 256, and differ by little from rank to rank.
using Generation = std::uint8_t;

constexpr bool isNewer(std::uint8_t one, std::uint8_t other) {
  return static_cast<std::int8_t>(one - other) > 0;
}

// Which process has a rank's number: 0 for the first one, and one more for each that takes the number (decision 0125).
// Counted as generations are.
using Incarnation = std::uint8_t;

struct Failure {
  int rank;            // the rank that died or announced the failure
  moeResult_t result;  // moeRemoteError for a death, otherwise what was announced
  std::string sentence;
  Generation generation = 0;    // for which it was announced
  bool death = false;           // counts in every generation
  bool again = false;           // the rank has called recover(), and waits for the others in the next generation
  Incarnation incarnation = 0;  // of a death: which process of the rank has died
};

// Whether a group goes on without ranks that have died or left (Bootstrap::recover).
enum class Losses { refused, accepted };

// Payload of Failure and Refusal frames. The sentence is cut to what a frame may carry.
std::vector<std::uint8_t> encodeReason(moeResult_t result, const std::string& sentence);

// The sequence number of a Failure frame.
constexpr std::uint16_t kDeathSequence = 1 << 8, kAgainSequence = 1 << 9;
constexpr std::uint16_t sequenceOf(const Failure& failure) {
  if (failure.death) return static_cast<std::uint16_t>(failure.incarnation | kDeathSequence);
  return static_cast<std::uint16_t>(failure.generation | (failure.again ? kAgainSequence : 0));
}

// Decodes an untrusted payload. The result is one of the failures, and the sentence has no control characters.
Failure decodeReason(int rank, std::span<const std::uint8_t> payload);

// The time from the report of a late wait to the answer who is to blame.
constexpr std::chrono::milliseconds kVerdict{1000};

struct LateWait {
  Failure failure;  // the report of the rank that waited, in case nothing better is learned
  int awaited;      // the rank it waited for; its own rank: a part of itself
};

// Payload of Late frames.
std::vector<std::uint8_t> encodeLateWait(const LateWait& wait);
LateWait decodeLateWait(int rank, std::span<const std::uint8_t> payload);  // untrusted: as decodeReason

class LateWaits {
 public:
  bool add(const LateWait& wait);  // false: this rank already has one
  const std::map<int, LateWait>& byRank() const { return byRank_; }

  const LateWait* waitFor(int awaited) const;  // a wait of another rank for `awaited`; NULL: none

  // Follows the chain of waits that starts with that of `rank`, which must be known, and returns its last wait. The
  // rank that the last wait was for has not reported one itself. If the chain is a circle, returns the wait of `rank`.
  const LateWait& lastFrom(int rank) const;

 private:
  std::map<int, LateWait> byRank_;
};

// "rank 3", "ranks 3, 7", "ranks 0-6, 9 and 40 more". `ranks` is ascending and not empty. A `total` above its
// size adds "and N more".
std::string describeRanks(std::span<const int> ranks, std::size_t total = 0);

}  // namespace moe::bootstrap
