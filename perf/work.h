// The work of moe_perf on rows, as plain structs that do one row at a time, so that the host runs them in a loop and
// the GPU as kernels: fill the sources, run the experts, count wrong elements. They touch no message. Of a row they do
// the columns (or groups of columns) first, first + step, ...: the host all of them, a thread of a GPU block its share.
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

// Checks with a stride look at one group of columns in so many; at which ones changes with iteration and token.
MOE_PERF_BOTH int sampleBegin(const PayloadOf& payloadOf, int token, int stride) {
  return static_cast<int>((*payloadOf.iteration + static_cast<std::uint32_t>(token)) %
                          static_cast<std::uint32_t>(stride));
}

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

  MOE_PERF_BOTH std::int64_t rowCount() const { return tokens; }
  MOE_PERF_BOTH void operator()(std::int64_t token, int first, int step) const {
    const std::uint64_t key = payloadOf.key(source, static_cast<int>(token));
    void* row = static_cast<char*>(rows) + token * shape.rowBytes();
    for (int group = first; group < shape.groups(); group += step) {
      storeGroup(shape.format, row, group, payload(key, group));
    }
  }
};

struct FillSide {
  PayloadOf payloadOf;
  RowShape shape;
  std::int32_t source;
  std::int32_t tokens;
  float* side;

  MOE_PERF_BOTH std::int64_t rowCount() const { return shape.sideFloats == 0 ? 0 : tokens; }
  MOE_PERF_BOTH void operator()(std::int64_t token, int first, int step) const {
    const std::uint64_t key = payloadOf.key(source, static_cast<int>(token));
    for (int i = first; i < shape.sideFloats; i += step) side[token * shape.sideFloats + i] = sideValue(key, shape, i);
  }
};

struct Advance {
  std::uint32_t* iteration;

  MOE_PERF_BOTH std::int64_t rowCount() const { return 1; }
  MOE_PERF_BOTH void operator()(std::int64_t, int first, int) const {
    if (first == 0) *iteration += 1;
  }
};

// ---- Checking what dispatch delivered ----

struct VerifyRows {
  PayloadOf payloadOf;
  RowShape shape;
  const RowSpec* specs;
  std::int64_t specCount;
  std::int32_t stride;  // 1: every group; else see sampleBegin
  const void* rows;
  Findings* findings;

  MOE_PERF_BOTH std::int64_t rowCount() const { return specCount; }
  MOE_PERF_BOTH void operator()(std::int64_t index, int first, int step) const {
    const RowSpec spec = specs[index];
    const std::uint64_t key = payloadOf.key(spec.source, spec.token);
    const void* row = static_cast<const char*>(rows) + spec.row * shape.rowBytes();
    unsigned long long wrong = 0;
    for (int group = sampleBegin(payloadOf, spec.token, stride) + first * stride; group < shape.groups();
         group += step * stride) {
      const GroupValues expected = payload(key, group);
      const GroupValues actual = loadGroup(shape.format, row, group);
      for (int i = 0; i < kGroup; ++i) wrong += actual.value[i] == expected.value[i] ? 0 : 1;
    }
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

  MOE_PERF_BOTH std::int64_t rowCount() const { return shape.sideFloats == 0 ? 0 : specCount; }
  MOE_PERF_BOTH void operator()(std::int64_t index, int first, int step) const {
    const RowSpec spec = specs[index];
    const std::uint64_t key = payloadOf.key(spec.source, spec.token);
    unsigned long long wrong = 0;
    for (int i = first; i < shape.sideFloats; i += step) {
      wrong += side[spec.row * shape.sideFloats + i] == sideValue(key, shape, i) ? 0 : 1;
    }
    addTo(&findings->wrongPayloads, wrong);
  }
};

// Rows that were cast on their way: a block's scale must be what its largest element asks for, and elements what is
// nearest. Powers of two give the payload's small integers exactly.
struct VerifyCast {
  PayloadOf payloadOf;
  RowShape shape;
  Cast cast;
  const RowSpec* specs;
  std::int64_t specCount;
  const void* rows;  // codes, `rowBytes` apart
  std::int64_t rowBytes;
  const void* scales;  // words, `scaleBytes` apart
  std::int64_t scaleBytes;
  Findings* findings;

  MOE_PERF_BOTH std::int64_t rowCount() const { return cast == Cast::kNone ? 0 : specCount; }
  MOE_PERF_BOTH void operator()(std::int64_t index, int first, int step) const {
    const RowSpec spec = specs[index];
    const std::uint64_t key = payloadOf.key(spec.source, spec.token);
    const char* row = static_cast<const char*>(rows) + spec.row * rowBytes;
    unsigned long long wrong = 0;
    for (int block = first; block < shape.hidden / kScaleColumns; block += step) {
      const float scale = scaleAt(spec.row, block);
      wrong += isScale(scale, largest(key, block)) ? 0 : 1;
      for (int group = block * kGroups; group < (block + 1) * kGroups; ++group) {
        const GroupValues expected = payload(key, group);
        const GroupValues codes = loadGroup(Format::kFp8, row, group);
        for (int i = 0; i < kGroup; ++i) wrong += isNear(codes.value[i] * scale, expected.value[i]) ? 0 : 1;
      }
    }
    addTo(&findings->wrongPayloads, wrong);
  }

 private:
  static constexpr int kGroups = kScaleColumns / kGroup;

