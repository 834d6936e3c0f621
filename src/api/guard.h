// Turns exceptions into results, logs calls that use a handle at level trace, and shows them to tools as ranges of
// NVTX. Every call of api.cc goes through one of these functions.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <new>

#include "base/error.h"
#include "comm/communicator/comm.h"
#include "comm/handle/handle.h"

#if MOECOMM_NVTX
#include <nvtx3/nvToolsExt.h>
#endif

namespace moe {

// The sentence of the latest failed call of this thread without a communicator. It is the library's only thread-local
// (docs/decisions/0003), because such a call has no other place to keep a sentence. It is not a std::string: glibc must
// register a destructor for one, and ends the process if it has no memory for that.
class ThreadError {
 public:
  void keep(const char* sentence) noexcept {
    const std::size_t length = std::min(std::strlen(sentence), text_.size() - 1);
    std::memcpy(text_.data(), sentence, length);
    text_[length] = '\0';
  }
  const char* text() const noexcept { return text_.data(); }

 private:
  std::array<char, 2048> text_{};
};

inline ThreadError& threadError() noexcept {
  static thread_local constinit ThreadError error;
  return error;
}

inline void keep(Comm* comm, const char* sentence) noexcept {
  try {
    if (comm != nullptr) {
      comm->errors().refuse(sentence);
    } else {
      threadError().keep(sentence);
    }
  } catch (const std::exception&) {
    comm->errors().refuse(kNoMemory);  // no memory even for the sentence
  }
}

// Touches nothing of the communicator. Keeps the sentence for the thread.
inline moeResult_t refuseForked(const Comm& comm) noexcept {
  try {
    threadError().keep(fmt::format("the communicator belongs to process {}, which forked this process ({}): only "
                                   "moeCommDestroy may be called here",
                                   comm.process(), ::getpid())
                           .c_str());
  } catch (const std::exception&) {  // NOLINT: no memory for the sentence
  }
  return moeInvalidUsage;
}

template <class Body>
moeResult_t guard(Comm* comm, Body&& body) noexcept {
  if (comm != nullptr && comm->isForked()) return refuseForked(*comm);
  try {
    body();
    return moeSuccess;
  } catch (const Error& e) {
    keep(comm, e.what());
    return e.result();
  } catch (const std::bad_alloc&) {
    keep(comm, kNoMemory);
    return moeSystemError;
  } catch (const std::exception& e) {
    keep(comm, e.what());
    return moeInternalError;
  }
}

// Refuses a pointer that leads to no communicator and no handle, so only the thread can keep the sentence.
inline moeResult_t refuse(const char* sentence) noexcept {
  return guard(nullptr, [&] { throw Error(moeInvalidArgument, sentence); });
}
inline constexpr const char* kNoComm = "comm is NULL, invalid or already destroyed";
inline moeResult_t refuseComm(const void* comm) noexcept {
  return refuse(comm == nullptr ? "comm is NULL" : kNoComm);
}
inline moeResult_t refuseHandle(const void* handle) noexcept {
  return refuse(handle == nullptr ? "handle is NULL" : "handle is invalid or already destroyed");
}

// The same for calls that use the group. They are refused once it has failed, and they report failures that they meet.
template <class Body>
moeResult_t guardAlive(Comm* comm, Body&& body) noexcept {
  if (comm->isForked()) return refuseForked(*comm);
  if (const moeResult_t before = comm->status(); before != moeSuccess) return before;
  const moeResult_t result = guard(comm, body);
  return result != moeSuccess ? result : comm->status();
}

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
    comm.log().write(moeLogTrace, "dev", "{}: handle {}, {} tokens{}: {} after {} us", call, handle->number(),
                     std::max(handle->tokens(), 0), rows, moeGetErrorString(result), took.count());
  } catch (const std::exception&) {  // NOLINT: out of memory; the log lacks a line
  }
  return result;
}

// The same for calls that need the window's memory.
template <class Body>
moeResult_t tracedAwake(Handle* handle, const char* call, Body&& body) noexcept {
  return traced(handle, call, [&](std::int64_t& rowBytes) {
    handle->comm().requireAwake(call);
    handle->requireRails(call);
    body(rowBytes);
  });
}

}  // namespace moe
