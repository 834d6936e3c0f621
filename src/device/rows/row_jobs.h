// What the bulk operations of a policy work on: lists of jobs, each for one row or a part of one. A list is a struct
// that looks a job up when it is asked. Policies ask on any lane, and may ask more than once.
#pragma once

#include <concepts>
#include <type_traits>

#include "device/rows/row_math.h"
#include "device/view/failure.h"

namespace moe {

// Copy `bytes` from `source` to each of `sinks` places that is one, and `sideBytes` from `side` beside them. Both are
// 16-byte aligned, and multiples of 16 bytes. No sinks: nothing is done.
struct CopyJob {
  const std::uint8_t* source;
  std::uint32_t bytes;
  int sinks;
  const std::uint8_t* side = nullptr;
  std::uint32_t sideBytes = 0;
};

// A place of a row and of its side payload.
struct Sink {
  std::uint8_t *row, *side;  // NULL: nowhere
  bool here;                 // surely in this rank's own memory: a policy may store there by other means
};

// For streamRows: count() jobs, job(i), its places sink(i, 0..sinks-1), of which a job has at most sinksMax().
template <class List>
concept CopyList = requires(const List list, int i) {
  { list.count() } -> std::same_as<int>;
  { list.sinksMax() } -> std::same_as<int>;
  { list.job(i) } -> std::same_as<CopyJob>;
  { list.sink(i, i) } -> std::same_as<Sink>;
};
// Rows with side payloads.
template <class List>
concept HasSides = requires {
  requires List::kSides;
};
// Places are not looked up before mayPlace() has returned true; if it returns false, nothing is stored.
template <class List>
concept AsksPlaces = requires(const List list) {
  { list.mayPlace() } -> std::same_as<bool>;
};
MOE_LANES bool mayPlace(const CopyList auto& list) {
  if constexpr (AsksPlaces<std::remove_cvref_t<decltype(list)>>) {
    return list.mayPlace();
  } else {
    return true;
  }
}
// Rows, or sums, that are stored as landing words (landing.h).
template <class List>
concept MadeToLand = requires {
  requires List::kLanding;
};

// The fp32 sum of `terms` rows, in order, rounded to the row type. No terms: zeros. No bytes: nothing.
struct SumJob {
  std::uint8_t* out;
  std::uint32_t bytes;
  int terms;
};

// For reduceRows: count() sums of rows of type rowType(), job(i), its rows term(i, 0..terms-1), of which a job has at
// most termsMax(). The rest is there if it is needed.
template <class List>
concept SumList = requires(const List list, int i) {
  { list.count() } -> std::same_as<int>;
  { list.rowType() } -> std::same_as<int>;
  { list.termsMax() } -> std::same_as<int>;
  { list.job(i) } -> std::same_as<SumJob>;
  { list.term(i, i) } -> std::same_as<const std::uint8_t*>;
};
// Each row is multiplied by weight(i, term).
template <class List>
concept Weighted = requires(const List list, int i) {
  { list.weight(i, i) } -> std::same_as<float>;
};
// The first landed(i) rows of a sum are landing words: they are waited for, taken and left empty. One that does not
// come is reported as late(i, term).
template <class List>
concept TakesLanded = requires(const List list, int i) {
  { list.landed(i) } -> std::same_as<int>;
  { list.late(i, i) } -> std::same_as<Failure>;
};
// Rows are not read before mayRead() has returned true, which waits; if it returns false, not at all.
template <class List>
concept AsksFirst = requires(const List list) {
  { list.mayRead() } -> std::same_as<bool>;
};

MOE_LANES bool mayRead(const SumList auto& list) {
  if constexpr (AsksFirst<std::remove_cvref_t<decltype(list)>>) {
    return list.mayRead();
  } else {
    return true;
  }
}

// Runs `body` with the row type as a compile-time type: body(Bf16{}) and so on.
template <class Body>
MOE_LANES void withRowType(int rowType, Body body) {
  if (rowType == kBf16) {
    body(Bf16{});
  } else if (rowType == kFp16) {
    body(Fp16{});
  } else {
    body(Fp32{});
  }
}

}  // namespace moe
