#include "comm/handle/handle.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

#include "base/deadline.h"
#include "comm/config/limits.h"
#include "comm/handle/argument_checks.h"
#include "comm/handle/mode_choice.h"
#include "comm/handle/placement.h"
#include "device/rows/row_math.h"
#include "device/view/ll_slots.h"
#include "device/view/placement_table.h"

namespace moe {
namespace {

// How many processors the ranks of each host have, from what every rank has told all others.
Processors processorsOf(const std::vector<Peer>& peers) {
  struct Host {
    const bootstrap::HostIdentity* identity;
    ProcessorMask processors;
    int ranks;
    bool known;
  };
  std::vector<Host> hosts;
  for (const Peer& peer : peers) {
    auto host =
        std::find_if(hosts.begin(), hosts.end(), [&](const Host& h) { return h.identity->sameKernel(peer.card.host); });
    if (host == hosts.end()) host = hosts.insert(hosts.end(), {&peer.card.host, {}, 0, true});
    ++host->ranks;
    bool known = false;
    for (std::size_t i = 0; i < host->processors.size(); ++i) {
      host->processors[i] |= peer.card.processors[i];
      known = known || peer.card.processors[i] != 0;
    }
    host->known = host->known && known;
  }
  Processors found = Processors::spare;
  for (const Host& host : hosts) {
    const int count = std::accumulate(host.processors.begin(), host.processors.end(), 0,
                                      [](int sum, std::uint64_t word) { return sum + std::popcount(word); });
    found = scarcer(found, host.ranks, host.known ? count : 0);
  }
  return found;
}

bool usesLowLatency(const moeHandleConfig_t& config, const CommShape& comm, bool host, const std::vector<Peer>& peers) {
  if (config.mode != moeModeAuto) return config.mode == moeModeLl;
  if (!comm.ll || !comm.ht) return comm.ll;
  // A handle for this rank alone waits for nobody.
  const Processors processors = host && comm.nranks > 1 ? processorsOf(peers) : Processors::spare;
  return chooseMode(config.tokensMax, static_cast<Layout>(config.layout), comm.rowBytesMax, comm.nranks, comm.domains(),
                    comm.llTokensMax, host, processors) == moeModeLl;
}

HandleShape shapeOf(const moeHandleConfig_t& config, const Comm& comm, const Backend& backend) {
  const bool localOnly = config.localOnly != 0;
  const CommShape c = localOnly ? localShape(comm.shape()) : comm.shape();
  requireRange("config.experts", config.experts, 1, c.expertsMax);
  requireRange("config.topk", config.topk, 1, c.topkMax);
  requireRange("config.layout", config.layout, moeLayoutFlat, moeLayoutRankMajor);
  requireRange("config.mode", config.mode, moeModeAuto, moeModeLl);
  requireRange("config.expertAlignment", config.expertAlignment, 0, 1 << 16);
  requireRange("config.indexType", config.indexType, moeIndexInt32, moeIndexInt64);
  requireRange("config.arrivals", config.arrivals, 0, 1);
  requireRange("config.duplicates", config.duplicates, moeDuplicatesFail, moeDuplicatesMerge);
  requireRange("config.statistics", config.statistics, 0, 1);
  requireRange("config.combineWeights", config.combineWeights, 0, 1);
  requireRange("config.expertCounts", config.expertCounts, 0, 1);
  HandleShape shape;
  shape.lowLatency = usesLowLatency(config, c, backend.kind() == moeBackendHost, comm.peers());
  if (shape.lowLatency ? !c.ll : !c.ht) {
    throw Error(moeInvalidArgument,
                fmt::format("config.mode is {}, but the communicator was built with config.modes {}",
                            shape.lowLatency ? "LL" : "HT", c.ll ? "LL" : "HT"));
  }
  const int limit = shape.lowLatency ? c.llTokensMax : c.tokensMax;
  requireRange("config.tokensMax", config.tokensMax, 0, limit);
  const ExpertMap all(config.experts, comm.nranks());
  shape.map = localOnly ? ExpertMap(all.count(comm.rank()), 1) : all;
  shape.named = config.experts;
  shape.rank = localOnly ? 0 : comm.rank();
  shape.domains = c.domains();
  shape.topk = config.topk;
  shape.layout = static_cast<Layout>(config.layout);
  shape.tokensMax = config.tokensMax > 0 ? config.tokensMax : limit;
  shape.alignment = std::max(config.expertAlignment, 1);
  shape.wideIndex = config.indexType == moeIndexInt64;
  shape.merges = config.duplicates == moeDuplicatesMerge;
  shape.routeWarpsMax = backend.routeWarpsMax();
  shape.tableBlocks = backend.tableBlocksMax();
  // Includes padding, so that every row number fits 31 bits.
  requireRange("the rows that may arrive (nranks * tokensMax)", allTokensMax(shape), 0, Limits::kArrivingRows);
  requireRange("config.rowsBudget", config.rowsBudget, 0, allTokensMax(shape));
  shape.rowsBudget = config.rowsBudget;
  const bool expertRows = shape.layout == Layout::expertMajor || shape.layout == Layout::expertMajorPadded;
  if (config.arrivals != 0 && !expertRows) {
    throw Error(moeInvalidArgument,
                "config.arrivals is 1, which needs an EXPERT_MAJOR layout: others have no rows of one expert");
  }
  shape.arrivals = config.arrivals != 0;
  shape.combineWeights = config.combineWeights != 0;
  shape.expertCounts = config.expertCounts != 0;
  requireRange("the rows of the layout", layoutRowsMax(shape), 0, INT32_MAX);
  return shape;
}

bool isLocalOnly(const moeHandleConfig_t& config) {
  requireRange("config.localOnly", config.localOnly, 0, 1);
  return config.localOnly != 0;
}

}  // namespace

Handle::Handle(Comm& comm, const moeHandleConfig_t& config)
    : comm_(comm),
      localOnly_(isLocalOnly(config)),
      shape_(shapeOf(config, comm, comm.backend())),
      firstExpert_(ExpertMap(config.experts, comm.nranks()).first(comm.rank())),
      room_(localOnly_ ? comm.localRoom() : comm.room()) {
  Backend& backend = comm.backend();
  const std::int64_t bytes = layOutHandle(shape_, nullptr, &view_);
  block_ = backend.allocatePrivate(static_cast<std::size_t>(bytes), comm.allocator());
  hostCounts_ = backend.allocateHostVisible(hostBytes());
  countsOnHost_.resize(static_cast<std::size_t>(hostCountWords(shape_)));
  layOutHandle(shape_, block_.get(), &view_);
  placementMemory_ = std::exchange(view_.placement, nullptr);
  view_.hostCounts = reinterpret_cast<HostCounts*>(hostCounts_.get());
  writeRefusedIds();
  view_.number = comm.takeHandleNumber(localOnly_);
  tokensBound_ = shape_.tokensMax;
  routesInDispatch_ = dispatchRoutes(view_);
  makeCounters(config.statistics != 0);
  if (localOnly_) placeOwnExperts();
  if (lowLatency()) view_.llSet = room_.takeLlSet();
  tell(config, bytes);
}

Handle::~Handle() {
  comm_.log().write(moeLogDebug, "dev", "handle {} is destroyed", fmt::ptr(this));
  forgetPending();
  if (lowLatency()) room_.giveBackLlSet(view_.llSet);
}

// Entries that name experts of other ranks count as unused.
void Handle::placeOwnExperts() {
  const std::vector<std::uint8_t> table = ownExpertsTable(shape_.named, firstExpert_, shape_.map.experts);
  comm_.backend().copyToPrivate(placementMemory_, table.data(), table.size());
  view_.placement = placementMemory_;
}

std::int64_t Handle::windowOffset(const void* memory, std::uint64_t bytes, const char* name) const {
  const std::int64_t at = comm_.windowOffset(memory, bytes, name);
  return localOnly_ ? -1 : at;
}

Series Handle::seriesOf(Pending kind) const {
  if (lowLatency()) return llSeries(view_.llSet);
  return kind == Pending::dispatch ? Series::htDispatches : Series::htCombines;
}

int Handle::stagingOf(Pending kind, const StepParams& p) const {
  const bool dispatch = kind == Pending::dispatch;
  const bool staged = dispatch ? p.dispatch.staged != 0 : p.combine.inPlace == 0 && p.combine.rows != nullptr;
  if (lowLatency() || !staged) return kNotStaged;
  const std::uint64_t rows = dispatch ? p.dispatch.outRowsOffset : p.combine.rowsOffset;
  return rows == stagingAt(room_.shape, room_.view.at, 0).rows ? 0 : 1;
}

void Handle::forgetPending() {
  if (pending_ == Pending::nothing) return;
  room_.operations.complete(seriesOf(pending_), pendingNumber_, stagingOf(pending_, pendingParams_));
  pending_ = Pending::nothing;
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
  const moeResult_t result = comm_.backend().launch(step, params, shape, stream, &what);
  if (result != moeSuccess) throw Error(result, what);
}

void Handle::setTokensBound(std::int32_t bound) {
  requireRange("tokensBound", bound, 0, shape_.tokensMax);
  tokensBound_ = bound > 0 ? bound : shape_.tokensMax;
}

// The table is written where it is, so that captured routes follow it when they are replayed.
void Handle::setPlacement(const moePlacement_t* placement, moeStream_t stream) {
  constexpr const char* kCall = "moeHandleSetPlacement";
  if (localOnly_) {
    throw Error(moeInvalidUsage, fmt::format("{}: the handle was made with config.localOnly, and takes the experts of "
                                             "this rank in the spread of config.experts",
                                             kCall));
  }
  const PlacementRoom room{shape_.map, shape_.rank, room_.shape.domainRanks()};
  const std::vector<std::uint8_t> table =
      placement == nullptr ? noPlacementTable(room)
                           : placementTable(room, placement->logicalExperts, logicalExpertsOf(*placement, shape_.map));
  checkNotPending(kCall);
  if (comm_.backend().capturing(stream)) {
    throw Error(moeInvalidUsage,
                fmt::format("{}: the stream is being captured, and a placement is not part of a graph", kCall));
  }
  if (placement != nullptr || placementWritten_) {
    comm_.backend().copyToPrivate(placementMemory_, table.data(), table.size(), stream);
    placementWritten_ = true;
  }
  view_.placement = placement != nullptr ? placementMemory_ : nullptr;
}

void Handle::checkTokens(std::int32_t tokens) const {
  if (tokens >= 0 && tokens <= tokensBound_) return;
  const int limit = lowLatency() ? room_.shape.llTokensMax : room_.shape.tokensMax;
  const char* bound = tokensBound_ < shape_.tokensMax ? "moeHandleSetTokensBound has set that"
                      : shape_.tokensMax < limit      ? "config.tokensMax of the handle bounds it"
                      : lowLatency() ? "config.llTokensMax of the communicator, or MOECOMM_LL_TOKENS_MAX, bounds it"
                                     : "config.tokensMax of the communicator, or MOECOMM_TOKENS_MAX, bounds it";
  throw Error(moeInvalidArgument, fmt::format("tokens is {}, must be 0..{} ({})", tokens, tokensBound_, bound));
}

StepParams Handle::routeParams(const RouteArgs& args, const char* call) const {
  checkTokens(args.tokens);
  if (args.topkIdx == nullptr && args.tokens > 0)
    throw Error(moeInvalidArgument, fmt::format("topkIdx is NULL with {} tokens", args.tokens));
  requireAligned(args.topkIdx, "topkIdx", indexBytes());
  requireAligned(args.topkWeights, "topkWeights", alignof(float));
  checkNotPending(call);
  StepParams p = params();
  p.route = args;
  p.handle.tokensMax = tokensBound_;
  p.handle.terms.y = static_cast<std::uint32_t>(tokensBound_);
  if (keepsStatistics()) p.comm.waits = counters_.waits;
  return p;
}

void Handle::launchRoute(StepParams& p, moeStream_t stream) {
  const int tokens = p.route.tokens;
  p.handle.ticket = tickets_.next(comm_.backend().capturing(stream));
  launch(Step::route, p, comm_.backend().shapeFor({Step::route, tokens, tokens, 0, comm_.config().sms}), stream);
  noteRoute(p);
}

// A step that routes has been launched.
void Handle::noteRoute(const StepParams& p) noexcept {
  tickets_.launched(p.handle.ticket);
  tokens_ = p.route.tokens;
  view_.tokensMax = p.handle.tokensMax;
  view_.terms = p.handle.terms;
}

void Handle::route(const RouteArgs& args, moeStream_t stream) {
  if (args.tokens == moeTokensRefused) return refuseRoute(stream);
  StepParams p = routeParams(args, "moeRoute");
  launchRoute(p, stream);
}

void Handle::checkRow(std::int32_t rowType, std::int32_t hidden, const char* call) const {
  requireRange("args.rowType", rowType, moeRowBytes, moeRowFp32);
  const std::int64_t bytes = std::int64_t{hidden} * elementBytes(rowType);
  if (hidden < 1 || bytes % kRowAlignment != 0 || bytes > room_.shape.rowBytesMax) {
    throw Error(moeInvalidArgument,
                fmt::format("{}: args.hidden is {}, so a row has {} bytes; it must be a multiple of {} and at most {} "
                            "(config.rowBytesMax)",
                            call, hidden, bytes, kRowAlignment, room_.shape.rowBytesMax));
  }
}

void Handle::checkRouted(const char* call) const {
  if (tokens_ < 0) throw Error(moeInvalidUsage, fmt::format("{}: moeRoute has not been called on this handle", call));
  checkNotPending(call);
}

void Handle::checkNotPending(const char* call) const {
  if (pending_ == Pending::nothing) return;
  throw Error(moeInvalidUsage, fmt::format("{}: this handle has an operation that awaits moeComplete", call));
}

void Handle::checkOutstanding(Pending kind, const char* call) const {
  const Outstanding& outstanding = room_.operations.of(seriesOf(kind));
  if (outstanding.mayStart()) return;
  throw Error(
      moeInvalidUsage,
      fmt::format("{}: the buffers belong to an operation that still awaits moeComplete ({} outstanding, at most "
                  "{} in a row{})",
                  call, outstanding.count(), outstanding.generations(),
                  kind == Pending::combine && view_.hasRails() ? ": there are several domains" : ""));
}

void Handle::run(Pending kind, Operation& operation, moeStream_t stream) {
  StepParams& p = operation.params;
  if (operation.sendOnly) p.phases = kSendPhase;
  launch(operation.step, p, operation.shape, stream);
  const std::uint64_t number = room_.operations.start(seriesOf(kind), operation.sendOnly, stagingOf(kind, p));
  const bool read = operation.step == Step::combine || operation.step == Step::combineCoded;
  if (lowLatency() && read && !localOnly_) comm_.noteReaders();
  if (!operation.sendOnly) return follow(kind, p, stream);
  pending_ = kind;
  pendingNumber_ = number;
  pendingStep_ = operation.step;
  pendingParams_ = p;
  pendingShape_ = operation.completing;
}

void Handle::complete(moeStream_t stream) {
  if (pending_ == Pending::nothing) throw Error(moeInvalidUsage, "moeComplete: nothing of this handle is outstanding");
  const Pending kind = pending_;
  StepParams p = pendingParams_;
  p.phases = kReceivePhase;
  launch(pendingStep_, p, pendingShape_, stream);
  forgetPending();
  follow(kind, p, stream);
}

moeHandleView_t Handle::slots() const {
  if (!lowLatency() || shape_.layout != Layout::rankMajor) {
    throw Error(moeInvalidUsage, "moeHandleGetView: only a LL handle of layout RANK_MAJOR leaves rows in their slots");
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
