// Codes a row in a wire format with the library, and reads one that has come, on one lane.
#pragma once

#include <vector>

#include "device/rows/wire_sums.h"
#include "support/cases/library_cast.h"

namespace moe::test {

// One sum of one row.
struct OneWireSum {
  WireRow format;
  const std::uint8_t* from;
  std::uint8_t* to;
  WirePart which;

  int count() const { return 1; }
  int rowType() const { return kFp32; }
  int termsMax() const { return 1; }
  WireRow wire() const { return format; }
  WirePart part(int) const { return which; }
  int coded(int) const { return 1; }
  SumJob job(int) const { return {to, static_cast<std::uint32_t>(format.elements) * 4, 1}; }
  const std::uint8_t* term(int, int) const { return from; }
};
struct CodedWireSum : OneWireSum {
  static constexpr bool kCodes = true, kReads = false;
};
struct ReadWireSum : OneWireSum {
  static constexpr bool kCodes = false, kReads = true;
};

struct PlainMemory {
  static bool load(int, void* to, const std::uint8_t* from, std::uint32_t bytes) {
    std::memcpy(to, from, bytes);
    return true;
  }
  static bool look(int term, void* to, const std::uint8_t* from, std::uint32_t bytes) {
    return load(term, to, from, bytes);
  }
  static void store(std::uint8_t* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }
};

// In parts of `partUnits` units; with 0 in one.
template <class List>
void makeWireSum(const WireRow& wire, const std::uint8_t* from, std::uint8_t* to, int partUnits) {
  const int each = partUnits == 0 ? wire.elements : partUnits * kWireUnit, parts = (wire.elements + each - 1) / each;
  for (int i = 0; i < parts; ++i) {
    const WirePart part{i * each, std::min((i + 1) * each, wire.elements), i, parts};
    const List list{{wire, from, to, part}};
    WireSum<Fp32, List, PlainMemory>(list, 0, PlainMemory{}).make(0, 1);
  }
}

inline Bytes wireOfLibrary(int type, const std::vector<float>& sums, int partUnits = 0) {
  const WireRow wire{type, static_cast<int>(sums.size())};
  Bytes row(wire.bytes());
  makeWireSum<CodedWireSum>(wire, reinterpret_cast<const std::uint8_t*>(sums.data()), row.data(), partUnits);
  return row;
}

inline std::vector<float> readByLibrary(int type, const Bytes& row, int elements, int partUnits = 0) {
  const WireRow wire{type, elements};
  std::vector<float> values(static_cast<std::size_t>(elements));
  makeWireSum<ReadWireSum>(wire, row.data(), reinterpret_cast<std::uint8_t*>(values.data()), partUnits);
  return values;
}

}  // namespace moe::test
