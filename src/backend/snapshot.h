// Copies of private memory that steps may be writing, for programs that watch a communicator from outside. A copy never
// waits for a step, and takes at most as long as the caller allows.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "base/deadline.h"

namespace moe {

// The time of the steps' clock (that of StepRecord) at a time of this host's wall clock, both in ns.
struct ClockReading {
  std::int64_t stepNs, wallNs;
  std::int64_t errorNs;  // the largest error of the pair
};

// Converts ticks of the processor's counter to the steps' clock: the counter had the value `ticks` at time `ns`.
struct TickScale {
  std::uint64_t ticks = 0;
  std::int64_t ns = 0;
  double nsPerTick = 1;
  std::int64_t errorNs = 0;  // the largest error of the pair

  std::uint64_t nanosecondsAt(std::uint64_t time) const {
    const auto since = static_cast<double>(static_cast<std::int64_t>(time - ticks)) * nsPerTick;
    return static_cast<std::uint64_t>(ns + static_cast<std::int64_t>(since));
  }
};

// Used by one thread at a time.
class Snapshot {
 public:
  virtual ~Snapshot() = default;

  // Copies private memory, at most as many bytes as the snapshot was made for. Returns the copied bytes, which are
  // valid until the next call. NULL: they could not be copied by `end`.
  virtual const std::uint8_t* take(const std::uint64_t* memory, std::size_t bytes, Deadline end) = 0;

  // The best reading that could be made by `end`, or an earlier one.
  virtual ClockReading clock(Deadline end) = 0;

  // Whether steps should record ticks, and the scale of these ticks. The scale is measured over the time since the
  // snapshot was made.
  virtual bool inTicks() const { return false; }
  virtual TickScale scale() { return {}; }
};

// The wall clock in ns since 1970-01-01.
inline std::int64_t wallClock() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

// Whether the kernel keeps time by the processor's counter. It does only if the counter has the same rate at all times
// and the same value on all processors.
bool counterKeepsTime();

// The snapshot of a CPU's steps, with the scale of their ticks (host_snapshot.cc).
class HostSnapshot final : public Snapshot {
 public:
  HostSnapshot(std::size_t bytesMax, bool inTicks);
  const std::uint8_t* take(const std::uint64_t* memory, std::size_t bytes, Deadline) override;
  ClockReading clock(Deadline) override;
  bool inTicks() const override { return inTicks_; }
  TickScale scale() override;

 private:
  std::vector<std::uint64_t> copy_;
  bool inTicks_;
  TickScale made_;
};

}  // namespace moe
