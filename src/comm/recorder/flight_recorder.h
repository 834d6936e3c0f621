// A communicator's flight recorder: the ring that its steps fill, and how the host looks at it. Any thread may ask for
// the text: JSON, in the files of moeCommDump and the answers to moe_top. docs/guide/watching.md describes every field.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/snapshot.h"
#include "comm/recorder/clock_offset.h"
#include "comm/recorder/totals.h"
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
  std::optional<Totals> totals;  // none: nothing is recorded
};

class FlightRecorder {
 public:
  // `state` outlives this object. `enabled` false: there is no ring, and texts have neither steps nor totals.
  FlightRecorder(Backend& backend, const Allocator& allocator, const Memory& state, bool enabled);

  StepRecorder* ring() const { return reinterpret_cast<StepRecorder*>(memory_.get()); }

  // A call has launched a step in which other ranks take part. One thread at a time.
  void count(Step step, const StepParams& params) noexcept {
    if (snapshot_) calls_.add(step, params, onHost_ ? ring()->of(ring()->steps) : nullptr);
  }

  // The latest steps, as recorderText() writes them; `owner` without its clock and totals. Throws moeTimeout if they
  // could not be copied by `end`.
  std::string text(RecorderOwner owner, Deadline end);

 private:
  class Turn;

  Totals totals(Deadline end);

  Memory memory_;
  std::unique_ptr<Snapshot> snapshot_;
  const std::uint64_t* state_;
  const bool onHost_;  // a step has ended when its launch returns
  CallTotals calls_;
  std::mutex mutex_;
  std::condition_variable idle_;
  bool busy_ = false;  // a thread uses the snapshot
};

// Writes a file that only its user may read, or replaces it. A reader sees either the old text or the new one. Throws
// moeSystemError naming the path.
void writeWholeFile(const std::string& path, const std::string& text);

// Pure functions for the parts of a text. The whole records of a ring, oldest first; a record that was being
// overwritten when the ring was copied is left out.
std::vector<StepRecord> recordsOf(StepRecorder& copy);

// Converts the ticks in a ring's records to ns.
void tellNanoseconds(StepRecorder* copy, const TickScale& scale);

// `steps`: all steps recorded so far, including those that the ring has lost.
std::string recorderText(const RecorderOwner& owner, std::uint64_t steps, const std::vector<StepRecord>& records);

}  // namespace moe
