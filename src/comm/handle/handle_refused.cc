// The calls of a handle in which this rank takes part with a refusal instead of its arguments (moeRefused), so that the
// others need not wait for it: comm/recorder/refused.h says how. Decision 0095.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "comm/handle/argument_checks.h"
#include "comm/handle/handle.h"
#include "comm/recorder/refused.h"
#include "device/rows/row_math.h"
#include "device/rows/wire_row.h"

namespace moe {
namespace {

constexpr std::uint32_t kLeastRow = 16;

}  // namespace

// Behind the counts for the host, in memory that steps can read: a token whose entries cannot be.
std::size_t Handle::hostBytes() const {
  return static_cast<std::size_t>(hostCountsBytes(shape_)) + kRefusedIdsBytes;
}

void Handle::writeRefusedIds() {
  std::uint8_t* at = static_cast<std::uint8_t*>(hostCounts_.get()) + hostCountsBytes(shape_);
  refusedIds_ = at;
  for (std::size_t i = 0; i < kRefusedIdsBytes / indexBytes(); ++i) {
    const std::int64_t wide = kRefusedId;
    const void* id = shape_.wideIndex ? static_cast<const void*>(&wide) : &kRefusedId;
    std::memcpy(at + i * indexBytes(), id, indexBytes());
  }
}

void Handle::checkMayRefuse(const char* call, moeStream_t stream) const {
  if (!comm_.backend().capturing(stream)) return;
  throw Error(moeInvalidUsage,
              fmt::format("{}: the stream is being captured, and a refusal is not part of a graph", call));
}

void Handle::refuseRoute(moeStream_t stream) {
  checkMayRefuse("moeRoute", stream);
  StepParams p = routeParams({refusedIds_, nullptr, 1}, "moeRoute");
  launchRoute(p, stream);
  tokens_ = 0;
}

Handle::Operation Handle::refusedDispatch(const Call& call) const {
  checkOutstanding(Pending::dispatch, call.name);
  const bool routes = call.route != nullptr && routesInDispatch_;
  Operation made{routes ? Step::llRouteDispatch : dispatchStep(view_, false), params(), {}, false};
  StepParams& p = made.params;
  DispatchArgs& d = p.dispatch;
  d = {};
  d.rows = refusedIds_;
  d.tokens = routes ? call.tokens : 0;
  d.rowBytes = kLeastRow;
  d.terms = refusedDispatchTerms(shape_.rank);
  d.capacity = kRefusedRows;
  d.invalidId = -1;
  count(Pending::dispatch, {nullptr, nullptr}, &p);
  made.shape = made.completing = comm_.backend().shapeFor(workload(call, made.step, kLeastRow, kLeastRow, false));
  d.parts = d.arriving = comm_.backend().partsFor(made.shape, std::max(d.tokens, 1), kLeastRow);
  d.countingBlock = made.shape.countingBlock ? 1 : 0;
  return made;
}

void Handle::refuseDispatch(moeStream_t stream) {
  checkRouted("moeDispatch");
  checkMayRefuse("moeDispatch", stream);
  Operation sending = refusedDispatch({"moeDispatch", tokens_, view_.tokensMax, 0, nullptr});
  run(Pending::dispatch, sending, stream);
}

void Handle::refuseRouteDispatch(moeStream_t stream) {
  constexpr const char* kCall = "moeRouteDispatch";
  checkMayRefuse(kCall, stream);
  const RouteArgs route{refusedIds_, nullptr, 1};
  StepParams routing = routeParams(route, kCall);
  Operation sending = refusedDispatch({kCall, route.tokens, tokensBound_, 0, &route});
  launchWithRoute(routing, sending, stream);
  tokens_ = 0;
}

// Of LL, rows come for this rank's tokens as for those of others, and must be taken: to memory that nobody reads.
CombineArgs Handle::refusedCombine(const moeCombineArgs_t& args) {
  CombineArgs out{};
  out.held = kRefusedRows;
  out.rowBytes = out.wireBytes = kLeastRow;
  out.rowType = moeRowBf16;
  out.elements = kLeastRow / elementBytes(moeRowBf16);
  out.terms = refusedCombineTerms(shape_.rank);
  if (!lowLatency()) return out;
  checkRow(args.rowType, args.hidden, "moeCombine");
  if (args.rowType == moeRowBytes)
    throw Error(moeInvalidArgument, "args.rowType is opaque bytes, which cannot be summed");
  moeCombineArgs_t sizes = args;
  sizes.rows = nullptr;
  checkWire(sizes);
  out.tokens = tokens_;
  out.rowType = args.rowType;
  out.rowBytes = static_cast<std::uint32_t>(args.hidden * elementBytes(args.rowType));
  out.wire = args.wire;
  out.elements = args.hidden;
  out.wireBytes = args.wire == moeWireRow ? out.rowBytes : WireRow{args.wire, args.hidden}.bytes();
  out.grads = (args.flags & moeCombineGrads) != 0 ? 1 : 0;
  out.terms = packCombineTerms(out.rowBytes, out.rowType, out.grads != 0, out.wire);
  const std::size_t bytes = static_cast<std::size_t>(tokens_) * out.rowBytes;
  if (bytes > refusedSumsBytes_) {
    refusedSums_ = comm_.backend().allocatePrivate(bytes, comm_.allocator());
    refusedSumsBytes_ = bytes;
  }
  out.out = static_cast<std::uint8_t*>(refusedSums_.get());
  return out;
}

void Handle::refuseCombine(const moeCombineArgs_t& args, moeStream_t stream) {
  checkRouted("moeCombine");
  checkMayRefuse("moeCombine", stream);
  checkOutstanding(Pending::combine, "moeCombine");
  const bool coded = lowLatency() && args.wire != moeWireRow;
  Operation summing{combineStep(view_, comm_.backend().landingCombines(), coded), params(), {}, false};
  CombineArgs& out = summing.params.combine;
  out = refusedCombine(args);
  launchCombine({"moeCombine", tokens_, view_.tokensMax, 0, nullptr}, {}, summing, coded, stream);
}

}  // namespace moe
