"""Ctrl-C during a call of the library that waits for other ranks.

Python runs signal handlers only in the main thread, between its own instructions, so not while that thread waits in
native code. So a thread of this module learns of the signal by Python's wakeup descriptor. If the main thread is still
in the same call a moment later, it aborts the communicator: the call ends, and Python raises KeyboardInterrupt. The
calls themselves only count for it. All this applies only to Python's own handler of SIGINT: a program with another
handler wants something else. There is nothing to abort yet while a rank joins a group: see wait_for()."""

from __future__ import annotations

import _thread
import os
import signal
import threading
import time
from typing import Callable, List, Optional, Protocol, Sequence

# A call may have this much time to end by itself: most do, and their communicator stays good.
PATIENCE_SECONDS = 0.25


class Interruptible(Protocol):
    """An object whose calls Ctrl-C can end: a native communicator, see lifetime.py."""

    entered: int  # calls of the main thread so far

    def is_called_by(self, thread: Optional[int]) -> bool: ...

    def abort(self) -> None: ...


main_thread = threading.main_thread().ident
_writer = -1  # the end of the pipe to which Python writes signals
_former = -1  # the previous wakeup descriptor


def may_be_interrupted() -> bool:
    """Whether Ctrl-C raises KeyboardInterrupt in this thread."""
    is_main = threading.current_thread() is threading.main_thread()
    return is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler


def watch(natives: Callable[[], Sequence[Interruptible]]) -> None:
    """Begins to watch for SIGINT, or does so again if others have replaced the wakeup descriptor since. Works only in
    the main thread. natives: the existing communicators."""
    global _writer, _former
    if not may_be_interrupted():
        return
    if _writer < 0:
        reader, _writer = os.pipe()
        os.set_blocking(_writer, False)
        _thread.start_new_thread(_look, (reader, natives))  # threading.Thread would be waited for at exit
    former = signal.set_wakeup_fd(_writer, warn_on_full_buffer=False)
    if former != _writer:
        _former = former


def _look(reader: int, natives: Callable[[], Sequence[Interruptible]]) -> None:
    while True:
        numbers = os.read(reader, 64)
        if not numbers:
            return
        if _former >= 0:
            try:
                os.write(_former, numbers)  # asyncio's, for example
            except OSError:
                pass
        if signal.SIGINT in numbers and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            _end_calls(natives())


def _end_calls(natives: Sequence[Interruptible]) -> None:
    waiting = [(native, native.entered) for native in natives if native.is_called_by(main_thread)]
    if not waiting:
        return
    time.sleep(PATIENCE_SECONDS)
    for native, entered in waiting:
        if native.entered == entered and native.is_called_by(main_thread):
            native.abort()


def _after_fork() -> None:
    """Drops the descriptors. They belong to the parent, which would otherwise get the child's signals."""
    global main_thread, _writer, _former
    main_thread = threading.main_thread().ident
    if _writer < 0:
        return
    try:
        signal.set_wakeup_fd(-1)
    except ValueError:  # not in the main thread
        pass
    _writer, _former = -1, -1


def wait_for(call: Callable[[], None], undo: Callable[[], None]) -> None:
    """Runs `call` in a thread of its own, so that Ctrl-C can end the wait for it. `call` may take as long as other
    ranks do, and no other thread can end it. After Ctrl-C, `undo` undoes the work of `call`, also later work."""
    over, guard = _thread.allocate_lock(), _thread.allocate_lock()
    over.acquire()
    failure: List[BaseException] = []
    ended, left = False, False

    def run() -> None:
        nonlocal ended
        try:
            call()
        except BaseException as error:  # noqa: B902
            failure.append(error)
        with guard:
            ended = True
            nobody = left
        over.release()
        if nobody and not failure:
            undo()

    _thread.start_new_thread(run, ())
    try:
        over.acquire()  # Python interrupts this wait, unlike a call of native code
    except BaseException:
        with guard:
            left = True
            nobody = ended
        if nobody and not failure:
            undo()
        raise
    if failure:
        raise failure[0]


os.register_at_fork(after_in_child=_after_fork)
