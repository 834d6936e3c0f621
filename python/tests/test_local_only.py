"""Handles of a rank's own experts alone. Needs the library and numpy."""

import unittest

from support import MISSING, RANKS, numpy, world

import moecomm

EXPERTS, TOKENS, TOPK = 5, 6, 2
# The experts of the tokens, which are the same on all ranks.
IDS = [[0, 1], [2, 3], [4, 0], [-1, 3], [1, 4], [2, -1]]


@unittest.skipIf(MISSING or numpy is None, MISSING or "numpy is missing")
class LocalOnlyTest(unittest.TestCase):
    def test_each_rank_sums_the_rows_of_its_own_experts(self):
        def body(comm):
            ids, rows = numpy.array(IDS, numpy.int32), numpy.ones((TOKENS, 8), numpy.float32)
            for mode in ("ht", "ll"):
                for layout in ("flat", "expert-major", "expert-major-padded", "rank-major"):
                    with comm.handle(EXPERTS, TOPK, layout=layout, mode=mode, tokens_max=TOKENS, local_only=True) as own:
                        for _ in range(1 + comm.rank):  # ranks need not agree on this
                            self.step(own, comm.rank, ids, rows)

        world(body)

    def step(self, own, rank, ids, rows):
        first = rank * (EXPERTS // RANKS) + min(rank, EXPERTS % RANKS)
        mine = (ids >= first) & (ids < first + own.local_experts)
        own.route(ids)
        counts = own.counts()
        self.assertEqual((counts.first_expert, counts.local_experts), (first, own.local_experts))
        self.assertEqual(counts.rows, int(mine.any(1).sum()))
        self.assertEqual(counts.rows_per_rank, [counts.rows])
        self.assertEqual(counts.rows_per_expert, [int((ids == first + e).sum()) for e in range(own.local_experts)])
        out, sums = numpy.zeros((counts.layout_rows, 8), numpy.float32), numpy.empty_like(rows)
        own.dispatch(rows, out)
        own.combine(out, sums)
        entries = mine.sum(1) if own.layout.startswith("expert") else mine.any(1)
        self.assertEqual(sums[:, 0].tolist(), entries.tolist())

    def test_placements_are_refused(self):
        def body(comm):
            with comm.handle(EXPERTS, TOPK, mode="ht", local_only=True) as own:
                with self.assertRaisesRegex(moecomm.errors.InvalidUsage, "made with config.localOnly"):
                    own.set_placement(list(range(EXPERTS)))

        world(body)


if __name__ == "__main__":
    unittest.main()
