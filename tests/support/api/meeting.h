// How the ranks of a test meet and exchange ids, whether they are threads of this process or processes of moerun.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>

#include "support/api/api_world.h"
#include "support/api/board.h"

namespace moe::test {

// The board of the processes that one moerun has started. Names on it must not repeat.
inline Board boardOfJob() {
  return Board(std::filesystem::temp_directory_path() / ("moecomm-test-" + std::string(std::getenv("MOECOMM_SECRET"))));
}

// Returns when all ranks have come here. Every rank calls it.
inline void meetAll(RankContext& context) {
  if (startedRanks() == 0) return context.meet();
  static int meetings = 0;
  const Board board = boardOfJob();
  const std::string name = fmt::format("meeting{}.", meetings++);
  board.put(name + std::to_string(context.rank));
  for (int rank = 0; rank < context.nranks; ++rank) {
    while (!board.has(name + std::to_string(rank))) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// A new id of rank 0, for all ranks. Every rank calls it.
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
  const Board board = boardOfJob();
  const std::string name = fmt::format("id{}", calls++);
  if (context.rank != 0) return board.awaitId(name);
  EXPECT_EQ(moeGetUniqueId(&id), moeSuccess) << moeGetLastError(nullptr);
  board.put(name, &id, sizeof id);
  return id;
}

}  // namespace moe::test
