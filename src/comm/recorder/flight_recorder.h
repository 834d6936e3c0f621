// A communicator's flight recorder: the ring that its steps fill, and how the host looks at it. Any thread may ask for
// the text.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>

#include "backend/backend.h"
#include "comm/recorder/recorder_text.h"

namespace moe {

class FlightRecorder {
 public:
  // `enabled` false: there is no ring, and texts have no steps.
  FlightRecorder(Backend& backend, const Allocator& allocator, bool enabled);

  StepRecorder* ring() const { return reinterpret_cast<StepRecorder*>(memory_.get()); }

  // The latest steps, as recorder_text.h writes them; `owner` without its clock. Throws moeTimeout if they could not be
  // copied by `end`.
  std::string text(RecorderOwner owner, Deadline end);

 private:
  class Turn;

  Memory memory_;
  std::unique_ptr<Snapshot> snapshot_;
  std::mutex mutex_;
  std::condition_variable idle_;
  bool busy_ = false;  // a thread uses the snapshot
};

// Writes a file that only its user may read, or replaces it. A reader sees either the old text or the new one. Throws
// moeSystemError naming the path.
void writeWholeFile(const std::string& path, const std::string& text);

}  // namespace moe
