// The threads that carry a rank's puts, as the steps of a CPU see them. A step that waits does the threads' work
// itself: a thread would have to be woken for every put and for every word that comes, often on the core that the step
// waits on.
#pragma once

namespace moe {

// A table rather than an interface: steps are built several times, each time with types of their own.
struct PutHelper {
  void* transport;
  bool (*advanceOf)(void*) noexcept;
  void (*flushOf)(void*) noexcept;
  void (*pauseOf)(void*, int) noexcept;
  void (*leaveOf)(void*, bool) noexcept;
  void (*wakeOf)(void*) noexcept;

  // Sends what has been posted and takes in what has come, as far as that goes without waiting. True if something
  // moved.
  bool advance() const noexcept { return advanceOf(transport); }
  // Much has been posted, and more is to follow: sets it going.
  void flush() const noexcept { flushOf(transport); }
  // Nothing has moved, for the n-th time in a row: goes on at once, gives the core away, or sleeps until something
  // comes or goes on, for a millisecond at most.
  void pause(int times) const noexcept { pauseOf(transport, times); }
  // A step has ended: what it has posted goes on without it. `soon`: what comes is taken in by the threads from now on,
  // else as soon as they find that no step helps any more.
  void leave(bool soon) const noexcept { leaveOf(transport, soon); }
  // Puts were posted by somebody who does not help: the threads carry them.
  void wake() const noexcept { wakeOf(transport); }
};

}  // namespace moe
