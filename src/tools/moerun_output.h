// Cuts one stream of a rank's output into lines and writes them, tagged, to a stream of moerun. It writes whole lines,
// so lines of several ranks never mix.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "base/fd.h"
#include "tools/moerun_sink.h"

namespace moe::tools {

class OutputStream {
 public:
  // Reads from `source`, which it makes non-blocking, and writes to the caller's sink.
  OutputStream(Fd source, Sink* sink, std::string tag);

  int fd() const { return source_.get(); }
  bool open() const { return static_cast<bool>(source_); }
  // False while the sink's reader is behind. The rank may wait then, moerun may not.
  bool wanted() const { return open() && (rest_ || !sink_->full()); }
  // The rank has ended. From now on everything that its pipe holds is read, and no more, even if the reader is behind.
  void takeRest();

  // Moves what can be read now. At the end of the stream it writes the rest with a line end, and closes the source.
  void drain();

  // Writes the rest and closes the source, even while a grandchild holds the other end.
  void finish();

 private:
  bool overdrawn(std::size_t bytes);
  void writeLines();
  void writeLine(const char* text, std::size_t length);

  Fd source_;
  Sink* sink_;
  std::string tag_;
  std::string pending_;
  std::optional<std::size_t> rest_;  // bytes still to be read
};

}  // namespace moe::tools
