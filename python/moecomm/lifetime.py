"""The life of a native communicator: which threads may call it, and how it ends if nobody destroys it.

Native code calls back into Python (log lines, allocators) from threads of its own, so the callbacks live as long as the
native communicator does. It ends in one of three ways: destroy() is called, the Communicator is dropped, or the
interpreter exits.
"""

from __future__ import annotations

import _thread
import atexit
import os
import threading
import time
import weakref
from typing import Any, Callable, Dict, List, Optional, Set

from . import _library, _native, errors, interrupts

# A separate thread destroys a dropped communicator, and the dropping thread waits for it at most this long. Dropping
# happens wherever the garbage collector runs, perhaps under a lock that a log function needs, so it must not wait longer.
DROP_SECONDS = 2.0
# Limits at exit: for calls of daemon threads, which are aborted, and for destroying communicators.
EXIT_CALL_SECONDS = 5.0
EXIT_SECONDS = 60.0

_inside = threading.local()

_ALIVE: weakref.WeakValueDictionary[int, Native] = weakref.WeakValueDictionary()  # by id
# Natives that are joining or being destroyed. Meanwhile their threads may be inside allocators of any communicator.
_busy: Set[Native] = set()
# Configurations of destroyed communicators whose windows a peer in this process still uses.
_outliving: Dict[int, Any] = {}  # by id; adding and removing single entries is all that is safe between threads


def _retire(config: Any) -> None:
    """Keeps the allocator functions of a destroyed communicator until all of its memory has been given back."""
    _outliving[id(config)] = config
    if _busy:
        return
    for key, kept in list(_outliving.items()):
        if not kept.blocks:
            _outliving.pop(key, None)


