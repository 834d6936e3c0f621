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
  if (pointer != nullptr) refuse(fmt::format("{} is {}, but {}", name, pointer, why));
}

}  // namespace

void DispatchCall::check() const {
  checkRow(handle_.room(), args_.rowType, args_.hidden, name_);
  checkFlags(args_.flags, moeSendOnly, "moeSendOnly or 0", args_.sms);
  checkPadding();
  checkOutputs();
}

static_assert(int{kPadIndices} == int{moePadIndices} && int{kPadRows} == int{moePadRows});
void DispatchCall::checkPadding() const {
  if ((args_.padding & ~(moePadIndices | moePadRows)) != 0)
    refuse(fmt::format("args.padding is {}, must be made of moePadIndices and moePadRows", args_.padding));
  requireRange("args.describe.idKind", asked_.describe.idKind, moeIdsLocal, moeIdsGlobal);
  const bool inSlots = handle_.lowLatency() && handle_.shape().layout == Layout::rankMajor && args_.outRows == nullptr;
  if ((args_.padding & moePadRows) == 0 || !inSlots) return;
  refuse("args.padding has moePadRows, but args.outRows is NULL, so that rows stay in slots");
}

void DispatchCall::checkOutputs() const {
  if (args_.outRowsMax < 0) refuse(fmt::format("args.outRowsMax is {}, must be 0 or more", args_.outRowsMax));
  if (handle_.rowsPerExpert()) {
    refuseOutput(asked_.describe.outTopkIdx, "args.describe.outTopkIdx",
                 "the layout has one row per expert: it is for FLAT and RANK_MAJOR");
  }
  if (handle_.shape().layout != Layout::expertMajor) {
    refuseOutput(asked_.describe.outExpertOffsets, "args.describe.outExpertOffsets", "the layout is not EXPERT_MAJOR");
  }
  const char* tokens = route_ != nullptr ? "with tokens" : "with tokens routed";
  if (tokens_ > 0) requirePointer(args_.rows, "args.rows", tokens);
  if (args_.outRowsMax > 0) requirePointer(args_.outRows, "args.outRows", "with args.outRowsMax above 0");
}

// Where the arrays of a dispatch begin, and how much of each the host knows to be used.
void DispatchCall::checkPlaces(const DispatchPayloads& payloads) const {
  const DispatchArgs& d = operation_.params.dispatch;
  const auto& [args, cast, describe, _] = asked_;
  const std::int64_t rowBytes = d.rowBytes;  // at its source
  const std::int64_t outBytes = d.cast.type != kNoCast ? d.cast.codeBytes : d.rowBytes;
  const std::int64_t rows = grid_.rows(), experts = handle_.localExperts(), topk = handle_.shape().topk;
  const std::int64_t weights = handle_.rowsPerExpert() ? 1 : topk, ranks = handle_.room().view.nranks;
  const auto indexBytes = static_cast<std::int64_t>(handle_.indexBytes());
  const RouteArgs route = route_ != nullptr ? route_->args() : RouteArgs{};
  const std::int64_t entries = route.tokens * topk;
  std::array<Extent, 5 + kPayloadsMax> inputs = {{{"args.rows", args.rows, tokens_ * rowBytes},
                                                  {"topkIdx", route.topkIdx, entries * indexBytes},
                                                  {"topkWeights", route.topkWeights, entries * 4},
                                                  {"args.cast.inputScale", cast.inputScale, 4},
                                                  {"args.cast.globalScale", cast.globalScale, 4}}};
  std::array<Extent, 11 + kPayloadsMax> outputs = {
      {{"args.outRows", args.outRows, rows * outBytes},
       {"args.describe.outTopkIdx", describe.outTopkIdx, rows * topk * indexBytes},
       {"args.describe.outTopkWeights", describe.outTopkWeights, rows * weights * 4},
       {"args.describe.outSourceIndex", describe.outSourceIndex, rows * 4},
       {"args.describe.outExpertOffsets", describe.outExpertOffsets, (experts + 1) * 4},
       {"args.describe.outLayoutRange", describe.outLayoutRange, experts * ranks * 8},
       {"args.describe.outRowExperts", describe.outRowExperts, rows * 4},
       {"args.describe.cumulativeRows", describe.cumulativeRows, experts * 4},
       {"args.describe.cumulativeWaitNs", describe.cumulativeWaitNs, ranks * 8},
       {"args.describe.outBlockOffsets", describe.outBlockOffsets, (experts + 1) * 4},
       {"args.cast.outScales", cast.outScales, outScaleBytes(asked_, grid_)}}};
  std::ranges::copy(payloads.inputs(), inputs.end() - kPayloadsMax);
  std::ranges::copy(payloads.outputs(), outputs.end() - kPayloadsMax);
  requireAligned(args.rows, "args.rows", kRowAlignment);
  requireAligned(args.outRows, "args.outRows", kRowAlignment);
  requireAligned(describe.outTopkIdx, "args.describe.outTopkIdx", handle_.indexBytes());
  requireAligned(describe.outTopkWeights, "args.describe.outTopkWeights", alignof(float));
  requireAligned(describe.outSourceIndex, "args.describe.outSourceIndex", alignof(std::int32_t));
  requireAligned(describe.outExpertOffsets, "args.describe.outExpertOffsets", alignof(std::int32_t));
  requireBlocks(handle_.comm(), inputs);
  requireBlocks(handle_.comm(), outputs);
  requireAllApart(outputs, inputs);
}

}  // namespace moe
