// How the output of ranks reaches that of moerun: streams of ranks, and streams that moerun writes to.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/fd.h"

namespace moe::tools {

// A stream that moerun writes to. Writing to it never waits, even if nobody reads there: its own thread waits for the
// reader.
class Sink {
 public:
  // Writes to `fd`, which stays the caller's and stays open. `name` is used in messages.
  Sink(int fd, std::string name);
  // Does not wait either. Output that has not been written yet is lost.
  ~Sink();
  Sink(const Sink&) = delete;
  Sink& operator=(const Sink&) = delete;

  // Takes the text. Throws std::system_error if no thread can be started.
  void write(std::string_view text);

  // True while so much output waits that the ranks should wait too.
  bool full() const;
  // True once everything taken is written, or nobody reads any more.
  bool idle() const;
  // A descriptor, readable when `full` or `idle` may have changed. `acknowledge` makes it unreadable again.
  int changed() const;
  void acknowledge();

  // A sentence about output that was lost, or will be if nothing more is written. Empty if there is none.
  std::string loss() const;

 private:
  struct State;
  std::shared_ptr<State> state_;  // shared with the thread, which may outlive this object
};

// Cuts one stream of a rank's output into lines and writes them, tagged, to a stream of moerun. It writes whole lines,
// so lines of several ranks never mix.
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
