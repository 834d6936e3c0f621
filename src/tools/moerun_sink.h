// A stream that moerun writes to. Writing to it never waits, even if nobody reads there: its own thread waits for the
// reader.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace moe::tools {

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

}  // namespace moe::tools
