// The smallest uses of a policy's memory order: one warp streams a row and publishes, another waits and reads. In the
// protocols, all lanes always meet in between. Here publish alone must order the lanes.
#pragma once

#include <array>
#include <atomic>

#include "protocol/lists.h"
#include "support/programs/thread_runner.h"
#include "support/reference/payload.h"

namespace moe::test {

// Runs body(warp, index) on two warps at the same time.
template <class Team, class Body>
void onTwoWarps(Body body) {
  if constexpr (Team::kLanes == 1) {
    runTogether(2, [&](int i) { body(HostWarp(), i); });
  } else {
    std::array<LaneGroup<Team::kLanes>, 2> groups;
    runTogether(2 * Team::kLanes, [&](int i) {
      const int warp = i / Team::kLanes;
      body(ThreadedWarp<Team::kLanes>(groups[static_cast<std::size_t>(warp)], i % Team::kLanes), warp);
    });
  }
}

// Hands a row over and back `rounds` times. Returns the number of wrong rows.
template <class Team>
int handOver(int rounds) {
  constexpr int kBytes = 256;
  GuardedBytes row(kBytes), copies(2 * kBytes);
  std::array<Flag, 2> flags{};
  CommState state{};
  Failure failure{};
  const WaitOrders orders{0, 60'000'000'000};
  std::uint32_t departed[1] = {};
  CommView comm{};
  comm.departed = departed;
  comm.state = &state;
  comm.failure = &failure;
  comm.orders = &orders;
  fillRow(1, row.data(), kBytes);
  std::memcpy(copies.data() + kBytes, row.data(), kBytes);
  onTwoWarps<Team>([&](const auto& warp, int self) {
    std::uint8_t* mine = copies.data() + self * kBytes;
    const std::uint8_t* theirs = copies.data() + (1 - self) * kBytes;
    for (int i = 0; i < rounds; ++i) {  // warp 0 copies in even turns, warp 1 in odd turns
      const auto turn = static_cast<std::uint64_t>(2 * i + self);
      if (turn > 0 &&
          !warp.waitAll(comm, &flags[static_cast<std::size_t>(1 - self)], 1, turn, Awaited{Phase::none, 0, 1}))
        return;
      warp.streamRows(copiesOf(
          1, 1,
          [&](int) {
            return CopyJob{theirs, kBytes, 1};
          },
          [&](int, int) {
            return Sink{mine, nullptr, true};
          }));
      warp.publishAll(
          1, [&](int) { return &flags[static_cast<std::size_t>(self)]; }, flagWord(turn + 1));
    }
  });
  return (rowIs(1, copies.data(), kBytes) ? 0 : 1) + (rowIs(1, copies.data() + kBytes, kBytes) ? 0 : 1);
}

// Every lane reads what the other lanes wrote in a forEach just before. Returns how many sums are wrong. In the
// protocols another collective may come in between and hide a forEach whose lanes do not meet at its end.
template <class Team>
int readBehindForEach() {
  constexpr int kItems = 40;
  std::array<std::array<int, kItems>, 2> items{};
  std::atomic<int> wrong{0};
  onTwoWarps<Team>([&](const auto& warp, int self) {
    auto& mine = items[static_cast<std::size_t>(self)];
    warp.forEach(kItems, [&](int i) { mine[static_cast<std::size_t>(i)] = i; });
    int sum = 0;
    for (const int item : mine) sum += item;
    if (sum != kItems * (kItems - 1) / 2) ++wrong;
  });
  return wrong;
}

}  // namespace moe::test
