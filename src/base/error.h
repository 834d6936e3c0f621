// The one exception type of the control plane, and texts of system errors. The first code to notice a failure throws an
// Error with the whole sentence. Only src/api turns it into a result. The data path never throws.
#pragma once

#include <sys/resource.h>

#include <cerrno>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string>

#include "moecomm.h"

namespace moe {

class Error : public std::runtime_error {
 public:
  Error(moeResult_t result, const std::string& message) : std::runtime_error(message), result_(result) {}
  moeResult_t result() const noexcept { return result_; }

 private:
  moeResult_t result_;
};

// A failed system call: "what: <text of errno>".
inline Error systemError(const std::string& what, int error = errno) {
  return Error(moeSystemError, what + ": " + std::strerror(error));
}

// For use in a handler: the current exception as an Error.
inline Error currentError() {
  try {
    throw;
  } catch (const Error& error) {
    return error;
  } catch (const std::bad_alloc&) {
    return Error(moeSystemError, "out of host memory");
  } catch (const std::exception& error) {
    return Error(moeInternalError, error.what());
  } catch (...) {  // NOLINT: of a caller's function
    return Error(moeInternalError, "an exception of an unknown type");
  }
}

// The same with the rank in front, for sentences that other ranks read too. A sentence that already starts with ranks
// stays as it is.
inline Error currentErrorOf(int rank) {
  const Error error = currentError();
  const std::string sentence = error.what();
  const bool names = sentence.rfind("rank ", 0) == 0 || sentence.rfind("ranks ", 0) == 0;
  return names ? error : Error(error.result(), "rank " + std::to_string(rank) + ": " + sentence);
}

constexpr const char* kNoMemory = "out of memory";  // short enough for a std::string that needs no memory

// For use in the outermost handler of a thread: calls fail(result, sentence).
template <class Fail>
void reportCurrentError(Fail fail) noexcept {
  try {
    const Error error = currentError();
    fail(error.result(), error.what());
    return;
  } catch (...) {  // NOLINT: no memory for the sentence
  }
  try {
    fail(moeSystemError, kNoMemory);
  } catch (...) {  // NOLINT: nor for anything else
  }
}

inline void require(bool condition, const char* message) {
  if (!condition) throw Error(moeInvalidArgument, message);
}

// Whether the process or the system has run out of something, whatever a call was asked for.
inline bool isShortage(int error) {
  return error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS;
}

// "Too many open files (limit 64, ulimit -n)", "File too large (limit 1024 bytes, ulimit -f)". Others as strerror().
inline std::string errorText(int error) {
  const bool descriptors = error == EMFILE;
  std::string text = std::strerror(error);
  if (!descriptors && error != EFBIG) return text;
  rlimit limit{};
  if (::getrlimit(descriptors ? RLIMIT_NOFILE : RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return text;
  }
  return text + " (limit " + std::to_string(limit.rlim_cur) + (descriptors ? ", ulimit -n)" : " bytes, ulimit -f)");
}

}  // namespace moe
