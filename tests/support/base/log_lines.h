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
    text_ += std::string(level <= moeLogWarn ? "warn: " : "info: ") + line + "\n";
  }

  std::mutex mutex_;
  std::string text_;
};

}  // namespace moe::test
