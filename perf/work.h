// The work of moe_perf on rows, as plain structs with one operation per index, so that the host runs them in a loop and
// the GPU as grid-stride kernels: fill the sources, run the experts, count wrong elements. They touch no message.
#pragma once

#include <cstdint>
#include <variant>

#include "payload.h"

#if !defined(__CUDA_ARCH__)
#include <algorithm>
#include <bit>
#endif

namespace moe::perf {

// Sums over all checks of a run, in memory of the device.
struct Findings {
  unsigned long long wrongPayloads;    // elements of rows and side payloads
  unsigned long long wrongMetadata;    // indices, weights, offsets
  unsigned long long wrongCombines;    // elements of combined rows
  unsigned long long maxRelErrorBits;  // a non-negative double
};

MOE_PERF_BOTH void addTo(unsigned long long* counter, unsigned long long count) {
  if (count == 0) return;
#if defined(__CUDA_ARCH__)
  atomicAdd(counter, count);
#else
  *counter += count;
#endif
}

MOE_PERF_BOTH void raiseTo(unsigned long long* bits, double value) {
#if defined(__CUDA_ARCH__)
  const auto candidate = static_cast<unsigned long long>(__double_as_longlong(value));
  if (candidate > *static_cast<volatile unsigned long long*>(bits)) atomicMax(bits, candidate);
#else
  *bits = std::max(*bits, std::bit_cast<unsigned long long>(value));
#endif
}

// One use of a token by an expert.
struct Entry {
  std::int32_t expert;
  float weight;
  std::int32_t rank;  // where the expert lives
};

// One row that must have arrived: its index in the layout, and its entries on this rank (one in EXPERT_MAJOR layouts).
struct RowSpec {
  std::int64_t row;
  std::int32_t source;
  std::int32_t token;
  std::int32_t entryBegin;
  std::int32_t entryCount;
};

// Who multiplies by the weight, and what is rounded to the row type on the way.
enum class ExpertStyle : int {
  kSummed,   // one row per token: the sum of weight * y over the rank's experts is rounded
  kApply,    // one row per expert: y is rounded, combine multiplies
  kApplied,  // one row per expert: weight * y is rounded, combine adds
};

// What one expert adds to its token's sum, with the rounding that the rows go through.
MOE_PERF_BOTH float expertTerm(ExpertStyle style, Format format, const Entry& entry, float x) {
  const ExpertFunction expert = expertFunction(entry.expert);
  const float y = expert.multiplier * x + expert.offset;
  if (style == ExpertStyle::kApply) return entry.weight * rounded(format, y);
  if (style == ExpertStyle::kApplied) return rounded(format, entry.weight * y);
  return entry.weight * y;
}

// Which payload: `iteration` points to the counter that Advance moves, so that a captured graph changes its data.
struct PayloadOf {
  std::uint64_t seed;
  const std::uint32_t* iteration;

  MOE_PERF_BOTH std::uint64_t key(int source, int token) const { return rowKey(seed, *iteration, source, token); }
};

struct RowShape {
  Format format;
  std::int32_t hidden;
  std::int32_t sideFloats;  // per row; 0: none

  MOE_PERF_BOTH int groups() const { return hidden / kGroup; }
  MOE_PERF_BOTH std::int64_t rowBytes() const { return static_cast<std::int64_t>(hidden) * elementBytes(format); }
  MOE_PERF_BOTH int scaleBlocks() const { return (hidden + kScaleColumns - 1) / kScaleColumns; }
};

MOE_PERF_BOTH float sideValue(std::uint64_t key, const RowShape& shape, int index) {
  return index < shape.scaleBlocks() ? scaleOf(key, index) : 0.0F;
}

// ---- Filling ----

struct FillRows {
  PayloadOf payloadOf;
  RowShape shape;
  std::int32_t source;
  std::int32_t tokens;
  void* rows;

