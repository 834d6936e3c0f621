// Checks of single arguments, each with its sentence: moeInvalidArgument that names the argument and its value.
#pragma once

#include <cstddef>
#include <cstdint>

namespace moe {

void requireRange(const char* name, std::int64_t value, std::int64_t least, std::int64_t most);

// `when`: the rest of "args.rows is NULL ...".
void requirePointer(const void* pointer, const char* name, const char* when);

// NULL is aligned.
void requireAligned(const void* pointer, const char* name, std::size_t alignment);

// Memory of a call: as much as is known of it, which may be less than the call uses.
struct Extent {
  const char* name;
  const void* begin;
  std::int64_t bytes;
};

// An output shares no byte with `other`.
void requireApart(const Extent& output, const Extent& other);

}  // namespace moe
