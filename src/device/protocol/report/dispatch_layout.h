// Which ranks and experts some ids lead to, counted from the ids alone: moeGetDispatchLayout. It needs no handle and no
// communicator. See docs/decisions/0117-dispatch-layout.md.
#pragma once

#include "device/policy/contract.h"
#include "device/protocol/core/shares.h"
#include "device/view/layout_args.h"

namespace moe {

// A warp of the policy is a block here. Each block has some ranks and looks up all ids, so no two blocks count for the
// same rank, and no kernel must have cleared the counts before.
template <Computes Warp>
class DispatchLayout {
 public:
  MOE_LANES DispatchLayout(const Warp& policy, const LayoutArgs& args, WarpIndex w) : warp(policy), a_(args), w_(w) {}

  MOE_LANES void run() const {
    MOE_ROLLED
    for (int rank = w_.index; rank < a_.map.nranks; rank += w_.count) countRank(rank);
  }

 private:
  MOE_LANES void countRank(int rank) const {
    const Range experts = expertsOf({rank, rank + 1});
    if (a_.tokensPerExpert != nullptr) countExperts(experts);
    if (a_.tokenToRank != nullptr) {
      warp.forEach(a_.tokens, [&](int token) {
        a_.tokenToRank[std::int64_t{token} * a_.map.nranks + rank] = goesTo(token, experts) ? 1 : 0;
      });
    }
    if (a_.tokensPerRank != nullptr) store(a_.tokensPerRank + rank, countTokens(experts));
    if (a_.tokensPerDomain == nullptr || rank % a_.domainSize != 0) return;
    const Range domain = expertsOf({rank, rank + a_.domainSize});
    store(a_.tokensPerDomain + rank / a_.domainSize, countTokens(domain));
  }
  MOE_LANES Range expertsOf(Range ranks) const { return {a_.map.first(ranks.begin), a_.map.first(ranks.end)}; }

  MOE_LANES void countExperts(Range experts) const {
    warp.forEach(experts.end - experts.begin, [&](int i) { a_.tokensPerExpert[experts.begin + i] = 0; });
    warp.forEach(a_.tokens, [&](int token) {
      MOE_ROLLED
      for (int k = 0; k < a_.topk; ++k) {
        const std::int64_t id = entry(token, k);
        if (!isIn(id, experts)) continue;
        warp.laneAdd(reinterpret_cast<std::uint32_t*>(a_.tokensPerExpert) + id, 1u);
      }
    });
  }
  MOE_LANES int countTokens(Range experts) const {
    return warp.scanInOrder(
        a_.tokens, [&](int token) { return goesTo(token, experts) ? 1 : 0; }, [](int, int) {});
  }

  MOE_LANES bool goesTo(int token, Range experts) const {
    bool goes = false;
    for (int k = 0; k < a_.topk; ++k) goes = goes || isIn(entry(token, k), experts);
    return goes;
  }
  MOE_LANES std::int64_t entry(int token, int k) const {
    const std::int64_t at = std::int64_t{token} * a_.topk + k;
    return a_.wideIds ? static_cast<const std::int64_t*>(a_.ids)[at] : static_cast<const std::int32_t*>(a_.ids)[at];
  }
  static MOE_LANES bool isIn(std::int64_t id, Range experts) { return id >= experts.begin && id < experts.end; }

  MOE_LANES void store(std::int32_t* to, int value) const {
    warp.forEach(1, [&](int) { *to = value; });
  }

  const Warp& warp;
  const LayoutArgs& a_;
  WarpIndex w_;
};

}  // namespace moe
