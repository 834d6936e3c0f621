// The ring that steps post puts to, and its receiving end: one thread takes them out, in order. Every transport whose
// puts a CPU thread carries has one.
#pragma once

#include <vector>

#include "backend/backend.h"
#include "device/queue/put.h"

namespace moe {

class PutIntake {
 public:
  // `slots` is a power of two. Puts to ranks that are `lost` are taken and dropped. Allocates.
  PutIntake(Backend& backend, std::uint32_t slots, std::vector<int> lost = {});

  PutRing ring() const;

  // For the taking thread: next() returns the next put, if there is one; then pop() marks it as taken.
  bool next(Put* put);
  void pop() { ++taken_; }
  // Lets posters reuse the slots of the puts taken.
  void release();
  std::uint64_t taken() const { return taken_; }

  // For use when no step runs any more: how many puts were posted (throws moeCudaError), and how many slots were
  // released.
  std::uint64_t posted() const;
  std::uint64_t released() const;
  // Posts put number `index`, when no step runs any more and the ring is empty. The ring must have enough slots.
  void append(std::uint64_t index, const Put& put);

 private:
  struct Shared;  // in memory that steps reach

  Backend& backend_;
  std::uint32_t slots_;
  std::vector<int> lost_;
  Memory shared_;
  Memory reserved_;  // separate, so that the steps' atomic operations stay in the memory of their device
  std::uint64_t taken_ = 0;
};

}  // namespace moe
