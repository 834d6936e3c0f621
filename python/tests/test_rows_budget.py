"""A budget for the rows that arrive at a rank. Needs the library and numpy."""

import unittest

from support import MISSING, RANKS, numpy, world

import moecomm

EXPERTS, TOKENS, BUDGET = 4, 3, 4


@unittest.skipIf(MISSING or numpy is None, MISSING or "numpy is missing")
class RowsBudgetTest(unittest.TestCase):
    def test_later_tokens_are_left_out(self):
        def body(comm):
            ids = numpy.zeros((TOKENS, 2), numpy.int32)
            ids[:, 1] = -1  # all tokens want expert 0, which rank 0 has
            rows, sums = numpy.ones((TOKENS, 8), numpy.float32), numpy.full((TOKENS, 8), 9, numpy.float32)
            for mode in ("ht", "ll"):
                options = dict(layout="expert-major", mode=mode, rows_budget=BUDGET, expert_counts=mode == "ht")
                with comm.handle(experts=EXPERTS, topk=2, **options) as handle:
                    out = numpy.empty((BUDGET, 8), numpy.float32)
                    handle.route_dispatch(ids, None, rows, out)
                    counts = handle.counts()
                    own = comm.rank == 0
                    self.assertEqual(counts.rows, BUDGET if own else 0)
                    self.assertEqual(counts.rows_per_rank, [3, 1] if own else [0, 0])
                    self.assertEqual(counts.rows_wanted, RANKS * TOKENS if own else 0)
                    self.assertEqual(counts.rows_wanted_per_expert, [RANKS * TOKENS, 0] if own else [0, 0])
                    self.assertEqual(counts.rows_of_all_experts, [BUDGET, 0, 0, 0] if mode == "ht" else None)
                    self.assertEqual(handle.device_counts().rows_of_all_experts is None, mode == "ll")
                    handle.combine(out, sums)
                    self.assertEqual(sums[:, 0].tolist(), [1, 1, 1] if own else [1, 0, 0])
            with self.assertRaisesRegex(moecomm.errors.InvalidArgument, "config.rowsBudget is 8193, must be 0..8192"):
                comm.handle(experts=EXPERTS, topk=2, mode="ht", rows_budget=8193)

        world(body)


if __name__ == "__main__":
    unittest.main()
