// Shared by all work of moe_perf on rows: the rows, the payload, and the place of findings.
#pragma once

#include <cstdint>

#include "perf/payload/payload.h"

#if !defined(__CUDA_ARCH__)
#include <algorithm>
#include <bit>
#endif

namespace moe::perf {

// Sums over all checks of a run, in device memory.
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
  std::int32_t rank;  // the expert's rank
};

// One row that must have arrived: its index in the layout, and its entries on this rank (one in EXPERT_MAJOR layouts).
struct RowSpec {
  std::int64_t row;
  std::int32_t source;
  std::int32_t token;
  std::int32_t entryBegin;
  std::int32_t entryCount;
};

// Which side multiplies by the weight, and what is rounded to the row type on the way.
enum class ExpertStyle : int {
  summed,   // one row per token: the sum of weight * y over the rank's experts is rounded
  apply,    // one row per expert: y is rounded, combine multiplies
  applied,  // one row per expert: weight * y is rounded, combine adds
};

// The term that one expert adds to its token's sum, with the rounding that the rows go through.
MOE_PERF_BOTH float expertTerm(ExpertStyle style, Format format, const Entry& entry, float x) {
  const ExpertFunction expert = expertFunction(entry.expert);
  const float y = expert.multiplier * x + expert.offset;
  if (style == ExpertStyle::apply) return entry.weight * rounded(format, y);
  if (style == ExpertStyle::applied) return rounded(format, entry.weight * y);
  return entry.weight * y;
}

// Selects the payload. `iteration` points to the counter that Advance increments, so that a captured graph changes its
// data.
struct PayloadOf {
  std::uint64_t seed;
  const std::uint32_t* iteration;

  MOE_PERF_BOTH std::uint64_t key(int source, int token) const { return rowKey(seed, *iteration, source, token); }
};

// Checks with a stride look at one of that many groups of columns. The choice changes with iteration and token.
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

// Where the side payload of rows lies. NULL: there is none.
template <class T>
struct SideArray {
  T* first;
  std::int64_t rowStride, wordStride;

  MOE_PERF_BOTH T& at(std::int64_t row, int index) const { return first[row * rowStride + index * wordStride]; }
};

MOE_PERF_BOTH float sideValue(std::uint64_t key, const RowShape& shape, int index) {
  return index < shape.scaleBlocks() ? scaleOf(key, index) : 0.0F;
}

}  // namespace moe::perf
