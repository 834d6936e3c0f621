// Arrays about the rows that a dispatch brings, for callers who ask: checks, and launches of the step that fills them.
#include <fmt/format.h>

#include <array>

#include "comm/handle/call_checks.h"
#include "comm/handle/calls.h"
#include "comm/handle/dispatch_call.h"

namespace moe {

namespace {

void refuseUnless(bool fits, const void* pointer, const char* name, const char* why) {
  if (pointer != nullptr && !fits) refuse(fmt::format("{} is {}, but {}", name, pointer, why));
}

}  // namespace

Description::Description(const Handle& handle, const moeDescribe_t& asked) : handle_(handle), asked_(asked) {
  checkLayout();
  requireRange("args.describe.idKind", asked.idKind, moeIdsLocal, moeIdsGlobal);
  requireAligned(asked.outLayoutRange, "args.describe.outLayoutRange", alignof(std::int64_t));
  requireAligned(asked.outRowExperts, "args.describe.outRowExperts", alignof(std::int32_t));
  requireAligned(asked.outRowsPerExpert, "args.describe.outRowsPerExpert", alignof(std::int32_t));
  requireAligned(asked.outTopkIdx, "args.describe.outTopkIdx", handle.indexBytes());
  requireAligned(asked.outTopkWeights, "args.describe.outTopkWeights", alignof(float));
  requireAligned(asked.outSourceIndex, "args.describe.outSourceIndex", alignof(std::int32_t));
  requireAligned(asked.outExpertOffsets, "args.describe.outExpertOffsets", alignof(std::int32_t));
}

void Description::checkLayout() const {
  const bool perExpert = handle_.rowsPerExpert();
  const char* isPerToken = "the layout has no row per expert; this output needs an EXPERT_MAJOR layout";
  refuseUnless(perExpert, asked_.outLayoutRange, "args.describe.outLayoutRange", isPerToken);
  refuseUnless(perExpert, asked_.outRowExperts, "args.describe.outRowExperts", isPerToken);
  refuseUnless(!perExpert, asked_.outTopkIdx, "args.describe.outTopkIdx",
               "the layout has one row per expert; this output needs FLAT or RANK_MAJOR");
  refuseUnless(handle_.shape().layout == Layout::expertMajor, asked_.outExpertOffsets, "args.describe.outExpertOffsets",
               "the layout is not EXPERT_MAJOR");
}

void Description::place(StepParams* out) const {
  DispatchArgs& dispatch = out->dispatch;
  dispatch.outTopkIdx = asked_.outTopkIdx;
  dispatch.outTopkWeights = asked_.outTopkWeights;
  dispatch.outSourceIndex = asked_.outSourceIndex;
  dispatch.outExpertOffsets = asked_.outExpertOffsets;
  dispatch.idBase = asked_.idKind == moeIdsGlobal ? handle_.firstExpert() : 0;
  dispatch.invalidId = asked_.invalidId != 0 ? asked_.invalidId : -1;
  out->describe.layoutRange = asked_.outLayoutRange;
  out->describe.rowExperts = asked_.outRowExperts;
  out->describe.rowsPerExpert = asked_.outRowsPerExpert;
}

std::array<Extent, 10> Description::outputs(std::int64_t rows) const {
  const std::int64_t experts = handle_.localExperts(), ranks = handle_.room().view.nranks;
  const std::int64_t topk = handle_.shape().topk, weights = handle_.rowsPerExpert() ? 1 : topk;
  const auto indexBytes = static_cast<std::int64_t>(handle_.indexBytes());
  return {{{"args.describe.outTopkIdx", asked_.outTopkIdx, rows * topk * indexBytes},
           {"args.describe.outTopkWeights", asked_.outTopkWeights, rows * weights * 4},
           {"args.describe.outSourceIndex", asked_.outSourceIndex, rows * 4},
           {"args.describe.outExpertOffsets", asked_.outExpertOffsets, (experts + 1) * 4},
           {"args.describe.outLayoutRange", asked_.outLayoutRange, experts * ranks * 8},
           {"args.describe.outRowExperts", asked_.outRowExperts, rows * 4},
           {"args.describe.outRowsPerExpert", asked_.outRowsPerExpert, experts * 4},
           {"args.describe.cumulativeRows", asked_.cumulativeRows, experts * 4},
           {"args.describe.cumulativeWaitNs", asked_.cumulativeWaitNs, ranks * 8},
           {"args.describe.outBlockOffsets", asked_.outBlockOffsets, (experts + 1) * 4}}};
}

void describeArrived(Handle& handle, Step step, const StepParams& p, moeStream_t stream) {
  const DescribeArgs& d = p.describe;
  const bool looks = d.layoutRange != nullptr || d.rowExperts != nullptr;
  if ((!looks && d.rowsPerExpert == nullptr) || describesArrivals(step, d)) return;
  // One warp looks for an expert's rows, so each expert counts as one more chunk of tokens.
  const int rows = looks ? handle.arrivingRowsGuess(p.dispatch.tokens) + kChunkTokens * handle.localExperts() : 1;
  const Workload work{Step::describe, handle.shape().tokensMax, rows, 0, handle.comm().config().sms};
  handle.launch(Step::describe, p, handle.backend().shapeFor(work), stream);
}

}  // namespace moe
