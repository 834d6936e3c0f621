// How the tools end: lost output is no success. They call it once, as their last step.
#pragma once

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace moe::tools {

// `status`, or 1 with a sentence if `status` is 0 and something written to standard output did not get there. A program
// that has failed has already said why.
inline int statusOfOutput(const char* program, int status) {
  const bool failedBefore = std::ferror(stdout) != 0;
  errno = 0;
  if ((std::fflush(stdout) == 0 && !failedBefore) || status != 0) return status;
  const char* why = errno != 0 ? std::strerror(errno) : "it could not be written";
  fmt::print(stderr, "{}: standard output: {}; what was to be written there is lost\n", program, why);
  return 1;
}

}  // namespace moe::tools
