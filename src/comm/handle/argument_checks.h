// Checks of single arguments. Each throws moeInvalidArgument with a sentence that names the argument and its value.
#pragma once

#include <cstddef>
#include <cstdint>

namespace moe {

void requireRange(const char* name, std::int64_t value, std::int64_t least, std::int64_t most);

// `when` ends the sentence "args.rows is NULL ...".
void requirePointer(const void* pointer, const char* name, const char* when);

// NULL counts as aligned.
void requireAligned(const void* pointer, const char* name, std::size_t alignment);

// Memory that a call uses, as far as the host knows. The call may use more.
struct Extent {
  const char* name;
  const void* begin;
  std::int64_t bytes;
};

// Throws if an output shares a byte with `other`.
void requireApart(const Extent& output, const Extent& other);

}  // namespace moe
