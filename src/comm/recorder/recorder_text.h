// The records of the flight recorder as JSON: the files of moeCommDump, and the answers to moe_top.
// docs/guide/watching.md describes every field. These are pure functions; flight_recorder.h calls them.
#pragma once

#include <string>
#include <vector>

#include "backend/snapshot.h"
#include "comm/recorder/clock_offset.h"
#include "device/view/step_record.h"
#include "moecomm.h"

namespace moe {

// The rank whose records these are, and the reason why they are shown.
struct RecorderOwner {
  std::string job;  // hexadecimal, the same on all ranks of a communicator
  std::string host;
  const char* backend = "host";
  int rank = 0, nranks = 1, domainSize = 1, processId = 0;
  const char* reason = "call";  // call, failure, watch
  moeResult_t result = moeSuccess;
  std::string sentence;  // sentence of the failure
  ClockReading clock{};
  ClockOffset toRank0{};
};

// The whole records of a ring, oldest first. A record that was being overwritten when the ring was copied is left out.
std::vector<StepRecord> recordsOf(StepRecorder& copy);

// Converts the ticks in a ring's records to ns.
void tellNanoseconds(StepRecorder* copy, const TickScale& scale);

// `steps`: all steps recorded so far, including those that the ring has lost.
std::string recorderText(const RecorderOwner& owner, std::uint64_t steps, const std::vector<StepRecord>& records);

}  // namespace moe
