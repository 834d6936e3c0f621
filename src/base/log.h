// Log lines: "moecomm <level> [rank 3/16 host:pid] <subsys>: lower-case sentence with values". Each communicator has
// its own Log; there is no global one. Thread-safe. A line that cannot be written (full disk, closed pipe, stalled
// reader) is lost. It delays nobody for long and fails no call.
#pragma once

#include <fmt/format.h>

#include <cstdint>
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
  Log(const Options& options, int rank, int nranks);  // throws moeSystemError if the file cannot be opened

  bool enabled(std::int32_t level) const { return level <= level_; }

  // Writes one line if `level` is enabled. `subsys` is one of init, topo, net, comm, dev.
  template <class... Args>
  void write(std::int32_t level, const char* subsys, fmt::format_string<Args...> format,
             Args&&... args) const noexcept {
    if (!enabled(level)) return;
    try {
      emit(level, subsys, fmt::format(format, std::forward<Args>(args)...));
    } catch (...) {  // NOLINT: out of memory, or the caller's function has thrown; the log lacks a line
    }
  }

 private:
  struct Output;
  void emit(std::int32_t level, const char* subsys, const std::string& sentence) const;

  std::int32_t level_;
  moeLogFunction_t sink_;
  void* user_;
  std::string rank_;
  std::shared_ptr<Output> output_;  // null: to the sink, or nowhere
};

}  // namespace moe
