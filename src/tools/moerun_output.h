// Cuts one stream of a rank's output into lines and writes them, tagged, to a stream of moerun. A line is written
// whole, so lines of several ranks never mix.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "base/fd.h"
#include "tools/moerun_sink.h"

namespace moe::tools {

class OutputStream {
 public:
  // Reads from `source` (made non-blocking), writes to the sink, which stays the caller's.
  OutputStream(Fd source, Sink* sink, std::string tag);

  int fd() const { return source_.get(); }
  bool open() const { return static_cast<bool>(source_); }
  // False while the sink's reader is behind: the rank may wait, moerun may not.
  bool wanted() const { return open() && (rest_ || !sink_->full()); }
  // The rank has ended: what its pipe holds is taken whether or not the reader is behind, and no more than that.
  void takeRest();

  // Moves what can be read now. At the end of the stream the rest is written, with a line end, and the source closed.
  void drain();

  // Writes what is left and closes the source, also when a grandchild still holds the other end.
  void finish();

 private:
  bool overdrawn(std::size_t bytes);
  void writeLines();
  void writeLine(const char* text, std::size_t length);

  Fd source_;
  Sink* sink_;
  std::string tag_;
  std::string pending_;
  std::optional<std::size_t> rest_;  // bytes that are still taken
};

}  // namespace moe::tools
