"""How communicators end: dropped, in a cycle, under a lock, at the interpreter's exit, in a fork, twice, during
calls. Tests that may crash the interpreter run in their own."""

import gc
import os
import pathlib
import subprocess
import sys
import textwrap
import threading
import time
import unittest
import warnings

from support import MISSING, RANKS, moecomm, world

PATIENCE = 60  # seconds, on a busy machine

# The start of every script. pair() makes the ranks of a group in one process.
PRELUDE = """
import ctypes, gc, os, sys, threading, time
import moecomm

def pair(ranks=2, **settings):
    identity = moecomm.unique_id()
    made = [None] * ranks
    settings = {"backend": "host", "timeout_ms": 30000, "tokens_max": 16, "ll_tokens_max": 16, **settings}
    def join(rank):
        made[rank] = moecomm.Communicator(ranks, rank, identity, **settings)
    threads = [threading.Thread(target=join, args=(rank,)) for rank in range(ranks)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    return made

def resources():
    return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))

def await_resources(before, seconds=30):
    end = time.monotonic() + seconds
    while resources() > before and time.monotonic() < end:
        time.sleep(0.01)
    assert resources() <= before, (before, resources())
"""


def run_script(text):
    """Runs the script in its own interpreter, which need not warn of forks beside threads. Returns its status,
    standard output and standard error."""
    environment = dict(os.environ, PYTHONPATH=str(pathlib.Path(moecomm.__file__).resolve().parents[1]))
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", PRELUDE + textwrap.dedent(text)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        timeout=PATIENCE,
    )
    return done.returncode, done.stdout.decode(), done.stderr.decode()


@unittest.skipIf(MISSING, MISSING)
class ScriptTest(unittest.TestCase):
    def good(self, text):
        status, out, err = run_script(text)
        self.assertEqual((status, out, err), (0, "done\n", ""))

    def test_dropped_ones_leave_nothing_behind(self):
        """Log functions, allocators, threads and descriptors."""
        self.good("""
            warm = pair(log_level="none")
            [comm.destroy() for comm in warm]
            before = resources()
            blocks = {}
            def allocate(size, kind):
                memory = ctypes.create_string_buffer(size + 256)
                address = ctypes.addressof(memory) + -ctypes.addressof(memory) % 256
                blocks[address] = memory
                return address
            def free(memory, size, kind):
                del blocks[memory]
            for _ in range(10):
                lines = []
                pair(log=lambda level, line: lines.append(line), log_level="trace", allocate=allocate, free=free)
                gc.collect()
            await_resources(before)
            assert not blocks, len(blocks)
            assert lines
            print("done")
        """)

    def test_cycles_are_collected(self):
        """The log function and the allocator belong to an object that holds the communicator, as trainers do."""
        self.good("""
            class Trainer:
                def __init__(self, rank, identity):
                    self.comm = moecomm.Communicator(2, rank, identity, backend="host", tokens_max=16, ll_tokens_max=16,
                                                     log=self.log, log_level="trace")
                    self.handle = self.comm.handle(2, 1)
                    self.lines = []
                def log(self, level, line):
                    getattr(self, "lines", []).append(line)
            [comm.destroy() for comm in pair(log_level="none")]
            before = resources()
            for _ in range(5):
                identity = moecomm.unique_id()
                threads = [threading.Thread(target=Trainer, args=(rank, identity)) for rank in range(2)]
                [thread.start() for thread in threads]
                [thread.join() for thread in threads]
                gc.collect()
            await_resources(before)
            print("done")
        """)

    def test_a_lock_that_the_log_function_needs(self):
        """The collector runs anywhere, including where a thread holds a lock that the log function waits for."""
        self.good("""
            lock = threading.Lock()
            gone = []
            def log(level, line):
                with lock:
                    gone.append(line)
            [comm.destroy() for comm in pair(log_level="none")]
            before = resources()
            comms = pair(log=log, log_level="trace")
            for comm in comms:
                comm.abort()
            comm = None
            with lock:
                begin = time.monotonic()
                comms.clear()
                gc.collect()
                assert time.monotonic() - begin < 20
            await_resources(before)
            print("done")
        """)

    def test_left_at_exit(self):
        self.good("""
            lines = []
            comms = pair(log=lambda level, line: lines.append(line), log_level="trace")
            handles = [comm.handle(2, 1) for comm in comms]
            comms[0].cycle = comms
            print("done")
        """)

    def test_daemon_threads_in_calls_at_exit(self):
        """One thread waits for a peer that does not come, and logs its timeout while the interpreter shuts down."""
        self.good("""
            class Slow:
                def __del__(self, sleep=time.sleep):
                    sleep(2.5)
            sys.slow = Slow()  # which goes late
            lines = []
            comms = pair(log=lambda level, line: lines.append(line), log_level="trace", timeout_ms=500)
            handles = [comm.handle(2, 1) for comm in comms]
            begun = threading.Event()
            def wait():
                begun.set()
                while True:
                    try:
                        handles[0].route(None, tokens=0)
                    except moecomm.MoeError:
                        pass
            threading.Thread(target=wait, daemon=True).start()
            begun.wait()
            time.sleep(0.05)  # so that it is in the call, mostly
            print("done")
        """)

    def test_exceptions_in_a_with_body(self):
        status, _, err = run_script("""
            with moecomm.Communicator(1, 0, moecomm.unique_id(), backend="host", log=lambda level, line: None) as comm:
                with comm.handle(2, 1) as handle:
                    raise LookupError("mine")
        """)
        self.assertEqual(status, 1)
        self.assertRegex(err, r"LookupError: mine\n$")

    def test_a_fork_leaves_its_parent_s_alone(self):
        self.good("""
            comms = pair(log=lambda level, line: None)
            child = os.fork()
            if child == 0:
                try:
                    comms[0].rank
                except moecomm.InvalidUsage as error:
                    assert str(os.getppid()) in str(error), error
                else:
                    os._exit(1)
                comms[1].destroy()
                del comms
                gc.collect()
                sys.exit(0)
            assert os.waitpid(child, 0)[1] == 0
            assert comms[1].async_error() is None
            [comm.destroy() for comm in comms]
            print("done")
        """)


