// One warp of each policy that runs on threads, for tests of the policy's operations.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "support/programs/thread_runner.h"

namespace moe::test {

// Runs body(warp) on all lanes of one warp.
template <class Team, class Body>
void onOneWarp(Body body) {
  if constexpr (Team::kLanes == 1) {
    body(HostWarp());
  } else {
    LaneGroup<Team::kLanes> group;
    runTogether(Team::kLanes, [&](int lane) { body(ThreadedWarp<Team::kLanes>(group, lane)); });
  }
}

using Teams = testing::Types<HostTeam, LaneTeam<4>, LaneTeam<7>>;

class TeamNames {
 public:
  template <class Team>
  static std::string GetName(int) {
    return std::to_string(Team::kLanes) + (Team::kLanes == 1 ? "Lane" : "Lanes");
  }
};

// The parts of a communicator that waits use.
struct Waiting {
  CommState state{};
  Failure failure{};
  WaitOrders orders{0, 50'000'000};
  std::uint32_t departed[64] = {};
  CommView view{};

  Waiting() {
    view.state = &state;
    view.failure = &failure;
    view.orders = &orders;
    view.departed = departed;
  }
};

}  // namespace moe::test
