// The lists that the bulk operations of a policy work on. A list has jobs, each for one row or a part of one. It is a
// struct that looks a job up on request. Policies request jobs on any lane, and may request a job more than once.
#pragma once

#include <algorithm>
#include <concepts>
#include <type_traits>

#include "device/rows/row_math.h"
#include "device/view/failure.h"

namespace moe {

// Copies `bytes` from `source` to each of the `sinks` places that is not NULL, and `sideBytes` from `side` beside them.
// Both are 16-byte aligned, and their sizes are multiples of 16 bytes. With no sinks, nothing is done.
struct CopyJob {
  const std::uint8_t* source;
  std::uint32_t bytes;
  int sinks;
  const std::uint8_t* side = nullptr;
  std::uint32_t sideBytes = 0;
};

// A place for a row and for its side payload.
struct Sink {
  std::uint8_t *row, *side;  // NULL: nothing is stored
  bool here;                 // certainly in this rank's own memory, so that a policy may store there by other means
};

// For streamRows: count() jobs job(i), and their places sink(i, 0..sinks-1). A job has at most sinksMax() places.
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
// Side payloads that are words of 32 bits. At a place, word w is stored at `side` + w * sideStride() words. A job has
// at most sideWords() of them.
template <class List>
concept ScattersSides = HasSides<List> && requires(const List list) {
  { list.sideWords() } -> std::same_as<int>;
  { list.sideStride() } -> std::same_as<std::int64_t>;
};
// Stores a job's side payload at one place by store(to, from, bytes). Words that have a
// stride are shared by `step` lanes: this call stores words first, first + step, and so on.
template <class List, class Store>
void storeSide(const List& list, const CopyJob& job, std::uint8_t* to, int first, int step, Store store) {
  if constexpr (ScattersSides<List>) {
    const int words = std::min(list.sideWords(), static_cast<int>(job.sideBytes / 4));
    for (int word = first; word < words; word += step)
      store(to + word * list.sideStride() * 4, job.side + std::ptrdiff_t{word} * 4, 4u);
  } else {
    store(to, job.side, job.sideBytes);
  }
}
// Lists whose places are not looked up before mayPlace() has returned true. If it returns false, nothing is stored.
template <class List>
concept AsksPlaces = requires(const List list) {
  { list.mayPlace() } -> std::same_as<bool>;
};
struct StartNothing {
  MOE_LANES void operator()() const {}
};
// Such lists with mayPlace(start) instead. They call start(), which begins to load rows, once their own look-ups are on
// their way, so that these need not wait for those loads.
template <class List>
concept StartsRows = requires(const List list) {
  { list.mayPlace(StartNothing{}) } -> std::same_as<bool>;
};
// `start`: begins to load the first rows, if the policy does so before it knows their places.
template <class Start>
MOE_LANES bool mayPlace(const auto& list, Start start) {
  using List = std::remove_cvref_t<decltype(list)>;
  if constexpr (StartsRows<List>) {
    return list.mayPlace(start);
  } else {
    start();
    if constexpr (AsksPlaces<List>) return list.mayPlace();
    return true;
  }
}
MOE_LANES bool mayPlace(const auto& list) {
  return mayPlace(list, StartNothing{});
}
// Rows, or sums, that are stored as landing words (landing.h).
template <class List>
concept MadeToLand = requires {
  requires List::kLanding;
};

// The fp32 sum of `terms` rows, in order, rounded to the row type. With no terms the sum is zero. With no bytes nothing
// is done.
struct SumJob {
  std::uint8_t* out;
  std::uint32_t bytes;
  int terms;
};

// For reduceRows: count() sums job(i) of rows of type rowType(), and their rows term(i, 0..terms-1). A job has at most
// termsMax() terms. A policy whose warps are blocks also asks for terms from there to termsMax(), before it knows how
// many there are; it does not use the answers. The concepts below are optional members of such lists.
template <class List>
concept SumList = requires(const List list, int i) {
  { list.count() } -> std::same_as<int>;
  { list.rowType() } -> std::same_as<int>;
  { list.termsMax() } -> std::same_as<int>;
  { list.job(i) } -> std::same_as<SumJob>;
  { list.term(i, i) } -> std::same_as<const std::uint8_t*>;
};
// Sums in which each row is multiplied by weight(i, term).
template <class List>
concept Weighted = requires(const List list, int i) {
  { list.weight(i, i) } -> std::same_as<float>;
};
// Sums whose first landed(i) rows are landing words. These are awaited, taken and left empty. One that does not arrive
// is reported as late(i, term).
template <class List>
concept TakesLanded = requires(const List list, int i) {
  { list.landed(i) } -> std::same_as<int>;
  { list.late(i, i) } -> std::same_as<Failure>;
};
// Lists whose rows are not read before mayRead(), which waits, has returned true. If it returns false, they are not
// read at all.
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

// Calls `body` with the row type as a compile-time type: body(Bf16{}) and so on.
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
