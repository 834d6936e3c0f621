// The calls of a handle in which this rank takes part with a refusal instead of its arguments (moeRefused).
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "comm/handle/call_checks.h"
#include "comm/handle/calls.h"
#include "comm/handle/combine_call.h"
#include "comm/handle/route_call.h"
#include "comm/handle/workload.h"
#include "comm/recorder/refused.h"
#include "device/rows/row_math.h"

namespace moe {
namespace {

constexpr std::uint32_t kLeastRow = 16;

void checkMayRefuse(const Handle& handle, const char* call, moeStream_t stream) {
  if (!handle.backend().capturing(stream)) return;
  throw Error(moeInvalidUsage,
              fmt::format("{}: the stream is being captured, and a refusal is not part of a graph", call));
}

RouteArgs refusedRoute(Handle& handle) {
  return {handle.refused().ids, nullptr, 1};
}

// `routes`: the step routes too.
Operation refusedDispatch(Handle& handle, const char* name, int tokens, bool routes) {
  handle.checkOutstanding(OperationKind::dispatch, name);
  const Step step = routes ? Step::llRouteDispatch : dispatchStep(handle.view(), false);
  Operation made{OperationKind::dispatch, step, handle.params(), false};
  DispatchArgs& d = made.params.dispatch;
  d.rows = handle.refused().ids;
  d.tokens = routes ? tokens : 0;
  d.rowBytes = kLeastRow;
  d.terms = refusedDispatchTerms(handle.shape().rank);
  d.capacity = kRefusedRows;
  d.invalidId = -1;
  handle.counters().count(OperationKind::dispatch, {nullptr, nullptr}, &made.params);
  const Backend& backend = handle.backend();
  made.shape = made.completing = backend.shapeFor(workloadOf(handle, step, {tokens, 0, kLeastRow, kLeastRow, false}));
  d.parts = d.arriving = backend.partsFor(made.shape, std::max(d.tokens, 1), kLeastRow);
  d.countingBlock = made.shape.countingBlock ? 1 : 0;
  return made;
}

// Where an LL combine takes the rows that come for this rank's tokens: memory that nobody reads.
std::uint8_t* refusedSums(Handle& handle, std::size_t bytes) {
  RefusedMemory& memory = handle.refused();
  if (bytes > memory.sumsBytes) {
    memory.sums = handle.backend().allocatePrivate(bytes, handle.comm().allocator());
    memory.sumsBytes = bytes;
  }
  return static_cast<std::uint8_t*>(memory.sums.get());
}

// In LL, rows come for this rank's tokens as for those of other ranks, and must be taken.
CombineArgs refusedLlCombine(Handle& handle, const moeCombineArgs_t& args) {
  checkRow(handle.room(), args.rowType, args.hidden, "moeCombine");
  if (args.rowType == moeRowBytes) refuse("args.rowType is opaque bytes, which cannot be summed");
  moeCombineArgs_t sizes = args;
  sizes.rows = nullptr;
  checkWire(handle, sizes);
  CombineArgs out{};
  describeRows(args, args.grads != nullptr, handle.room().view.split(), &out);
  out.held = kRefusedRows;
  out.tokens = handle.tokens();
  out.out = refusedSums(handle, static_cast<std::size_t>(out.tokens) * out.rowBytes);
  return out;
}

CombineArgs refusedHtCombine(const Handle& handle) {
  CombineArgs out{};
  out.held = kRefusedRows;
  out.rowBytes = out.wireBytes = kLeastRow;
  out.rowType = moeRowBf16;
  out.elements = kLeastRow / elementBytes(moeRowBf16);
  out.terms = refusedCombineTerms(handle.shape().rank);
  return out;
}

}  // namespace

const std::uint8_t* writeRefusedIds(std::uint8_t* at, bool wideIndex) {
  const std::int64_t wide = kRefusedId;
  const void* id = wideIndex ? static_cast<const void*>(&wide) : &kRefusedId;
  const std::size_t bytes = wideIndex ? sizeof(wide) : sizeof(kRefusedId);
  for (std::size_t i = 0; i < kRefusedIdsBytes; i += bytes) std::memcpy(at + i, id, bytes);
  return at;
}

void refuseRoute(Handle& handle, moeStream_t stream) {
  checkMayRefuse(handle, "moeRoute", stream);
  RouteCall(handle, refusedRoute(handle), "moeRoute").run(stream);
  handle.forgetTokens();
}

void refuseRouteDispatch(Handle& handle, moeStream_t stream) {
  constexpr const char* kCall = "moeRouteDispatch";
  checkMayRefuse(handle, kCall, stream);
  const RouteCall route(handle, refusedRoute(handle), kCall);
  Operation sending = refusedDispatch(handle, kCall, route.args().tokens, handle.routesInDispatch());
  route.describe(&sending.params);
  route.runWith(sending, stream);
  handle.forgetTokens();
}

void refuseDispatch(Handle& handle, moeStream_t stream) {
  handle.checkRouted("moeDispatch");
  checkMayRefuse(handle, "moeDispatch", stream);
  handle.start(refusedDispatch(handle, "moeDispatch", handle.tokens(), false), stream);
}

void refuseCombine(Handle& handle, const moeCombineArgs_t& args, moeStream_t stream) {
  handle.checkRouted("moeCombine");
  checkMayRefuse(handle, "moeCombine", stream);
  handle.checkOutstanding(OperationKind::combine, "moeCombine");
  const bool coded = handle.lowLatency() && args.wire != moeWireRow;
  Operation summing{OperationKind::combine, combineStep(handle.view(), handle.backend().landingCombines(), coded),
                    handle.params(), false};
  summing.params.combine = handle.lowLatency() ? refusedLlCombine(handle, args) : refusedHtCombine(handle);
  handle.counters().count(OperationKind::combine, {nullptr, nullptr}, &summing.params);
  planCombine(handle, {0, 0, coded}, &summing);
  handle.start(summing, stream);
}

}  // namespace moe
