#include "support/programs/scenario.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "moecomm.h"
#include "support/base/index.h"
#include "support/base/sanitizers.h"
#include "support/programs/describe_operation.h"
#include "support/programs/draw_parts.h"
#include "support/programs/scenario_builder.h"
#include "support/programs/settle_world.h"
#include "support/programs/spoil_call.h"
#include "support/reference/lost_ranks.h"
#include "support/reference/routing_input.h"

namespace moe::test {
namespace {

int llSetOf(const HandleTrack& track) {
  return track.handle->view(0).llSet;
}

// If ranks send rows of different sizes, LL detects it when the rows have arrived. Until then they may overlap in the
// slots, which nobody reads. ThreadSanitizer would report this as a race.
constexpr bool kLlSizesMayDiffer = !MOE_TEST_TSAN;

}  // namespace

std::string ScenarioBuilder::name(const char* what, const HandleTrack& track) {
  return fmt::format("#{} {} handle {}{}", ++operations_, what, &track - tracks_.data(),
                     track.handle->shape().lowLatency ? " LL" : " HT");
}

// A set of LL slots serves one operation at a time. HT operations keep records of two generations, so the one of epoch
// e must be complete when epoch e + 2 starts. The data that combines put over the rails have only one generation.
bool ScenarioBuilder::mayStart(Kind kind, const HandleTrack& track) {
  const bool lowLatency = track.handle->shape().lowLatency;
  return std::all_of(tracks_.begin(), tracks_.end(), [&](const HandleTrack& other) {
    if (!other.outstanding || other.handle->shape().lowLatency != lowLatency) return true;
    if (lowLatency) return llSetOf(other) != llSetOf(track);
    const std::uint64_t generations = kind == kCombine && shape_.domains() > 1 ? 1 : kParities;
    return other.kind != kind || htStarted_[kind] + 1 - other.epoch < generations;
  });
}

// From now on another operation uses the slots of this handle's set.
void ScenarioBuilder::takeSlots(const HandleTrack& track) {
  for (HandleTrack& other : tracks_) {
    if (other.handle->shape().lowLatency && llSetOf(other) == llSetOf(track)) other.ownsSlots = false;
  }
}

// A staging area that no outstanding operation uses; -1: there is none.
int ScenarioBuilder::freeStaging() const {
  for (int area = 0; area < shape_.stagingAreas; ++area) {
    const auto uses = [&](const HandleTrack& t) { return t.outstanding && t.staging == area; };
    if (std::none_of(tracks_.begin(), tracks_.end(), uses)) return area;
  }
  return -1;
}

int ScenarioBuilder::freeArea() {
  for (int area = rng_.below(kOutputAreas);; area = (area + 1) % kOutputAreas) {
    if (std::none_of(tracks_.begin(), tracks_.end(),
                     [&](const HandleTrack& t) { return t.outstanding && t.area == area; }))
      return area;
  }
}

// Whether the next operation is to have this trouble, if it can. The first operations of a world have none.
bool ScenarioBuilder::draws(Trouble trouble) {
  if (operations_ <= 2) return false;
  return world_.trouble == trouble ? rng_.coin() : world_.trouble == Trouble::none && rng_.oneIn(limits_.faultsOneIn);
}

// Gives a rank an invalid entry, now and then.
HandleFault ScenarioBuilder::spoil(const HandleShape& s, const RouteConfig& config, bool placed,
                                   std::vector<RouteInput>& inputs) {
  for (const Trouble trouble : {Trouble::badIndex, Trouble::twice}) {
    if (!draws(trouble) || ((s.merges || s.named > 0) && trouble == Trouble::twice)) continue;  // foreign ones may
    const int culprit = rng_.below(shape_.nranks);
    if (world_.isLost(culprit)) continue;
    if (trouble == Trouble::twice && !world_.lost.empty()) {
      if (placed || world_.isLost(rankOfExpert(config, 0))) continue;  // an entry for a lost rank may come twice
      inputs = withoutRanks(config, world_.lost, std::move(inputs));
    }
    if (!spoilInput(config, trouble == Trouble::twice, inputs, culprit, rng_)) continue;
    ++world_.faults;
    return {trouble == Trouble::twice ? Fault::twice : Fault::badIndex, culprit};
  }
  return {};
}

// Draws another placement before the next route, now and then.
void ScenarioBuilder::drawPlacement(HandleTrack& track, const RouteConfig& config) {
  if (const HandleShape& s = track.handle->shape(); s.named > 0) {
    track.placed = ownExperts(s.map.experts, s.named, placing_.between(0, s.named - s.map.experts));
    return;
  }
  if (!track.places || placing_.oneIn(3)) return;
  track.placed.reset();
  if (!placing_.oneIn(4)) track.placed = test::drawPlacement(config, placing_);
}

// Adds a new route of a handle.
std::shared_ptr<RouteOperation> ScenarioBuilder::drawRoute(HandleTrack& track) {
  const HandleShape& s = track.handle->shape();
  const int bound = bounding_.oneIn(3) ? bounding_.between(1, s.tokensMax) : s.tokensMax;
  RouteConfig config{s.map.nranks, s.map.experts,     s.topk,        s.layout,    bound,
                     s.alignment,  shape_.domainSize, !s.lowLatency, s.rowsBudget};
  drawPlacement(track, config);
  RouteConfig named = config;
  if (track.placed) named.experts = track.placed->logicalExperts;
  const bool weights = rng_.coin();
  std::vector<RouteInput> inputs = drawRouteInputs(named, weights, rng_);
  if (s.merges) repeatExperts(named, inputs, rng_);
  if (!track.placed && voiding_.coin()) repeatExpertsOf(config, world_.lost, inputs, voiding_);
  track.fault = spoil(s, named, track.placed.has_value(), inputs);
  std::vector<RouteInput> counts = track.placed ? inputs : withoutRanks(config, world_.lost, inputs);
  if (s.merges) counts = merged(config, std::move(counts));
  if (track.placed) counts = placedInputs(config, *track.placed, std::move(counts));
  if (track.fault.fault != Fault::none) counts = withoutExperts(inputs);
  counts = withoutRanks(config, world_.lost, std::move(counts));
  track.route = std::make_shared<const ReferenceRoute>(makeReferenceRoute(config, std::move(counts)));
  auto operation = std::make_shared<RouteOperation>(*world_.comm, *track.handle, track.route, weights,
                                                    name("route", track), std::move(inputs), track.placed);
  operation->expect(track.fault);
  return operation;
}

// The track's next step is a route, or a dispatch that routes.
void ScenarioBuilder::addRoute(HandleTrack& track) {
  const std::shared_ptr<RouteOperation> routing = drawRoute(track);
  const bool inside = dispatchRoutes(track.handle->view(0)) && mayStart(kDispatch, track);
  if (inside && (decodes_ || rng_.coin())) {
    return addDispatch(track, routing);
  }
  world_.program->addRoute(routing, rng_.between(1, track.handle->shape().routeWarpsMax));
  // With counters the two would not overlap.
  const bool follows = !track.handle->shape().lowLatency && shape_.domains() == 1 && !track.counters;
  if (follows && mayStart(kDispatch, track) && overlapping_.coin()) addDispatch(track, routing);
}

// LL combines of different sizes end the world.
bool ScenarioBuilder::endsWorld(const HandleTrack& track, Kind kind, Trouble trouble) const {
  return track.handle->shape().lowLatency && kind == kCombine && trouble == Trouble::rowSize;
}

// Whether this operation is to have this trouble, if it can: its handle has none yet.
bool ScenarioBuilder::draws(const HandleTrack& track, Kind kind, Trouble trouble) {
  if (track.fault.fault != Fault::none) return false;
  if (trouble == Trouble::rowSize && track.handle->shape().lowLatency && !kLlSizesMayDiffer) return false;
  if (!endsWorld(track, kind, trouble)) return draws(trouble);
  return operations_ > 2 && world_.trouble == trouble;
}

// Notes the effect of an operation's trouble on its handle, or on the world.
void ScenarioBuilder::note(HandleTrack& track, Kind kind, Trouble trouble, HandleFault fault) {
  if (endsWorld(track, kind, trouble)) {
    ended_ = true;
    world_.culprit = fault.culprit;
    return;
  }
  track.fault = fault;
  ++world_.faults;
}

// Gives this dispatch a fault, now and then. LL has no staging area.
void ScenarioBuilder::addTrouble(HandleTrack& track, DispatchCase& config) {
  const int culprit = rng_.below(shape_.nranks);
  if (world_.isLost(culprit)) return;
  const bool lowLatency = track.handle->shape().lowLatency;
  const Arrivals& arrivals = track.route->arrivals[at(culprit)];
  const int travelling = config.cast ? config.cast.travellingBytes() : config.rowBytes;
  if (arrivals.layoutRows > 0 && draws(track, kDispatch, Trouble::capacity)) {
    if (lowLatency) config.staged[at(culprit)] = false;
    note(track, kDispatch, Trouble::capacity, {shrinkOutput(config, arrivals, culprit, rng_), culprit, lowLatency});
  } else if (travelling < shape_.rowBytesMax && living() > 1 && draws(track, kDispatch, Trouble::rowSize)) {
    config.oddRank = culprit;
    note(track, kDispatch, Trouble::rowSize, {Fault::disagreement, culprit});
  }
}

void ScenarioBuilder::addTrouble(HandleTrack& track, CombineOptions& options) {
  const int culprit = rng_.below(shape_.nranks);
  if (world_.isLost(culprit)) return;
  const bool lowLatency = track.handle->shape().lowLatency;
  if (!track.route->arrivals[at(culprit)].tokens.empty() && draws(track, kCombine, Trouble::capacity)) {
    note(track, kCombine, Trouble::capacity, {lackRows(options, culprit, lowLatency, rng_), culprit, lowLatency});
    return;
  }
  options.odd = static_cast<CombineOptions::Odd>(rng_.below(3));
  if (options.sum.wire != moeWireRow && coding_.coin()) options.odd = CombineOptions::Odd::wire;
  const bool fits =
      options.odd != CombineOptions::Odd::rowBytes || options.sum.rowBytes + options.oddBytes() <= shape_.rowBytesMax;
  if (living() == 1 || !fits || !draws(track, kCombine, Trouble::rowSize)) return;
  options.oddRank = culprit;
  note(track, kCombine, Trouble::rowSize, {Fault::disagreement, culprit});
}

// Lets this combine wait for its rows, now and then, and end the world if they never come.
void ScenarioBuilder::addWaits(const HandleTrack& track, CombineOptions& options) {
  if (!hasRowPerExpert(track.handle->shape().layout) || !waiting_.oneIn(3)) return;
  drawReady(options, track.handle->shape(), shape_.nranks, waiting_);
  const int culprit = world_.culprit;
  if (world_.trouble != Trouble::unready || track.fault.fault != Fault::none || operations_ <= 2) return;
  if (track.route->arrivals[at(culprit)].tokens.empty()) return;
  options.ready.ranks[at(culprit)] = true;
  options.ready.never = culprit;
  ended_ = true;
}

// Draws a plain dispatch, which most decoders run: rows, and nothing beside them. `mayCast`: a cast may stay.
void makePlain(DispatchCase& config, int rowBytesMax, bool mayCast, Rng& rng) {
  config.payloads = {};
  config.sideBytes = config.padding = config.spareRows = 0;
  if (mayCast && config.cast) return;
  config.cast = {};
  config.rowBytes = 16 * rng.between(1, rowBytesMax / 16);
  config.parts = drawParts(config.rowBytes, rng);
}

// `routing`: the route of a dispatch that routes, or of one that follows its route by the same call.
void ScenarioBuilder::addDispatch(HandleTrack& track, const std::shared_ptr<RouteOperation>& routing) {
  const HandleShape& s = track.handle->shape();
  DispatchCase config;
  config.seed = rng_.next();
  config.rowBytes = drawBytes(shape_.rowBytesMax);
  config.sideBytes = shape_.sideBytesMax == 0 || rng_.coin() ? 0 : drawBytes(shape_.sideBytesMax);
  config.parts = drawParts(config.rowBytes, rng_);
  Rng& casting = s.lowLatency ? rng_ : casting_;
  config.cast = drawCast(shape_.rowBytesMax, config.seed, blocks_, casting);
  if (config.cast) {
    config.rowBytes = config.cast.codeBytes();
    config.cast.weighsInput = s.topk == 1 && !scaling_.oneIn(3);
    config.parts = drawTiles(config.cast.elements, casting);
  }
  config.payloads = drawPayloads(config.sideBytes, config.seed);
  if (config.payloads) config.sideBytes = static_cast<int>(roundUp(config.payloads.words() * 4, 16));
  config.stagingArea = freeStaging();
  const bool direct = config.stagingArea < 0 || rng_.oneIn(3);
  for (int r = 0; r < shape_.nranks; ++r) config.staged.push_back(!direct && rng_.coin());
  for (int r = 0; r < shape_.nranks; ++r)
    config.capacity.push_back(track.route->arrivals[at(r)].layoutRows + (rng_.coin() ? 0 : rng_.below(kSpareCapacity)));
  if (rng_.oneIn(3)) {
    config.padding = rng_.between(1, 3);
    config.spareRows = rng_.below(4);
  }
  const bool routes = routing && s.lowLatency;
  const bool decodes = routes && (decodes_ || (s.layout == Layout::rankMajor && decoding_.coin()));
  if (decodes) makePlain(config, shape_.rowBytesMax, decodes_, decoding_);
  keepSmall(config.cast, *track.route, config.spareRows + kSpareCapacity, kBlockedScaleBytesMax);
  keepSmall(config.payloads, *track.route, config.spareRows + kSpareCapacity, kBlockedScaleBytesMax);
  if (rng_.oneIn(3)) {
    config.globalIds = true;
    config.invalidId = rng_.coin() ? s.map.experts : -7;
  }
  addTrouble(track, config);
  track.area = freeArea();
  const bool staged = !s.lowLatency && std::count(config.staged.begin(), config.staged.end(), true) > 0;
  track.staging = staged ? config.stagingArea : -1;
  if (!s.lowLatency) track.epoch = ++htStarted_[kDispatch];
  if (s.lowLatency) takeSlots(track);
  const bool faulty = config.oddRank >= 0 || track.fault.fault == Fault::capacity;
  config.inSlots = s.lowLatency && s.layout == Layout::rankMajor && !faulty && (rng_.coin() || decodes);
  track.ownsSlots = s.lowLatency;
  track.kind = kDispatch;
  config.area = track.area;
  const auto dispatch = std::make_shared<DispatchOperation>(*world_.comm, *track.handle, track.route,
                                                            world_.areas.get(), config, name("dispatch", track));
  dispatch->expect(track.fault);
  if (routing) routing->expect(track.fault);
  std::shared_ptr<Operation> operation = dispatch;
  if (routes) {
    operation = std::make_shared<RouteDispatchOperation>(*world_.comm, *track.handle, routing, dispatch,
                                                         name("dispatch that routes", track));
  }
  track.step = routes ? Step::llRouteDispatch : dispatchStep(track.handle->view(0), config.cast || config.payloads);
  start(track, operation, routing && !routes);
}

// Adds a step of track.kind: the whole step, or only its first phase.
void ScenarioBuilder::start(HandleTrack& track, const std::shared_ptr<Operation>& operation, bool withRoute) {
  const bool split = rng_.oneIn(decodes_ && track.kind == kDispatch ? 8 : 2);
  const int phases = split ? kSendPhase : kSendPhase | kReceivePhase;
  if (withRoute) {
    world_.program->addToRoute(operation, track.step, phases, drawWarps());
  } else {
    world_.program->addStep(operation, track.step, phases, drawWarps());
  }
  if (split) track.outstanding = operation;
}

void ScenarioBuilder::addCombine(HandleTrack& track) {
  const HandleShape& s = track.handle->shape();
  CombineOptions options;
  options.seed = rng_.next();
  options.sum.rowType = rng_.between(kBf16, kFp32);
  options.sum.rowBytes = drawBytes(shape_.rowBytesMax);
  options.sum.weighted = hasRowPerExpert(s.layout) && rng_.coin();
  options.parts = drawParts(static_cast<int>(options.sum.rowBytes), rng_);
  options.bias0 = rng_.oneIn(3);
  options.bias1 = rng_.oneIn(3);
  options.grads = rng_.oneIn(3);
  options.weights = track.handle->view(0).weighted != 0 && !weighing_.oneIn(4);
  const bool mayReadRows = s.lowLatency ? s.layout == Layout::rankMajor && track.ownsSlots : !hasRowPerExpert(s.layout);
  options.stagingArea = freeStaging();
  const bool coded = (s.lowLatency || options.stagingArea >= 0) && drawWire(options, shape_.rowBytesMax, coding_);
  const bool allInPlace = s.lowLatency ? mayReadRows && rng_.coin() : options.stagingArea < 0 || rng_.oneIn(3);
  for (int r = 0; r < shape_.nranks; ++r)
    options.inPlace.push_back(mayReadRows && !coded && (allInPlace || (!s.lowLatency && rng_.coin())));
  addTrouble(track, options);
  addWaits(track, options);
  if (!s.lowLatency) track.epoch = ++htStarted_[kCombine];
  if (s.lowLatency) takeSlots(track);
  track.kind = kCombine;
  const bool staged = !s.lowLatency && std::count(options.inPlace.begin(), options.inPlace.end(), false) > 0;
  track.staging = staged ? options.stagingArea : -1;
  options.area = track.area = s.lowLatency ? -1 : freeArea();
  auto operation = std::make_shared<CombineOperation>(*world_.comm, *track.handle, track.route, world_.areas.get(),
                                                      options, name("combine", track));
  operation->expect(track.fault);
  if (options.ready.never >= 0) world_.missingWord = operation->missingWord();
  track.step = combineStep(track.handle->view(0), landing_, coded);
  start(track, operation);
}

void ScenarioBuilder::complete(HandleTrack& track) {
  world_.program->addStep(track.outstanding, track.step, kReceivePhase, drawWarps());
  track.outstanding.reset();
}

// Adds a step that describes the route of a handle, at any time.
void ScenarioBuilder::addDescribe(const HandleTrack& track) {
  Rng& rng = describing_;
  DescribeCase config{rng.next()};
  if (rng.coin()) {
    config.padding = rng.between(1, 3);
    config.spareRows = rng.below(40);
  }
  if (rng.coin()) {
    config.globalIds = true;
    config.invalidId = rng.coin() ? track.handle->shape().map.experts : -7;
  }
  config.lackingRows = lacking_.coin() ? 1 : lacking_.below(40);
  const auto operation = std::make_shared<DescribeOperation>(
      *world_.comm, *track.handle, track.route, config, fmt::format("describe handle {}", &track - tracks_.data()));
  operation->expect(track.fault);
  world_.program->addStep(operation, Step::describe, kSendPhase | kReceivePhase, rng.between(1, limits_.warps));
  if (!track.counters) return;
  const auto tally = std::make_shared<TallyOperation>(*world_.comm, *track.handle, track.route, track.counters,
                                                      fmt::format("tally handle {}", &track - tracks_.data()));
  tally->expect(track.fault);
  world_.program->addStep(tally, Step::tally, kSendPhase | kReceivePhase, rng.between(1, limits_.warps));
}

// Adds one legal operation of a random handle.
void ScenarioBuilder::addOperation() {
  HandleTrack& track = tracks_[at(rng_.below(static_cast<int>(tracks_.size())))];
  const bool lowLatency = track.handle->shape().lowLatency;
  // The rows and the fault of a dispatch that routes are known when it is complete.
  const bool wholeOnly = track.step == Step::llRouteDispatch || track.fault.fault != Fault::none;
  const bool known = track.route && !(track.outstanding && wholeOnly);
  if (known && describing_.oneIn(4)) addDescribe(track);
  if (track.outstanding) return complete(track);
  if (!track.route || (decodes_ ? rng_.coin() : rng_.oneIn(5))) return addRoute(track);
  const bool needsStaging = !lowLatency && hasRowPerExpert(track.handle->shape().layout);
  const bool staging = !needsStaging || freeStaging() >= 0;
  if (rng_.coin() && staging && mayStart(kCombine, track)) return addCombine(track);
  if (mayStart(kDispatch, track)) addDispatch(track);
}

// The handle differs in its configuration, or only in its placements.
void ScenarioBuilder::makeStranger(const HandleTrack& track) {
  if (shape_.nranks > 1 && placing_.coin()) return track.handle->makePlacementStranger(world_.culprit);
  track.handle->makeStranger(world_.culprit);
}

void ScenarioBuilder::makeHandles() {
  for (const HandleShape& s : handleShapes_) {
    world_.handles.push_back(std::make_unique<TestHandle>(*world_.comm, s));
    tracks_.emplace_back();
    tracks_.back().handle = world_.handles.back().get();
    if (describing_.coin()) tracks_.back().askForWaits();
    tracks_.back().places = placing_.oneIn(3) && !decodes_;
    if (world_.trouble == Trouble::stranger) makeStranger(tracks_.back());
    world_.text +=
        fmt::format("handle {}: {} experts, top {}, layout {}, {}, {} tokens, alignment {}{}{}{}{}\n",
                    tracks_.size() - 1, s.map.experts, s.topk, static_cast<int>(s.layout), s.lowLatency ? "LL" : "HT",
                    s.tokensMax, s.alignment, tracks_.back().places ? ", placements" : "",
                    s.arrivals ? ", arrival words" : "", s.combineWeights ? ", weights at combine" : "",
                    s.rowsBudget > 0 ? fmt::format(", budget {}", s.rowsBudget) : "");
  }
}

void ScenarioBuilder::drawProgram() {
  world_.program = std::make_unique<Program>(shape_.nranks, world_.lost);
  const int operations = rng_.between(limits_.operations / 2, limits_.operations);
  for (int i = 0; i < operations && !ended_; ++i) addOperation();
  const bool atOnce = world_.trouble == Trouble::stranger && shape_.nranks > 1;
  if (!ended_ && !atOnce) world_.trouble = Trouble::none;  // no operation had the trouble, or it ended nothing
  for (HandleTrack& track : tracks_)
    if (track.outstanding) complete(track);
  world_.operations = operations_;
}

Scenario ScenarioBuilder::build(std::uint64_t timeoutNs) {
  world_.comm = std::make_unique<TestComm>(shape_, timeoutNs);
  world_.culprit = rng_.below(shape_.nranks);
  world_.areas = std::make_unique<OutputAreas>(*world_.comm, kOutputAreas, shape_.heapBytes / kOutputAreas);
  makeHandles();
  drawProgram();
  world_.text =
      fmt::format("{} ranks in domains of {}, {} LL sets, rows of up to {} bytes, side {}, trouble {} at rank {}\n",
                  shape_.nranks, shape_.domainSize, shape_.llSets, shape_.rowBytesMax, shape_.sideBytesMax,
                  static_cast<int>(world_.trouble), world_.culprit) +
      world_.text + world_.program->describe();
  return std::move(world_);
}

// The handle's operations deliver nothing until its next route. They may have any number of tokens.
void ScenarioBuilder::voidRoute(HandleTrack& track) {
  const HandleShape& s = track.handle->shape();
  const RouteConfig config{s.map.nranks, s.map.experts,     s.topk,        s.layout,    s.tokensMax,
                           s.alignment,  shape_.domainSize, !s.lowLatency, s.rowsBudget};
  std::vector<RouteInput> inputs = withoutExperts(drawRouteInputs(config, false, voiding_));
  inputs = withoutRanks(config, world_.lost, std::move(inputs));
  track.route = std::make_shared<const ReferenceRoute>(makeReferenceRoute(config, std::move(inputs)));
  track.fault = kVoidRoute;
}

// After a recovery no operation is outstanding, and all routes are void. Some handles are used nevertheless, as a
// replayed graph would use them.
void ScenarioBuilder::buildAgain(Scenario& world) {
  world_ = std::move(world);
  for (HandleTrack& track : tracks_) {
    const HandleTrack before = std::exchange(track, HandleTrack{});
    track.handle = before.handle;
    track.places = before.places;
    if (before.counters) track.askForWaits();
    if (voiding_.coin()) voidRoute(track);
  }
  drawProgram();
  world_.text +=
      world_.lost.empty() ? "recovery\n" : fmt::format("recovery without ranks {}\n", fmt::join(world_.lost, ", "));
  world_.text += world_.program->describe();
  world = std::move(world_);
}

Scenario makeScenario(std::uint64_t seed, Protocol protocol, Trouble trouble, const ScenarioLimits& limits,
                      std::uint64_t timeoutNs) {
  auto builder = std::make_shared<ScenarioBuilder>(seed, protocol, trouble, limits);
  Scenario world = builder->build(timeoutNs);
  world.builder = std::move(builder);
  return world;
}

void drawAgain(Scenario& world) {
  const std::shared_ptr<ScenarioBuilder> builder = world.builder;
  builder->buildAgain(world);
}

}  // namespace moe::test
