// The one exception type of the control plane. The first to notice a failure throws it with the whole sentence; only
// src/api turns it into a result. The data path never throws.
#pragma once

#include <cerrno>
#include <cstring>
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

inline void require(bool condition, const char* message) {
  if (!condition) throw Error(moeInvalidArgument, message);
}

}  // namespace moe
