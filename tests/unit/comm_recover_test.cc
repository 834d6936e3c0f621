// Counts of operations after a recovery. Ranks whose operations were cut off at different places have ended different
// numbers of them. Steps rarely show that, so these tests write the counts.
#include <gtest/gtest.h>

#include <thread>

#include "bootstrap/group/unique_id.h"
#include "comm/communicator/comm.h"
#include "device/view/settled.h"
#include "unit/small_config.h"

namespace moe::test {
namespace {

using namespace std::chrono_literals;

void setCounts(const Room& room, int rank) {
  CommState& state = *room.view.state;
  for (int channel = 0; channel < kChannels; ++channel) {
    state.epoch[channel] = static_cast<std::uint64_t>(10 + (rank + channel) % 3);
    state.weighted[channel] = static_cast<std::uint64_t>(rank);
  }
  state.recounts = static_cast<std::uint64_t>(5 - rank);
}

void expectCounts(const Room& room, std::uint64_t epoch, std::uint64_t weighted, std::uint64_t recounts) {
  const CommState& state = *room.view.state;
  for (int channel = 0; channel < kChannels; ++channel) {
    EXPECT_EQ(state.epoch[channel], epoch);
    EXPECT_EQ(state.begun[channel], flagWord(epoch));
    EXPECT_EQ(state.weighted[channel], weighted);
  }
  EXPECT_EQ(state.recounts, recounts);
}

TEST(CommRecover, TakesAllRanksBeyondTheCountsOfEach) {
  const moeUniqueId_t id = bootstrap::createUniqueId(20s, "lo");
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.emplace_back([&, rank] {
      const auto comm = Comm::create(3, rank, id, smallConfig());
      setCounts(comm->room(), rank);
      comm->recover({0, {}}, 20000);
      expectCounts(comm->room(), 13, 3, 6);
    });
  }
  for (auto& rank : ranks) rank.join();
}

TEST(CommRecover, TakesTheRoomOfThisRankAloneBeyondItsOwnCounts) {
  const auto comm = Comm::create(1, 0, bootstrap::createUniqueId(20s, "lo"), smallConfig());
  for (std::uint64_t& epoch : comm->localRoom().view.state->epoch) epoch = 20;
  comm->recover({0, {}}, 20000);
  expectCounts(comm->localRoom(), 21, 1, 1);
}

}  // namespace
}  // namespace moe::test
