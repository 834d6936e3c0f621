// What the simulator is made of, for its own files.
#pragma once

#include "device/steps.h"
#include "support/simulator.h"

namespace moe::sim {

inline constexpr int kConnections = 4;  // with each rank

struct Simulator::Store {
  std::uint8_t* to;
  std::uint32_t bytes, warp, place;  // place: in the warp's list
  std::uint32_t generation;
  bool flag, adds;
  std::uint8_t data[64];
};

// A part of a put, on its way. It is read from its source when it arrives: whoever overwrites that too early, or lets
// the put go before it is filled, sends something else.
struct Simulator::Parcel {
  Put put;
  std::uint32_t begin, bytes;
  int from;
};

struct Simulator::Warp {
  std::uint32_t id = 0;
  int rank = 0;
  WarpIndex index{};
  std::uint64_t slowness = 1;  // in this task, beside its rank's
  bool running = false;
  std::uint32_t generation = 0;  // events of an earlier one are stale
  std::vector<std::uint32_t> pending;
  // A wait, while `waiting`.
  bool waiting = false;
  Flag* flags = nullptr;
  int flagCount = 0;
  std::uint64_t epoch = 0;
  std::unique_ptr<Fiber> fiber;
};

struct Simulator::Rank {
  int rank = 0;
  std::uint64_t slowness = 1;
  std::uint64_t linger = 0;  // its adapter outlives a death by so much
  std::size_t nextTask = 0;
  bool inTask = false, dead = false, done = false;
  int warpsLeft = 0, pauses = 0;
  Step step{};
  StepParams params{};
  test::Watch watch;  // by the last of the warps
  std::vector<Warp*> warps;
  RankResult result;
};

}  // namespace moe::sim
