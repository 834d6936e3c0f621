// The vocabulary of moecomm.hpp: errors, spans, and the row type of an element type. Included by moecomm.hpp.
#ifndef MOECOMM_BASICS_HPP_
#define MOECOMM_BASICS_HPP_

#include <moecomm.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

// CUDA's element types, known by name alone, so that CUDA's headers may come before, behind, or not at all.
struct __half;
struct __nv_bfloat16;

namespace moecomm {

// ---- Errors ---------------------------------------------------------------------------------------------------------

// Why a call was refused or failed. what() is the sentence that explains it.
class MOE_API Error : public std::runtime_error {
 public:
  Error(moeResult_t result, const std::string& sentence) : std::runtime_error(sentence), result_(result) {}
  moeResult_t result() const noexcept { return result_; }

 private:
  moeResult_t result_;
};

// Throws Error unless `result` is moeSuccess. For calls of the C interface that this header does not wrap.
//   comm  whose moeGetLastError has the sentence; nullptr for calls without a communicator
// After moeTimeout it takes up to two seconds, as moeGetLastError does.
inline void check(moeResult_t result, moeComm_t comm = nullptr) {
  if (result == moeSuccess) return;
  const std::string sentence = moeGetLastError(comm);
  throw Error(result, sentence.empty() ? moeGetErrorString(result) : sentence);
}

// ---- Spans ----------------------------------------------------------------------------------------------------------

// An array of the caller: its address and its number of elements. Containers with contiguous elements convert to it,
// std::vector, std::array, std::span and WindowMemory among them. Device memory: Span(pointer, elements).
// It owns nothing. The memory must stay valid as moecomm.h says of the argument.
template <class T>
class Span {
  template <class Container>
  using ElementOf = std::remove_pointer_t<decltype(std::data(std::declval<Container&>()))>;

 public:
  constexpr Span() noexcept = default;
  constexpr Span(T* data, std::size_t size) noexcept : data_(data), size_(size) {}
  // The arrays in the condition let elements become const, but not another type of element.
  template <class Container,
            std::enable_if_t<std::is_convertible_v<ElementOf<Container> (*)[], T (*)[]>, std::nullptr_t> = nullptr>
  constexpr Span(Container&& container) : data_(std::data(container)), size_(std::size(container)) {}

  constexpr T* data() const noexcept { return data_; }
  constexpr std::size_t size() const noexcept { return size_; }
  constexpr bool empty() const noexcept { return size_ == 0; }
  // The first `count` elements, of a container that is larger than the call. `count` is at most size().
  constexpr Span first(std::size_t count) const noexcept { return {data_, count}; }

 private:
  T* data_ = nullptr;
  std::size_t size_ = 0;
};
template <class Container>
Span(Container&& container) -> Span<std::remove_pointer_t<decltype(std::data(container))>>;

// ---- Row types ------------------------------------------------------------------------------------------------------

// The moeRow value of an element type. A type of one's own joins by a specialisation:
//     template <> struct moecomm::RowType<my::Bfloat16> { static constexpr std::int32_t value = moeRowBf16; };
// Elements of all other types are opaque bytes: dispatch carries them, combine does not compile.
template <class Element>
struct RowType {
  static constexpr std::int32_t value = moeRowBytes;
};
template <>
struct RowType<float> {
  static constexpr std::int32_t value = moeRowFp32;
};
template <>
struct RowType<::__half> {
  static constexpr std::int32_t value = moeRowFp16;
};
template <>
struct RowType<::__nv_bfloat16> {
  static constexpr std::int32_t value = moeRowBf16;
};

// ---- How sizes are checked ------------------------------------------------------------------------------------------

namespace detail {

// The shapes that a handle expects of arrays, as far as the host knows them.
struct Shape {
  std::int32_t nranks = 0, localExperts = 0, topk = 0, layout = 0, indexType = 0;
  std::int32_t alignment = 1;    // of EXPERT_MAJOR groups
  std::int32_t bound = 0;        // most tokens of a rank in the route
  std::int64_t tokens = -1;      // of the route; -1: there was none, which the library refuses
  std::int64_t layoutRows = -1;  // of the route; -1: not known
  std::int64_t arrived = -1;     // tokens; -1: not known

  bool hasRowPerExpert() const noexcept {
    return layout == moeLayoutExpertMajor || layout == moeLayoutExpertMajorPadded;
  }
  // Rows of a layout whose rows do not depend on the route; otherwise -1.
  std::int64_t places() const noexcept {
    const std::int64_t arriving = std::int64_t{nranks} * bound;
    if (layout == moeLayoutRankMajor) return arriving;
    return layout == moeLayoutExpertMajorPadded ? localExperts * arriving : -1;
  }
};

struct Axis {
  const char* name;
  std::int64_t size;
};

// The elements of an array that came as a Span. Without `data`, or where the C struct has another address meanwhile,
// the size is not known and not checked.
struct Extent {
  const void* data = nullptr;
  std::size_t elements = 0;

  Extent() = default;
  template <class T>
  explicit Extent(Span<T> span) : data(span.data()), elements(span.size()) {}

  void require(const char* name, const void* field, std::initializer_list<Axis> axes) const {
    if (data == nullptr || data != field) return;
    std::int64_t needed = 1;
    for (const Axis& axis : axes) needed *= axis.size;
    if (elements < static_cast<std::uint64_t>(needed)) refuse(name, axes);
  }

 private:
  [[noreturn]] void refuse(const char* name, std::initializer_list<Axis> axes) const {
    std::string names, sizes;
    for (const Axis& axis : axes) {
      names += std::string("[") + axis.name + "]";
      sizes += "[" + std::to_string(axis.size) + "]";
    }
    throw Error(moeInvalidArgument, std::string(name) + " has " + std::to_string(elements) + " elements, must have " +
                                        names + " = " + sizes);
  }
};

inline std::int32_t toInt32(const char* name, std::size_t value) {
  if (value > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max()))
    throw Error(moeInvalidArgument, std::string(name) + " is " + std::to_string(value) + ", more than 2^31 - 1");
  return static_cast<std::int32_t>(value);
}

inline void requireIndexType(const char* name, std::int32_t has, std::int32_t wanted) {
  if (has == wanted) return;
  const auto bits = [](std::int32_t type) { return type == moeIndexInt64 ? "int64" : "int32"; };
  throw Error(moeInvalidArgument,
              std::string(name) + " holds " + bits(has) + ", but config.indexType of the handle is " + bits(wanted));
}

// `hidden` as the C structs have it: elements, or bytes of rows that are opaque.
template <class Element>
std::int32_t hiddenOf(std::int32_t elements) {
  if (RowType<Element>::value != moeRowBytes) return elements;
  if (elements < 0) throw Error(moeInvalidArgument, "hidden is " + std::to_string(elements) + ", must be positive");
  return toInt32("hidden in bytes", static_cast<std::size_t>(elements) * sizeof(Element));
}

inline std::size_t rowsIn(std::size_t elements, std::int32_t hidden) {
  return hidden > 0 ? elements / static_cast<std::size_t>(hidden) : 0;
}

}  // namespace detail
}  // namespace moecomm
#endif  // MOECOMM_BASICS_HPP_
