"""The package over the real library: two ranks as threads, host backend, no numpy. Skipped where no library is
found, unless MOECOMM_LIBRARY names one."""

import ctypes
import json
import os
import pathlib
import sys
import tempfile
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import moecomm  # noqa: E402

RANKS = 2
SETTINGS = dict(backend="host", tokens_max=16, ll_tokens_max=16, row_bytes_max=64, heap_bytes=4096, timeout_ms=20000)

try:
    moecomm.library()
    MISSING = None
except OSError as error:
    if os.environ.get("MOECOMM_LIBRARY"):
        raise
    MISSING = str(error)


def world(body, **settings):
    """Runs body(comm) on RANKS threads. Raises the first failure."""
    identity = moecomm.unique_id()
    failures = []

    def run(rank):
        try:
            with moecomm.Communicator(RANKS, rank, identity, **{**SETTINGS, **settings}) as comm:
                body(comm)
        except BaseException as failure:  # noqa: B902
            failures.append(failure)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(RANKS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def floats(*values):
    return (ctypes.c_float * len(values))(*values)


def dispatch_cast(handle, rows, codes, scales, cast, scale_layout="row-major", describe=None):
    """One row of 128 floats."""
    source, to, out_scales = (ctypes.addressof(memory) for memory in (rows, codes, scales))
    shape = dict(out_rows_max=1, row_type="float32", hidden=128)
    handle.dispatch(source, to, cast=moecomm.Cast(cast, out_scales, scale_layout), describe=describe, **shape)


@unittest.skipIf(MISSING, MISSING)
class LibraryTest(unittest.TestCase):
    def test_the_version_is_that_of_the_package(self):
        self.assertEqual(".".join(str(part) for part in moecomm.version()), moecomm.__version__)

    def test_limits_and_memory_are_told(self):
        self.assertGreaterEqual(moecomm.limits().ranks_max, RANKS)
        small, large = (moecomm.memory_size(2, tokens_max=tokens, modes="ht") for tokens in (16, 1024))
        self.assertLess(small.window_bytes, large.window_bytes)

    def test_a_refusal_names_the_value(self):
        with self.assertRaisesRegex(moecomm.InvalidArgument, "33"):
            moecomm.memory_size(2, topk_max=33)
        with self.assertRaises(ValueError):
            moecomm.memory_size(2, topk_max=33)
        with self.assertRaisesRegex(TypeError, "no_such_setting"):
            moecomm.memory_size(2, no_such_setting=1)

    def test_the_timeout_can_be_changed(self):
        def body(comm):
            self.assertEqual(comm.info.timeout_ms, 20000)
            comm.set_timeout(30000)
            self.assertEqual(comm.info.timeout_ms, 30000)
            with self.assertRaisesRegex(moecomm.InvalidArgument, "timeoutMs is 0"):
                comm.set_timeout(0)
            with self.assertRaises(TypeError):
                comm.set_timeout(1.5)

        world(body)

    def test_the_latest_steps_can_be_dumped(self):
        with tempfile.TemporaryDirectory() as folder:

            def body(comm):
                path = pathlib.Path(folder, f"rank{comm.info.rank}.json")
                comm.dump(str(path))
                told = json.loads(path.read_text())
                self.assertEqual((told["rank"], told["nranks"], told["steps_recorded"]), (comm.info.rank, 2, 0))
                comm.dump()
                self.assertEqual(len(list(pathlib.Path(folder).glob(f"moecomm-*-rank{comm.info.rank}.json"))), 1)
                with self.assertRaisesRegex(moecomm.SystemFailure, "missing"):
                    comm.dump(f"{folder}/missing/dump")
                with self.assertRaises(TypeError):
                    comm.dump(3)

            world(body, dump_folder=folder)

    def test_a_step_with_addresses(self):
        """Each token goes to both ranks' experts. Each rank's expert multiplies by rank + 1."""

        def body(comm):
            rows = floats(*[10 * comm.rank + 1] * 4, *[10 * comm.rank + 2] * 4)
            experts = (ctypes.c_int32 * 4)(0, 1, 0, 1)
            with comm.handle(RANKS, 2, tokens_max=2, mode="ht") as handle:
                self.assertEqual(handle.mode, "ht")
                handle.route(ctypes.addressof(experts), tokens=2)
                counts = handle.counts()
                self.assertEqual((counts.rows, counts.rows_per_rank), (4, [2, 2]))
                self.assertEqual((counts.rows_per_expert, counts.first_expert), ([4], comm.rank))
                arrived = floats(*[0] * 16)
                place = dict(row_type="float32", hidden=4)
                handle.dispatch(ctypes.addressof(rows), ctypes.addressof(arrived), out_rows_max=4, **place)
                self.assertEqual([arrived[4 * row] for row in range(4)], [1, 2, 11, 12])
                for i in range(16):
                    arrived[i] *= comm.rank + 1
                result = floats(*[0] * 8)
                handle.combine(ctypes.addressof(arrived), ctypes.addressof(result), **place)
                self.assertEqual(list(result), [3 * value for value in rows])

        world(body)

    def test_rows_are_cast_on_their_way(self):
        def body(comm):
            rows = floats(*[448.0] * 64, *[-224.0] * 64)
            experts = (ctypes.c_int32 * 1)(1 - comm.rank)
            for mode in ("ll", "ht"):
                check(comm, rows, experts, mode)

        def check(comm, rows, experts, mode):
            with comm.handle(RANKS, 1, tokens_max=1, mode=mode) as handle:
                handle.route(ctypes.addressof(experts), tokens=1)
                codes, scales = (ctypes.c_uint8 * 128)(), floats(0)
                dispatch_cast(handle, rows, codes, scales, "fp8")
                self.assertEqual(list(codes), [0x7E] * 64 + [0xF6] * 64)
                self.assertEqual(scales[0], 1.0)

        world(body, row_bytes_max=512)

    def test_scales_lie_in_blocks(self):
        def body(comm):
            rows = floats(*[448.0] * 64, *[-224.0] * 64)
            experts = (ctypes.c_int32 * 1)(1 - comm.rank)
            for mode in ("ll", "ht"):
                with comm.handle(RANKS, 1, layout="expert-major", tokens_max=1, mode=mode) as handle:
                    handle.route(ctypes.addressof(experts), tokens=1)
                    self.assertEqual(handle.scale_shape("mxfp8", 128, 1), (1, 1, 512))
                    codes, scales, offsets = (ctypes.c_uint8 * 128)(), (ctypes.c_uint8 * 512)(), (ctypes.c_int32 * 2)(7, 7)
                    for i in range(512):
                        scales[i] = 9
                    described = moecomm.Describe(out_block_offsets=ctypes.addressof(offsets))
                    dispatch_cast(handle, rows, codes, scales, "mxfp8", "128x4", described)
                    self.assertEqual(list(scales), [127, 127, 126, 126] + [0] * 508)
                    self.assertEqual(list(offsets), [0, 1])

        world(body, row_bytes_max=512)

    def test_send_only_is_completed(self):
        def body(comm):
            rows = floats(*[comm.rank + 1] * 4)
            experts = (ctypes.c_int64 * 1)(1 - comm.rank)
            with comm.handle(RANKS, 1, tokens_max=1, index_type="int64") as handle:
                handle.route(ctypes.addressof(experts), tokens=1)
                arrived, result = floats(*[0] * 4), floats(*[0] * 4)
                place = dict(row_type="float32", hidden=4, send_only=True)
                handle.dispatch(ctypes.addressof(rows), ctypes.addressof(arrived), out_rows_max=1, **place)
                handle.complete()
                self.assertEqual(arrived[0], 2 - comm.rank)
                handle.combine(ctypes.addressof(arrived), ctypes.addressof(result), **place)
                handle.complete()
                self.assertEqual(list(result), list(rows))
                with self.assertRaises(moecomm.InvalidUsage):
                    handle.complete()

        world(body)

    def test_window_memory_comes_from_the_heap(self):
        def body(comm):
            memory = comm.window((16, 4), "<f4")
            self.assertEqual((memory.nbytes, memory.address % 256), (256, 0))
            with self.assertRaises(moecomm.InvalidArgument):
                comm.window((1 << 20,), "<f4")
            memory.free()
            memory.free()

        world(body)

    def test_communicators_describe_themselves(self):
        def body(comm):
            self.assertEqual((comm.nranks, comm.backend), (RANKS, "host"))
            self.assertIn(comm.rank, range(RANKS))
            self.assertEqual(comm.peer(comm.rank).transport, "self")
            self.assertEqual(comm.peer(1 - comm.rank).process_id, os.getpid())
            self.assertEqual(comm.limits.tokens_max, 16)
            self.assertIsNone(comm.async_error())

        world(body)

    def test_arrays_of_a_wrong_type_are_refused(self):
        class Tensor:
            dtype, shape = "float64", (2, 2)

        def body(comm):
            with comm.handle(RANKS, 2, tokens_max=2) as handle:
                with self.assertRaisesRegex(TypeError, "float64"):
                    handle.route(Tensor())
                with self.assertRaisesRegex(ValueError, "topk_idx"):
                    handle.route(1234)

        world(body)

    def test_log_lines_reach_a_callable(self):
        lines = []
        world(lambda comm: None, log=lambda level, line: lines.append(line), log_level="debug")
        self.assertTrue(any("rank 0/2" in line for line in lines), lines)

    def test_an_aborted_communicator_says_so(self):
        def body(comm):
            if comm.rank == 0:
                comm.abort()
                with self.assertRaises(moecomm.Aborted):
                    comm.handle(RANKS, 1)

        world(body, log_level="none")


if __name__ == "__main__":
    unittest.main()
