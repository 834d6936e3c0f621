// Checks of single arguments, and those that several calls of a handle share. Each throws moeInvalidArgument with a
// sentence that names the argument and its value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "comm/communicator/comm.h"

namespace moe {

inline const std::uint8_t* bytesOf(const void* pointer) {
  return static_cast<const std::uint8_t*>(pointer);
}

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

[[noreturn]] void refuse(const std::string& why);

// A row of a dispatch or combine; `call` is named.
void checkRow(const Room& room, std::int32_t rowType, std::int32_t hidden, const char* call);
// `names` ends the sentence "args.flags is 9, must be ...".
void checkFlags(std::int32_t flags, std::int32_t known, const char* names, std::int32_t sms);

// A staging area that no other operation uses. `name`: the argument that needs it. Throws moeInvalidUsage if none is
// free.
int requireStaging(const Room& room, const char* call, const char* name);

// Checks that memory in the window lies in one block.
void requireBlocks(const Comm& comm, const auto& extents) {
  for (const Extent& extent : extents) {
    comm.windowOffset(extent.begin, static_cast<std::uint64_t>(extent.bytes), extent.name);
  }
}

// Checks that outputs share memory with no input and no other output.
void requireAllApart(const auto& outputs, const auto& inputs) {
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].begin == nullptr) continue;  // most of them, in every call
    for (const Extent& input : inputs) requireApart(outputs[i], input);
    for (std::size_t j = 0; j < i; ++j) requireApart(outputs[i], outputs[j]);
  }
}

}  // namespace moe
