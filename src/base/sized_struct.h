// The rule for structs that start with `size`: a program and the library may be built with different versions of the
// header. Every API function reads its argument structs with readStruct and fills its results with writeStruct.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <type_traits>

#include "base/error.h"

namespace moe {

// No struct of this library will ever be larger. So a larger `size` was never set, and is refused.
inline constexpr std::size_t kStructBytesMax = 4096;

template <class T>
void checkStructSize(const T* user, const char* name) {
  static_assert(std::is_trivially_copyable_v<T> && std::is_standard_layout_v<T>);
  static_assert(std::is_same_v<decltype(T::size), std::size_t> && offsetof(T, size) == 0);
  if (user == nullptr) throw Error(moeInvalidArgument, std::string(name) + " is NULL");
  const std::size_t size = user->size;
  if (size < sizeof(std::size_t) || size > kStructBytesMax || size % alignof(T) != 0) {
    throw Error(moeInvalidArgument, std::string(name) + ".size is " + std::to_string(size) +
                                        "; start from the struct's INITIALIZER, which makes it " +
                                        std::to_string(sizeof(T)));
  }
}

// A copy of `*user` in this library's layout. Fields that an older caller does not have keep the value of `defaults`
// (the struct's INITIALIZER). Fields that only a newer caller has must be zero, because the library cannot honour them.
template <class T>
T readStruct(const T* user, const char* name, const T& defaults) {
  checkStructSize(user, name);
  const std::size_t size = user->size;
  T result = defaults;
  std::memcpy(&result, user, std::min(size, sizeof(T)));
  result.size = sizeof(T);
  const auto* bytes = reinterpret_cast<const unsigned char*>(user);
  for (std::size_t i = sizeof(T); i < size; ++i) {
    if (bytes[i] == 0) continue;
    throw Error(moeInvalidArgument, std::string(name) + " is newer than this library (" + std::to_string(size) + " > " +
                                        std::to_string(sizeof(T)) + " bytes) and uses a field that it does not know");
  }
  return result;
}

// Fills an output struct. Writes at most `user->size` bytes and leaves `size` itself alone. An older caller gets the
// fields that it knows. A newer caller keeps its values in the fields that the library does not know.
template <class T>
void writeStruct(T* user, const T& value, const char* name = "the output struct") {
  checkStructSize(user, name);
  constexpr std::size_t kHead = sizeof(T::size);
  const std::size_t end = std::clamp(user->size, kHead, sizeof(T));
  std::memcpy(reinterpret_cast<unsigned char*>(user) + kHead, reinterpret_cast<const unsigned char*>(&value) + kHead,
              end - kHead);
}

}  // namespace moe
