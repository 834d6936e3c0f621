"""moecomm.torch.window_pool without a GPU: the library's functions and ours are real, torch's pools are stand-ins that
call them as torch does. The same on GPUs: test_torch_pools.py. Needs torch."""

import contextlib
import ctypes
import gc
import pathlib
import sys
import threading
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from support_ranks import SKIP, refuses, torch  # noqa: E402

if SKIP is None:
    import moecomm
    import moecomm.torch
    from moecomm import _library
    from moecomm.torch import pool as window_pools

HEAP = 1 << 20
SETTINGS = dict(backend="host", heap_bytes=HEAP, tokens_max=16, ll_tokens_max=16, row_bytes_max=512)


class Pool:
    """Stands for torch.cuda.MemPool: it gives back what it has when it is dropped."""

    alive = 0

    def __init__(self, allocator):
        self.allocator, self.blocks = allocator, []
        Pool.alive += 1

    def __del__(self):
        for block in self.blocks:
            _library.library().moeMemPoolFree(block, 0, 0, None)
        Pool.alive -= 1


@contextlib.contextmanager
def use_mem_pool(pool, device=None):
    assert device == torch.device("cuda", 0), device
    assert pool not in entered, "already recording"
    entered.append(pool)
    routed.pool = pool
    try:
        yield
    finally:
        routed.pool = None
        entered.remove(pool)


routed = threading.local()
entered = []


def allocate(size):
    """Does what torch does for a tensor of this size. Returns the address."""
    pool = getattr(routed, "pool", None)
    assert pool is not None, "torch's own memory"
    block = _library.library().moeMemPoolAlloc(size, 0, None)
    if block is None:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory.")
    pool.blocks.append(block)
    return block


def make(**settings):
    return moecomm.Communicator(1, 0, moecomm.unique_id(), **{**SETTINGS, **settings})


@unittest.skipIf(SKIP, SKIP)
class WindowPoolTest(unittest.TestCase):
    def setUp(self):
        for target, name, value in (
            (torch.cuda, "MemPool", Pool),
            (torch.cuda, "use_mem_pool", use_mem_pool),
            (torch.cuda, "device", lambda _: contextlib.nullcontext()),
            (torch.cuda, "empty_cache", lambda: None),
            (torch.cuda, "is_current_stream_capturing", lambda: False),
            (window_pools, "device_of", lambda _: torch.device("cuda", 0)),
        ):
            patch = mock.patch.object(target, name, value)
            patch.start()
            self.addCleanup(patch.stop)

    def largest(self, comm):
        """The largest free block of the heap. The refusal of a larger block names it."""
        try:
            comm.window((2 * HEAP,))
        except moecomm.InvalidArgument as error:
            return int(str(error).split("heap is ")[1].split()[0])
        raise AssertionError("the heap has a block of twice its size")

    def test_torch_finds_both_functions_by_their_names(self):
        with make() as comm, moecomm.torch.window_pool(comm):
            self.assertIsInstance(routed.pool.allocator, torch._C._CUDAPluggableAllocator)

    def test_allocations_take_the_communicator_s_heap_and_give_it_back(self):
        with make() as comm:
            self.assertEqual(self.largest(comm), HEAP)
            with moecomm.torch.window_pool(comm):
                first = allocate(HEAP // 2)
                ctypes.memset(first, 1, HEAP // 2)
            with moecomm.torch.window_pool(comm):
                allocate(HEAP // 4)
            self.assertEqual(self.largest(comm), HEAP // 4)
            self.assertEqual(Pool.alive, 1)
            moecomm.torch.release_window_pool(comm)
            self.assertEqual((self.largest(comm), Pool.alive), (HEAP, 0))
            moecomm.torch.release_window_pool(comm)

    def test_a_destroyed_communicator_that_is_dropped_drops_its_pool(self):
        comm = make()
        with moecomm.torch.window_pool(comm):
            allocate(1000)
        comm.destroy()
        self.assertEqual(Pool.alive, 1)
        del comm
        gc.collect()
        self.assertEqual(Pool.alive, 0)

    def test_it_serves_this_thread_until_it_ends(self):
        def enter(comm):
            with moecomm.torch.window_pool(comm):
                raise AssertionError("it was entered")

        with make() as comm, make() as other:
            with moecomm.torch.window_pool(comm):
                with moecomm.torch.window_pool(comm):
                    allocate(HEAP // 4)
                refuses(moecomm.InvalidUsage, "inside the window_pool of another communicator", enter, other)
                allocate(HEAP // 4)
                served = []
                thread = threading.Thread(target=lambda: served.append(_library.library().moeMemPoolAlloc(16, 0, None)))
                thread.start()
                thread.join()
                self.assertEqual(served, [None])
            self.assertIsNone(_library.library().moeMemPoolAlloc(16, 0, None))
            self.assertIn("no communicator serves this thread", _library.library().moeGetLastError(None).decode())
            self.assertEqual((self.largest(comm), self.largest(other)), (HEAP // 2, HEAP))

    def test_threads_have_pools_of_their_own(self):
        def work(comm):
            with moecomm.torch.window_pool(comm):
                allocate(HEAP // 4)
                both.wait(60)

        both = threading.Barrier(2)
        with make() as comm:
            threads = [threading.Thread(target=work, args=(comm,)) for _ in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual((self.largest(comm), Pool.alive), (HEAP // 2, 2))
            moecomm.torch.release_window_pool(comm)
            self.assertEqual((self.largest(comm), Pool.alive), (HEAP, 0))

    def test_an_exhausted_heap_is_torch_s_error_with_the_library_s_sentence(self):
        def too_much(comm):
            with moecomm.torch.window_pool(comm):
                allocate(2 * HEAP)

        with make() as comm:
            text = "CUDA out of memory.\nmoeMemPoolAlloc: bytes is 2097152, but the largest free block of the window's heap"
            refuses(torch.cuda.OutOfMemoryError, text, too_much, comm)
            self.assertEqual(self.largest(comm), HEAP)

    def test_memory_outlives_its_communicator(self):
        comm = make()
        with moecomm.torch.window_pool(comm):
            block = allocate(HEAP)
        ctypes.memset(block, 7, HEAP)
        comm.destroy()
        self.assertEqual(ctypes.string_at(block, HEAP), b"\7" * HEAP)
        del comm
        gc.collect()
        self.assertEqual(Pool.alive, 0)

    def test_refusals(self):
        def enter(comm):
            with moecomm.torch.window_pool(comm):
                raise AssertionError("it was entered")

        comm = make()
        comm.destroy()
        refuses(moecomm.InvalidUsage, "the communicator has been destroyed", enter, comm)
        blocks = {}

        def give(size, kind):
            blocks[len(blocks)] = ctypes.create_string_buffer(size + 256)
            return -(-ctypes.addressof(blocks[len(blocks) - 1]) // 256) * 256

        with make(allocate=give, free=lambda memory, size, kind: None) as own:
            refuses(moecomm.InvalidUsage, "memory of config.allocate", enter, own)
        with make() as good, mock.patch.object(window_pools, "device_of", lambda _: torch.device("cpu")):
            refuses(NotImplementedError, "needs the cuda backend", enter, good)
        with make() as good, mock.patch.object(torch, "_C", object()):
            refuses(NotImplementedError, "needs torch 2.8 or later", enter, good)
        with make() as good, mock.patch.object(torch.cuda, "is_current_stream_capturing", lambda: True):
            with mock.patch.object(torch.cuda, "CUDAGraph", object):
                refuses(NotImplementedError, "during a capture needs a newer torch", enter, good)


if __name__ == "__main__":
    unittest.main()
