// A dispatch in two calls, of which the second one brings the outputs (moeOutputsLater, moeCompleteDispatch). Its rows
// go to the staging area, and the receiving part copies them to the outputs. Decision 0120.
#include <fmt/format.h>

#include "comm/handle/call_checks.h"
#include "comm/handle/calls.h"
#include "comm/handle/dispatch_call.h"
#include "comm/recorder/failure_text.h"

namespace moe {
namespace {

constexpr const char* kLateCall = "moeCompleteDispatch";

// What the sending part reads.
DispatchRequest withoutOutputs(DispatchRequest asked) {
  asked.args.outRows = nullptr;
  asked.args.outRowsMax = 0;
  asked.args.padding = 0;
  asked.cast.outScales = nullptr;
  asked.describe = MOE_DESCRIBE_INITIALIZER;
  for (moePayload_t& payload : asked.payloads) payload.out = nullptr;
  return asked;
}

// What the receiving part reads.
DispatchRequest withoutInputs(DispatchRequest asked) {
  asked.args.rows = nullptr;
  asked.cast.inputScale = nullptr;
  asked.cast.globalScale = nullptr;
  for (moePayload_t& payload : asked.payloads) payload.in = nullptr;
  return asked;
}

}  // namespace

void checkMayBeLate(const Handle& handle, std::int32_t flags, const char* call, moeStream_t stream) {
  if ((flags & moeOutputsLater) == 0 || !handle.backend().capturing(stream)) return;
  throw Error(moeInvalidUsage,
              fmt::format("{}: the stream is being captured, and moeOutputsLater is not part of a graph", call));
}

std::optional<DispatchRequest> DispatchCall::sentPart(const DispatchRequest& asked) {
  if ((asked.args.flags & moeOutputsLater) == 0) return std::nullopt;
  return withoutOutputs(asked);
}

void DispatchCall::checkOutputsLater() const {
  if (!sendsOnly()) refuse(fmt::format("args.flags is {}, must have moeSendOnly with moeOutputsLater", args_.flags));
  if (handle_.lowLatency())
    refuse("args.flags has moeOutputsLater, but the handle's mode is LL, whose counts come with the rows");
}

DispatchCall::DispatchCall(Handle& handle, const DispatchRequest& asked, const StepParams& begun)
    : handle_(handle),
      part_(withoutInputs(asked)),
      asked_(*part_),
      args_(asked_.args),
      route_(nullptr),
      begun_(&begun),
      name_(kLateCall),
      tokens_(handle.tokens()),
      grid_(handle, handle.view().tokensMax, asked.args.outRowsMax),
      operation_{OperationKind::dispatch, step(), handle.params(), false} {}

// Takes over from the sending part. Its arguments must be for the same rows.
void DispatchCall::goOn() {
  DispatchArgs& out = operation_.params.dispatch;
  const DispatchArgs& begun = begun_->dispatch;
  if (out.terms != begun.terms) {
    refuse(fmt::format("args are not for the rows of the dispatch that this call ends: {}",
                       dispatchDifference(out.terms, begun.terms)));
  }
  out.tokens = begun.tokens;
  out.rows = begun.rows;
  out.staged = begun.staged;
  out.outRowsOffset = begun.outRowsOffset;
  out.outSideOffset = begun.outSideOffset;
}

void completeDispatch(Handle& handle, const DispatchRequest& asked, moeStream_t stream) {
  const StepParams* begun = handle.awaitingOutputs();
  if (begun == nullptr) {
    throw Error(moeInvalidUsage,
                fmt::format("{}: no dispatch with moeOutputsLater of this handle is outstanding", kLateCall));
  }
  if (handle.backend().capturing(stream)) {
    throw Error(moeInvalidUsage,
                fmt::format("{}: the stream is being captured, and the call is not part of a graph", kLateCall));
  }
  DispatchCall call(handle, asked, *begun);
  const Operation& receiving = call.operation();
  const std::int64_t rows = handle.counts().layoutRows;
  if (asked.args.outRowsMax < rows) {
    refuse(
        fmt::format("args.outRowsMax is {}, must be at least the {} rows that have come", asked.args.outRowsMax, rows));
  }
  handle.receive(receiving.params, receiving.shape, stream);
}

}  // namespace moe
