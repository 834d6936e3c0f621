// The work of moe_perf on rows: fill the sources, run the experts, count wrong elements. Each kind is a plain struct
// that handles one row, so that the host runs it in a loop and the GPU as a kernel. No kind touches a message. A call
// handles the columns (or groups of columns) first, first + step, ... of a row. The host handles all of them in one
// call, and each thread of a GPU block its share.
#pragma once

#include <cstdint>
#include <variant>

#include "perf/payload/work_cast.h"
#include "perf/payload/work_combine.h"
#include "perf/payload/work_wire.h"

namespace moe::perf {

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
  SideArray<float> side;

  MOE_PERF_BOTH std::int64_t rowCount() const { return shape.sideFloats == 0 ? 0 : tokens; }
  MOE_PERF_BOTH void operator()(std::int64_t token, int first, int step) const {
    const std::uint64_t key = payloadOf.key(source, static_cast<int>(token));
    for (int i = first; i < shape.sideFloats; i += step) side.at(token, i) = sideValue(key, shape, i);
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
  std::int32_t stride;  // 1: every group; otherwise see sampleBegin
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
  SideArray<const float> side;
  Findings* findings;

  MOE_PERF_BOTH std::int64_t rowCount() const { return shape.sideFloats == 0 ? 0 : specCount; }
  MOE_PERF_BOTH void operator()(std::int64_t index, int first, int step) const {
    const RowSpec spec = specs[index];
    const std::uint64_t key = payloadOf.key(spec.source, spec.token);
    unsigned long long wrong = 0;
    for (int i = first; i < shape.sideFloats; i += step) {
      wrong += side.at(spec.row, i) == sideValue(key, shape, i) ? 0 : 1;
    }
    addTo(&findings->wrongPayloads, wrong);
  }
};

// Compares arrived rows as 32-bit words, `perRow` words each. Without specs it compares the first specCount rows.
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

// Compares rows with sums of other rows, in any order. The payloads are integers, so their fp32 sums are exact.
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
  const void* rows;             // as dispatched; NULL: the payload itself, for rows that are no longer exact
  SideArray<const float> side;  // scales
  void* out;                    // in the same layout, in combineFormat

  MOE_PERF_BOTH std::int64_t rowCount() const { return specCount; }
  MOE_PERF_BOTH void operator()(std::int64_t index, int first, int step) const {
    const RowSpec spec = specs[index];
    const Format format = combineFormat(shape.format);
    const std::uint64_t key = payloadOf.key(spec.source, spec.token);
    const void* from = rows == nullptr ? nullptr : static_cast<const char*>(rows) + spec.row * shape.rowBytes();
    void* to = static_cast<char*>(out) + spec.row * shape.hidden * elementBytes(format);
    for (int group = first; group < shape.groups(); group += step) {
      const float scale = side.first == nullptr ? 1.0F : side.at(spec.row, group * kGroup / kScaleColumns);
      GroupValues values = rows == nullptr ? payload(key, group) : loadGroup(shape.format, from, group);
      for (int i = 0; i < kGroup; ++i) values.value[i] = output(spec, format, values.value[i] * scale);
      storeGroup(format, to, group, values);
    }
  }

 private:
  MOE_PERF_BOTH float output(const RowSpec& spec, Format format, float x) const {
    const Entry* first = entries + spec.entryBegin;
    if (style == ExpertStyle::apply) {
      const ExpertFunction expert = expertFunction(first->expert);
      return expert.multiplier * x + expert.offset;
    }
    float sum = 0;
    for (int i = 0; i < spec.entryCount; ++i) sum += expertTerm(style, format, first[i], x);
    return sum;
  }
};

// ---- No work, but as many bytes of parameters as a step of the library: the cost of a launch ----

struct Nothing {
  static constexpr int kBytes = 1840;
  std::uint8_t parameters[kBytes];

  MOE_PERF_BOTH std::int64_t rowCount() const { return 1; }
  MOE_PERF_BOTH void operator()(std::int64_t, int, int) const {}
};

using Work = std::variant<FillRows, FillSide, Advance, VerifyRows, VerifySide, VerifyCast, VerifyWords, VerifySums,
                          RunExperts, VerifyCombine, VerifyWire, Nothing>;

}  // namespace moe::perf
