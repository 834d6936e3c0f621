// Arrays about a route, for callers who ask: checks, and launches of the step that fills them.
#include <fmt/format.h>

#include <array>

#include "comm/handle/call_checks.h"
#include "comm/handle/calls.h"
#include "comm/handle/dispatch_call.h"

namespace moe {

void describeSent(Handle& handle, const moeSent_t& sent, moeStream_t stream) {
  const int tokens = handle.tokens(), ranks = handle.room().view.nranks;
  if (tokens < 0) {
    throw Error(moeInvalidUsage, "moeHandleGetSent: moeRoute has not been called on this handle");
  }
  const std::array<Extent, 4> outputs = {
      {{"sent.tokensPerRank", sent.tokensPerRank, std::int64_t{ranks} * 4},
       {"sent.tokensPerDomain", sent.tokensPerDomain, std::int64_t{handle.view().domains} * 4},
       {"sent.tokensPerExpert", sent.tokensPerExpert, std::int64_t{handle.shape().map.experts} * 4},
       {"sent.tokenToRank", sent.tokenToRank, std::int64_t{tokens} * ranks}}};
  for (const Extent& output : outputs) {
    if (output.begin != sent.tokenToRank) requireAligned(output.begin, output.name, alignof(std::int32_t));
    handle.windowOffset(output.begin, static_cast<std::uint64_t>(output.bytes), output.name);
    for (const Extent* other = outputs.data(); other != &output; ++other) requireApart(output, *other);
  }
  StepParams p = handle.params();
  p.describe.tokens = tokens;
  p.describe.tokensPerRank = sent.tokensPerRank;
  p.describe.tokensPerDomain = sent.tokensPerDomain;
  p.describe.tokensPerExpert = sent.tokensPerExpert;
  p.describe.tokenToRank = sent.tokenToRank;
  const Workload work{Step::describe, handle.shape().tokensMax, tokens, 0, 0};
  handle.launch(Step::describe, p, handle.backend().shapeFor(work), stream);
}

DescribeArgs describeArgs(const Handle& handle, const moeDescribe_t& describe) {
  const std::pair<const void*, const char*> perExpert[] = {{describe.outLayoutRange, "args.describe.outLayoutRange"},
                                                           {describe.outRowExperts, "args.describe.outRowExperts"}};
  for (const auto& [pointer, name] : perExpert) {
    if (pointer == nullptr || handle.rowsPerExpert()) continue;
    refuse(
        fmt::format("{} is {}, but the layout has no row per expert: it is for EXPERT_MAJOR layouts", name, pointer));
  }
  requireAligned(describe.outLayoutRange, "args.describe.outLayoutRange", alignof(std::int64_t));
  requireAligned(describe.outRowExperts, "args.describe.outRowExperts", alignof(std::int32_t));
  DescribeArgs out{};
  out.layoutRange = describe.outLayoutRange;
  out.rowExperts = describe.outRowExperts;
  return out;
}

void describeArrived(Handle& handle, const StepParams& p, moeStream_t stream) {
  const DescribeArgs& d = p.describe;
  if (d.layoutRange == nullptr && d.rowExperts == nullptr) return;
  // An expert's rows are looked for by one warp, as a chunk of tokens would be.
  const int rows = handle.arrivingRowsGuess(p.dispatch.tokens) + kChunkTokens * handle.localExperts();
  const Workload work{Step::describe, handle.shape().tokensMax, rows, 0, handle.comm().config().sms};
  handle.launch(Step::describe, p, handle.backend().shapeFor(work), stream);
}

}  // namespace moe
