// Sums in a wire format, as a policy makes them: rows are summed and coded, and the coded row is read back and summed
// with rows of the row type. nvcc compiles the lists for the GPU's policy, and the host compiler compiles them for
// WireSum on one lane. wire_test.cc compares the two.
#pragma once

#include <vector>

#include "device/rows/wire_sums.h"

namespace moe::test {

struct WireQuestion {
  int type, rowType, elements;
  int terms;  // rows
  int parts;  // parts of a row, one warp each
  bool lands;
  bool weighs;                     // rows are multiplied by their weights
  bool oneFormat;                  // bf16: by a policy for this format only
  std::vector<std::uint8_t> rows;  // [terms][elements]

  int rowBytes() const { return elements * elementBytes(rowType); }
  WireRow wire() const { return {type, elements}; }
};

struct WireAnswer {
  std::vector<std::uint8_t> coded;  // as plain words
  std::vector<std::uint8_t> sum;    // sum of the coded row and the rows
  std::vector<std::uint8_t> own;    // sum of the coded row and rows of which one is not coded yet
  bool leftEmpty = true;            // the places where words had landed
};

// The results of a warp for its part.
struct ProbeSum {
  WireRow format;
  WirePart which;
  int type, rowBytes, rowTerms;
  bool hasWeights;
  const std::uint8_t *rows, *codedRow;
  std::uint8_t* to;

  MOE_LANES int count() const { return 1; }
  MOE_LANES int rowType() const { return type; }
  MOE_LANES WireRow wire() const { return format; }
  MOE_LANES WirePart part(int) const { return which; }
};
template <bool kLand>
struct ProbeCoded : ProbeSum {
  static constexpr bool kLanding = kLand, kCodes = true, kReads = false;

  MOE_LANES int termsMax() const { return rowTerms; }
  MOE_LANES int coded(int) const { return 0; }
  MOE_LANES SumJob job(int) const { return {to, static_cast<std::uint32_t>(rowBytes), rowTerms}; }
  MOE_LANES const std::uint8_t* term(int, int term) const { return rows + std::ptrdiff_t{term} * rowBytes; }
  MOE_LANES bool weighs() const { return hasWeights; }
  MOE_LANES float weight(int, int term) const { return hasWeights ? 0.75f + 0.5f * static_cast<float>(term) : 1.0f; }
};
struct ProbeRead : ProbeSum {
  static constexpr bool kCodes = false, kReads = true;

  MOE_LANES int termsMax() const { return rowTerms + 1; }
  MOE_LANES int coded(int) const { return 1; }
  MOE_LANES SumJob job(int) const { return {to, static_cast<std::uint32_t>(rowBytes), rowTerms + 1}; }
  MOE_LANES const std::uint8_t* term(int, int term) const {
    return term == 0 ? codedRow : rows + std::ptrdiff_t{term - 1} * rowBytes;
  }
};
struct ProbeTaken : ProbeRead {
  MOE_LANES int landed(int) const { return 1; }
  MOE_LANES Failure late(int, int) const { return {}; }
};

// The coded row and the first row, which is not coded yet. An odd number of rows swaps the two; the last of many rows
// is added to them.
struct ProbeOwn : ProbeSum {
  static constexpr bool kCodes = false, kReads = true;

  MOE_LANES int own() const { return 1 - rowTerms % 2; }
  MOE_LANES int termsMax() const { return rowTerms > 4 ? 3 : 2; }
  MOE_LANES int coded(int) const { return 2; }
  MOE_LANES SumJob job(int) const { return {to, static_cast<std::uint32_t>(rowBytes), termsMax()}; }
  MOE_LANES bool isOwn(int, int term) const { return term == own(); }
  MOE_LANES const std::uint8_t* term(int, int term) const {
    if (term == 2) return rows + std::ptrdiff_t{rowTerms - 1} * rowBytes;
    return isOwn(0, term) ? rows : codedRow;
  }
};

// Part i of the question's.
MOE_HOST_DEVICE WirePart probePart(int elements, int parts, int i) {
  const int units = elements / kWireUnit, each = (units + parts - 1) / parts * kWireUnit;
  const int end = (i + 1) * each < elements ? (i + 1) * each : elements;
  return {i * each, end, i, (elements + each - 1) / each};
}

// The GPU's answer. Throws std::runtime_error with CUDA's text.
WireAnswer answerOfGpu(const WireQuestion& question);

}  // namespace moe::test
