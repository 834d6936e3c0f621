"""Shared by several tests: worlds of threads, arrays between guard bytes, and whether the library and numpy are
available."""

import os
import pathlib
import sys
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import moecomm  # noqa: E402

try:
    import numpy
except ImportError:
    numpy = None

RANKS = 2
DEVICE = os.environ.get("MOECOMM_TEST_DEVICE", "cpu")  # of the tests that need torch
GUARD = 256  # bytes before and after
FILL = 0xA5

try:
    moecomm.library()
    MISSING = None
except OSError as error:
    if os.environ.get("MOECOMM_LIBRARY"):
        raise
    MISSING = str(error)


def world(body, ranks=RANKS, **settings):
    """Runs body(comm) on one thread per rank with the host backend. Raises the first failure."""
    identity = moecomm.unique_id()
    settings = {"backend": "host", "timeout_ms": 60000, "log_level": "none", **settings}
    failures = []

    def run(rank):
        try:
            with moecomm.Communicator(ranks, rank, identity, **settings) as comm:
                body(comm)
        except BaseException as failure:  # noqa: B902
            failures.append(failure)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


class Guards:
    """Makes arrays with guard bytes on both sides."""

    def __init__(self):
        self._buffers = []

    def empty(self, shape, dtype):
        """A contiguous array, aligned to 64 bytes, full of FILL."""
        nbytes = int(numpy.prod(shape, dtype=int)) * numpy.dtype(dtype).itemsize
        buffer = numpy.full(nbytes + 2 * GUARD + 64, FILL, numpy.uint8)
        begin = GUARD + -(buffer.ctypes.data + GUARD) % 64
        self._buffers.append((buffer, begin, nbytes))
        return buffer[begin : begin + nbytes].view(dtype).reshape(shape)

    def like(self, array):
        """The same with the contents of `array`."""
        copy = self.empty(array.shape, array.dtype)
        copy[...] = array
        return copy

    def broken(self):
        """The number of guard bytes that have changed."""
        changed = 0
        for buffer, begin, nbytes in self._buffers:
            changed += numpy.count_nonzero(buffer[:begin] != FILL) + numpy.count_nonzero(
                buffer[begin + nbytes :] != FILL
            )
        return changed
