// The builder of a scenario, for scenario.cc only: its choices, and its knowledge of the handles.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "support/base/rng.h"
#include "support/programs/scenario.h"
#include "support/programs/tally_operation.h"
#include "support/programs/world_shapes.h"

namespace moe::test {

enum Kind { kDispatch, kCombine };

// The state of a handle, as far as the builder knows it.
struct HandleTrack {
  TestHandle* handle = nullptr;
  std::shared_ptr<const ReferenceRoute> route;
  std::shared_ptr<Operation> outstanding;
  Kind kind = kDispatch;  // kind of its latest operation
  Step step{};            // step of its latest operation
  std::uint64_t epoch = 0;
  int area = -1;
  int staging = -1;                                 // the staging area that its operation uses
  bool ownsSlots = false;                           // LL: the slots of its set are the caller's
  std::shared_ptr<std::vector<Counters>> counters;  // counters of a handle that asks for waits
  HandleFault fault;                                // its fault until its next route
  bool places = false;                              // its routes have placements, now and then
  std::optional<PlacedExperts> placed;              // placement of its next route

  void askForWaits() { handle->askForWaits(), counters = std::make_shared<std::vector<Counters>>(); }
};

class ScenarioBuilder {
 public:
  ScenarioBuilder(std::uint64_t seed, Protocol protocol, Trouble trouble, const ScenarioLimits& limits)
      : rng_(seed),
        describing_(mix(seed, 68)),
        weighing_(mix(seed, 71)),
        bounding_(mix(seed, 72)),
        casting_(mix(seed, 77)),
        coding_(mix(seed, 78)),
        waiting_(mix(seed, 83)),
        placing_(mix(seed, 84)),
        scaling_(mix(seed, 85)),
        lacking_(mix(seed, 95)),
        decoding_(mix(seed, 98)),
        voiding_(mix(seed, 122)),
        overlapping_(mix(seed, 129)),
        landing_(seed % 4 != 0),
        blocks_(isWorldOfBlocks(seed)),
        decodes_(limits.decodes && protocol != Protocol::ht),
        limits_(limits) {
    world_.trouble = trouble;
    const WorldShapes shapes = drawWorldShapes(seed, protocol, limits, rng_);
    shape_ = shapes.comm;
    handleShapes_ = shapes.handles;
  }

  Scenario build(std::uint64_t timeoutNs);
  void buildAgain(Scenario& world);

 private:
  void makeHandles();
  void drawProgram();
  void voidRoute(HandleTrack& track);
  void addOperation();
  void drawPlacement(HandleTrack& track, const RouteConfig& config);
  std::shared_ptr<RouteOperation> drawRoute(HandleTrack& track);
  void addDescribe(const HandleTrack& track);
  void makeStranger(const HandleTrack& track);
  bool draws(Trouble trouble);
  HandleFault spoil(const HandleShape& s, const RouteConfig& config, bool placed, std::vector<RouteInput>& inputs);
  void addRoute(HandleTrack& track);
  void addDispatch(HandleTrack& track, const std::shared_ptr<RouteOperation>& routing = nullptr);
  void addCombine(HandleTrack& track);
  void start(HandleTrack& track, const std::shared_ptr<Operation>& operation, bool withRoute = false);
  void complete(HandleTrack& track);
  bool endsWorld(const HandleTrack& track, Kind kind, Trouble trouble) const;
  bool draws(const HandleTrack& track, Kind kind, Trouble trouble);
  void note(HandleTrack& track, Kind kind, Trouble trouble, HandleFault fault);
  void addTrouble(HandleTrack& track, DispatchCase& config);
  void addTrouble(HandleTrack& track, CombineOptions& options);
  void addWaits(const HandleTrack& track, CombineOptions& options);
  bool mayStart(Kind kind, const HandleTrack& track);
  void takeSlots(const HandleTrack& track);
  int living() const { return shape_.nranks - static_cast<int>(world_.lost.size()); }
  int drawBytes(int bytesMax) { return 16 * rng_.between(1, bytesMax / 16); }
  int drawWarps() { return rng_.between(1, limits_.warps); }
  int freeStaging() const;
  int freeArea();
  std::string name(const char* what, const HandleTrack& track);

  Rng rng_;
  Rng describing_;         // draws steps that describe. Each generator is separate, so that new choices leave worlds as
                           // they were
  Rng weighing_;           // draws weights at combine
  Rng bounding_;           // draws bounds
  Rng casting_;            // draws casts in HT
  Rng coding_;             // draws wire formats
  Rng waiting_;            // draws rows that are made beside a combine
  Rng placing_;            // draws placements
  Rng scaling_;            // draws weights on the input
  Rng lacking_;            // draws arrays with too few rows
  Rng decoding_;           // draws dispatches that bring only rows
  Rng voiding_;            // draws operations on void routes
  Rng overlapping_;        // draws dispatches that follow their route by the same call
  bool landing_;           // LL rows land where they can, as on GPUs
  bool blocks_, decodes_;  // see isWorldOfBlocks, ScenarioLimits
  ScenarioLimits limits_;
  CommShape shape_;
  std::vector<HandleShape> handleShapes_;
  std::vector<HandleTrack> tracks_;
  std::uint64_t htStarted_[2] = {};
  int operations_ = 0;  // so far, also in earlier programs
  bool ended_ = false;
  Scenario world_;
};

}  // namespace moe::test
