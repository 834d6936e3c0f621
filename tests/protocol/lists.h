// Lists of jobs for the bulk operations of policies, made from callables.
#pragma once

#include "device/policy/contract.h"

namespace moe::test {

template <bool kWithSides, bool kLands, class JobOf, class SinkOf>
struct CopiesOf {
  static constexpr bool kSides = kWithSides, kLanding = kLands;
  int n, most;
  JobOf jobOf;
  SinkOf sinkOf;

  int count() const { return n; }
  int sinksMax() const { return most; }
  CopyJob job(int i) const { return jobOf(i); }
  Sink sink(int i, int ordinal) const { return sinkOf(i, ordinal); }
};
template <bool kWithSides = false, bool kLands = false, class JobOf, class SinkOf>
auto copiesOf(int n, int most, JobOf jobOf, SinkOf sinkOf) {
  return CopiesOf<kWithSides, kLands, JobOf, SinkOf>{n, most, jobOf, sinkOf};
}

// One sum of `terms` rows, which termOf(term) locates.
template <bool kLands, class TermOf>
struct SumOf {
  static constexpr bool kLanding = kLands;
  int type;
  SumJob sum;
  TermOf termOf;

  int count() const { return 1; }
  int rowType() const { return type; }
  int termsMax() const { return sum.terms; }
  SumJob job(int) const { return sum; }
  const std::uint8_t* term(int, int term) const { return termOf(term); }
};
template <bool kLands = false, class TermOf>
auto sumOf(int type, const SumJob& sum, TermOf termOf) {
  return SumOf<kLands, TermOf>{type, sum, termOf};
}

template <class TermOf, class WeightOf>
struct WeightedSumOf : SumOf<false, TermOf> {
  WeightOf weightOf;
  float weight(int, int term) const { return weightOf(term); }
};
template <class TermOf, class WeightOf>
auto weightedSumOf(int type, const SumJob& sum, TermOf termOf, WeightOf weightOf) {
  return WeightedSumOf<TermOf, WeightOf>{{type, sum, termOf}, weightOf};
}

// The first `landing` rows consist of landing words. If row `term` is late, the failure names rank `firstLate` + term.
template <class TermOf>
struct LandedSumOf : SumOf<false, TermOf> {
  int landing, firstLate;
  int landed(int) const { return landing; }
  Failure late(int, int term) const { return lateRank(Phase::combineRows, firstLate + term, 0, 0); }
};
template <class TermOf>
auto landedSumOf(int type, const SumJob& sum, int landing, int firstLate, TermOf termOf) {
  return LandedSumOf<TermOf>{{type, sum, termOf}, landing, firstLate};
}

}  // namespace moe::test
