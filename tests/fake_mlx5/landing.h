// How arrived data gets into memory. The pieces of a write land in any order, because nothing orders them. Strict
// writes of a queue pair land one after the other. Writes to memory that is registered for relaxed order may land long
// after later ones. Before a completion, an atomic or a read of that queue pair, all its earlier writes land.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "fake_mlx5/fault_plan.h"
#include "fake_mlx5/memory_regions.h"

namespace moe::test {

class Landing {
 public:
  explicit Landing(FaultPlan& faults) : faults_(faults) {}

  bool write(std::uint32_t queuePair, const Region& region, std::uint64_t at, const std::uint8_t* from,
             std::uint32_t bytes, std::uint64_t nowNs);
  void finish(std::uint32_t queuePair);  // lands all late writes
  void finishAll();
  bool step(std::uint64_t nowNs);

 private:
  struct Late {
    std::uint32_t queuePair;
    Region region;
    std::uint64_t at;
    std::vector<std::uint8_t> data;
    std::uint64_t dueNs;
  };
  bool land(const Region& region, std::uint64_t at, const std::uint8_t* from, std::uint64_t bytes);
  template <class Condition>
  bool landIf(Condition due);

  FaultPlan& faults_;
  std::deque<Late> late_;
};

}  // namespace moe::test
