// A completion queue as the software adapter sees it: entries in the program's memory that the adapter fills, and a
// record that counts how many the program has taken out.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>

#include "device/queue/mlx5/byte_order.h"
#include "fake_mlx5/cqe_image.h"
#include "fake_mlx5/fault_plan.h"
#include "fake_mlx5/violations.h"

namespace moe::test {

class CompletionRing {
 public:
  CompletionRing(mlx5::Cqe* entries, std::uint32_t count, const std::uint32_t* record, std::uint32_t number)
      : entries_(entries), count_(count), record_(record), number_(number) {}

  // Delivers the completion at once or a little later, and never ahead of earlier ones.
  void complete(const mlx5::Completion& completion, FaultPlan& faults, std::uint64_t nowNs) {
    const std::uint64_t lateNs = faults.strikes(Fault::slowCqe) ? faults.random(1'000'000) : 0;
    waiting_.push_back({completion, nowNs + lateNs});
  }

  // Returns true if it wrote an entry.
  bool step(std::uint64_t nowNs, Violations& violations) {
    bool any = false;
    for (; !waiting_.empty() && waiting_.front().dueNs <= nowNs; waiting_.pop_front()) {
      const std::uint32_t word = std::atomic_ref(*const_cast<std::uint32_t*>(record_)).load(std::memory_order_acquire);
      if (((produced_ - mlx5::bigEndian(word)) & 0xffffff) >= count_) {
        violations.note("completion queue " + std::to_string(number_) + " overran");
      }
      writeCqe(entries_, count_, produced_++, waiting_.front().completion);
      any = true;
    }
    return any;
  }

 private:
  struct Waiting {
    mlx5::Completion completion;
    std::uint64_t dueNs;
  };
  mlx5::Cqe* entries_;
  std::uint32_t count_;  // a power of two
  const std::uint32_t* record_;
  std::uint32_t number_;
  std::uint64_t produced_ = 0;
  std::deque<Waiting> waiting_;
};

}  // namespace moe::test
