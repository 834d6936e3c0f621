// The flight recorder: a ring with the latest steps of a communicator, in its private memory. The steps of a
// communicator follow each other, so the ring has one writer at a time. On a GPU the writer is one lane of the step. On
// a CPU it is the calling thread, except for `firstWaitEnd` and `worst`. Writers use no ordering and never wait.
//
// The host reads the ring at any time, without stopping the writer (comm/recorder/flight_recorder.h). A record that is
// overwritten during the read may be half old and half new. The reader notices, because the begin times would then not
// grow with the numbers.
#pragma once

#include "device/view/steps.h"

namespace moe {

struct alignas(16) StepRecord {
  std::uint64_t number;  // number of this step among the recorded steps of the communicator, from 1; 0: unused record
  std::uint64_t epoch;   // epoch of the operation in its channel
  std::uint64_t begin, end;    // by the clock of steps; end 0: not ended
  std::uint64_t firstWaitEnd;  // by the same clock: when the first missing flag of
                               // another rank arrived; 0: none, or unknown
  std::uint64_t worst;         // waitWord() of the rank that was awaited longest; 0: none, or unknown
  std::uint64_t what;          // whatWord()
  std::uint64_t size;          // bytes of a row << 32 | tokens of this rank
};
static_assert(sizeof(StepRecord) == 64);

inline constexpr std::uint64_t kRecordedSteps = 1024;  // a power of two

struct StepRecorder {
  std::uint64_t steps;       // steps recorded so far; also the number of the latest
  std::uint64_t inTicks;     // 1: times are ticks of the processor's counter (policy/host/step_clock.h); 0: ns
  std::uint64_t notesWaits;  // 1: steps set `worst` themselves; 0: tally() sets it
                             // from CommView::waits, if these are kept
  std::uint64_t unused[5];
  StepRecord records[kRecordedSteps];

  MOE_HOST_DEVICE StepRecord* of(std::uint64_t number) { return records + number % kRecordedSteps; }
};

// A wait for a rank, in ns or ticks. The word of a longer wait is larger.
inline constexpr int kWaitRankBits = 16;
MOE_HOST_DEVICE constexpr std::uint64_t waitWord(int rank, std::uint64_t time) {
  return time << kWaitRankBits | static_cast<std::uint64_t>(rank + 1);
}
MOE_HOST_DEVICE constexpr int rankOfWait(std::uint64_t word) {
  return static_cast<int>(word & ((1u << kWaitRankBits) - 1)) - 1;
}
MOE_HOST_DEVICE constexpr std::uint64_t timeOfWait(std::uint64_t word) {
  return word >> kWaitRankBits;
}

// Identifies a step: its name, its phases, and the number of its handle.
MOE_HOST_DEVICE constexpr std::uint64_t whatWord(Step step, int phases, int handle) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(handle)) << 32 |
         static_cast<std::uint64_t>(phases) << 8 | static_cast<std::uint64_t>(step);
}
constexpr Step stepOfWhat(std::uint64_t what) {
  return static_cast<Step>(what & 0xff);
}
constexpr int phasesOfWhat(std::uint64_t what) {
  return static_cast<int>(what >> 8 & 0xff);
}
constexpr int handleOfWhat(std::uint64_t what) {
  return static_cast<int>(what >> 32);
}

// Only steps that belong to a channel are recorded. The other steps report on a route, and no other rank takes part in
// them.
MOE_HOST_DEVICE Channel channelOf(const StepRow& row, const HandleView& h) {
  if (row.kind == StepKind::route) return kRouteChannel;
  if (row.combines()) return h.lowLatency != 0 ? llChannel(kLlCombineChannel, h.llSet) : kHtCombineChannel;
  return h.lowLatency != 0 ? llChannel(kLlDispatchChannel, h.llSet) : kHtDispatchChannel;
}

// Valid only when a step begins, before any of its warps has ended the epoch.
MOE_HOST_DEVICE std::uint64_t epochOf(const StepRow& row, const StepParams& p) {
  const bool sends = row.kind == StepKind::route || (p.phases & kSendPhase) != 0;
  if (sends) return p.comm.state->epoch[channelOf(row, p.handle)] + 1;
  return row.combines() ? p.handle.state->combineEpoch : p.handle.state->dispatchEpoch;
}

MOE_HOST_DEVICE std::uint64_t sizeOf(const StepRow& row, const StepParams& p) {
  if (row.kind == StepKind::route) return static_cast<std::uint32_t>(p.route.tokens);
  const int tokens = row.combines() ? p.combine.tokens : p.dispatch.tokens;
  const std::uint32_t rowBytes = row.combines() ? p.combine.rowBytes : p.dispatch.rowBytes;
  return std::uint64_t{rowBytes} << 32 | static_cast<std::uint32_t>(tokens);
}

}  // namespace moe
