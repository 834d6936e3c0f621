// Turns exceptions into results. Every call of api.cc goes through one of these functions.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <new>

#include "base/error.h"
#include "comm/communicator/comm.h"

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

// Refuses a pointer to neither a communicator nor a handle. Only the thread can keep the sentence.
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

}  // namespace moe
