#include <fmt/format.h>

#include "base/error.h"
#include "comm/handle/call_checks.h"

namespace moe {

void requireRange(const char* name, std::int64_t value, std::int64_t least, std::int64_t most) {
  if (value >= least && value <= most) return;
  refuse(fmt::format("{} is {}, must be {}..{}", name, value, least, most));
}

void requirePointer(const void* pointer, const char* name, const char* when) {
  if (pointer == nullptr) refuse(fmt::format("{} is NULL {}", name, when));
}

void requireAligned(const void* pointer, const char* name, std::size_t alignment) {
  if (reinterpret_cast<std::uintptr_t>(pointer) % alignment == 0) return;
  refuse(fmt::format("{} is {}, not aligned to {} bytes", name, pointer, alignment));
}

void requireApart(const Extent& output, const Extent& other) {
  if (output.begin == nullptr || other.begin == nullptr || output.bytes <= 0 || other.bytes <= 0) return;
  const auto a = reinterpret_cast<std::uintptr_t>(output.begin), b = reinterpret_cast<std::uintptr_t>(other.begin);
  if (a >= b + static_cast<std::uint64_t>(other.bytes) || b >= a + static_cast<std::uint64_t>(output.bytes)) return;
  refuse(fmt::format("{} ({}, {} bytes) overlaps {} ({}, {} bytes)", output.name, output.begin, output.bytes,
                     other.name, other.begin, other.bytes));
}

}  // namespace moe
