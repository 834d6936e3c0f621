"""Weights that combine brings. Needs the library and numpy."""

import unittest

from support import MISSING, RANKS, numpy, world

import moecomm

EXPERTS, TOKENS = 4, 3


@unittest.skipIf(MISSING or numpy is None, MISSING or "numpy is missing")
class CombineWeightsTest(unittest.TestCase):
    def test_they_count_instead_of_those_of_the_route(self):
        def body(comm):
            ids = numpy.tile(numpy.array([0, 3], numpy.int32), (TOKENS, 1))  # one expert of each rank
            weights = numpy.arange(1, 2 * TOKENS + 1, dtype=numpy.float32).reshape(TOKENS, 2)
            rows, out = numpy.ones((TOKENS, 8), numpy.float32), numpy.empty((RANKS * TOKENS, 8), numpy.float32)
            for mode in ("ht", "ll"):
                with comm.handle(
                    experts=EXPERTS, topk=2, layout="expert-major", mode=mode, combine_weights=True
                ) as handle:
                    sums = numpy.zeros((TOKENS, 8), numpy.float32)
                    handle.route_dispatch(ids, 8 * weights, rows, out)
                    handle.combine(out, sums, weights="apply", topk_weights=weights)
                    self.assertEqual(sums[:, 7].tolist(), weights.sum(axis=1).tolist())
                    handle.combine(out, sums, weights="apply")
                    self.assertEqual(sums[:, 7].tolist(), (8 * weights).sum(axis=1).tolist())
                    with self.assertRaisesRegex(ValueError, r"topk_weights has shape .* expected \[tokens, topk\]"):
                        handle.combine(out, sums, weights="apply", topk_weights=weights[:1])
                    with self.assertRaisesRegex(TypeError, "topk_weights"):
                        handle.combine(out, sums, weights="apply", topk_weights=weights.astype(numpy.float64))
                    with self.assertRaisesRegex(moecomm.errors.InvalidArgument, "args.weights is moeWeightsApplied"):
                        handle.combine(out, sums, topk_weights=weights)
            with comm.handle(experts=EXPERTS, topk=2, layout="expert-major") as without:
                without.route_dispatch(ids, None, rows, out)
                with self.assertRaisesRegex(moecomm.errors.InvalidArgument, "made without config.combineWeights"):
                    without.combine(out, rows.copy(), weights="apply", topk_weights=weights)

        world(body)


if __name__ == "__main__":
    unittest.main()
