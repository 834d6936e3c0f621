// The first failure of a communicator, kept until it is destroyed. Written by whichever thread notices first: a caller,
// the liveness monitor, a transport, or a step (through its failure record).
#pragma once

#include <atomic>
#include <exception>
#include <mutex>
#include <string>

#include "moecomm.h"

namespace moe {

class ErrorState {
 public:
  // True for the first failure, which is kept. `tell()` lets the peers know, and must not call back: who sees the
  // failure here, and leaves because of it, has told them.
  template <class Tell>
  bool fail(moeResult_t result, const std::string& sentence, Tell tell) noexcept {
    const std::lock_guard lock(mutex_);
    if (result_ != moeSuccess) return false;
    try {
      latest_ = sentence;
      if (tells_) tell();
    } catch (const std::exception&) {  // NOLINT: out of memory; that it has failed is what counts
    }
    result_ = result;
    return true;
  }

  // From now on no failure is told: peers know that this rank leaves. Waits for what is being told.
  void stopTelling() noexcept {
    const std::lock_guard lock(mutex_);
    tells_ = false;
  }

  // Keeps the sentence of a refused argument; the communicator stays usable.
  void refuse(const std::string& sentence) {
    const std::lock_guard lock(mutex_);
    if (result_ == moeSuccess) latest_ = sentence;
  }

  moeResult_t result() const noexcept { return result_; }

  // Text that stays valid until the next call of text().
  const char* text() {
    const std::lock_guard lock(mutex_);
    shown_ = latest_;
    return shown_.c_str();
  }
  std::string sentence() {
    const std::lock_guard lock(mutex_);
    return latest_;
  }

 private:
  std::mutex mutex_;
  bool tells_ = true;
  std::atomic<moeResult_t> result_ = moeSuccess;
  std::string latest_, shown_;
};

}  // namespace moe
