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
    if (a_.tokensPerExpert != nullptr || a_.tokenToRank != nullptr) {
      clear(rank, experts);
      countEntries(rank, experts);
    }
    if (a_.tokensPerRank != nullptr) store(a_.tokensPerRank + rank, countTokens(rank, experts));
    if (a_.tokensPerDomain == nullptr || rank % a_.domainSize != 0) return;
    const Range domain = expertsOf({rank, rank + a_.domainSize});
    store(a_.tokensPerDomain + rank / a_.domainSize, sumOver([&](int token) { return goesTo(token, domain); }));
  }
  MOE_LANES Range expertsOf(Range ranks) const { return {a_.map.first(ranks.begin), a_.map.first(ranks.end)}; }
  MOE_LANES std::uint8_t& mark(int token, int rank) const {
    return a_.tokenToRank[std::int64_t{token} * a_.map.nranks + rank];
  }

  MOE_LANES void clear(int rank, Range experts) const {
    if (a_.tokensPerExpert != nullptr) {
      warp.forEach(experts.end - experts.begin, [&](int i) { a_.tokensPerExpert[experts.begin + i] = 0; });
    }
    if (a_.tokenToRank != nullptr) warp.forEach(a_.tokens, [&](int token) { mark(token, rank) = 0; });
  }
  // A lane for each entry, so that neighbours read what lies side by side. Entries of a token may mark it at once.
  MOE_LANES void countEntries(int rank, Range experts) const {
    constexpr int kAtOnce = 4;
    warp.template collect<kAtOnce>(
        a_.tokens * a_.topk, [&](int i) { return entry(i); },
        [&](int i, std::int64_t id) {
          if (!isIn(id, experts)) return;
          if (a_.tokensPerExpert != nullptr) {
            warp.laneAdd(reinterpret_cast<std::uint32_t*>(a_.tokensPerExpert) + id, 1u);
          }
          if (a_.tokenToRank != nullptr) mark(a_.byTopk.of(i), rank) = 1;
        });
  }
  MOE_LANES int countTokens(int rank, Range experts) const {
    if (a_.tokenToRank != nullptr) return sumOver([&](int token) { return mark(token, rank) != 0; });
    return sumOver([&](int token) { return goesTo(token, experts); });
  }
  template <class Counts>
  MOE_LANES int sumOver(Counts counts) const {
    return warp.scanInOrder(
        a_.tokens, [&](int token) { return counts(token) ? 1 : 0; }, [](int, int) {});
  }

  MOE_LANES bool goesTo(int token, Range experts) const {
    bool goes = false;
    for (int k = 0; k < a_.topk; ++k) goes = goes || isIn(entry(token * a_.topk + k), experts);
    return goes;
  }
  // At most 2^25 entries: moeLimits_t.
  MOE_LANES std::int64_t entry(int i) const {
    return a_.wideIds ? static_cast<const std::int64_t*>(a_.ids)[i] : static_cast<const std::int32_t*>(a_.ids)[i];
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