  MOE_PERF_BOTH std::int64_t count() const { return static_cast<std::int64_t>(tokens) * shape.groups(); }
  MOE_PERF_BOTH void operator()(std::int64_t index) const {
    const auto token = static_cast<int>(index / shape.groups());
    const auto group = static_cast<int>(index % shape.groups());
    storeGroup(shape.format, static_cast<char*>(rows) + token * shape.rowBytes(), group,
               payload(payloadOf.key(source, token), group));
  }
};

struct FillSide {
  PayloadOf payloadOf;
  RowShape shape;
  std::int32_t source;
  std::int32_t tokens;
  float* side;

  MOE_PERF_BOTH std::int64_t count() const { return static_cast<std::int64_t>(tokens) * shape.sideFloats; }
  MOE_PERF_BOTH void operator()(std::int64_t index) const {
    const auto token = static_cast<int>(index / shape.sideFloats);
    side[index] = sideValue(payloadOf.key(source, token), shape, static_cast<int>(index % shape.sideFloats));
  }
};

struct Advance {
  std::uint32_t* iteration;

  MOE_PERF_BOTH std::int64_t count() const { return 1; }
  MOE_PERF_BOTH void operator()(std::int64_t) const { *iteration += 1; }
};

// ---- Checking what dispatch delivered ----

struct VerifyRows {
  PayloadOf payloadOf;
  RowShape shape;
  const RowSpec* specs;
  std::int64_t specCount;
  std::int32_t stride;  // 1: every group; n: every n-th of each row, another one in each iteration
  const void* rows;
  Findings* findings;

  MOE_PERF_BOTH int groupsChecked() const { return (shape.groups() + stride - 1) / stride; }
  MOE_PERF_BOTH std::int64_t count() const { return specCount * groupsChecked(); }
  MOE_PERF_BOTH void operator()(std::int64_t index) const {
    const RowSpec spec = specs[index / groupsChecked()];
    const auto phase = static_cast<int>((*payloadOf.iteration + static_cast<std::uint32_t>(spec.token)) %
                                        static_cast<std::uint32_t>(stride));
    const int group = static_cast<int>(index % groupsChecked()) * stride + phase;
    if (group >= shape.groups()) return;
    const GroupValues expected = payload(payloadOf.key(spec.source, spec.token), group);
    const GroupValues actual =
        loadGroup(shape.format, static_cast<const char*>(rows) + spec.row * shape.rowBytes(), group);
    unsigned long long wrong = 0;
    for (int i = 0; i < kGroup; ++i) wrong += actual.value[i] == expected.value[i] ? 0 : 1;
    addTo(&findings->wrongPayloads, wrong);
  }
};

struct VerifySide {
  PayloadOf payloadOf;
  RowShape shape;
  const RowSpec* specs;
  std::int64_t specCount;
  const float* side;
  Findings* findings;

  MOE_PERF_BOTH std::int64_t count() const { return specCount * shape.sideFloats; }
  MOE_PERF_BOTH void operator()(std::int64_t index) const {
    const RowSpec spec = specs[index / shape.sideFloats];
    const auto column = static_cast<int>(index % shape.sideFloats);
    const float expected = sideValue(payloadOf.key(spec.source, spec.token), shape, column);
    addTo(&findings->wrongPayloads, side[spec.row * shape.sideFloats + column] == expected ? 0 : 1);
  }
};

// Compares 32-bit words of the rows that arrived: `perRow` words of each. Without specs: the first specCount rows.
struct VerifyWords {
  const RowSpec* specs;
  std::int64_t specCount;
  std::int32_t perRow;
  const std::uint32_t* actual;    // [layout rows][perRow]
  const std::uint32_t* expected;  // [specCount][perRow]
  Findings* findings;

  MOE_PERF_BOTH std::int64_t count() const { return specCount * perRow; }
  MOE_PERF_BOTH void operator()(std::int64_t index) const {
    const std::int64_t spec = index / perRow;
    const std::int64_t row = specs == nullptr ? spec : specs[spec].row;
    addTo(&findings->wrongMetadata, actual[row * perRow + index % perRow] == expected[index] ? 0 : 1);
  }
};

// ---- Experts ----

struct RunExperts {
  RowShape shape;
  ExpertStyle style;
  const RowSpec* specs;
  std::int64_t specCount;
  const Entry* entries;
  const void* rows;   // as dispatched
  const float* side;  // scales, or NULL
  void* out;          // the same layout in combineFormat

