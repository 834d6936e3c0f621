#include "protocol/fixed_shape.h"

#include "support/programs/draw_parts.h"
#include "support/reference/routing_input.h"

namespace moe::test {
namespace {

constexpr std::uint64_t kTimeoutNs = 60'000'000'000;

HandleShape handleShape(const FixedShape& s) {
  HandleShape handle;
  handle.map = {s.experts, s.ranks};
  handle.topk = s.topk;
  handle.layout = s.layout;
  handle.lowLatency = s.lowLatency;
  handle.tokensMax = s.tokens;
  handle.alignment = s.alignment;
  handle.wideIndex = s.wideIndex;
  handle.routeWarpsMax = s.warps;
  handle.tableBlocks = s.warps;
  handle.domains = s.domainSize == 0 ? 1 : s.ranks / s.domainSize;
  return handle;
}

CommShape commShape(const FixedShape& s, std::int64_t outputRows) {
  CommShape comm;
  comm.nranks = s.ranks;
  comm.domainSize = s.domainSize;
  comm.topkMax = s.topk;
  comm.expertsMax = s.experts;
  comm.rowBytesMax = s.rowBytes;
  comm.sideBytesMax = s.sideBytes;
  (s.lowLatency ? comm.llTokensMax : comm.tokensMax) = s.tokens;
  (s.lowLatency ? comm.ll : comm.ht) = true;
  comm.stagingRows = s.lowLatency ? 0 : std::int64_t{s.ranks} * s.tokens;
  comm.heapBytes = s.lowLatency ? 0 : roundUp(outputRows * (s.rowBytes + s.sideBytes) + 256, 256);
  return comm;
}

class Rounds {
 public:
  Rounds(const FixedShape& shape, std::uint64_t seed) : shape_(shape), rng_(seed) {}

  Scenario build() {
    const std::int64_t rows =
        arrivingRowsMax(handleShape(shape_)) * shape_.experts + shape_.experts * std::int64_t{shape_.alignment};
    world_.comm = std::make_unique<TestComm>(commShape(shape_, rows), kTimeoutNs);
    world_.areas = std::make_unique<OutputAreas>(*world_.comm, 1, world_.comm->shape().heapBytes);
    world_.program = std::make_unique<Program>(shape_.ranks);
    world_.handles.push_back(std::make_unique<TestHandle>(*world_.comm, handleShape(shape_)));
    if (shape_.timed) handle().askForWaits();
    for (int round = 0; round < shape_.rounds; ++round) {
      const std::shared_ptr<RouteOperation> routing = drawRoute();
      const bool inside = shape_.lowLatency && shape_.routesInside;
      if (!inside) world_.program->addRoute(routing, shape_.warps);
      if (shape_.combineFirst) addCombine(round);
      if (inside) addRouteDispatch(routing, round);
      if (!inside) addSteps(drawDispatch(round), dispatchStep(handle().view(0), false));
      addCombine(round + 1);
      addSteps(drawDispatch(round + 1), dispatchStep(handle().view(0), false));  // on the same route
    }
    world_.text = world_.program->describe();
    return std::move(world_);
  }

 private:
  TestHandle& handle() { return *world_.handles[0]; }
  Parts parts() const {
    const int quads = (shape_.rowBytes / 16 + shape_.parts - 1) / shape_.parts;
    return {(shape_.rowBytes / 16 + quads - 1) / quads, static_cast<std::uint32_t>(quads * 16)};
  }

  std::shared_ptr<RouteOperation> drawRoute() {
    const RouteConfig config{shape_.ranks,  shape_.experts,   shape_.topk,       shape_.layout,
                             shape_.tokens, shape_.alignment, shape_.domainSize, !shape_.lowLatency};
    route_ = std::make_shared<const ReferenceRoute>(makeReferenceRoute(config, drawRouteInputs(config, true, rng_)));
    return std::make_shared<RouteOperation>(*world_.comm, handle(), route_, true, "route");
  }
  // Rows stay in their slots, from where a combine takes them.
  bool keepsSlots(int round) const {
    return shape_.inSlots && shape_.lowLatency && shape_.layout == Layout::rankMajor && round % 3 != 2;
  }
  void addSteps(const std::shared_ptr<Operation>& operation, Step step) {
    for (const int phases : {kSendPhase, kReceivePhase}) {
      if (shape_.split) world_.program->addStep(operation, step, phases, shape_.warps);
    }
    if (!shape_.split) world_.program->addStep(operation, step, kSendPhase | kReceivePhase, shape_.warps);
    if (!shape_.timed) return;
    const auto tally = std::make_shared<TallyOperation>(*world_.comm, handle(), route_, world_.counters, "tally");
    world_.program->addStep(tally, Step::tally, kSendPhase | kReceivePhase, 1);
    ++world_.tallies;
  }
  void addRouteDispatch(const std::shared_ptr<RouteOperation>& routing, int round) {
    addSteps(std::make_shared<RouteDispatchOperation>(*world_.comm, handle(), routing, drawDispatch(round),
                                                      "dispatch that routes"),
             Step::llRouteDispatch);
  }
  std::shared_ptr<DispatchOperation> drawDispatch(int round) {
    DispatchCase config;
    config.seed = rng_.next();
    config.rowBytes = shape_.rowBytes;
    config.sideBytes = shape_.sideBytes;
    config.parts = parts();
    config.inSlots = keepsSlots(round);
    for (int r = 0; r < shape_.ranks; ++r) config.staged.push_back((round + r) % 2 == 0);
    return std::make_shared<DispatchOperation>(*world_.comm, handle(), route_, world_.areas.get(), config, "dispatch");
  }
  void addCombine(int round) {
    CombineOptions options;
    options.seed = rng_.next();
    options.sum = {shape_.rowType, shape_.rowBytes, hasRowPerExpert(shape_.layout) && round % 2 != 0};
    options.parts = parts();
    options.bias0 = round % 2 == 0;
    options.bias1 = round % 3 != 0;
    options.grads = !shape_.inSlots;
    options.area = 0;
    const bool mayReadRows = !hasRowPerExpert(shape_.layout) && !shape_.lowLatency;
    for (int r = 0; r < shape_.ranks; ++r) {
      options.inPlace.push_back(keepsSlots(round) || (mayReadRows && (round + r) % 2 == 0));
    }
    if (shape_.awaitsRows && hasRowPerExpert(shape_.layout)) drawReady(options, handle().shape(), shape_.ranks, rng_);
    addSteps(std::make_shared<CombineOperation>(*world_.comm, handle(), route_, world_.areas.get(), options, "combine"),
             combineStep(handle().view(0), shape_.landing));
  }

  FixedShape shape_;
  Rng rng_;
  Scenario world_;
  std::shared_ptr<const ReferenceRoute> route_;
};

}  // namespace

Scenario makeFixedScenario(const FixedShape& shape, std::uint64_t seed) {
  return Rounds(shape, seed).build();
}

}  // namespace moe::test
