// Copies of what steps on a CPU record, and the scale of their ticks.
#pragma once

#include <vector>

#include "backend/snapshot.h"

namespace moe {

// Whether the kernel keeps time by the processor's counter. It does only if the counter has the same rate at all times
// and the same value on all processors.
bool counterKeepsTime();

class HostSnapshot final : public Snapshot {
 public:
  HostSnapshot(const std::uint64_t* memory, std::size_t bytes, bool inTicks);
  const std::uint8_t* take(Deadline) override;
  ClockReading clock(Deadline) override;
  bool inTicks() const override { return inTicks_; }
  TickScale scale() override;

 private:
  const std::uint64_t* memory_;
  std::vector<std::uint64_t> copy_;
  bool inTicks_;
  TickScale made_;
};

}  // namespace moe
