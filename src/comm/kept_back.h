// What transports report while a group is still coming together. The end of one rank also closes connections between
// others, who give up because of it, and sockets may tell of that sooner than the group says who has ended. So reports
// are kept back until the group is complete: by then the group has named the cause, or there is no other.
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

  // Any thread. False: the report is kept back, unless there is one already.
  bool counts(moeResult_t result, const std::string& sentence) {
    const std::lock_guard lock(mutex_);
    if (!complete_ && !first_) first_ = Report(result, sentence);
    return complete_;
  }

  // From now on reports count. Returns the one that was kept back.
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
