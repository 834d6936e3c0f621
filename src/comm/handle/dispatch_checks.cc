// Checks the arguments of a dispatch: which must be given, their alignment, and overlaps.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "comm/handle/call_checks.h"
#include "comm/handle/dispatch_call.h"
#include "device/rows/cast_type.h"
#include "device/rows/row_math.h"

namespace moe {
namespace {

void refuseOutput(const void* pointer, const char* name, const char* why) {
  if (pointer == nullptr) return;
  throw Error(moeInvalidArgument, fmt::format("{} is {}, but {}", name, pointer, why));
}

}  // namespace

void DispatchCall::check() const {
  checkRow(handle_.room(), args_.rowType, args_.hidden, name_);
  checkFlags(args_.flags, moeSendOnly | moeCastExact | moeWeightsOnInput,
             "made of moeSendOnly, moeCastExact and moeWeightsOnInput", args_.sms);
  checkPadding();
  checkSide();
  checkOutputs();
}

static_assert(int{kPadIndices} == int{moePadIndices} && int{kPadRows} == int{moePadRows});
void DispatchCall::checkPadding() const {
  if ((args_.padding & ~(moePadIndices | moePadRows)) != 0) {
    throw Error(moeInvalidArgument,
                fmt::format("args.padding is {}, must be made of moePadIndices and moePadRows", args_.padding));
  }
  requireRange("args.idKind", args_.idKind, moeIdsLocal, moeIdsGlobal);
  const bool inSlots = handle_.lowLatency() && handle_.shape().layout == Layout::rankMajor && args_.outRows == nullptr;
  if ((args_.padding & moePadRows) == 0 || !inSlots) return;
  throw Error(moeInvalidArgument, "args.padding has moePadRows, but args.outRows is NULL, so that rows stay in slots");
}

void DispatchCall::checkSide() const {
  const int most = handle_.room().shape.sideBytesMax;
  if (args_.sideBytes >= 0 && args_.sideBytes % kRowAlignment == 0 && args_.sideBytes <= most) return;
  throw Error(moeInvalidArgument, fmt::format("args.sideBytes is {}, must be a multiple of {} and at most {} "
                                              "(config.sideBytesMax)",
                                              args_.sideBytes, kRowAlignment, most));
}

void DispatchCall::checkOutputs() const {
  if (args_.outRowsMax < 0)
    throw Error(moeInvalidArgument, fmt::format("args.outRowsMax is {}, must be 0 or more", args_.outRowsMax));
  if (args_.sideBytes == 0) {
    refuseOutput(args_.side, "args.side", "args.sideBytes is 0");
    refuseOutput(args_.outSide, "args.outSide", "args.sideBytes is 0");
  }
  if (args_.outRows == nullptr) refuseOutput(args_.outSide, "args.outSide", "args.outRows is NULL");
  if (handle_.rowsPerExpert()) {
    refuseOutput(args_.outTopkIdx, "args.outTopkIdx",
                 "the layout has one row per expert: it is for FLAT and RANK_MAJOR");
  }
  if (handle_.shape().layout != Layout::expertMajor) {
    refuseOutput(args_.outExpertOffsets, "args.outExpertOffsets", "the layout is not EXPERT_MAJOR");
  }
  const char* tokens = route_ != nullptr ? "with tokens" : "with tokens routed";
  if (tokens_ > 0) requirePointer(args_.rows, "args.rows", tokens);
  if (tokens_ > 0 && args_.sideBytes > 0) requirePointer(args_.side, "args.side", "with args.sideBytes set");
  if (args_.outRowsMax > 0) requirePointer(args_.outRows, "args.outRows", "with args.outRowsMax above 0");
  if (args_.outRowsMax > 0 && args_.sideBytes > 0)
    requirePointer(args_.outSide, "args.outSide", "with args.sideBytes set");
}

void DispatchCall::checkPlaces(const DispatchPayloads& payloads) const {
  const DispatchArgs& d = operation_.params.dispatch;
  const std::int64_t rowBytes = d.rowBytes;  // at its source
  const std::int64_t outBytes = d.cast.type != kNoCast ? d.cast.codeBytes : d.rowBytes;
  const std::int64_t rows = grid_.rows(), experts = handle_.localExperts(), topk = handle_.shape().topk;
  const std::int64_t weights = handle_.rowsPerExpert() ? 1 : topk;
  const RouteArgs route = route_ != nullptr ? route_->args() : RouteArgs{};
  const std::int64_t entries = route.tokens * topk;
  std::array<Extent, 6 + kPayloadsMax> inputs = {
      {{"args.rows", args_.rows, tokens_ * rowBytes},
       {"args.side", args_.side, tokens_ * std::int64_t{args_.sideBytes}},
       {"topkIdx", route.topkIdx, entries * static_cast<std::int64_t>(handle_.indexBytes())},
       {"topkWeights", route.topkWeights, entries * static_cast<std::int64_t>(sizeof(float))},
       {"args.inputScale", args_.inputScale, sizeof(float)},
       {"args.globalScale", args_.globalScale, sizeof(float)}}};
  std::array<Extent, 13 + kPayloadsMax> outputs = {
      {{"args.outRows", args_.outRows, rows * outBytes},
       {"args.outSide", args_.outSide, rows * args_.sideBytes},
       {"args.outTopkIdx", args_.outTopkIdx, rows * topk * static_cast<std::int64_t>(handle_.indexBytes())},
       {"args.outTopkWeights", args_.outTopkWeights, rows * weights * 4},
       {"args.outSourceIndex", args_.outSourceIndex, rows * 4},
       {"args.outExpertOffsets", args_.outExpertOffsets, (experts + 1) * 4},
       {"args.outLayoutRange", args_.outLayoutRange, experts * handle_.room().view.nranks * 8},
       {"args.outSourceInfo", args_.outSourceInfo, rows * 12},
       {"args.outRowExperts", args_.outRowExperts, rows * 4},
       {"args.cumulativeRows", args_.cumulativeRows, experts * 4},
       {"args.cumulativeWaitNs", args_.cumulativeWaitNs, std::int64_t{handle_.room().view.nranks} * 8},
       {"args.outScaleBlockOffsets", args_.outScaleBlockOffsets, (experts + 1) * 4},
       {"args.outScales", args_.outScales, outScaleBytes(args_, grid_)}}};
  std::ranges::copy(payloads.inputs(), inputs.end() - kPayloadsMax);
  std::ranges::copy(payloads.outputs(), outputs.end() - kPayloadsMax);
  requireAligned(args_.rows, "args.rows", kRowAlignment);
  requireAligned(args_.side, "args.side", kRowAlignment);
  requireAligned(args_.outRows, "args.outRows", kRowAlignment);
  requireAligned(args_.outSide, "args.outSide", kRowAlignment);
  requireAligned(args_.outTopkIdx, "args.outTopkIdx", handle_.indexBytes());
  requireAligned(args_.outTopkWeights, "args.outTopkWeights", alignof(float));
  requireAligned(args_.outSourceIndex, "args.outSourceIndex", alignof(std::int32_t));
  requireAligned(args_.outExpertOffsets, "args.outExpertOffsets", alignof(std::int32_t));
  requireBlocks(handle_.comm(), inputs);
  requireBlocks(handle_.comm(), outputs);
  requireAllApart(outputs, inputs);
}

}  // namespace moe
