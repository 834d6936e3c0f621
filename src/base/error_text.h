// Texts of system errors that say which limit of this process was reached.
#pragma once

#include <sys/resource.h>

#include <cerrno>
#include <cstring>
#include <string>

namespace moe {

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
