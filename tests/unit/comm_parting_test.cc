// What a rank remembers of a group that has parted (decision 0136).
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "bootstrap/group/unique_id.h"
#include "comm/communicator/comm.h"
#include "unit/small_config.h"

namespace moe::test {
namespace {

using namespace std::chrono_literals;

// While ranks leave, the monitor may note that, or may be too slow to.
TEST(CommParting, ForgetsWhoHasLeft) {
  const moeUniqueId_t first = bootstrap::createUniqueId(20s, "lo"), second = bootstrap::createUniqueId(20s, "lo");
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      const auto comm = Comm::create(2, rank, first, smallConfig());
      const CommView& view = comm->view();
      comm->suspend();
      comm->disconnect();
      for (int other = 0; other < 2; ++other) std::atomic_ref(view.departed[other]).store(1);
      std::atomic_ref(const_cast<WaitOrders*>(view.orders)->left).store(1);
      comm->reconnect(second);
      comm->resume();
      for (int other = 0; other < 2; ++other) EXPECT_EQ(std::atomic_ref(view.departed[other]).load(), 0U);
      EXPECT_EQ(std::atomic_ref(const_cast<WaitOrders*>(view.orders)->left).load(), 0U);
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

}  // namespace
}  // namespace moe::test
