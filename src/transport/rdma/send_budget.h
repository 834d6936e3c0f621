// Back-pressure: how many requests a queue pair may hold, and which of them report their completion. An adapter does
// not report that a queue overflows, so this class counts.
#pragma once

#include <algorithm>
#include <cstdint>

namespace moe::verbs {

inline constexpr std::uint32_t kWordBytes = 8;
inline constexpr int kQueueDepth = 256;  // requests of a queue pair, if the adapter allows as many
inline constexpr int kQueueDepthMin = 4;

// The requests of each queue pair, such that their common completion queue has room for all of them. After an error
// each one completes, signalled or not. A result below kQueueDepthMin means that the adapter cannot serve that many
// peers.
inline int queueDepthFor(int peers, int requestsMax, int completionsMax) {
  return std::min({kQueueDepth, requestsMax, completionsMax / std::max(peers, 1)});
}

// Requests are numbered from 1 on, in the order in which they are posted and complete.
class SendBudget {
 public:
  explicit SendBudget(int depth) : depth_(static_cast<std::uint64_t>(depth)) {}

  bool full() const { return posted_ - completed_ == depth_; }
  bool idle() const { return posted_ == completed_; }

  // Takes a place and returns the request's number.
  std::uint64_t take() { return ++posted_; }

  // Whether the latest request must be signalled. At least one of the requests that fill the queue is, so that its
  // slots come back.
  bool signalDue() const { return posted_ - signalled_ >= std::max<std::uint64_t>(depth_ / 4, 1); }
  void signalLast() { signalled_ = posted_; }

  // The request and all before it are done.
  void complete(std::uint64_t number) { completed_ = std::max(completed_, number); }

 private:
  std::uint64_t depth_;
  std::uint64_t posted_ = 0;
  std::uint64_t signalled_ = 0;
  std::uint64_t completed_ = 0;
};

}  // namespace moe::verbs
