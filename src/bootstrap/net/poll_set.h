// The descriptors of one poll() call, and the interface of everything that takes part in a poll loop. A Source arms its
// descriptors before the call and serves them after it. All loops of the bootstrap are made of these.
#pragma once

#include <poll.h>

#include <cerrno>
#include <cstddef>
#include <vector>

#include "base/error.h"

namespace moe::bootstrap {

class PollSet {
 public:
  void clear() { entries_.clear(); }

  std::size_t add(int fd, short events) {
    entries_.push_back({fd, events, 0});
    return entries_.size() - 1;
  }

  short at(std::size_t index) const { return entries_[index].revents; }

  // Waits at most `waitMs` (>= 0). An interrupted wait counts as one without events.
  void wait(int waitMs) {
    const int ready = ::poll(entries_.data(), entries_.size(), waitMs);
    if (ready >= 0) return;
    if (errno != EINTR) throw systemError("poll");
    for (pollfd& entry : entries_) entry.revents = 0;
  }

 private:
  std::vector<pollfd> entries_;
};

class Source {
 public:
  virtual ~Source() = default;
  virtual void arm(PollSet& set) = 0;
  virtual void serve(const PollSet& set) = 0;
  // The longest time that this source can wait without events.
  virtual int waitMsMax() const { return 1 << 30; }
};

}  // namespace moe::bootstrap
