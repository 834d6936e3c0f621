// The threads that carry a rank's puts, as the steps of a CPU see them. A step that waits does the threads' work
// itself: a thread would have to be woken for every put and for every word that comes, often on the core that the step
// waits on.
#pragma once

namespace moe {

class PutHelper {
 public:
  virtual ~PutHelper() = default;

  // Sends what has been posted and takes in what has come, as far as that goes without waiting. True if something
  // moved.
  virtual bool advance() noexcept = 0;
  // Much has been posted, and more is to follow: sets it going.
  virtual void flush() noexcept = 0;
  // Nothing has moved, for the n-th time in a row: goes on at once, gives the core away, or sleeps until something
  // comes or goes on, for a millisecond at most.
  virtual void pause(int times) noexcept = 0;
  // A step has ended: what it has posted goes on without it. `soon`: what comes is taken in by the threads from now on,
  // else as soon as they find that no step helps any more.
  virtual void leave(bool soon) noexcept = 0;
  // Puts were posted by somebody who does not help: the threads carry them.
  virtual void wake() noexcept = 0;
};

}  // namespace moe
