// A report file. It is opened before anything runs, so that hours of measuring do not end with "cannot write".
#pragma once

#include <string>

#include "base/fd.h"

namespace moe::perf {

// The path that stands for standard output.
inline constexpr const char* kStandardOutput = "-";

class ReportFile {
 public:
  ReportFile() = default;

  // `option` is the option that named the file. "-" is standard output. The file keeps its content until write().
  // Throws std::runtime_error.
  ReportFile(const std::string& option, const std::string& path);

  explicit operator bool() const { return static_cast<bool>(file_); }

  // Replaces the file's content. Throws std::runtime_error.
  void write(const std::string& text);

 private:
  std::string name_;  // for messages
  bool replaces_ = false;
  Fd file_;
};

}  // namespace moe::perf
