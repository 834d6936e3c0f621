// What a dispatch layout is counted from, and where the counts go: moeGetDispatchLayout. NULL: not wanted.
#pragma once

#include "device/view/shape.h"

namespace moe {

struct LayoutArgs {
  const void* ids;  // [tokens][topk] int64 if `wideIds`, else int32
  int tokens, topk;
  bool wideIds;
  int domainSize;  // ranks of a domain
  ExpertMap map;
  Divisor byTopk;
  std::int32_t *tokensPerRank, *tokensPerDomain, *tokensPerExpert;
  std::uint8_t* tokenToRank;  // [tokens][nranks]
};

}  // namespace moe
