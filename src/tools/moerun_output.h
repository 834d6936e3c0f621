// Cuts one stream of a rank's output into lines and writes them, tagged, to a stream of moerun. A line is written
// whole, so lines of several ranks never mix.
#pragma once

#include <cstddef>
#include <string>

#include "base/fd.h"

namespace moe::tools {

class OutputStream {
 public:
  // Reads from `source` (made non-blocking), writes to the descriptor `sink`, which stays the caller's.
  OutputStream(Fd source, int sink, std::string tag);

  int fd() const { return source_.get(); }
  bool open() const { return static_cast<bool>(source_); }

  // Moves what can be read now. At the end of the stream the rest is written, with a line end, and the source closed.
  void drain();

  // Writes what is left and closes the source, also when a grandchild still holds the other end.
  void finish();

 private:
  void writeLines();
  void writeLine(const char* text, std::size_t length);

  Fd source_;
  int sink_;
  bool sinkBroken_ = false;
  std::string tag_;
  std::string pending_;
};

}  // namespace moe::tools
