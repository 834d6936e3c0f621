// The parts of the simulator, for its own files only.
#pragma once

#include <deque>

#include "device/queue/mlx5/put_queue.h"
#include "device/view/steps.h"
#include "support/simulator/simulator.h"

namespace moe::sim {

inline constexpr int kConnections = 4;  // with each rank

struct Simulator::Store {
  std::uint8_t* to;
  std::uint32_t bytes, warp, place;  // place: index in the warp's list
  std::uint32_t generation;
  bool wakes, flag, adds;  // wakes: a warp may wait for it
  std::uint8_t data[64];
};

// A send queue and the adapter behind it. The ring is small, so posters wait for completions.
struct Simulator::Queue {
  struct Work {  // work that the adapter has begun
    int parcels;
    bool signalled;
  };
  std::uint32_t id = 0;
  int from = 0, to = 0;
  int slowness = 1;
  std::vector<Quad> segments;
  mlx5::SendCounters counters{};
  std::uint32_t record[2] = {};
  std::uint64_t completed = 0;         // as posters see it
  std::uint64_t begun = 0, ended = 0;  // by the adapter, in order
  std::deque<Work> work;               // from `ended` to `begun`
  std::deque<std::uint64_t> reports;   // completions on their way: the ends of signalled work
  std::uint64_t end = 0;               // the time when the last parcel so far arrives
};

// A part of a put on its way. It is read from its source when it arrives. So a rank that overwrites the source too
// early, or posts the put before it is filled, sends wrong bytes.
struct Simulator::Parcel {
  Put put;
  std::uint32_t begin, bytes;
  std::uint32_t queue;
  std::uint64_t index;  // index of its work element
};

struct Simulator::Warp {
  std::uint32_t id = 0;
  int rank = 0;
  WarpIndex index{};
  std::uint64_t slowness = 1;  // in this task, on top of its rank's
  bool running = false;
  std::uint32_t generation = 0;  // events of an earlier generation are stale
  std::vector<std::uint32_t> pending;
  // The wait, while `waiting` is true.
  bool waiting = false;
  const std::uint8_t* awaited = nullptr;
  std::size_t awaitedBytes = 0;
  const std::function<bool()>* reached = nullptr;
  int lookUps = -1;  // so far; -1: they are not counted
  std::unique_ptr<Fiber> fiber;
};

struct Simulator::Rank {
  int rank = 0;
  std::uint64_t slowness = 1;
  std::uint64_t linger = 0;  // how long its adapter outlives the rank's death
  std::size_t nextTask = 0;
  bool inTask = false, dead = false, done = false;
  int warpsLeft = 0, pauses = 0;
  Step step{};
  StepParams params{};
  StepParams dispatch{};  // of a dispatch that follows the route of the same task
  int routing = 0;        // warps that still run that route
  std::vector<Warp*> awaitingRoute;
  test::Watch watch;  // done by the last of the warps
  std::vector<Warp*> warps;
  RankResult result;
};

}  // namespace moe::sim
