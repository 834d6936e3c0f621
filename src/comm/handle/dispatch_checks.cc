// Checks the arguments of a dispatch: which must be given, their alignment, and overlaps.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "comm/handle/call_checks.h"
#include "comm/handle/dispatch_call.h"
#include "device/rows/cast_type.h"
#include "device/rows/row_math.h"

namespace moe {

void DispatchCall::check() const {
  checkRow(handle_.room(), args_.rowType, args_.hidden, name_);
  checkFlags(args_.flags, moeSendOnly | moeOutputsLater, "moeSendOnly, moeSendOnly | moeOutputsLater or 0", args_.sms);
  if (outputsLater()) checkOutputsLater();
  checkPadding();
  checkOutputs();
}

static_assert(int{kPadIndices} == int{moePadIndices} && int{kPadRows} == int{moePadRows});
void DispatchCall::checkPadding() const {
  if ((args_.padding & ~(moePadIndices | moePadRows)) != 0)
    refuse(fmt::format("args.padding is {}, must be made of moePadIndices and moePadRows", args_.padding));
  const bool inSlots = handle_.lowLatency() && handle_.shape().layout == Layout::rankMajor && args_.outRows == nullptr;
  if ((args_.padding & moePadRows) == 0 || !inSlots) return;
  refuse("args.padding has moePadRows, but args.outRows is NULL, so that rows stay in slots");
}

void DispatchCall::checkOutputs() const {
  if (args_.outRowsMax < 0) refuse(fmt::format("args.outRowsMax is {}, must be 0 or more", args_.outRowsMax));
  const char* tokens = route_ != nullptr ? "with tokens" : "with tokens routed";
  if (tokensSent() > 0) requirePointer(args_.rows, "args.rows", tokens);
  if (args_.outRowsMax > 0) requirePointer(args_.outRows, "args.outRows", "with args.outRowsMax above 0");
}

// Where the arrays of a dispatch begin, and how much of each the host knows to be used.
void DispatchCall::checkPlaces(const Description& description, const DispatchPayloads& payloads) const {
  const DispatchArgs& d = operation_.params.dispatch;
  const moeDispatchArgs_t& args = args_;
  const moeCast_t& cast = asked_.cast;
  const std::int64_t rowBytes = d.rowBytes;  // at its source
  const std::int64_t outBytes = d.cast.type != kNoCast ? d.cast.codeBytes : d.rowBytes;
  const RouteArgs route = route_ != nullptr ? route_->args() : RouteArgs{};
  const std::int64_t rows = grid_.rows(), entries = std::int64_t{route.tokens} * handle_.shape().topk;
  std::array<Extent, 5 + kPayloadsMax> inputs = {
      {{"args.rows", args.rows, tokensSent() * rowBytes},
       {"topkIdx", route.topkIdx, entries * static_cast<std::int64_t>(handle_.indexBytes())},
       {"topkWeights", route.topkWeights, entries * 4},
       {"args.cast.inputScale", cast.inputScale, 4},
       {"args.cast.globalScale", cast.globalScale, 4}}};
  const auto described = description.outputs(rows);
  std::array<Extent, 2 + described.size() + kPayloadsMax> outputs = {
      {{"args.outRows", args.outRows, rows * outBytes},
       {"args.cast.outScales", cast.outScales, outScaleBytes(asked_, grid_)}}};
  std::ranges::copy(described, outputs.begin() + 2);
  std::ranges::copy(payloads.inputs(), inputs.end() - kPayloadsMax);
  std::ranges::copy(payloads.outputs(), outputs.end() - kPayloadsMax);
  requireAligned(args.rows, "args.rows", kRowAlignment);
  requireAligned(args.outRows, "args.outRows", kRowAlignment);
  requireBlocks(handle_.comm(), inputs);
  requireBlocks(handle_.comm(), outputs);
  requireAllApart(outputs, inputs);
}

}  // namespace moe
