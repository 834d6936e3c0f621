"""Communicator.recover(). Needs the library and numpy."""

import threading
import unittest

from support import MISSING, RANKS, numpy, world

import moecomm

EXPERTS, TOKENS, TOPK, HIDDEN = 2 * RANKS, 6, 2, 8


@unittest.skipIf(MISSING or numpy is None, MISSING or "numpy is missing")
class RecoverTest(unittest.TestCase):
    def setUp(self):
        self.met = threading.Barrier(RANKS)

    def ids(self, rank, turn):
        return numpy.array([[(t + turn + rank + k) % EXPERTS for k in range(TOPK)] for t in range(TOKENS)], numpy.int32)

    def step(self, handle, rank, turn):
        rows = numpy.full((TOKENS, HIDDEN), 1 + turn, numpy.float32)
        handle.route(self.ids(rank, turn))
        out, sums = numpy.zeros((handle.counts().layout_rows, HIDDEN), numpy.float32), numpy.empty_like(rows)
        handle.dispatch(rows, out)
        handle.combine(out, sums)
        self.assertEqual(sums.tolist(), (TOPK * rows).tolist())

    def test_a_step_is_repeated_after_a_rank_came_too_late(self):
        def body(comm):
            for mode in ("ht", "ll"):
                with comm.handle(EXPERTS, TOPK, layout="expert-major", mode=mode, tokens_max=TOKENS) as handle:
                    self.step(handle, comm.rank, 0)
                    self.met.wait()
                    comm.set_timeout(500)
                    if comm.rank != RANKS - 1:
                        with self.assertRaisesRegex(moecomm.errors.Timeout, f"rank {RANKS - 1} did not send its counts"):
                            handle.route(self.ids(comm.rank, 1))
                    self.met.wait()
                    comm.recover(20000)
                    self.assertIsNone(comm.async_error())
                    comm.set_timeout(20000)
                    with self.assertRaisesRegex(moecomm.errors.InvalidUsage, "has voided the route of this handle"):
                        handle.counts()
                    for turn in range(3):
                        self.step(handle, comm.rank, turn)
                    self.met.wait()

        world(body)

    def test_what_awaited_completion_is_cancelled(self):
        def body(comm):
            with comm.handle(EXPERTS, TOPK, layout="expert-major", mode="ll", tokens_max=TOKENS) as handle:
                rows = numpy.ones((TOKENS, HIDDEN), numpy.float32)
                out, sums = numpy.zeros((TOKENS * RANKS * TOPK, HIDDEN), numpy.float32), numpy.empty_like(rows)
                for turn in range(3):
                    handle.route_dispatch(self.ids(comm.rank, turn), None, rows, out, send_only=True)
                    self.met.wait()
                    comm.recover(20000)
                    with self.assertRaisesRegex(moecomm.errors.InvalidUsage, "nothing of this handle is outstanding"):
                        handle.complete()
                    self.step(handle, comm.rank, turn)
                    self.met.wait()

        world(body)

    def test_times_out_of_range_are_refused(self):
        def body(comm):
            with self.assertRaisesRegex(moecomm.errors.InvalidArgument, "timeoutMs is 0, must be 1..86400000"):
                comm.recover(0)
            with self.assertRaises(TypeError):
                comm.recover("long")

        world(body)


if __name__ == "__main__":
    unittest.main()
