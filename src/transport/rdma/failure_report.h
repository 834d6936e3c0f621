// Reports a transport's first failure, once, unless peers are already leaving. The transport's thread writes it, and
// any thread may ask for it.
#pragma once

#include <atomic>
#include <functional>

#include "transport/rdma/send_failure.h"

namespace moe::verbs {

class FailureReport {
 public:
  using Tell = std::function<void(const SendFailure&)>;

  explicit FailureReport(Tell tell = {}) : tell_(std::move(tell)) {}

  // Call it before the thread starts.
  void setTell(Tell tell) { tell_ = std::move(tell); }
  void fail(const SendFailure& failure) {
    if (failed_.exchange(true, std::memory_order_acq_rel)) return;
    if (!silent_.load(std::memory_order_acquire)) tell_(failure);
  }
  bool failed() const { return failed_.load(std::memory_order_acquire); }
  // From now on failures are not reported, because peers leave.
  void silence() { silent_.store(true, std::memory_order_release); }

 private:
  Tell tell_;
  std::atomic<bool> failed_{false};
  std::atomic<bool> silent_{false};
};

}  // namespace moe::verbs
