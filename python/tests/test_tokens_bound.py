"""A bound for the tokens of a step. Needs the library and numpy."""

import unittest

from support import MISSING, RANKS, numpy, world

import moecomm

EXPERTS, BOUND = 4, 3


@unittest.skipIf(MISSING or numpy is None, MISSING or "numpy is missing")
class TokensBoundTest(unittest.TestCase):
    def test_outputs_are_as_small_as_the_step(self):
        def body(comm):
            ids = numpy.tile(numpy.array([0, 3], numpy.int32), (BOUND, 1))  # one expert of each rank
            rows = numpy.full((BOUND, 8), 1 + comm.rank, numpy.float32)
            with comm.handle(experts=EXPERTS, topk=2, layout="rank-major", mode="ht", tokens_max=16) as handle:
                large = numpy.zeros((RANKS, 16, 8), numpy.float32)
                handle.set_tokens_bound(BOUND)
                self.assertEqual(handle.tokens_max, 16)
                out, sources = numpy.zeros((RANKS, BOUND, 8), numpy.float32), numpy.zeros(RANKS * BOUND, numpy.int32)
                handle.route_dispatch(ids, None, rows, out, describe=moecomm.Describe(out_source_index=sources))
                self.assertEqual(handle.counts().layout_rows, RANKS * BOUND)
                self.assertEqual(sources.tolist(), list(range(RANKS * BOUND)))
                self.assertEqual(out[1, BOUND - 1].tolist(), [2] * 8)
                sums = numpy.zeros_like(rows)
                handle.combine(out, sums)
                self.assertEqual(sums.tolist(), (2 * rows).tolist())
                handle.set_tokens_bound(0)
                handle.dispatch(rows, out)  # along the same route
                handle.route(ids)
                with self.assertRaisesRegex(ValueError, "with 2 x 16 rows"):
                    handle.dispatch(rows, out)
                handle.route(ids)
                handle.dispatch(rows, large)
                self.assertEqual(large[1, BOUND - 1].tolist(), [2] * 8)
                with self.assertRaisesRegex(moecomm.errors.InvalidArgument, "tokensBound is 17, must be 0..16"):
                    handle.set_tokens_bound(17)

        world(body)


if __name__ == "__main__":
    unittest.main()
