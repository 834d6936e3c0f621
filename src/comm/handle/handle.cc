#include "comm/handle/handle.h"

#include <fmt/format.h>

#include <utility>

#include "comm/handle/call_checks.h"
#include "comm/handle/calls.h"
#include "comm/handle/handle_config.h"
#include "comm/recorder/refused.h"
#include "device/view/ll_slots.h"
#include "device/view/placement_table.h"

namespace moe {
namespace {

bool isLocalOnly(const moeHandleConfig_t& config) {
  requireRange("config.localOnly", config.localOnly, 0, 1);
  return config.localOnly != 0;
}

}  // namespace

Handle::Handle(Comm& comm, const moeHandleConfig_t& config)
    : comm_(comm),
      localOnly_(isLocalOnly(config)),
      shape_(handleShape(config, comm, comm.backend())),
      firstExpert_(ExpertMap(config.experts, comm.nranks()).first(comm.rank())),
      room_(localOnly_ ? comm.localRoom() : comm.room()),
      statistics_(comm.backend(), comm.allocator(), room_.view.nranks, localExperts(), config.statistics != 0) {
  Backend& backend = comm.backend();
  if (!localOnly_) comm.requireExpected(card());
  const std::int64_t bytes = layOutHandle(shape_, nullptr, &view_);
  block_ = backend.allocatePrivate(static_cast<std::size_t>(bytes), comm.allocator());
  const std::int64_t told = toldBytes(shape_);
  told_ = backend.allocateHostVisible(static_cast<std::size_t>(told) + kRefusedIdsBytes);
  countsOnHost_.resize(static_cast<std::size_t>(countWordsOf(shape_)));
  layOutHandle(shape_, block_.get(), &view_);
  placementMemory_ = std::exchange(view_.placement, nullptr);
  view_.fault = reinterpret_cast<Failure*>(told_.get());
  if (!shape_.countsStay) view_.counts = countsTold(told_.get());
  bringCounts();  // the first copy is slow, and waits for steps
  refused_.ids = writeRefusedIds(told_.get() + told, shape_.wideIndex);
  const std::optional<HandleCard> expected = localOnly_ ? std::nullopt : comm.takeExpected();
  view_.number = expected ? expected->number : comm.takeHandleNumber(localOnly_);
  tokensBound_ = shape_.tokensMax;
  routesInDispatch_ = dispatchRoutes(view_);
  if (localOnly_) placeOwnExperts();
  if (lowLatency()) view_.llSet = expected ? expected->llSet : room_.takeLlSet();
  tell(config, bytes);
}

Handle::~Handle() {
  comm_.log().write(moeLogDebug, "dev", "handle {} is destroyed", number());
  forgetPending();
  if (lowLatency()) room_.giveBackLlSet(view_.llSet);
}

HandleCard Handle::card() const {
  return {number(),    view_.llSet, shape_.map.experts, shape_.topk, static_cast<std::int32_t>(shape_.layout),
          lowLatency()};
}

// Entries that name experts of other ranks count as unused.
void Handle::placeOwnExperts() {
  const std::vector<std::uint8_t> table = ownExpertsTable(shape_.named, firstExpert_, shape_.map.experts);
  backend().copyToPrivate(placementMemory_, table.data(), table.size());
  view_.placement = placementMemory_;
}

std::int64_t Handle::windowOffset(const void* memory, std::uint64_t bytes, const char* name) const {
  const std::int64_t at = comm_.windowOffset(memory, bytes, name);
  return localOnly_ ? -1 : at;
}

Series Handle::seriesOf(OperationKind kind) const {
  if (lowLatency()) return llSeries(view_.llSet);
  return kind == OperationKind::dispatch ? Series::htDispatches : Series::htCombines;
}

int Handle::stagingOf(OperationKind kind, const StepParams& p) const {
  const bool dispatch = kind == OperationKind::dispatch;
  const bool staged = dispatch ? p.dispatch.staged != 0 : p.combine.inPlace == 0 && p.combine.rows != nullptr;
  if (lowLatency() || !staged) return kNotStaged;
  const std::uint64_t rows = dispatch ? p.dispatch.outRowsOffset : p.combine.rowsOffset;
  return rows == stagingAt(room_.shape, room_.view.at, 0).rows ? 0 : 1;
}

void Handle::forgetPending() {
  if (pending_.kind == OperationKind::none) return;
  room_.operations.complete(seriesOf(pending_.kind), pending_.number, stagingOf(pending_.kind, pending_.params));
  pending_.kind = OperationKind::none;
  pending_.outputsLater = false;
}

StepParams Handle::params() const {
  StepParams p{};
  p.comm = room_.view;
  p.handle = view_;
  p.phases = kSendPhase | kReceivePhase;
  return p;
}

void Handle::launch(Step step, const StepParams& params, const LaunchShape& shape, moeStream_t stream) {
  std::string what;
  const moeResult_t result = backend().launch(step, params, shape, stream, &what);
  if (result != moeSuccess) throw Error(result, what);
  if (!localOnly_) comm_.recorder().count(step, params);
}

void Handle::setTokensBound(std::int32_t bound) {
  requireRange("tokensBound", bound, 0, shape_.tokensMax);
  tokensBound_ = bound > 0 ? bound : shape_.tokensMax;
}

// The table is written where it is, so that captured routes follow it when they are replayed.
void Handle::setPlacement(const moePlacement_t* placement, moeStream_t stream) {
  constexpr const char* kCall = "moeHandleSetPlacement";
  if (localOnly_) {
    throw Error(moeInvalidUsage, fmt::format("{}: the handle was made with config.localOnly, which fixes its experts: "
                                             "those that config.experts gives this rank",
                                             kCall));
  }
  const PlacementRoom room{shape_.map, shape_.rank, room_.shape.domainRanks(), comm_.lost()};
  const std::vector<std::uint8_t> table =
      placement == nullptr ? noPlacementTable(room)
                           : placementTable(room, placement->logicalExperts, logicalExpertsOf(*placement, shape_.map));
  checkNotPending(kCall);
  if (backend().capturing(stream)) {
    throw Error(moeInvalidUsage,
                fmt::format("{}: the stream is being captured, and a placement is not part of a graph", kCall));
  }
  if (placement != nullptr || placementWritten_) {
    backend().copyToPrivate(placementMemory_, table.data(), table.size(), stream);
    placementWritten_ = true;
  }
  view_.placement = placement != nullptr ? placementMemory_ : nullptr;
}

void Handle::noteRoute(const StepParams& p) noexcept {
  tickets_.launched(p.handle.ticket);
  tokens_ = p.route.tokens;
  routeVoid_ = false;
  view_.tokensMax = p.handle.tokensMax;
  view_.terms = p.handle.terms;
}

void Handle::checkRouted(const char* call) const {
  if (tokens_ < 0) throw Error(moeInvalidUsage, fmt::format("{}: moeRoute has not been called on this handle", call));
  checkNotPending(call);
  checkNotVoid(call);
}

void Handle::checkNotPending(const char* call) const {
  if (pending_.kind == OperationKind::none) return;
  throw Error(moeInvalidUsage, fmt::format("{}: this handle has an operation that awaits moeComplete", call));
}

void Handle::checkOutstanding(OperationKind kind, const char* call) const {
  const Outstanding& outstanding = room_.operations.of(seriesOf(kind));
  if (outstanding.mayStart()) return;
  throw Error(
      moeInvalidUsage,
      fmt::format("{}: the buffers belong to an operation that still awaits moeComplete ({} outstanding, at most "
                  "{} in a row{})",
                  call, outstanding.count(), outstanding.generations(),
                  kind == OperationKind::combine && view_.hasRails() ? ": there are several domains" : ""));
}

void Handle::start(const Operation& operation, moeStream_t stream) {
  const StepParams& p = operation.params;
  launch(operation.step, p, operation.shape, stream);
  const int staging = stagingOf(operation.kind, p);
  const std::uint64_t number = room_.operations.start(seriesOf(operation.kind), operation.sendOnly, staging);
  const bool read = rowOf(operation.step).combines() && !rowOf(operation.step).lands;
  if (lowLatency() && read && !localOnly_) comm_.noteReaders();
  if (!operation.sendOnly) return follow(operation.step, p, stream);
  pending_ = {operation.kind, number, operation.step, p, operation.completing, operation.outputsLater};
}

void Handle::complete(moeStream_t stream) {
  if (pending_.kind == OperationKind::none) {
    throw Error(moeInvalidUsage, "moeComplete: nothing of this handle is outstanding");
  }
  receive(pending_.params, pending_.shape, stream);
}

void Handle::receive(StepParams params, const LaunchShape& shape, moeStream_t stream) {
  const Step step = pending_.step;
  params.phases = kReceivePhase;
  launch(step, params, shape, stream);
  forgetPending();
  follow(step, params, stream);
}

void Handle::follow(Step step, const StepParams& p, moeStream_t stream) {
  if (rowOf(step).kind == StepKind::dispatch) describeArrived(*this, step, p, stream);
  if (p.comm.waits == nullptr && (p.tally.callRows == nullptr || countsArrivals(step))) return;
  launch(Step::tally, p, backend().shapeFor({Step::tally, shape_.tokensMax, 1, 0, 0}), stream);
}

moeHandleView_t Handle::slots() const {
  if (!lowLatency() || shape_.layout != Layout::rankMajor) {
    throw Error(moeInvalidUsage, "moeHandleGetView: only an LL handle of layout RANK_MAJOR leaves rows in their slots");
  }
  const CommView& c = room_.view;
  moeHandleView_t view = MOE_HANDLE_VIEW_INITIALIZER;
  std::uint8_t* window = room_.base();
  view.rows = window + llSetOffset(c, view_, c.at.llRows, c.rowBytesMax);
  view.combineRows = window + llSetOffset(c, view_, c.at.llCombineRows, c.rowBytesMax);
  if (c.sideBytesMax > 0) view.side = window + llSetOffset(c, view_, c.at.llSide, c.sideBytesMax);
  return view;
}

static_assert(MOE_ARRIVAL_SHIFT == kFlagValueBits, "arrival words are flags");
moeArrivals_t Handle::arrivals() const {
  if (!shape_.arrivals)
    throw Error(moeInvalidUsage, "moeHandleGetArrivals: the handle was made without config.arrivals");
  moeArrivals_t arrivals = MOE_ARRIVALS_INITIALIZER;
  arrivals.words = view_.arriving.complete;
  arrivals.failed = &room_.view.state->failuresClaimed;
  return arrivals;
}

}  // namespace moe
