// Knows which send-only operations of a communicator await their completion, and so which operations may not start yet.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "device/view/shape.h"

namespace moe {

// Operations that share numbers. Their slots are reused every `generations` operations, so an operation may start only
// when the one that used its slots before is complete.
class Outstanding {
 public:
  explicit Outstanding(int generations = 1) : generations_(generations) {}

  int generations() const { return generations_; }
  int count() const { return count_; }
  bool mayStart() const {
    return count_ == 0 || open_.front() + static_cast<std::uint64_t>(generations_) > started_ + 1;
  }

  // Numbers an operation that has been launched. Returns its number.
  std::uint64_t start(bool sendOnly) noexcept {
    ++started_;
    if (sendOnly) open_[static_cast<std::size_t>(count_++)] = started_;
    return started_;
  }
  void complete(std::uint64_t number) noexcept {
    const auto end = open_.begin() + count_;
    count_ = static_cast<int>(std::remove(open_.begin(), end, number) - open_.begin());
  }

 private:
  int generations_;
  int count_ = 0;
  std::uint64_t started_ = 0;
  // Ascending. There are never more than generations, because the next operation waits for the first of them.
  std::array<std::uint64_t, kParities> open_{};
};

// The dispatches and combines of a set of LL slots are one series, which runs one at a time.
enum class Series : int { htDispatches, htCombines, llOperations };
inline constexpr int kSeries = static_cast<int>(Series::llOperations) + kLlSetsMax;
constexpr Series llSeries(int set) {
  return static_cast<Series>(static_cast<int>(Series::llOperations) + set);
}

inline constexpr int kNotStaged = -1;

class OutstandingOperations {
 public:
  // `combines`: HT combines whose buffers there are.
  explicit OutstandingOperations(int combines = kParities) {
    at(Series::htDispatches) = Outstanding(kParities);
    at(Series::htCombines) = Outstanding(combines);
  }

  const Outstanding& of(Series series) const { return all_[static_cast<std::size_t>(series)]; }
  // The first of `areas` staging areas that no operation uses; kNotStaged: there is none.
  int freeStaging(int areas) const {
    const auto end = staged_.begin() + areas, found = std::find(staged_.begin(), end, false);
    return found == end ? kNotStaged : static_cast<int>(found - staged_.begin());
  }

  // `staging`: the area that the operation uses, or kNotStaged.
  std::uint64_t start(Series series, bool sendOnly, int staging) noexcept {
    if (sendOnly && staging != kNotStaged) staged_[static_cast<std::size_t>(staging)] = true;
    return at(series).start(sendOnly);
  }
  void complete(Series series, std::uint64_t number, int staging) noexcept {
    if (staging != kNotStaged) staged_[static_cast<std::size_t>(staging)] = false;
    at(series).complete(number);
  }

 private:
  Outstanding& at(Series series) { return all_[static_cast<std::size_t>(series)]; }

  std::array<Outstanding, kSeries> all_;
  std::array<bool, kStagingAreasMax> staged_{};  // the areas that operations use
};

}  // namespace moe
