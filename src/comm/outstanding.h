// Which send-only operations of a channel still await their completion. Slots are reused every `generations`
// operations, so an operation may only start when the one that used its slots before is complete.
#pragma once

#include <cstdint>
#include <set>

namespace moe {

class Outstanding {
 public:
  bool mayStart(int generations) const {
    return open_.empty() || *open_.begin() + static_cast<std::uint64_t>(generations) > started_ + 1;
  }
  std::size_t count() const { return open_.size(); }

  // Returns the operation's number.
  std::uint64_t start(bool sendOnly) {
    ++started_;
    if (sendOnly) open_.insert(started_);
    return started_;
  }
  void complete(std::uint64_t number) { open_.erase(number); }

 private:
  std::uint64_t started_ = 0;
  std::set<std::uint64_t> open_;
};

}  // namespace moe
