// Logs calls that use a handle, at level trace, and shows them to tools as ranges of NVTX. api.cc uses it.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "api/guard.h"
#include "comm/handle/handle.h"

#if MOECOMM_NVTX
#include <nvtx3/nvToolsExt.h>
#endif

namespace moe {

// A range of NVTX for a call, which tools such as Nsight Systems show beside the kernels. NVTX is a header of the CUDA
// toolkit: it looks once whether a tool has been injected into the process (NVTX_INJECTION64_PATH), and without one a
// range costs a look at a pointer. Builds without CUDA have no ranges.
#if MOECOMM_NVTX

class CallRange {
 public:
  explicit CallRange(const char* call) noexcept {
    nvtxEventAttributes_t attributes{};
    attributes.version = NVTX_VERSION;
    attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
    attributes.message.ascii = call;
    nvtxDomainRangePushEx(domain(), &attributes);
  }
  ~CallRange() { nvtxDomainRangePop(domain()); }
  CallRange(const CallRange&) = delete;
  CallRange& operator=(const CallRange&) = delete;

 private:
  static nvtxDomainHandle_t domain() noexcept {
    static const nvtxDomainHandle_t kDomain = nvtxDomainCreateA("moecomm");
    return kDomain;
  }
};

#else

class CallRange {
 public:
  explicit CallRange(const char*) noexcept {}
  ~CallRange() {}  // not trivial, so that the compiler does not warn of an unused variable
};

#endif

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
