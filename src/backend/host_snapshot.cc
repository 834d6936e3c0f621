#include <atomic>
#include <fstream>
#include <string>

#include "backend/snapshot.h"
#include "device/policy/host/step_clock.h"

namespace moe {
namespace {

constexpr int kReadings = 4;

// Reads one clock before and after the other one. Of several readings, the one with the least time between counts.
template <class Outer, class Inner>
auto readTogether(Outer outer, Inner inner) {
  struct {
    std::uint64_t outer, inner, width;
  } best{0, 0, UINT64_MAX};
  for (int i = 0; i < kReadings; ++i) {
    const std::uint64_t before = outer();
    const std::uint64_t between = inner();
    const std::uint64_t width = outer() - before;
    if (width < best.width) best = {before + width / 2, between, width};
  }
  return best;
}

TickScale readTicks() {
  const auto reading = readTogether(steadyNanoseconds, processorTicks);
  TickScale scale;
  scale.ticks = reading.inner;
  scale.ns = static_cast<std::int64_t>(reading.outer);
  scale.errorNs = static_cast<std::int64_t>(reading.width / 2 + 1);
  return scale;
}

}  // namespace

bool counterKeepsTime() {
#if defined(__x86_64__)
  std::ifstream file("/sys/devices/system/clocksource/clocksource0/current_clocksource");
  std::string name;
  return file >> name && name == "tsc";
#else
  return false;
#endif
}

HostSnapshot::HostSnapshot(std::size_t bytesMax, bool inTicks)
    : copy_(bytesMax / sizeof(std::uint64_t)), inTicks_(inTicks), made_(readTicks()) {}

// Copies word by word, because steps store words.
const std::uint8_t* HostSnapshot::take(const std::uint64_t* memory, std::size_t bytes, Deadline) {
  for (std::size_t i = 0; i < bytes / sizeof *memory; ++i) {
    copy_[i] = std::atomic_ref(const_cast<std::uint64_t&>(memory[i])).load(std::memory_order_relaxed);
  }
  return reinterpret_cast<const std::uint8_t*>(copy_.data());
}

ClockReading HostSnapshot::clock(Deadline) {
  const auto reading = readTogether(steadyNanoseconds, [] { return static_cast<std::uint64_t>(wallClock()); });
  return {static_cast<std::int64_t>(reading.outer), static_cast<std::int64_t>(reading.inner),
          static_cast<std::int64_t>(reading.width / 2 + 1)};
}

TickScale HostSnapshot::scale() {
  TickScale now = readTicks();
  if (now.ticks > made_.ticks) {
    now.nsPerTick = static_cast<double>(now.ns - made_.ns) / static_cast<double>(now.ticks - made_.ticks);
  }
  now.errorNs += made_.errorNs;
  return now;
}

}  // namespace moe
