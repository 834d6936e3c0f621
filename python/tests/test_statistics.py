"""Statistics of a handle, and the caller's own counters. Needs the library and numpy."""

import ctypes
import unittest

from support import MISSING, RANKS, numpy, world

import moecomm

EXPERTS, TOKENS = 4, 3


@unittest.skipIf(MISSING or numpy is None, MISSING or "numpy is missing")
class StatisticsTest(unittest.TestCase):
    def test_rows_and_waits_add_up(self):
        def body(comm):
            ids = numpy.tile(numpy.array([0, 3], numpy.int32), (TOKENS, 1))  # one expert of each rank
            rows, out = numpy.ones((TOKENS, 8), numpy.float32), numpy.empty((RANKS * TOKENS, 8), numpy.float32)
            counted, waited = numpy.array([5, 7], numpy.int32), numpy.zeros(RANKS, numpy.int64)
            with comm.handle(experts=EXPERTS, topk=2, layout="expert-major", statistics=True) as handle:
                for _ in range(2):
                    described = moecomm.Describe(cumulative_rows=counted, cumulative_wait_ns=waited)
                    handle.route_dispatch(ids, None, rows, out, describe=described)
                    handle.combine(out, rows.copy(), cumulative_wait_ns=waited)
                used = 0 if comm.rank == 0 else 1
                expected = [2 * RANKS * TOKENS if expert == used else 0 for expert in range(2)]
                self.assertEqual(counted.tolist(), [5 + expected[0], 7 + expected[1]])
                found = handle.statistics()
                read = lambda address, n: list((ctypes.c_int64 * n).from_address(address))  # noqa: E731
                self.assertEqual(read(found.rows_per_expert, 2), expected)
                self.assertEqual(read(found.rows_per_rank, RANKS), [2 * TOKENS] * RANKS)
                waits = zip(read(found.dispatch_wait_ns, RANKS), read(found.combine_wait_ns, RANKS))
                self.assertEqual([a + b for a, b in waits], waited.tolist())
                self.assertEqual(read(found.late_steps, RANKS)[comm.rank], 0)
                with self.assertRaisesRegex(ValueError, "cumulative_wait_ns has shape"):
                    handle.combine(out, rows.copy(), cumulative_wait_ns=waited[:1])
                with self.assertRaisesRegex(ValueError, "describe.cumulative_wait_ns has shape"):
                    handle.dispatch(rows, out, describe=moecomm.Describe(cumulative_wait_ns=waited[:1]))
            with comm.handle(experts=EXPERTS, topk=2) as without:
                with self.assertRaises(moecomm.errors.InvalidUsage):
                    without.statistics()

        world(body)


if __name__ == "__main__":
    unittest.main()
