// Dispatch and combine of a handle: argument checks and launches.
#include <fmt/format.h>

#include <algorithm>

#include "comm/handle/argument_checks.h"
#include "comm/handle/handle.h"
#include "device/rows/cast_type.h"
#include "device/rows/row_math.h"
#include "device/rows/wire_row.h"
#include "device/view/terms.h"

namespace moe {
namespace {

const std::uint8_t* bytesOf(const void* pointer) {
  return static_cast<const std::uint8_t*>(pointer);
}

void checkFlags(std::int32_t flags, std::int32_t known, const char* names, std::int32_t sms) {
  if ((flags & ~known) != 0) throw Error(moeInvalidArgument, fmt::format("args.flags is {}, must be {}", flags, names));
  if (sms < 0) throw Error(moeInvalidArgument, fmt::format("args.sms is {}, must be 0 or more", sms));
}

void checkCompleteSms(const moeCombineArgs_t& args) {
  const std::int32_t sms = args.completeSms;
  if (sms < 0) throw Error(moeInvalidArgument, fmt::format("args.completeSms is {}, must be 0 or more", sms));
  if (sms == 0 || (args.flags & moeSendOnly) != 0) return;
  throw Error(moeInvalidArgument, fmt::format("args.completeSms is {}, but args.flags has no moeSendOnly", sms));
}

// No layout has more rows than this, so no more can arrive.
constexpr std::int64_t kRowsMost = INT32_MAX;

bool carriesGrads(const moeCombineArgs_t& args) {
  return (args.flags & moeCombineGrads) != 0 || args.weightGrads != nullptr || args.outWeightGrads != nullptr;
}

// Whether a one-step dispatch may store its own rows straight to the output. A cast needs slots, and side payload goes
// the way of its rows. Payloads take slots whatever their rows do.
bool mayGoStraight(const DispatchArgs& d) {
  return d.cast.type == kNoCast && d.outRows != nullptr &&
         (d.sideBytes == 0 || d.outSide != nullptr || d.payloads.count != 0);
}

}  // namespace

// Chooses where peers write the rows: straight into the window's heap, or into the staging area.
void Handle::placeOutput(const Call& call, const moeDispatchArgs_t& args, DispatchArgs* out) const {
  if (lowLatency()) {
    if (args.outRows != nullptr || shape_.layout != Layout::rankMajor) return;
    out->capacity = INT64_MAX;  // rows stay in their slots
    return;
  }
  const auto rows = static_cast<std::uint64_t>(out->capacity);
  const std::uint32_t outBytes = out->cast.type != kNoCast ? out->cast.codeBytes : out->rowBytes;
  const std::int64_t at = windowOffset(args.outRows, rows * outBytes, "args.outRows");
  // What lies beside the rows: window offsets, or 0 if it is not there.
  const auto beside = [&](const Extent& output) -> std::uint64_t {
    if (output.begin == nullptr) return 0;
    const std::int64_t where = windowOffset(output.begin, static_cast<std::uint64_t>(output.bytes), output.name);
    if ((at < 0) == (where < 0) || rows == 0) return static_cast<std::uint64_t>(std::max<std::int64_t>(where, 0));
    throw Error(moeInvalidArgument,
                fmt::format("args.outRows and {} must both be window memory (moeMemAlloc) or neither", output.name));
  };
  const auto sideBytes = static_cast<std::int64_t>(rows * out->sideBytes);
  out->outRowsOffset = static_cast<std::uint64_t>(std::max<std::int64_t>(at, 0));
  out->outSideOffset = beside({"args.outSide", out->outSide, sideBytes});
  out->cast.outScalesOffset = beside({"args.outScales", out->cast.outScales, outScaleBytes(call, args)});
  const PayloadExtents payloads = payloadOutputs(call, args);
  for (std::size_t i = 0; i < payloads.size(); ++i) out->payloads.payload[i].outOffset = beside(payloads[i]);
  if (at >= 0 || rows == 0) return;
  out->staged = room_.shape.stagingRows;
  const int area = requireStaging(call.name, "args.outRows");
  const StagingArea staging = stagingAt(room_.shape, room_.view.at, area);
  out->outRowsOffset = staging.rows;
  out->outSideOffset = staging.side;
}

// Returns a staging area that no other operation uses.
int Handle::requireStaging(const char* call, const char* name) const {
  if (room_.shape.stagingRows == 0) {
    throw Error(moeInvalidArgument,
                fmt::format("{}: {} need the staging area (window memory of moeMemAlloc would not, if the layout has "
                            "one row per token), but config.stagingRows is none",
                            call, name));
  }
  const int areas = room_.shape.stagingAreas, area = room_.operations.freeStaging(areas);
  if (area != kNotStaged) return area;
  throw Error(moeInvalidUsage, fmt::format("{}: another operation that uses the staging area awaits moeComplete, and "
                                           "config.stagingAreas is {}",
                                           call, areas));
}

bool Handle::onlyMoves(const DispatchArgs& d) const {
  if (lowLatency()) return d.outRows == nullptr && d.cast.outScales == nullptr;
  return d.cast.type == kNoCast && d.payloads.count == 0 && d.staged == 0 && !rowsPerExpert() && !view_.hasRails();
}

bool Handle::onlyMoves(const CombineArgs& a) const {
  return (a.inPlace != 0 || a.rows == nullptr) && !view_.hasRails();
}

// Counts this call's tokens. Ranks need not have the same number, because each announces what its own blocks have done.
Workload Handle::workload(const Call& call, Step step, std::uint32_t rowBytes, std::uint32_t crossing,
                          bool movesOnly) const {
  const int rows = movesOnly ? call.tokens : shape_.tokensMax * view_.destinationsMax;
  return {step,
          shape_.tokensMax,
          rows,
          rowBytes,
          call.sms > 0 ? call.sms : comm_.config().sms,
          movesOnly,
          std::int64_t{call.tokens} * view_.destinationsMax * crossing,
          view_.lowLatency != 0};
}

DispatchArgs Handle::dispatchArgs(const Call& call, const moeDispatchArgs_t& args) const {
  checkRow(args.rowType, args.hidden, call.name);
  checkFlags(args.flags, moeSendOnly | moeCastExact | moeWeightsOnInput,
             "made of moeSendOnly, moeCastExact and moeWeightsOnInput", args.sms);
  checkPadding(args);
  DispatchArgs out{};
  if (args.sideBytes < 0 || args.sideBytes % kRowAlignment != 0 || args.sideBytes > room_.shape.sideBytesMax) {
    throw Error(moeInvalidArgument, fmt::format("args.sideBytes is {}, must be a multiple of {} and at most {} "
                                                "(config.sideBytesMax)",
                                                args.sideBytes, kRowAlignment, room_.shape.sideBytesMax));
  }
  checkOutputs(call, args);
  out.rows = bytesOf(args.rows);
  out.side = bytesOf(args.side);
  out.tokens = call.tokens;
  out.rowBytes = static_cast<std::uint32_t>(args.hidden * elementBytes(args.rowType));
  out.sideBytes = static_cast<std::uint32_t>(args.sideBytes);
  out.outRows = static_cast<std::uint8_t*>(args.outRows);
  out.outSide = static_cast<std::uint8_t*>(args.outSide);
  out.capacity = std::min(args.outRowsMax, kRowsMost);
  out.outTopkIdx = args.outTopkIdx;
  out.outTopkWeights = args.outTopkWeights;
  out.outSourceIndex = args.outSourceIndex;
  out.outExpertOffsets = args.outExpertOffsets;
  out.padding = args.padding;
  out.idBase = args.idKind == moeIdsGlobal ? firstExpert_ : 0;
  out.invalidId = args.invalidId != 0 ? args.invalidId : -1;
  out.payloads = payloadArgs(call, args);
  out.cast = castArgs(call, args);
  if (out.cast.grid.blocked != 0 && out.cast.outScales != nullptr) out.padding |= kPadScales;
  if (out.payloads.count != 0) placePayloads(args, &out);
  out.terms = packDispatchTerms(args.hidden, args.rowType, static_cast<int>(out.sideBytes), out.cast.type,
                                (args.flags & moeWeightsOnInput) != 0, payloadFingerprint(out.payloads));
  takePayloadAsArray(&out);
  checkPlaces(call, args, out.rowBytes, out.cast.type != kNoCast ? out.cast.codeBytes : out.rowBytes);
  if (out.cast.type != kNoCast) out.rowBytes = castRowBytes(out.cast.type, out.cast.elements);
  placeOutput(call, args, &out);
  return out;
}

Handle::Operation Handle::dispatchOperation(const Call& call, const moeDispatchArgs_t& args) const {
  checkOutstanding(Pending::dispatch, call.name);
  const bool routes = call.route != nullptr && routesInDispatch_;
  const Step step =
      routes ? Step::llRouteDispatch : dispatchStep(view_, args.cast != moeCastNone || args.payloadCount != 0);
  Operation made{step, params(), {}, (args.flags & moeSendOnly) != 0};
  StepParams& p = made.params;
  p.describe = describeArgs(args);
  p.dispatch = dispatchArgs(call, args);
  // A cast cuts the rows that it sends at its tiles. A tile has as many elements as a part has bytes.
  const CastArgs& cast = p.dispatch.cast;
  const bool casts = cast.type != kNoCast;
  const std::uint32_t bytes = casts ? static_cast<std::uint32_t>(args.hidden) : p.dispatch.rowBytes;
  const std::uint32_t arriving = casts ? cast.codeBytes : p.dispatch.rowBytes;
  count(Pending::dispatch, {args.cumulativeRows, args.cumulativeWaitNs}, &p);
  const Workload work =
      workload(call, made.step, bytes, p.dispatch.rowBytes + p.dispatch.sideBytes, onlyMoves(p.dispatch));
  made.shape = made.completing = comm_.backend().shapeFor(work);
  p.dispatch.parts = comm_.backend().partsFor(made.shape, call.tokens, bytes);
  p.dispatch.arriving = comm_.backend().partsFor(made.shape, arrivingRowsGuess(call.tokens), arriving);
  p.dispatch.countingBlock = made.shape.countingBlock ? 1 : 0;
  p.dispatch.straight = made.shape.straight && !made.sendOnly && mayGoStraight(p.dispatch) ? 1 : 0;
  return made;
}

void Handle::dispatch(const moeDispatchArgs_t& args, moeStream_t stream) {
  if ((args.flags & moeRefused) != 0) return refuseDispatch(stream);
  checkRouted("moeDispatch");
  Operation sending = dispatchOperation({"moeDispatch", tokens_, view_.tokensMax, args.sms, nullptr}, args);
  run(Pending::dispatch, sending, stream);
}

// Everything is checked before anything is launched, so a call that is refused leaves the earlier route as it was.
void Handle::routeDispatch(const RouteArgs& route, const moeDispatchArgs_t& args, moeStream_t stream) {
  constexpr const char* kCall = "moeRouteDispatch";
  StepParams routing = routeParams(route, kCall);
  Operation sending = dispatchOperation({kCall, route.tokens, tokensBound_, args.sms, &route}, args);
  launchWithRoute(routing, sending, stream);
}

void Handle::launchWithRoute(StepParams& routing, Operation& sending, moeStream_t stream) {
  sending.params.handle = routing.handle;
  if (sending.step != Step::llRouteDispatch) {
    launchRoute(routing, stream);
    return run(Pending::dispatch, sending, stream);
  }
  sending.params.route = routing.route;
  sending.params.handle.ticket = tickets_.next(comm_.backend().capturing(stream));
  run(Pending::dispatch, sending, stream);
  noteRoute(sending.params);
}

CombineArgs Handle::combineArgs(const moeCombineArgs_t& args) const {
  checkRow(args.rowType, args.hidden, "moeCombine");
  checkFlags(args.flags, moeSendOnly | moeCombineGrads, "made of moeSendOnly and moeCombineGrads", args.sms);
  checkCompleteSms(args);
  if (args.rowType == moeRowBytes)
    throw Error(moeInvalidArgument, "args.rowType is opaque bytes, which cannot be summed");
  if (tokens_ > 0) requirePointer(args.out, "args.out", "with tokens routed");
  checkGrads(args);
  checkWeights(args);
  checkWire(args);
  checkReady(args);
  CombineArgs out{};
  out.rows = bytesOf(args.rows);
  out.tokens = tokens_;
  out.rowBytes = static_cast<std::uint32_t>(args.hidden * elementBytes(args.rowType));
  checkPlaces(args, out.rowBytes);
  out.rowType = args.rowType;
  out.wire = args.wire;
  out.elements = args.hidden;
  out.wireBytes = args.wire == moeWireRow ? out.rowBytes : WireRow{args.wire, args.hidden}.bytes();
  out.grads = carriesGrads(args) ? 1 : 0;
  out.terms = packCombineTerms(out.rowBytes, out.rowType, out.grads != 0, out.wire);
  out.weighted = args.weights == moeWeightsApply ? 1 : 0;
  out.topkWeights = args.topkWeights;
  out.out = static_cast<std::uint8_t*>(args.out);
  out.bias0 = bytesOf(args.bias0);
  out.bias1 = bytesOf(args.bias1);
  out.weightGrads = args.weightGrads;
  out.outWeightGrads = args.outWeightGrads;
  out.ready = readyWords(args);
  placeRows(args, &out);
  return out;
}

// Chooses what peers read: the caller's rows in place if possible, otherwise rows that are prepared for them.
void Handle::placeRows(const moeCombineArgs_t& args, CombineArgs* out) const {
  // Steps check the number of rows only where it may be too small.
  out->held = args.rows != nullptr ? comm_.windowRoom(args.rows, out->rowBytes) : 0;
  if (out->held >= layoutRowsMax(shape_)) out->held = kAnyRows;
  if (lowLatency()) {
    out->inPlace =
        shape_.layout == Layout::rankMajor && args.rows != nullptr && args.rows == slots().combineRows ? 1 : 0;
    return;
  }
  const bool makes = rowsPerExpert() || args.wire != moeWireRow;
  const std::int64_t at = makes ? -1 : windowOffset(args.rows, 0, "args.rows");
  out->inPlace = at >= 0 ? 1 : 0;
  out->capacity = room_.shape.stagingRows;
  if (at >= 0) {
    out->rowsOffset = static_cast<std::uint64_t>(at);
  } else {
    const int area = args.rows != nullptr ? requireStaging("moeCombine", "args.rows") : 0;
    out->rowsOffset = stagingAt(room_.shape, room_.view.at, area).rows;
  }
}

void Handle::combine(const moeCombineArgs_t& args, moeStream_t stream) {
  if ((args.flags & moeRefused) != 0) return refuseCombine(args, stream);
  checkRouted("moeCombine");
  checkOutstanding(Pending::combine, "moeCombine");
  const bool coded = args.wire != moeWireRow;
  Operation summing{
      combineStep(view_, comm_.backend().landingCombines(), coded), params(), {}, (args.flags & moeSendOnly) != 0};
  summing.params.combine = combineArgs(args);
  launchCombine({"moeCombine", tokens_, view_.tokensMax, args.sms, nullptr}, {args.cumulativeWaitNs, args.completeSms},
                summing, coded, stream);
}

void Handle::launchCombine(const Call& call, const CombineExtras& extras, Operation& summing, bool coded,
                           moeStream_t stream) {
  StepParams& p = summing.params;
  const std::uint32_t bytes = coded ? static_cast<std::uint32_t>(p.combine.elements) : p.combine.rowBytes;
  count(Pending::combine, {nullptr, extras.waitNs}, &p);
  Workload work = workload(call, summing.step, bytes, p.combine.wireBytes, onlyMoves(p.combine));
  work.waitsForRows = p.combine.ready.words != nullptr;
  summing.shape = summing.completing = comm_.backend().shapeFor(work);
  if (extras.completeSms > 0) {
    work.sms = extras.completeSms;
    work.waitsForRows = false;  // the first part has waited for them
    p.combine.leaves = p.combine.ready.words != nullptr ? 1 : 0;
    summing.completing = comm_.backend().shapeFor(work);
  }
  const auto parts = [&](const LaunchShape& shape, int rows) {
    return coded ? wireParts(shape, rows, p.combine) : comm_.backend().partsFor(shape, rows, bytes);
  };
  p.combine.parts = parts(summing.completing, tokens_);
  p.combine.arriving = parts(summing.shape, arrivingRowsGuess(tokens_));
  run(Pending::combine, summing, stream);
}

}  // namespace moe