@unittest.skipIf(MISSING, MISSING)
class LifeTest(unittest.TestCase):
    SETTINGS = dict(
        backend="host", tokens_max=16, ll_tokens_max=16, row_bytes_max=64, heap_bytes=4096, log_level="none"
    )

    def alone(self, **settings):
        return moecomm.Communicator(1, 0, moecomm.unique_id(), **{**self.SETTINGS, **settings})

    def test_calls_after_destroy_say_so(self):
        comm = self.alone()
        handle, memory = comm.handle(2, 1), comm.window((4,), "<f4")
        comm.destroy()
        comm.destroy()
        handle.destroy()
        handle.destroy()
        memory.free()
        calls = (
            comm.abort,
            comm.async_error,
            comm.last_error,
            lambda: comm.info,
            lambda: comm.rank,
            lambda: comm.limits,
            lambda: comm.peer(0),
            lambda: comm.window((4,)),
            lambda: comm.handle(2, 1),
            lambda: handle.route(None, tokens=0),
            lambda: handle.dispatch(None, None, row_type="float32", hidden=4, out_rows_max=0),
            lambda: handle.combine(None, None, row_type="float32", hidden=4),
            handle.complete,
            handle.counts,
            handle.device_counts,
            handle.view,
            handle.arrivals,
            lambda: handle.mode,
        )
        for call in calls:
            with self.assertRaisesRegex(moecomm.InvalidUsage, "^the communicator has been destroyed$"):
                call()
        with self.assertRaisesRegex(moecomm.InvalidUsage, "^the window memory has been freed$"):
            memory.__array_interface__
        self.assertEqual((comm.pointer, handle.pointer), (None, None))

    def test_calls_after_a_handle_s_destroy_say_so(self):
        with self.alone() as comm:
            handle = comm.handle(2, 1)
            with self.assertRaisesRegex(
                moecomm.InvalidUsage, r"^dispatch: route\(\) has not been called on this handle$"
            ):
                handle.dispatch(None, None)
            handle.destroy()
            handle.destroy()
            for call in (handle.counts, lambda: handle.route(None, tokens=0), lambda: handle.dispatch(None, None)):
                with self.assertRaisesRegex(moecomm.InvalidUsage, "^the handle has been destroyed$"):
                    call()

    def test_what_is_dropped_warns(self):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            comm = self.alone()
            comm.handle(2, 1)
            self.assertRegex(str(caught.pop().message), r"Handle .* was dropped without destroy\(\)$")
            gone = comm.native
            del comm
            gc.collect()
            self.assertRegex(str(caught.pop().message), r"Communicator .* was dropped without destroy\(\)$")
            self.assertEqual((gone.pointer, caught), (None, []))

    def test_descriptions(self):
        comm = self.alone()
        handle = comm.handle(4, 2, layout="expert-major", mode="ll", tokens_max=8)
        self.assertEqual(repr(comm), "<Communicator rank 0 of 1, backend host>")
        described = "<Handle layout expert-major, mode ll, experts 4, topk 2, tokens_max 8"
        self.assertEqual(repr(handle), described + ">")
        handle.destroy()
        self.assertEqual(repr(handle), described + ", destroyed>")
        other = comm.handle(4, 2, mode="ht")
        comm.destroy()
        self.assertRegex(repr(other), "^<Handle layout flat, mode ht, experts 4, topk 2, tokens_max [1-9][0-9]*, destroyed>$")
        self.assertEqual(repr(comm), "<Communicator rank 0 of 1, backend host, destroyed>")

    def test_descriptions_of_objects_that_were_not_made(self):
        self.assertEqual(repr(object.__new__(moecomm.Communicator)), "<Communicator that has not joined>")
        handle = object.__new__(moecomm.Handle)
        self.assertEqual(repr(handle), "<Handle that has not been made>")
        comm = self.alone()
        for wrong in (dict(layout="x"), dict(topk=3000)):
            with self.assertRaises(ValueError):
                handle.__init__(comm, 4, **{"topk": 2, **wrong})
            self.assertEqual(repr(handle), "<Handle that has not been made>")
        comm.destroy()

    def test_log_functions_must_not_destroy(self):
        refused = []

        def log(level, line):
            try:
                comm.destroy()
            except moecomm.InvalidUsage as error:
                refused.append(str(error))

        comm = self.alone(log=log, log_level="error")
        comm.abort()
        comm.destroy()
        expected = "destroy() must not be called by a log function, an allocator or during a call"
        self.assertEqual(set(refused), {expected})

    def test_destroy_waits_for_calls_of_other_threads(self):
        """Rank 0 is destroyed while one of its threads is in a route that rank 1 has not reached."""
        entered, leaving = threading.Event(), threading.Event()

        def body(comm):
            handle = comm.handle(RANKS, 1)
            if comm.rank == 1:
                leaving.wait(PATIENCE)
                handle.route(None, tokens=0)
                return handle.destroy()
            result = []

            def route():
                entered.set()
                handle.route(None, tokens=0)
                result.append("routed")

            thread = threading.Thread(target=route)
            thread.start()
            entered.wait(PATIENCE)
            while not comm.native._calls:
                time.sleep(0.001)
            threading.Timer(0.05, leaving.set).start()
            comm.destroy()
            self.assertEqual(result, ["routed"])
            thread.join()

        world(body, **{name: value for name, value in self.SETTINGS.items() if name != "backend"})

    def test_arrays_of_a_send_only_operation_are_kept(self):
        class Tensor:
            """A tensor of one row of four floats."""

            dtype, shape, device = "float32", (1, 4), type("Device", (), {"type": "cpu", "index": None})
            dropped = 0

            def __init__(self):
                import ctypes

                self.memory = (ctypes.c_float * 4)(1, 2, 3, 4)
                self.data_ptr = lambda memory=self.memory: ctypes.addressof(memory)

            def element_size(self):
                return 4

            def __del__(self):
                Tensor.dropped += 1

        import ctypes

        with self.alone() as comm, comm.handle(1, 1) as handle:
            expert = ctypes.c_int32(0)
            handle.route(ctypes.addressof(expert), tokens=1)
            handle.dispatch(Tensor(), Tensor(), send_only=True)
            gc.collect()
            self.assertEqual(Tensor.dropped, 0)
            handle.complete()
            gc.collect()
            self.assertEqual(Tensor.dropped, 2)


if __name__ == "__main__":
    unittest.main()
