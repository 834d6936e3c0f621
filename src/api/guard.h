// Where exceptions become results. Everything that api.cc does goes through one of these.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <new>

#include "base/error.h"
#include "comm/comm.h"

namespace moe {

// The sentence of the calling thread's latest failure of a call without a communicator. The one thread-local of the
// library (docs/decisions/0003): such a call has no other place that its caller could ask.
// Not a std::string, whose end glibc would have to be told: without memory for that, it ends the process.
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
    comm->errors().refuse(kNoMemory);  // for the sentence itself
  }
}

// Touches nothing of the communicator, not even to keep the sentence.
inline moeResult_t refuseForked(const Comm& comm) noexcept {
  try {
    threadError().keep(fmt::format("the communicator belongs to process {}, which has forked this process ({}): here "
                                   "nothing but moeCommDestroy may be called",
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

// A call with what is no communicator, or no handle: there is nothing that could keep the sentence but the thread.
inline moeResult_t refuse(const char* sentence) noexcept {
  return guard(nullptr, [&] { throw Error(moeInvalidArgument, sentence); });
}
inline constexpr const char* kNoComm = "comm is none, or has been destroyed";
inline moeResult_t refuseComm(const void* comm) noexcept {
  return refuse(comm == nullptr ? "comm is NULL" : kNoComm);
}
inline moeResult_t refuseHandle(const void* handle) noexcept {
  return refuse(handle == nullptr ? "handle is NULL" : "handle is none, or has been destroyed");
}

// The same for calls that use the group: they are refused once it has failed, and report a failure that they ran into.
template <class Body>
moeResult_t guardAlive(Comm* comm, Body&& body) noexcept {
  if (comm->isForked()) return refuseForked(*comm);
  if (const moeResult_t before = comm->status(); before != moeSuccess) return before;
  const moeResult_t result = guard(comm, body);
  return result != moeSuccess ? result : comm->status();
}

}  // namespace moe
