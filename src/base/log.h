// Log lines: "moecomm <level> [rank 3/16] <subsys>: lower-case sentence with values". Each communicator has its own
// Log; there is no global one. Thread-safe.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "moecomm.h"

namespace moe {

class Log {
 public:
  struct Options {
    std::int32_t level = moeLogWarn;
    std::string file;  // empty: stderr; %h is the host name, %p the process id
    moeLogFunction_t sink = nullptr;
    void* user = nullptr;
  };

  Log() : Log(Options{}, 0, 1) {}
  Log(const Options& options, int rank, int nranks);

  bool enabled(std::int32_t level) const { return level <= level_; }

  // Writes one line if `level` is enabled. `subsys` is one of init, topo, mem, net, dev.
  template <class... Args>
  void write(std::int32_t level, const char* subsys, fmt::format_string<Args...> format, Args&&... args) const {
    if (enabled(level)) emit(level, subsys, fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  void emit(std::int32_t level, const char* subsys, const std::string& sentence) const;

  std::int32_t level_;
  moeLogFunction_t sink_;
  void* user_;
  std::string rank_;
  std::shared_ptr<std::FILE> file_;  // null: stderr
};

}  // namespace moe
