// The first failure of a communicator, kept until it is destroyed. Written by whichever thread notices first: a caller,
// the liveness monitor, or a step (through its failure record).
#pragma once

#include <atomic>
#include <mutex>
#include <string>

#include "moecomm.h"

namespace moe {

class ErrorState {
 public:
  // True for the first failure, which is kept.
  bool fail(moeResult_t result, const std::string& sentence) {
    const std::lock_guard lock(mutex_);
    if (result_ != moeSuccess) return false;
    latest_ = sentence;
    result_ = result;
    return true;
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
  std::atomic<moeResult_t> result_ = moeSuccess;
  std::string latest_, shown_;
};

}  // namespace moe
