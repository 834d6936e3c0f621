// Rounds of work that all ranks of a communicator do together: comm_init.cc, sleep.cc and recover.cc. Each ends with an
// exchange of outcomes, so that every rank knows of every rank's failure, and all give up for the same reason.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "bootstrap/group/bootstrap.h"

namespace moe {

// A failure that every rank knows, in the same words. Nobody has to be told.
class AgreedError : public Error {
 public:
  using Error::Error;
};

// While it lives, this thread runs collectives.
class MonitorHeld {
 public:
  MonitorHeld(bootstrap::Bootstrap& group, std::chrono::milliseconds timeout) : group_(group) {
    group.holdMonitor(timeout);
  }
  ~MonitorHeld() { group_.releaseMonitor(); }
  MonitorHeld(const MonitorHeld&) = delete;
  MonitorHeld& operator=(const MonitorHeld&) = delete;

 private:
  bootstrap::Bootstrap& group_;
};

// Runs a part of a collective call, and tells the others if it fails here alone.
template <class Part>
auto announcing(bootstrap::Bootstrap& group, Part part) {
  try {
    return part();
  } catch (const AgreedError&) {
    throw;
  } catch (...) {
    const Error error = currentErrorOf(group.rank());
    group.announceIfFirst(error);
    throw Error(error);
  }
}

// The outcome of a round on one rank.
struct Outcome {
  std::int32_t result = moeSuccess;
  char sentence[508] = {};
};

template <class Card>
std::span<const std::uint8_t> asBytes(const Card& card) {
  return {reinterpret_cast<const std::uint8_t*>(&card), sizeof(card)};
}

[[noreturn]] inline void throwOtherVersion(int rank) {
  throw Error(moeInvalidUsage, fmt::format("moeCommInit: rank {} runs a different version of the library", rank));
}

template <class Card>
Card readCard(const std::vector<std::uint8_t>& bytes, int rank) {
  Card card;
  if (bytes.size() != sizeof card) throwOtherVersion(rank);
  std::memcpy(&card, bytes.data(), sizeof card);
  return card;
}

template <class Work>
Outcome outcomeOf(int rank, Work work) {
  Outcome outcome;
  try {
    work();
  } catch (...) {
    const Error error = currentErrorOf(rank);
    outcome.result = error.result();
    fmt::format_to_n(outcome.sentence, sizeof outcome.sentence - 1, "{}", error.what());
  }
  return outcome;
}

inline void throwIfFailed(Outcome outcome) {
  outcome.sentence[sizeof outcome.sentence - 1] = 0;
  if (outcome.result == moeSuccess) return;
  throw AgreedError(static_cast<moeResult_t>(outcome.result), outcome.sentence);
}

// Runs `work` on every rank. If it fails anywhere, every rank throws the AgreedError of the first rank that failed. An
// exception of another type means that the group is broken; `what` names the round if a rank does not come.
template <class Work>
void together(bootstrap::Bootstrap& group, Work work, const char* what = "the all-gather") {
  const Outcome mine = outcomeOf(group.rank(), work);
  const auto all = group.allGather(asBytes(mine), what);
  for (int rank = 0; rank < group.nranks(); ++rank) {
    if (group.isLost(rank)) continue;
    throwIfFailed(readCard<Outcome>(all[static_cast<std::size_t>(rank)], rank));
  }
}

}  // namespace moe
