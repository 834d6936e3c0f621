// Arrays about a route, for callers who ask: checks, and launches of the step that fills them.
#include <fmt/format.h>

#include <array>

#include "comm/handle/argument_checks.h"
#include "comm/handle/handle.h"

namespace moe {

void Handle::describeSent(const moeSent_t& sent, moeStream_t stream) {
  if (tokens_ < 0) {
    throw Error(moeInvalidUsage, "moeHandleGetSent: moeRoute has not been called on this handle");
  }
  const std::array<Extent, 4> outputs = {
      {{"sent.tokensPerRank", sent.tokensPerRank, std::int64_t{room_.view.nranks} * 4},
       {"sent.tokensPerDomain", sent.tokensPerDomain, std::int64_t{view_.domains} * 4},
       {"sent.tokensPerExpert", sent.tokensPerExpert, std::int64_t{shape_.map.experts} * 4},
       {"sent.tokenToRank", sent.tokenToRank, std::int64_t{tokens_} * room_.view.nranks}}};
  for (const Extent& output : outputs) {
    if (output.begin != sent.tokenToRank) requireAligned(output.begin, output.name, alignof(std::int32_t));
    windowOffset(output.begin, static_cast<std::uint64_t>(output.bytes), output.name);
    for (const Extent* other = outputs.data(); other != &output; ++other) requireApart(output, *other);
  }
  StepParams p = params();
  p.describe = {
      tokens_, sent.tokensPerRank, sent.tokensPerDomain, sent.tokensPerExpert, sent.tokenToRank, nullptr, nullptr,
      nullptr};
  launch(Step::describe, p, comm_.backend().shapeFor({Step::describe, shape_.tokensMax, tokens_, 0, 0}), stream);
}

DescribeArgs Handle::describeArgs(const moeDispatchArgs_t& args) const {
  for (const auto& [pointer, name] : {std::pair{static_cast<const void*>(args.outLayoutRange), "args.outLayoutRange"},
                                      {static_cast<const void*>(args.outRowExperts), "args.outRowExperts"}}) {
    if (pointer == nullptr || rowsPerExpert()) continue;
    throw Error(
        moeInvalidArgument,
        fmt::format("{} is {}, but the layout has no row per expert: it is for EXPERT_MAJOR layouts", name, pointer));
  }
  requireAligned(args.outLayoutRange, "args.outLayoutRange", alignof(std::int64_t));
  requireAligned(args.outSourceInfo, "args.outSourceInfo", alignof(std::int32_t));
  requireAligned(args.outRowExperts, "args.outRowExperts", alignof(std::int32_t));
  DescribeArgs out{};
  out.layoutRange = args.outLayoutRange;
  out.sourceInfo = args.outSourceInfo;
  out.rowExperts = args.outRowExperts;
  return out;
}

// Behind an operation that has brought rows, if its caller wants to know more of them.
void Handle::describeArrived(const StepParams& p, moeStream_t stream) {
  const DescribeArgs& d = p.describe;
  if (d.layoutRange == nullptr && d.sourceInfo == nullptr && d.rowExperts == nullptr) return;
  // An expert's rows are looked for by one warp, as a chunk of tokens would be.
  const int rows = arrivingRowsGuess(p.dispatch.tokens) + kChunkTokens * shape_.map.count(room_.view.rank);
  launch(Step::describe, p, comm_.backend().shapeFor({Step::describe, shape_.tokensMax, rows, 0, comm_.config().sms}),
         stream);
}

}  // namespace moe
