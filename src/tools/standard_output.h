// How the tools exit: lost output is no success. They call it once, as their last step.
#pragma once

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace moe::tools {

// Returns `status`, or 1 with a message if `status` is 0 and something written to standard output was lost. A program
// that has failed has already reported why.
inline int statusOfOutput(const char* program, int status) {
  const bool failedBefore = std::ferror(stdout) != 0;
  errno = 0;
  if ((std::fflush(stdout) == 0 && !failedBefore) || status != 0) return status;
  const char* why = errno != 0 ? std::strerror(errno) : "it could not be written";
  fmt::print(stderr, "{}: standard output: {}; its output is lost\n", program, why);
  return 1;
}

}  // namespace moe::tools
