// The ring that steps post puts to, and its end: one thread takes them out, in order. Every transport whose puts a CPU
// thread carries has one.
#pragma once

#include "backend/backend.h"
#include "device/queue/put_ring.h"

namespace moe {

class PutIntake {
 public:
  // `slots` is a power of two. Allocates.
  PutIntake(Backend& backend, std::uint32_t slots);

  PutRing ring() const;

  // For the taking thread: the next put, if there is one; then that it has been taken.
  bool next(Put* put) const;
  void pop() { ++taken_; }
  // Lets posters reuse the slots of what was taken.
  void release();
  std::uint64_t taken() const { return taken_; }

  // For use when no step runs any more: how many puts were posted (throws moeCudaError), and how many slots were
  // released.
  std::uint64_t posted() const;
  std::uint64_t released() const;
  // Posts put number `index`, when no step runs any more and the ring is empty. At most as many as there are slots.
  void append(std::uint64_t index, const Put& put);

 private:
  struct Shared;  // with the steps

  Backend& backend_;
  std::uint32_t slots_;
  Memory shared_;
  Memory reserved_;  // apart: the steps' atomic operations stay in the memory of their device
  std::uint64_t taken_ = 0;
};

}  // namespace moe
