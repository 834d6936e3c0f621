// A stream that moerun writes to. Writing to it never waits, whether or not somebody reads there: its own thread waits
// for the reader.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace moe::tools {

class Sink {
 public:
  // Writes to `fd`, which stays the caller's and stays open. `name` is for sentences.
  Sink(int fd, std::string name);
  // Does not wait either: what has not been written yet is lost.
  ~Sink();
  Sink(const Sink&) = delete;
  Sink& operator=(const Sink&) = delete;

  // Takes the text. Throws std::system_error if no thread can be started.
  void write(std::string_view text);

  // True while so much waits that the ranks should wait too.
  bool full() const;
  // True once all that was taken is written, or nobody reads any more.
  bool idle() const;
  // Readable when `full` or `idle` may have changed. `acknowledge` makes it unreadable again.
  int changed() const;
  void acknowledge();

  // A sentence about what was lost, or will be if nothing more is written; empty if nothing is.
  std::string loss() const;

 private:
  struct State;
  std::shared_ptr<State> state_;  // also the thread's, which may outlive this object
};

}  // namespace moe::tools
