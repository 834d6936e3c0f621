// The send queue of a queue pair as the software adapter sees it: a ring of slots and a doorbell record in the
// program's memory. The adapter trusts nothing there and reports what is wrong.
#pragma once

#include <cstdint>
#include <vector>

#include "fake_mlx5/violations.h"
#include "fake_mlx5/wqe_reader.h"

namespace moe::test {

class SendRing {
 public:
  // `record` holds the words of both queues. The send queue has the second one.
  SendRing(std::uint8_t* slots, std::uint32_t slotCount, std::uint32_t* record, std::uint32_t queuePair,
           Violations& violations);

  // Checks that the record covers the doorbell. Only the record counts.
  void takeDoorbell(std::uint16_t index);
  bool acceptRecord();  // true if there are new WQEs

  bool hasNext() const { return next_ != end_; }
  struct Next {
    std::uint64_t index;
    ReadWqe wqe;
  };
  Next readNext();

  // Called when the WQE is executed. Compares it with its state at the doorbell, and poisons its slots.
  void finish(std::uint64_t index, std::uint64_t slots);
  // The program knows, or learns now, that everything before `end` is done.
  void release(std::uint64_t end) { released_ = end; }

 private:
  std::uint8_t* slotAt(std::uint64_t index) const { return slots_ + index % slotCount_ * 64; }
  std::uint8_t* copyOf(std::uint64_t index) { return told_.data() + index % slotCount_ * 64; }
  void note(std::uint64_t slot, const char* what) { violations_.note(queuePair_, slot, what); }

  std::uint8_t* slots_;
  std::uint64_t slotCount_;
  std::uint32_t* record_;
  std::uint32_t queuePair_;
  Violations& violations_;
  std::uint64_t released_ = 0, next_ = 0, end_ = 0;  // slots since the start
  std::vector<std::uint8_t> told_;                   // the slots as they were at the doorbell
};

}  // namespace moe::test