  MOE_PERF_BOTH std::int64_t count() const { return specCount * shape.groups(); }
  MOE_PERF_BOTH void operator()(std::int64_t index) const {
    const RowSpec spec = specs[index / shape.groups()];
    const auto group = static_cast<int>(index % shape.groups());
    const Format format = combineFormat(shape.format);
    GroupValues values = loadGroup(shape.format, static_cast<const char*>(rows) + spec.row * shape.rowBytes(), group);
    const float scale = side == nullptr ? 1.0F : side[spec.row * shape.sideFloats + group * kGroup / kScaleColumns];
    for (int i = 0; i < kGroup; ++i) values.value[i] = output(spec, format, values.value[i] * scale);
    storeGroup(format, static_cast<char*>(out) + spec.row * shape.hidden * elementBytes(format), group, values);
  }

 private:
  MOE_PERF_BOTH float output(const RowSpec& spec, Format format, float x) const {
    const Entry* first = entries + spec.entryBegin;
    if (style == ExpertStyle::kApply) {
      const ExpertFunction expert = expertFunction(first->expert);
      return expert.multiplier * x + expert.offset;
    }
    float sum = 0;
    for (int i = 0; i < spec.entryCount; ++i) sum += expertTerm(style, format, first[i], x);
    return sum;
  }
};

// ---- Checking what combine returned ----

// Recomputes each element from the token's own payload: bit-exactly in the order that moecomm.h states (fp32 sums per
// rank in top-k order, rounded to the row type, then over the ranks), and in double for the error measure.
struct VerifyCombine {
  PayloadOf payloadOf;
  RowShape shape;
  ExpertStyle style;
  std::int32_t source;
  std::int32_t tokens;
  const Entry* entries;              // of each token, by rank, then in top-k order
  const std::int32_t* entryOffsets;  // [tokens + 1]
  const void* out;
  Findings* findings;

  MOE_PERF_BOTH std::int64_t count() const { return static_cast<std::int64_t>(tokens) * shape.groups(); }
  MOE_PERF_BOTH void operator()(std::int64_t index) const {
    const auto token = static_cast<int>(index / shape.groups());
    const auto group = static_cast<int>(index % shape.groups());
    const Format format = combineFormat(shape.format);
    const std::uint64_t key = payloadOf.key(source, token);
    const GroupValues x = payload(key, group);
    const GroupValues actual = loadGroup(
        format, static_cast<const char*>(out) + static_cast<std::int64_t>(token) * shape.hidden * elementBytes(format),
        group);
    const float scale = shape.sideFloats == 0 ? 1.0F : scaleOf(key, group * kGroup / kScaleColumns);
    unsigned long long wrong = 0;
    for (int i = 0; i < kGroup; ++i) wrong += check(token, format, x.value[i] * scale, actual.value[i]) ? 0 : 1;
    addTo(&findings->wrongCombines, wrong);
  }

 private:
  MOE_PERF_BOTH bool check(int token, Format format, float x, float actual) const {
    float total = 0;
    float partial = 0;
    double exact = 0;
    double magnitude = 0;
    for (int i = entryOffsets[token]; i < entryOffsets[token + 1]; ++i) {
      const Entry entry = entries[i];
      partial += expertTerm(style, format, entry, x);
      const bool rankEnds = i + 1 == entryOffsets[token + 1] || entries[i + 1].rank != entry.rank;
      if (rankEnds) {
        total += rounded(format, partial);
        partial = 0;
      }
      const ExpertFunction expert = expertFunction(entry.expert);
      const double term =
          static_cast<double>(entry.weight) * (static_cast<double>(expert.multiplier) * x + expert.offset);
      exact += term;
      magnitude += term < 0 ? -term : term;
    }
    const double difference = actual - exact;
    if (magnitude > 0) raiseTo(&findings->maxRelErrorBits, (difference < 0 ? -difference : difference) / magnitude);
    return actual == rounded(format, total);
  }
};

using Work = std::variant<FillRows, FillSide, Advance, VerifyRows, VerifySide, VerifyWords, RunExperts, VerifyCombine>;

}  // namespace moe::perf
