// moeGetDispatchLayout: checks, and the count itself.
#include <fmt/format.h>

#include <array>

#include "comm/config/config.h"
#include "comm/handle/call_checks.h"
#include "comm/handle/calls.h"
#include "device/kernels/host_steps.h"
#include "device/view/layout_args.h"

namespace moe {
namespace {

void checkSizes(int tokens, const moeDispatchLayout_t& layout) {
  requireRange("tokens", tokens, 0, Limits::kTokens);
  requireRange("layout.backend", layout.backend, moeBackendHost, moeBackendCuda);
  if (layout.device < -1) refuse(fmt::format("layout.device is {}, must be -1 or more", layout.device));
  requireRange("layout.indexType", layout.indexType, moeIndexInt32, moeIndexInt64);
  requireRange("layout.topk", layout.topk, 1, Limits::kTopk);
  requireRange("layout.nranks", layout.nranks, 1, Limits::kRanks);
  requireRange("layout.experts", layout.experts, layout.nranks, Limits::kExperts);
  if (layout.domainSize < 0 || (layout.domainSize > 0 && layout.nranks % layout.domainSize != 0)) {
    refuse(fmt::format("layout.domainSize is {}, must be 0 or a divisor of layout.nranks, which is {}",
                       layout.domainSize, layout.nranks));
  }
}

void checkArrays(const void* topkIdx, const LayoutArgs& a) {
  if (a.tokens > 0) requirePointer(topkIdx, "topkIdx", "although there are tokens");
  const std::int64_t idBytes = a.wideIds ? 8 : 4, ranks = a.map.nranks;
  requireAligned(topkIdx, "topkIdx", static_cast<std::size_t>(idBytes));
  const Extent ids{"topkIdx", topkIdx, std::int64_t{a.tokens} * a.topk * idBytes};
  const std::array<Extent, 4> outputs = {
      {{"layout.tokensPerRank", a.tokensPerRank, ranks * 4},
       {"layout.tokensPerDomain", a.tokensPerDomain, ranks / a.domainSize * 4},
       {"layout.tokensPerExpert", a.tokensPerExpert, std::int64_t{a.map.experts} * 4},
       {"layout.tokenToRank", a.tokenToRank, std::int64_t{a.tokens} * ranks}}};
  for (const Extent& output : outputs) {
    if (output.begin != a.tokenToRank) requireAligned(output.begin, output.name, alignof(std::int32_t));
    requireApart(output, ids);
    for (const Extent* other = outputs.data(); other != &output; ++other) requireApart(output, *other);
  }
}

}  // namespace

void dispatchLayout(const void* topkIdx, int tokens, const moeDispatchLayout_t& layout, moeStream_t stream) {
  checkSizes(tokens, layout);
  const LayoutArgs args{.ids = topkIdx,
                        .tokens = tokens,
                        .topk = layout.topk,
                        .wideIds = layout.indexType == moeIndexInt64,
                        .domainSize = layout.domainSize > 0 ? layout.domainSize : layout.nranks,
                        .map = ExpertMap(layout.experts, layout.nranks),
                        .byTopk = divisorOf(layout.topk),
                        .tokensPerRank = layout.tokensPerRank,
                        .tokensPerDomain = layout.tokensPerDomain,
                        .tokensPerExpert = layout.tokensPerExpert,
                        .tokenToRank = layout.tokenToRank};
  checkArrays(topkIdx, args);
  if (layout.backend == moeBackendCuda) return countLayout(args, layout.device, stream);
  runLayout(args);
}

}  // namespace moe
