// Logs calls that use a handle, at level trace, and shows them to tools. api.cc uses it.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "api/call_range.h"
#include "api/guard.h"
#include "comm/handle/handle.h"

namespace moe {

// Like guardAlive. `body` gets a place to store the bytes of one row, which the log line shows.
template <class Body>
moeResult_t traced(Handle* handle, const char* call, Body&& body) noexcept {
  const CallRange range(call);
  Comm& comm = handle->comm();
  std::int64_t rowBytes = 0;
  const auto guarded = [&] { return guardAlive(&comm, [&] { body(rowBytes); }); };
  if (!comm.log().enabled(moeLogTrace)) return guarded();
  const auto begin = std::chrono::steady_clock::now();
  const moeResult_t result = guarded();
  try {
    const auto took = std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - begin);
    const std::string rows = rowBytes > 0 ? fmt::format(", rows of {} bytes", rowBytes) : "";
    comm.log().write(moeLogTrace, "dev", "{}: handle {}, {} tokens{}: {} after {} us", call, fmt::ptr(handle),
                     std::max(handle->tokens(), 0), rows, moeGetErrorString(result), took.count());
  } catch (const std::exception&) {  // NOLINT: out of memory; the log lacks a line
  }
  return result;
}

}  // namespace moe
