// How the warps of a team divide work: tables by slices, rows by parts.
#pragma once

#include "device/view/views.h"

namespace moe {

struct Range {
  int begin, end;
};

// This warp's entries [begin, begin + count) of n entries. The entries are consecutive, which keeps their order.
struct Slice {
  int begin, count;
};
MOE_LANES Slice sliceOf(int n, WarpIndex w) {
  const int each = (n + w.count - 1) / w.count;
  const int begin = each * w.index < n ? each * w.index : n;
  return {begin, begin + each < n ? each : n - begin};
}

// This warp's items of [begin, end): those whose number is the warp's index modulo the number of warps.
struct Strided {
  int first, count, stride;
  MOE_LANES int at(int i) const { return first + i * stride; }
};
MOE_LANES Strided stridedOf(int begin, int end, WarpIndex w) {
  const int ahead = w.index - begin % w.count, first = begin + (ahead < 0 ? ahead + w.count : ahead);
  return {first, first < end ? (end - first + w.count - 1) / w.count : 0, w.count};
}

// A part of a row: item = row * parts + part.
struct PartOf {
  int row;
  std::uint32_t begin, bytes;
};
MOE_LANES PartOf partOf(const Parts& parts, std::uint32_t rowBytes, int item) {
  const int row = item / parts.count;
  const std::uint32_t begin = static_cast<std::uint32_t>(item - row * parts.count) * parts.bytes;
  const std::uint32_t left = rowBytes - begin;
  return {row, begin, left < parts.bytes ? left : parts.bytes};
}

// This warp's share of the parts of some rows.
struct PartShare {
  Parts parts;
  std::uint32_t rowBytes;
  Strided mine;

  static MOE_LANES PartShare of(Range rows, const Parts& parts, std::uint32_t rowBytes, WarpIndex w) {
    return {parts, rowBytes, stridedOf(rows.begin * parts.count, rows.end * parts.count, w)};
  }
  MOE_LANES int count() const { return mine.count; }
  MOE_LANES PartOf at(int i) const { return partOf(parts, rowBytes, mine.at(i)); }
};
MOE_LANES PartShare shareOf(Range rows, const Parts& parts, std::uint32_t rowBytes, WarpIndex w) {
  return PartShare::of(rows, parts, rowBytes, w);
}

}  // namespace moe
