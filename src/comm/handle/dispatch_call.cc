#include "comm/handle/dispatch_call.h"

#include <fmt/format.h>

#include <algorithm>

#include "comm/config/config.h"
#include "comm/handle/call_checks.h"
#include "comm/handle/workload.h"
#include "device/rows/cast_type.h"
#include "device/rows/row_math.h"
#include "device/view/terms.h"

namespace moe {
namespace {

static_assert(Limits::kRowBytes >> dispatch_terms::kHidden.bits == 0 &&
                  Limits::kSideBytes >> dispatch_terms::kSideBytes.bits == 0 &&
                  Limits::kRowBytes / sizeof(Quad) >> combine_terms::kPieces.bits == 0,
              "terms hold whole sizes");

// No layout has more rows than this, so no more can arrive.
constexpr std::int64_t kRowsMost = INT32_MAX;

// Whether a one-step dispatch may store its own rows straight to the output. A cast needs slots, and side payload goes
// the way of its rows. Payloads take slots whatever their rows do.
bool mayGoStraight(const DispatchArgs& d) {
  return d.cast.type == kNoCast && d.outRows != nullptr &&
         (d.sideBytes == 0 || d.outSide != nullptr || d.payloads.count != 0);
}

// Whether rows go straight to their final place, without a copy here.
bool onlyMoves(const Handle& handle, const DispatchArgs& d) {
  if (handle.lowLatency()) return d.outRows == nullptr && d.cast.outScales == nullptr;
  return d.cast.type == kNoCast && d.payloads.count == 0 && d.staged == 0 && !handle.rowsPerExpert() &&
         !handle.view().hasRails();
}

}  // namespace

DispatchCall::DispatchCall(Handle& handle, const DispatchRequest& asked, const RouteCall* route, const char* name,
                           int tokens, int bound)
    : handle_(handle),
      part_(sentPart(asked)),
      asked_(part_.has_value() ? *part_ : asked),
      args_(asked_.args),
      route_(route),
      name_(name),
      tokens_(tokens),
      grid_(handle, bound, args_.outRowsMax),
      operation_{OperationKind::dispatch, step(), handle.params(), sendsOnly()} {
  if (route != nullptr) route->describe(&operation_.params);
  if (sendsOnly()) operation_.params.phases = kSendPhase;
  operation_.outputsLater = outputsLater();
}

Step DispatchCall::step() const {
  if (route_ != nullptr && handle_.routesInDispatch()) return Step::llRouteDispatch;
  return dispatchStep(handle_.view(), asked_.cast.type != moeCastNone || DispatchPayloads::areWords(asked_));
}

Operation& DispatchCall::operation() {
  StepParams& p = operation_.params;
  if (begun_ == nullptr) handle_.checkOutstanding(OperationKind::dispatch, name_);
  const Description description(handle_, asked_.describe);
  check();
  const DispatchPayloads payloads(handle_, asked_, grid_, tokensSent());
  takeArguments(description, payloads);
  checkPlaces(description, payloads);
  if (p.dispatch.cast.type != kNoCast) p.dispatch.rowBytes = castRowBytes(p.dispatch.cast.type, args_.hidden);
  if (begun_ != nullptr) {
    goOn();
  } else if (outputsLater()) {
    p.dispatch.capacity = kRowsMost;
    placeInStaging();
  } else {
    placeOutput(payloads);
  }
  handle_.counters().count(OperationKind::dispatch, {asked_.describe.cumulativeRows, asked_.describe.cumulativeWaitNs},
                           &p);
  plan();
  return operation_;
}

void DispatchCall::takeArguments(const Description& description, const DispatchPayloads& payloads) {
  DispatchArgs& out = operation_.params.dispatch;
  out.rows = bytesOf(args_.rows);
  out.tokens = tokens_;
  out.rowBytes = static_cast<std::uint32_t>(args_.hidden * elementBytes(args_.rowType));
  out.outRows = static_cast<std::uint8_t*>(args_.outRows);
  out.capacity = std::min(args_.outRowsMax, kRowsMost);
  description.place(&operation_.params);
  out.padding = args_.padding;
  out.cast = castArgs(asked_, grid_);
  const bool weighted = (asked_.cast.flags & moeWeightsOnInput) != 0;
  if (weighted) out.cast.rowWeights = rowWeights();
  if (out.cast.grid.blocked != 0 && out.cast.outScales != nullptr) out.padding |= kPadScales;
  payloads.place(asked_.describe.outBlockOffsets, &out);
  out.terms = packDispatchTerms(args_.hidden, args_.rowType, static_cast<int>(out.sideBytes), out.cast.type, weighted,
                                payloads.fingerprint());
}

// A step that routes keeps the route's weights while it casts, so it reads the caller's.
const float* DispatchCall::rowWeights() const {
  const HandleShape& shape = handle_.shape();
  if (shape.topk != 1) {
    refuse(fmt::format("args.cast.flags has moeWeightsOnInput, but config.topk is {}, must be 1: a row has one weight",
                       shape.topk));
  }
  return rowOf(operation_.step).routes() ? route_->args().topkWeights : handle_.view().sent.weights;
}

// Chooses where peers write the rows: straight into the window's heap, or into the staging area.
void DispatchCall::placeOutput(const DispatchPayloads& payloads) {
  DispatchArgs& out = operation_.params.dispatch;
  if (handle_.lowLatency()) {
    if (args_.outRows != nullptr || handle_.shape().layout != Layout::rankMajor) return;
    out.capacity = INT64_MAX;  // rows stay in their slots
    return;
  }
  const auto rows = static_cast<std::uint64_t>(out.capacity);
  const std::uint32_t outBytes = out.cast.type != kNoCast ? out.cast.codeBytes : out.rowBytes;
  const std::int64_t at = handle_.windowOffset(args_.outRows, rows * outBytes, "args.outRows");
  // Arrays beside the rows: window offsets, or 0 for an array that does not exist.
  const auto beside = [&](const Extent& output) -> std::uint64_t {
    if (output.begin == nullptr) return 0;
    const std::int64_t where =
        handle_.windowOffset(output.begin, static_cast<std::uint64_t>(output.bytes), output.name);
    if ((at < 0) == (where < 0) || rows == 0) return static_cast<std::uint64_t>(std::max<std::int64_t>(where, 0));
    refuse(fmt::format("args.outRows and {} must both be window memory (moeMemAlloc) or neither", output.name));
  };
  out.outRowsOffset = static_cast<std::uint64_t>(std::max<std::int64_t>(at, 0));
  out.cast.outScalesOffset = beside({"args.cast.outScales", out.cast.outScales, outScaleBytes(asked_, grid_)});
  if (out.outSide != nullptr) out.outSideOffset = beside(payloads.outputs()[0]);
  for (int i = 0; i < out.payloads.count; ++i) {
    const auto n = static_cast<std::size_t>(i);
    out.payloads.payload[n].outOffset = beside(payloads.outputs()[n]);
  }
  if (at < 0 && rows > 0) placeInStaging();
}

void DispatchCall::placeInStaging() {
  DispatchArgs& out = operation_.params.dispatch;
  const Room& room = handle_.room();
  out.staged = room.shape.stagingRows;
  const StagingArea staging = stagingAt(room.shape, room.view.at, requireStaging(room, name_, "args.outRows"));
  out.outRowsOffset = staging.rows;
  out.outSideOffset = staging.side;
}

// A cast cuts the rows that it sends at its tiles. A tile has as many elements as a part has bytes.
void DispatchCall::plan() {
  DispatchArgs& d = operation_.params.dispatch;
  const Backend& backend = handle_.backend();
  if (operation_.step == Step::llRouteDispatch && backend.hasPlainSteps() && routesPlainly(operation_.params)) {
    operation_.step = plainDispatchStep(operation_.params);
  }
  const bool casts = d.cast.type != kNoCast;
  const std::uint32_t bytes = casts ? static_cast<std::uint32_t>(args_.hidden) : d.rowBytes;
  const std::uint32_t arriving = casts ? d.cast.codeBytes : d.rowBytes;
  // Where rows go to places, there is a block for each arriving row.
  const int rows = rowOf(operation_.step).places() ? std::max(tokens_, handle_.arrivingRowsGuess(tokens_)) : tokens_;
  // Blocks divide the rows that they cast by what they read.
  const bool plain = rowOf(operation_.step).family == StepFamily::plain;
  const std::uint32_t divided = plain ? static_cast<std::uint32_t>(args_.hidden * elementBytes(args_.rowType)) : bytes;
  const Workload work =
      workloadOf(handle_, operation_.step, {rows, args_.sms, divided, d.rowBytes + d.sideBytes, onlyMoves(handle_, d)});
  operation_.shape = operation_.completing = backend.shapeFor(work);
  d.parts = backend.partsFor(operation_.shape, tokens_, bytes);
  d.arriving = backend.partsFor(operation_.shape, handle_.arrivingRowsGuess(tokens_), arriving);
  d.countingBlock = operation_.shape.countingBlock ? 1 : 0;
  d.straight = operation_.shape.straight && !operation_.sendOnly && mayGoStraight(d) ? 1 : 0;
}

}  // namespace moe
