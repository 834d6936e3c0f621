// The threads that carry a rank's puts, as seen by the steps of a CPU. A step that waits does the threads' work itself.
// Otherwise a thread would have to be woken for every put and every arriving word, often on the core that the step
// waits on.
#pragma once

namespace moe {

// A table rather than an interface, because steps are built several times, each time with their own types.
struct PutHelper {
  void* transport;
  bool (*advanceOf)(void*) noexcept;
  void (*flushOf)(void*) noexcept;
  void (*pauseOf)(void*, int) noexcept;
  void (*leaveOf)(void*, bool) noexcept;
  void (*wakeOf)(void*) noexcept;

  // Sends what has been posted and takes in what has arrived, as far as possible without waiting. True if something
  // moved.
  bool advance() const noexcept { return advanceOf(transport); }
  // Starts sending when much has been posted and more follows.
  void flush() const noexcept { flushOf(transport); }
  // Called when nothing has moved, for the n-th time in a row. It returns at once, yields the core, or sleeps until
  // something arrives or can proceed, at most for a millisecond.
  void pause(int times) const noexcept { pauseOf(transport, times); }
  // Called when a step has ended, while its puts go on. `soon`: the threads handle arrivals from now on.
  // Otherwise they do so as soon as they find that no step helps any more.
  void leave(bool soon) const noexcept { leaveOf(transport, soon); }
  // Called when a poster that does not help has posted puts, so that the threads carry them.
  void wake() const noexcept { wakeOf(transport); }
};

}  // namespace moe
