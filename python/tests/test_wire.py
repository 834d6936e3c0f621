"""Wire formats of combine. Needs the library and numpy."""

import unittest

from support import MISSING, RANKS, numpy, world

import moecomm

EXPERTS, TOKENS, HIDDEN = 4, 3, 256


@unittest.skipIf(MISSING or numpy is None, MISSING or "numpy is missing")
class WireTest(unittest.TestCase):
    def test_sums_are_as_close_as_the_format_is(self):
        def body(comm):
            ids = numpy.tile(numpy.array([0, 3], numpy.int32), (TOKENS, 1))  # one expert of each rank
            values = numpy.random.default_rng(1 + comm.rank).standard_normal((TOKENS, HIDDEN)).astype(numpy.float32)
            out = numpy.empty((RANKS * TOKENS, HIDDEN), numpy.float32)
            for mode in ("ht", "ll"):
                with comm.handle(experts=EXPERTS, topk=2, layout="expert-major", mode=mode) as handle:
                    for wire, least, most in (
                        ("row", 0, 0),
                        ("fp8", 0.001, 1 / 16),
                        ("fp8-block", 0.001, 1 / 16),
                        ("nvfp4", 0.01, 0.2),
                        ("logfmt10", 0.0005, 0.012),
                    ):
                        sums = numpy.zeros((TOKENS, HIDDEN), numpy.float32)
                        handle.route_dispatch(ids, None, values, out)
                        handle.combine(out, sums, wire=wire)
                        error = numpy.abs(sums - 2 * values).max() / numpy.abs(2 * values).max()
                        self.assertTrue(least <= error <= most, f"{mode} {wire}: {error}")
                    with self.assertRaisesRegex(ValueError, "wire"):
                        handle.combine(out, sums, wire="fp4")
                    with self.assertRaisesRegex(ValueError, "^rows has rows of 64 elements, .* multiple of 128 with wire 'fp8'"):
                        handle.combine(out[:, :64].copy(), sums[:, :64].copy(), wire="fp8")

        world(body)


if __name__ == "__main__":
    unittest.main()
