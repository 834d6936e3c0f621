// How the ranks of moe_perf meet outside the library: barriers between setup and measurement, and the gathering of
// samples. Waits end after a minute, so that a dead rank ends the others.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

namespace moe::perf {

class Group {
 public:
  Group(int rank, int nranks) : rank_(rank), nranks_(nranks) {}
  virtual ~Group() = default;
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  int rank() const { return rank_; }
  int nranks() const { return nranks_; }

  // Every rank's bytes, in rank order. Collective; sizes may differ. Throws std::runtime_error.
  virtual std::vector<std::vector<std::byte>> gatherBytes(std::vector<std::byte> mine) = 0;

  void barrier() { gatherBytes({}); }

  // The same for plain numbers, one list per rank.
  template <class Number>
  std::vector<std::vector<Number>> gather(const std::vector<Number>& mine);

  // The maximum over all ranks, for each i, of the i-th time.
  std::vector<double> slowest(const std::vector<double>& mine) { return slowestOf(gather(mine)); }
  static std::vector<double> slowestOf(const std::vector<std::vector<double>>& ranks) {
    std::vector<double> times(ranks.empty() ? 0 : ranks.front().size());
    for (const std::vector<double>& rank : ranks) {
      for (std::size_t i = 0; i < times.size() && i < rank.size(); ++i) times[i] = std::max(times[i], rank[i]);
    }
    return times;
  }

 private:
  int rank_;
  int nranks_;
};

// The meeting place of ranks that are threads of this process.
class ThreadMeeting {
 public:
  explicit ThreadMeeting(int nranks) : slots_(static_cast<std::size_t>(nranks)) {}
  std::vector<std::vector<std::byte>> exchange(int rank, std::vector<std::byte> mine);

  // Ends all waits, present and later ones, because a rank has failed.
  void giveUp();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::vector<std::byte>> slots_;
  std::vector<std::vector<std::byte>> result_;
  std::size_t arrived_ = 0;
  std::size_t round_ = 0;
  bool failed_ = false;
};

std::unique_ptr<Group> makeThreadGroup(ThreadMeeting& meeting, int rank, int nranks);

// The launcher's values for this process.
struct LaunchPlace {
  int rank;
  int nranks;
  int localRank;
};
LaunchPlace placeFromEnvironment();

// Ranks that are processes. They meet at the launcher's address, one port above the library's.
std::unique_ptr<Group> makeProcessGroup();

template <class Number>
std::vector<std::vector<Number>> Group::gather(const std::vector<Number>& mine) {
  const auto* first = reinterpret_cast<const std::byte*>(mine.data());
  std::vector<std::vector<Number>> all;
  for (const std::vector<std::byte>& bytes : gatherBytes({first, first + mine.size() * sizeof(Number)})) {
    const auto* numbers = reinterpret_cast<const Number*>(bytes.data());  // operator new aligns for any number
    all.emplace_back(numbers, numbers + bytes.size() / sizeof(Number));
  }
  return all;
}

}  // namespace moe::perf
