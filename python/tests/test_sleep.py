"""Communicator.suspend(), resume(), disconnect() and reconnect(). Needs the library and numpy."""

import unittest

from support import MISSING, RANKS, numpy, world

import moecomm

EXPERTS, TOKENS, TOPK, HIDDEN = 2 * RANKS, 6, 2, 8


@unittest.skipIf(MISSING or numpy is None, MISSING or "numpy is missing")
class SleepTest(unittest.TestCase):
    def step(self, handle, rank, turn):
        ids = numpy.array([[(t + turn + rank) % EXPERTS, (t + turn + rank + 1) % EXPERTS] for t in range(TOKENS)], numpy.int32)
        rows = numpy.full((TOKENS, HIDDEN), 1 + turn, numpy.float32)
        handle.route(ids)
        out, sums = numpy.zeros((handle.counts().layout_rows, HIDDEN), numpy.float32), numpy.empty_like(rows)
        handle.dispatch(rows, out)
        handle.combine(out, sums)
        self.assertEqual(sums.tolist(), (TOPK * rows).tolist())

    def test_steps_are_right_after_cycles(self):
        def body(comm):
            for mode in ("ht", "ll"):
                with comm.handle(EXPERTS, TOPK, layout="expert-major", mode=mode, tokens_max=TOKENS) as handle:
                    for turn in range(5):
                        self.step(handle, comm.rank, turn)
                        comm.suspend()
                        comm.resume()
                    self.step(handle, comm.rank, 7)

        world(body)

    def test_window_memory_is_zeros_at_the_same_address(self):
        def body(comm):
            memory = comm.window((256,))
            bytes_here = numpy.asarray(memory)
            bytes_here[:] = 3
            comm.suspend()
            comm.resume()
            self.assertEqual(numpy.asarray(memory).ctypes.data, bytes_here.ctypes.data)
            self.assertEqual(bytes_here.tolist(), [0] * 256)
            bytes_here[:] = 4
            self.assertEqual(bytes_here.sum(), 1024)

        world(body, heap_bytes=1 << 16)

    def test_ranks_part_and_meet_again(self):
        ids = [moecomm.unique_id() for _ in range(3)]

        def body(comm):
            with comm.handle(EXPERTS, TOPK, layout="expert-major", mode="ht", tokens_max=TOKENS) as handle:
                with self.assertRaisesRegex(moecomm.errors.InvalidUsage, "moeCommDisconnect: the communicator is not suspended"):
                    comm.disconnect()
                for turn, identity in enumerate(ids):
                    self.step(handle, comm.rank, turn)
                    comm.suspend()
                    comm.disconnect()
                    with self.assertRaisesRegex(moecomm.errors.InvalidUsage, "the communicator is disconnected"):
                        comm.resume()
                    with self.assertRaisesRegex(ValueError, "identity has 3 bytes"):
                        comm.reconnect(b"abc")
                    comm.reconnect(identity)
                    comm.resume()
                self.step(handle, comm.rank, 7)

        world(body)

    def test_calls_in_between_are_refused(self):
        def body(comm):
            with comm.handle(EXPERTS, TOPK, layout="expert-major", mode="ll", tokens_max=TOKENS) as handle:
                comm.suspend()
                with self.assertRaisesRegex(moecomm.errors.InvalidUsage, "moeRoute: the communicator is suspended"):
                    handle.route(numpy.zeros((1, TOPK), numpy.int32))
                with self.assertRaisesRegex(moecomm.errors.InvalidUsage, "suspended already"):
                    comm.suspend()
                self.assertEqual(comm.info.nranks, RANKS)
                comm.resume()
                with self.assertRaisesRegex(moecomm.errors.InvalidUsage, "is not suspended"):
                    comm.resume()
                self.step(handle, comm.rank, 1)

        world(body)


if __name__ == "__main__":
    unittest.main()