  MOE_PERF_BOTH float scaleAt(std::int64_t row, int block) const {
    const char* words = static_cast<const char*>(scales) + row * scaleBytes;
    if (cast == Cast::kFp8) return loadAs<float>(words + 4 * block);
    return bitsFloat(static_cast<std::uint32_t>(loadAs<std::uint8_t>(words + block)) << 23);
  }
  MOE_PERF_BOTH static float largest(std::uint64_t key, int block) {
    float amax = 0;
    for (int group = block * kGroups; group < (block + 1) * kGroups; ++group) {
      const GroupValues values = payload(key, group);
      for (int i = 0; i < kGroup; ++i) {
        const float magnitude = values.value[i] < 0 ? -values.value[i] : values.value[i];
        amax = magnitude > amax ? magnitude : amax;
      }
    }
    return amax;
  }
  // 448 is the largest e4m3. A block of zeros has the scale of 1e-4.
  MOE_PERF_BOTH bool isScale(float scale, float amax) const {
    const double wanted = (amax > 1e-4F ? static_cast<double>(amax) : 1e-4) / 448;
    if (cast == Cast::kFp8) return scale > wanted * (1 - 1e-6) && scale < wanted * (1 + 1e-6);
    return scale >= wanted && scale < 2 * wanted;
  }
  MOE_PERF_BOTH bool isNear(float actual, float expected) const {
    const float difference = actual < expected ? expected - actual : actual - expected;
    if (cast == Cast::kFp8Ue8m0) return difference == 0;
    return difference <= (expected < 0 ? -expected : expected) * 0.0625001F;  // half of the last of 3 bits
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

  MOE_PERF_BOTH std::int64_t rowCount() const { return specCount; }
  MOE_PERF_BOTH void operator()(std::int64_t index, int first, int step) const {
    const std::int64_t row = specs == nullptr ? index : specs[index].row;
    unsigned long long wrong = 0;
    for (int i = first; i < perRow; i += step) {
      wrong += actual[row * perRow + i] == expected[index * perRow + i] ? 0 : 1;
    }
    addTo(&findings->wrongMetadata, wrong);
  }
};

// Compares rows with sums of others, in any order: the payloads are integers, of which fp32 sums are exact.
struct VerifySums {
  PayloadOf payloadOf;
  RowShape shape;
  const RowSpec* terms;             // by token
  const std::int32_t* termOffsets;  // [tokens + 1]
  std::int32_t tokens;
  const void* sums;
  Findings* findings;

  MOE_PERF_BOTH std::int64_t rowCount() const { return tokens; }
  MOE_PERF_BOTH void operator()(std::int64_t token, int first, int step) const {
    const void* row = static_cast<const char*>(sums) + token * shape.rowBytes();
    unsigned long long wrong = 0;
    for (int group = first; group < shape.groups(); group += step) {
      GroupValues expected{};
      for (int i = termOffsets[token]; i < termOffsets[token + 1]; ++i) {
        const GroupValues term = payload(payloadOf.key(terms[i].source, terms[i].token), group);
        for (int k = 0; k < kGroup; ++k) expected.value[k] += term.value[k];
      }
      const GroupValues actual = loadGroup(shape.format, row, group);
      for (int k = 0; k < kGroup; ++k) {
        wrong += actual.value[k] == rounded(shape.format, expected.value[k]) ? 0 : 1;
      }
    }
    addTo(&findings->wrongPayloads, wrong);
  }
};

// ---- Experts ----

struct RunExperts {
  PayloadOf payloadOf;
  RowShape shape;
  ExpertStyle style;
  const RowSpec* specs;
  std::int64_t specCount;
  const Entry* entries;
  const void* rows;   // as dispatched; NULL: the payload itself, of rows that are no longer exact
  const float* side;  // scales, or NULL
  void* out;          // the same layout in combineFormat

  MOE_PERF_BOTH std::int64_t rowCount() const { return specCount; }
  MOE_PERF_BOTH void operator()(std::int64_t index, int first, int step) const {
    const RowSpec spec = specs[index];
    const Format format = combineFormat(shape.format);
    const std::uint64_t key = payloadOf.key(spec.source, spec.token);
    const void* from = static_cast<const char*>(rows) + spec.row * shape.rowBytes();
    void* to = static_cast<char*>(out) + spec.row * shape.hidden * elementBytes(format);
    for (int group = first; group < shape.groups(); group += step) {
      const float scale = side == nullptr ? 1.0F : side[spec.row * shape.sideFloats + group * kGroup / kScaleColumns];
      GroupValues values = rows == nullptr ? payload(key, group) : loadGroup(shape.format, from, group);
      for (int i = 0; i < kGroup; ++i) values.value[i] = output(spec, format, values.value[i] * scale);
      storeGroup(format, to, group, values);
    }
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
  std::int32_t stride;               // as in VerifyRows
  const void* out;
  Findings* findings;

  MOE_PERF_BOTH std::int64_t rowCount() const { return tokens; }
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
  MOE_PERF_BOTH bool check(std::int64_t token, Format format, float x, float actual, double* worst) const {
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
    const double difference = actual < exact ? exact - actual : actual - exact;
    // Written so that a difference that is no number counts as the worst.
    if (magnitude > 0 && !(difference / magnitude <= *worst)) *worst = difference / magnitude;
    return actual == rounded(format, total);
  }
};

using Work = std::variant<FillRows, FillSide, Advance, VerifyRows, VerifySide, VerifyCast, VerifyWords, VerifySums,
                          RunExperts, VerifyCombine>;

}  // namespace moe::perf
