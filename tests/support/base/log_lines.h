// Collects what a communicator logs, for tests.
#pragma once

#include <mutex>
#include <string>

#include "base/log.h"

namespace moe::test {

// The logged lines, one "level: sentence" per line.
class LogLines {
 public:
  Log::Options options(std::int32_t level = moeLogInfo) {
    Log::Options options;
    options.level = level;
    options.sink = [](void* user, std::int32_t at, const char* line) { static_cast<LogLines*>(user)->add(at, line); };
    options.user = this;
    return options;
  }
  std::string text() {
    const std::lock_guard lock(mutex_);
    return text_;
  }

 private:
  void add(std::int32_t level, const char* line) {
    const std::lock_guard lock(mutex_);
    text_ += std::string(level <= moeLogWarn ? "warn: " : "info: ") + withoutPlace(line) + "\n";
  }

  // Leaves out the host and the process: "[rank 0/2 node:4711]" becomes "[rank 0/2]".
  static std::string withoutPlace(std::string line) {
    const std::size_t close = line.find(']'), blank = line.rfind(' ', close);
    if (close != std::string::npos && blank != std::string::npos) line.erase(blank, close - blank);
    return line;
  }

  std::mutex mutex_;
  std::string text_;
};

}  // namespace moe::test
