// Where handles work: windows of some ranks, and which operations hold places in them. A communicator has the room of
// its group. Beside it there may be one of this rank alone, for handles of localOnly (local_room.cc).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>

#include "backend/backend.h"
#include "device/view/shape.h"
#include "transport/window.h"

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

// Knows which send-only operations await their completion, and so which operations may not start yet.
class OutstandingOperations {
 public:
  // `combines`: the number of HT combines for which there are buffers.
  explicit OutstandingOperations(int combines = kParities) {
    at(Series::htDispatches) = Outstanding(kParities);
    at(Series::htCombines) = Outstanding(combines);
  }

  // Operations that await their completion.
  int count() const {
    return std::accumulate(all_.begin(), all_.end(), 0, [](int sum, const auto& of) { return sum + of.count(); });
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

struct Room {
  CommShape shape;
  CommView view{};  // its rank and nranks are those of the room
  Memory state, table;
  std::unique_ptr<Window> window;  // the window that peers map; a room of one rank has private memory instead
  Memory own;
  OutstandingOperations operations;
  int llHandles[kLlSetsMax] = {};

  std::uint8_t* base() const { return window ? window->base() : own.get(); }

  // The set of LL slots for a new handle: the one with the fewest handles. Ranks that make and destroy the same handles
  // in the same order choose alike.
  int takeLlSet() {
    int* least = std::min_element(llHandles, llHandles + shape.llSets);
    ++*least;
    return static_cast<int>(least - llHandles);
  }
  void giveBackLlSet(int set) { --llHandles[set]; }
};

// The sizes of a shape, in the form that steps use.
inline void showSizes(const CommShape& shape, CommView* view) {
  view->tokensMax = shape.tokensMax;
  view->llTokensMax = shape.llTokensMax;
  view->rowBytesMax = shape.rowBytesMax;
  view->sideBytesMax = shape.sideBytesMax;
  view->topkMax = shape.topkMax;
}

}  // namespace moe
