// The bookkeeping of one rank's all-gathers: which blobs have arrived, and what is known about the missing ranks. It
// does no I/O; Node feeds it. Operations are numbered, because a rank can receive a blob of the next one before it has
// started that one itself.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "base/deadline.h"

namespace moe::bootstrap {

class Gather {
 public:
  explicit Gather(int nranks) : nranks_(static_cast<std::size_t>(nranks)) {}

  std::uint16_t begin();  // starts the next operation and returns its number
  std::uint16_t current() const { return sequence_; }
  bool running() const { return running_; }

  // Returns false for an impossible blob: it belongs to a wrong operation, or its rank has already sent one.
  bool add(std::uint16_t sequence, int rank, std::span<const std::uint8_t> blob);
  bool plausible(std::uint16_t sequence) const;  // the running operation or the one after it

  bool complete() { return rounds_[sequence_].count == nranks_; }
  const std::vector<std::vector<std::uint8_t>>& blobs() { return rounds_[sequence_].blobs; }
  std::vector<std::vector<std::uint8_t>> finish();  // ends the operation
  std::vector<int> missing();                       // ranks whose blobs have not come

  // Keeps the parent's latest news about the missing ranks.
  void noteWaiting(std::vector<int> ranks, std::size_t total);
  bool waitingFresh() const { return !waiting_.empty() && Deadline::Clock::now() - waitingAt_ < kFresh; }
  const std::vector<int>& waiting() const { return waiting_; }
  std::size_t waitingTotal() const { return waitingTotal_; }

 private:
  static constexpr std::chrono::milliseconds kFresh{2500};
  struct Round {
    std::vector<std::vector<std::uint8_t>> blobs;
    std::vector<bool> have;
    std::size_t count = 0;
  };

  std::size_t nranks_;
  std::uint16_t sequence_ = 0;
  bool running_ = false;
  std::map<std::uint16_t, Round> rounds_;  // at most the running one and the next
  std::vector<int> waiting_;
  std::size_t waitingTotal_ = 0;
  Deadline::Clock::time_point waitingAt_{};
};

}  // namespace moe::bootstrap