def callback(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps `function` for calls by native code. During such a call its thread must destroy no communicator."""

    def call(*arguments: Any) -> Any:
        _inside.depth = getattr(_inside, "depth", 0) + 1
        try:
            return function(*arguments)
        finally:
            _inside.depth -= 1

    return call


class Native:
    """A native communicator with everything that must live as long as it does. Every library call that uses it runs
    inside `with native as pointer:`, so that no thread destroys it during the call. A call is recorded before it
    reads the pointer, and destruction removes the pointer before it looks for calls."""

    def __init__(self, config: Any, has_callbacks: bool):
        self.config: Any = config  # keeps the callbacks alive
        self.has_callbacks = has_callbacks
        self.pointer: Optional[int] = None
        self.process = os.getpid()
        self._calls: List[int] = []  # threads that are inside a call
        self.entered = 0  # calls of the main thread so far: the number identifies a call
        self._taking = _thread.allocate_lock()
        self._gone = _thread.allocate_lock()  # held from init until the native communicator is destroyed
        _ALIVE[id(self)] = self

    def init(self, call: Callable[[Any], int]) -> None:
        """Joins through `call`, which gets the place for the pointer. Ctrl-C ends the wait for other ranks."""
        interrupts.watch(_alive)
        config = self.config
        # An allocator, and the thread's current GPU, belong to the thread that calls.
        elsewhere = not config.allocate and (config.backend == _native.moeBackendHost or config.device >= 0)
        if elsewhere and interrupts.may_be_interrupted():
            interrupts.wait_for(lambda: self._init(call), self.drop)
        else:
            self._init(call)

    def _init(self, call: Callable[[Any], int]) -> None:
        pointer = _native.moeComm_t()
        self._calls.append(_thread.get_ident())
        _busy.add(self)
        try:
            errors.check(_library.library(), call(pointer))
            self._gone.acquire()
            self.pointer = pointer.value
        finally:
            _busy.discard(self)
            if self.pointer is None:
                _retire(self.config)
            self.__exit__()

    def require_alive(self) -> int:
        """Returns the pointer, unless it must not be used any more."""
        pointer = self.pointer
        if pointer is not None:
            return pointer
        if self.process != os.getpid():
            raise errors.InvalidUsage(f"the communicator belongs to process {self.process}, which forked this one")
        raise errors.InvalidUsage("the communicator has been destroyed")

    def __enter__(self) -> int:
        try:
            thread = _thread.get_ident()
            self._calls.append(thread)
            if thread == interrupts.main_thread:
                self.entered += 1
            return self.require_alive()
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_: Any) -> None:
        try:
            self._calls.remove(_thread.get_ident())
        except ValueError:  # Ctrl-C came before the call was recorded
            pass

    def call(self, function: Callable[..., int], *arguments: Any) -> None:
        """Calls a function of the library, and raises its result as an exception. The same as a `with` block, in half
        the time."""
        calls, thread = self._calls, _thread.get_ident()
        try:
            calls.append(thread)
            if thread == interrupts.main_thread:
                self.entered += 1
            if self.pointer is None:
                self.require_alive()
            result = function(*arguments)
            if result:
                errors.check(_library.library(), result, self.pointer)
        finally:
            try:
                calls.remove(thread)
            except ValueError:  # Ctrl-C came before the call was recorded
                pass

    def is_called_by(self, thread: Optional[int]) -> bool:
        """Whether that thread is inside a call."""
        return thread in self._calls

    def abort(self) -> None:
        """Ends all waits, if the communicator still exists."""
        try:
            with self as pointer:
                _library.library().moeCommAbort(pointer)
        except errors.InvalidUsage:
            pass

    def destroy(self) -> None:
        """Waits for calls of other threads, then for moeCommDestroy. Idempotent."""
        if self.pointer is None:
            return
        if getattr(_inside, "depth", 0) or _thread.get_ident() in self._calls:
            raise errors.InvalidUsage("destroy() must not be called by a log function, an allocator or during a call")
        pointer = self._take()
        if pointer is None:
            return
        try:
            self._await_calls(float("inf"))
        except BaseException:  # KeyboardInterrupt, before anything has happened
            self.pointer = pointer
            raise
        errors.check(_library.library(), self._destroy(pointer))

    def _take(self) -> Optional[int]:
        """Takes the pointer for the one thread that gets it. From now on calls are refused."""
        if not self._taking.acquire(blocking=False):
            return None  # another thread has it; the collector, possibly in this thread, must not wait
        pointer, self.pointer = self.pointer, None
        self._taking.release()
        return pointer

    def _await_calls(self, seconds: float) -> bool:
        """Waits at most this long until no call runs. Returns whether none does."""
        end = time.monotonic() + seconds
        while self._calls and time.monotonic() < end:
            time.sleep(0.001)
        return not self._calls

    def forget(self) -> None:
        """For a forked child, which lacks the threads and connections of the native communicator."""
        self.pointer = None

    def _destroy(self, pointer: int) -> int:
        _busy.add(self)
        try:
            result: int = _library.library().moeCommDestroy(pointer)
            return result
        finally:
            _busy.discard(self)
            _retire(self.config)
            self.config = None
            self._gone.release()

    def _destroy_elsewhere(self, pointer: int) -> None:
        try:
            _thread.start_new_thread(self._destroy, (pointer,))  # threading.Thread takes locks, which this thread may hold
        except RuntimeError:  # no more threads can be started
            self._destroy(pointer)

    def drop(self) -> None:
        """Destroys a communicator that nobody can call any more. Returns when that is done, or after DROP_SECONDS
        while it continues."""
        pointer = self._take()
        if pointer is not None:
            self._destroy_elsewhere(pointer)
            self.await_end(DROP_SECONDS)

    def await_end(self, seconds: float) -> None:
        """Waits at most this long until the native communicator is destroyed."""
        if self._gone.acquire(timeout=max(seconds, 0)):
            self._gone.release()

    def close(self) -> Any:
        """For the interpreter's exit: refuses calls from now on, and aborts running ones, whose results nobody
        needs."""
        pointer = self._take()
        if self._calls and pointer is not None:
            _library.library().moeCommAbort(pointer)
        return pointer

    def end(self, pointer: Any, seconds: float) -> None:
        """Destroys the communicator once no call runs any more. A thread that does not return within `seconds` keeps
        it alive."""
        if pointer is None and not self.has_callbacks:
            return  # it is still joining, and native code has no callback here
        if not self._await_calls(seconds):
            return
        pointer = self.close() if pointer is None else pointer  # it may have joined meanwhile
        if pointer is not None:
            self._destroy_elsewhere(pointer)


def _alive() -> List[Native]:
    found = [reference() for reference in _ALIVE.valuerefs()]  # in one go, because other threads add and drop entries
    return [native for native in found if native is not None]


def _at_exit() -> None:
    """Runs at exit. Native threads must not call into an interpreter that is gone. Daemon threads may still be
    inside calls."""
    closed = [(native, native.close()) for native in _alive()]
    end = time.monotonic() + EXIT_CALL_SECONDS
    for native, pointer in closed:
        native.end(pointer, end - time.monotonic())
    end = time.monotonic() + EXIT_SECONDS
    for native, _ in closed:
        native.await_end(end - time.monotonic())


def _after_fork() -> None:
    for native in _alive():
        native.forget()
    _ALIVE.clear()
    _busy.clear()


atexit.register(_at_exit)
os.register_at_fork(after_in_child=_after_fork)
