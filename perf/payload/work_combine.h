// Checks what combine returned. See payload/work.h.
#pragma once

#include "perf/payload/work_rows.h"

namespace moe::perf {

// Recomputes each element from the token's own payload, twice. One result is bit-exact, in the order that moecomm.h
// states (fp32 sums per rank in top-k order, rounded to the row type, then over the ranks). The other is in double, for
// the error measure. Across domains the own domain comes first, then the others: their ranks (LL), or one rounded sum
// of each (HT).
struct VerifyCombine {
  PayloadOf payloadOf;
  RowShape shape;
  ExpertStyle style;
  std::int32_t source;
  std::int32_t tokens;
  const Entry* entries;              // by token, then by rank, then in top-k order, without unused ones
  const std::int32_t* entryOffsets;  // [tokens + 1]
  std::int32_t stride;               // as in VerifyRows
  const void* out;
  Findings* findings;
  std::int32_t domainSize = 0;  // 0: one domain
  bool domainSums = false;

  MOE_PERF_BOTH std::int64_t rowCount() const { return tokens; }
  MOE_PERF_BOTH int domainOf(std::int32_t rank) const { return domainSize == 0 ? 0 : rank / domainSize; }
  MOE_PERF_BOTH void operator()(std::int64_t token, int first, int step) const {
    const Format format = combineFormat(shape.format);
    const std::uint64_t key = payloadOf.key(source, static_cast<int>(token));
    const void* row = static_cast<const char*>(out) + token * shape.hidden * elementBytes(format);
    unsigned long long wrong = 0;
    double worst = 0;
    for (int group = sampleBegin(payloadOf, static_cast<int>(token), stride) + first * stride; group < shape.groups();
         group += step * stride) {
      const GroupValues x = payload(key, group);
      const GroupValues actual = loadGroup(format, row, group);
      const float scale = shape.sideFloats == 0 ? 1.0F : scaleOf(key, group * kGroup / kScaleColumns);
      for (int i = 0; i < kGroup; ++i) {
        wrong += check(token, format, x.value[i] * scale, actual.value[i], &worst) ? 0 : 1;
      }
    }
    addTo(&findings->wrongCombines, wrong);
    raiseTo(&findings->maxRelErrorBits, worst);
  }

 private:
  // Adds to `total` the token's sums of the ranks of its own domain, or of the ranks of the others.
  MOE_PERF_BOTH float addRanks(float total, bool own, std::int64_t token, Format format, float x) const {
    float ofRank = 0;
    float ofDomain = 0;
    for (int i = entryOffsets[token]; i < entryOffsets[token + 1]; ++i) {
      const Entry entry = entries[i];
      if ((domainOf(entry.rank) == domainOf(source)) != own) continue;
      const std::int32_t next = i + 1 == entryOffsets[token + 1] ? -1 : entries[i + 1].rank;
      ofRank += expertTerm(style, format, entry, x);
      if (next == entry.rank) continue;
      const float row = rounded(format, ofRank);
      ofRank = 0;
      if (own || !domainSums) {
        total += row;
        continue;
      }
      ofDomain += row;
      if (next >= 0 && domainOf(next) == domainOf(entry.rank)) continue;
      total += rounded(format, ofDomain);
      ofDomain = 0;
    }
    return total;
  }

  MOE_PERF_BOTH bool check(std::int64_t token, Format format, float x, float actual, double* worst) const {
    const float total = addRanks(addRanks(0, true, token, format, x), false, token, format, x);
    double exact = 0;
    double magnitude = 0;
    for (int i = entryOffsets[token]; i < entryOffsets[token + 1]; ++i) {
      const Entry entry = entries[i];
      const ExpertFunction expert = expertFunction(entry.expert);
      const double term =
          static_cast<double>(entry.weight) * (static_cast<double>(expert.multiplier) * x + expert.offset);
      exact += term;
      magnitude += term < 0 ? -term : term;
    }
    const double difference = actual < exact ? exact - actual : actual - exact;
    // Written so that a NaN difference counts as the worst.
    if (magnitude > 0 && !(difference / magnitude <= *worst)) *worst = difference / magnitude;
    return actual == rounded(format, total);
  }
};

}  // namespace moe::perf
