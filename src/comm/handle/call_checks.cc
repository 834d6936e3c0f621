#include "comm/handle/call_checks.h"

#include <fmt/format.h>

#include "base/error.h"
#include "device/rows/row_math.h"

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

void refuse(const std::string& why) {
  throw Error(moeInvalidArgument, why);
}

void checkRow(const Room& room, std::int32_t rowType, std::int32_t hidden, const char* call) {
  requireRange("args.rowType", rowType, moeRowBytes, moeRowFp32);
  const std::int64_t bytes = std::int64_t{hidden} * elementBytes(rowType);
  if (hidden < 1 || bytes % kRowAlignment != 0 || bytes > room.shape.rowBytesMax) {
    throw Error(moeInvalidArgument,
                fmt::format("{}: args.hidden is {}, so a row has {} bytes; it must be a multiple of {} and at most {} "
                            "(config.rowBytesMax)",
                            call, hidden, bytes, kRowAlignment, room.shape.rowBytesMax));
  }
}

void checkFlags(std::int32_t flags, std::int32_t known, const char* names, std::int32_t sms) {
  if ((flags & ~known) != 0) throw Error(moeInvalidArgument, fmt::format("args.flags is {}, must be {}", flags, names));
  if (sms < 0) throw Error(moeInvalidArgument, fmt::format("args.sms is {}, must be 0 or more", sms));
}

int requireStaging(const Room& room, const char* call, const char* name) {
  if (room.shape.stagingRows == 0) {
    throw Error(moeInvalidArgument,
                fmt::format("{}: {} need the staging area, but config.stagingRows is -1 (none); in layouts with one "
                            "row per token, window memory (moeMemAlloc) needs none",
                            call, name));
  }
  const int areas = room.shape.stagingAreas, area = room.operations.freeStaging(areas);
  if (area != kNotStaged) return area;
  throw Error(moeInvalidUsage, fmt::format("{}: another operation that uses the staging area awaits moeComplete, and "
                                           "config.stagingAreas is {}",
                                           call, areas));
}

}  // namespace moe
