// Holds back what transports report while a group is still coming together. When one rank ends, others give up and
// close their connections too, and sockets may show that before the group says which rank ended. So reports wait until
// the group is complete. By then the group has named the cause, or there is no other.
#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "moecomm.h"

namespace moe {

class KeptBack {
 public:
  using Report = std::pair<moeResult_t, std::string>;

  // Any thread. Returns false if the report is held back, or dropped because another one already is.
  bool counts(moeResult_t result, const std::string& sentence) {
    const std::lock_guard lock(mutex_);
    if (!complete_ && !first_) first_ = Report(result, sentence);
    return complete_;
  }

  // From now on reports count. Returns the one that was held back.
  std::optional<Report> complete() {
    const std::lock_guard lock(mutex_);
    complete_ = true;
    return std::exchange(first_, std::nullopt);
  }

 private:
  std::mutex mutex_;
  bool complete_ = false;
  std::optional<Report> first_;
};

}  // namespace moe
