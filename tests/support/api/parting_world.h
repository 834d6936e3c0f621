// What the tests of moeCommDisconnect and moeCommReconnect share: ids for ranks that meet again.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

#include "support/api/board.h"
#include "support/api/sleep_world.h"

namespace moe::test {

// A new id of rank 0, for all ranks. Threads share it by memory, processes of moerun by a file. Every rank calls it.
inline moeUniqueId_t newId(RankContext& context) {
  static moeUniqueId_t shared;
  static int calls = 0;
  moeUniqueId_t id{};
  if (startedRanks() == 0) {
    if (context.rank == 0) {
      EXPECT_EQ(moeGetUniqueId(&shared), moeSuccess) << moeGetLastError(nullptr);
    }
    context.meet();
    id = shared;
    context.meet();
    return id;
  }
  const Board board(std::filesystem::temp_directory_path());
  const std::string name = fmt::format("moecomm-parting-{}-{}", std::getenv("MOECOMM_ROOT"), calls++);
  if (context.rank != 0) return board.awaitId(name);
  EXPECT_EQ(moeGetUniqueId(&id), moeSuccess) << moeGetLastError(nullptr);
  board.put(name, &id, sizeof id);
  return id;
}

inline void fallAsleep(RankContext& context) {
  MOE_ASSERT_OK(moeCommSuspend(context.comm), context);
  MOE_ASSERT_OK(moeCommDisconnect(context.comm), context);
}
inline void wakeUp(RankContext& context) {
  const moeUniqueId_t id = newId(context);
  MOE_ASSERT_OK(moeCommReconnect(context.comm, &id), context);
  MOE_ASSERT_OK(moeCommResume(context.comm), context);
}

}  // namespace moe::test
