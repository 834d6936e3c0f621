// Copies of private memory that steps may be writing, for whoever watches a communicator from outside. Taking one never
// waits for a step, and takes at most as long as the caller says.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "base/deadline.h"

namespace moe {

// What the steps' clock (that of StepRecord) showed at a time of this host's wall clock. Both in ns.
struct ClockReading {
  std::int64_t stepNs, wallNs;
  std::int64_t errorNs;  // they may be so far apart
};

// What ticks of the processor's counter are on the steps' clock.
struct TickScale {
  std::uint64_t ticks = 0;  // were read at
  std::int64_t ns = 0;      // and
  double nsPerTick = 1;
  std::int64_t errorNs = 0;  // of the reading

  std::uint64_t nanosecondsAt(std::uint64_t time) const {
    const auto since = static_cast<double>(static_cast<std::int64_t>(time - ticks)) * nsPerTick;
    return static_cast<std::uint64_t>(ns + static_cast<std::int64_t>(since));
  }
};

// One thread at a time.
class Snapshot {
 public:
  virtual ~Snapshot() = default;

  // The bytes, until the next call. NULL: they could not be copied by `end`.
  virtual const std::uint8_t* take(Deadline end) = 0;

  // The best reading that was to be had by `end`, or an earlier one.
  virtual ClockReading clock(Deadline end) = 0;

  // Whether steps should record ticks, and what these are: by the time from the snapshot's making until now.
  virtual bool inTicks() const { return false; }
  virtual TickScale scale() { return {}; }
};

// Since 1970-01-01.
inline std::int64_t wallClock() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

// Whether the kernel keeps time by the processor's counter. It does only if the counter has the same rate at all times
// and the same value on all processors.
bool counterKeepsTime();

// What steps on a CPU record, and the scale of their ticks (host_snapshot.cc).
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
