"""dispatch() without out_rows makes them like the rows."""

import unittest

from support import MISSING, RANKS, moecomm, numpy, world

from moecomm import Cast, Payload

try:
    import torch
except ImportError:
    torch = None

TOKENS, TOPK, EXPERTS, HIDDEN = 5, 2, 4, 128
LAYOUTS = ("flat", "expert-major", "expert-major-padded", "rank-major")
SETTINGS = dict(tokens_max=8, ll_tokens_max=8, row_bytes_max=1024, side_bytes_max=16)


def inputs(rank):
    """Expert ids and rows of a rank."""
    generator = numpy.random.default_rng(rank)
    experts = numpy.stack([generator.permutation(EXPERTS)[:TOPK] for _ in range(TOKENS)]).astype(numpy.int32)
    return experts, generator.standard_normal((TOKENS, HIDDEN), numpy.float32)


@unittest.skipIf(MISSING or numpy is None, MISSING or "numpy is not installed")
class OutputsTest(unittest.TestCase):
    def each(self, body, layouts=LAYOUTS):
        """body(comm, handle, experts, rows) for each layout and mode, after the route."""

        def run(comm):
            for layout in layouts:
                for mode in ("ht", "ll"):
                    with comm.handle(EXPERTS, TOPK, layout=layout, mode=mode, expert_alignment=4) as handle:
                        experts, rows = inputs(comm.rank)
                        handle.route(experts)
                        body(comm, handle, experts, rows)

        world(run, **SETTINGS)

    def arrived(self, handle, rows):
        """The same dispatch into an array of the caller, with zeros where nothing came."""
        out = numpy.zeros((handle.counts().layout_rows, rows.shape[1]), rows.dtype)
        self.assertIsNone(handle.dispatch(rows, out, pad_rows=True))
        return out

    def test_numpy(self):
        def body(comm, handle, experts, rows):
            made = handle.dispatch(rows, pad_rows=True)
            self.assertIs(type(made), numpy.ndarray)
            self.assertEqual((made.shape[0], made.dtype), (handle.counts().layout_rows, rows.dtype))
            numpy.testing.assert_array_equal(made, self.arrived(handle, rows))
            sums = numpy.empty_like(rows)
            handle.combine(made, sums)
            self.assertGreater(numpy.abs(sums).sum(), 0)

        self.each(body)

    def test_other_dtypes_and_options(self):
        def body(comm, handle, experts, rows):
            numbers = rows.astype(numpy.float64)
            self.assertEqual(handle.dispatch(numbers).dtype, numpy.float64)
            halves = rows.astype(numpy.float16)
            made = handle.dispatch(halves, row_type="float16", send_only=True)
            handle.complete()
            numpy.testing.assert_array_equal(made, self.arrived(handle, halves))
            out_side = numpy.empty((handle.counts().layout_rows, 16), numpy.uint8)
            side = numpy.repeat(experts.astype(numpy.uint8), 8, axis=1)
            numpy.testing.assert_array_equal(handle.dispatch(halves, payloads=[Payload(side, out_side)]), made)

        self.each(body, ("flat",))

    def test_casts(self):
        def body(comm, handle, experts, rows):
            count = handle.counts().layout_rows
            for cast, width, words in (("fp8", HIDDEN, 1), ("nvfp4", HIDDEN // 2, 2)):
                scales = numpy.zeros((count, words), numpy.float32 if cast == "fp8" else numpy.int32)
                codes = handle.dispatch(rows, cast=Cast(cast, scales), pad_rows=True)
                self.assertEqual((codes.shape, codes.dtype), ((count, width), numpy.uint8))
                expected, other = numpy.zeros_like(codes), numpy.zeros_like(scales)
                handle.dispatch(rows, expected, cast=Cast(cast, other), pad_rows=True)
                numpy.testing.assert_array_equal(codes, expected)
                numpy.testing.assert_array_equal(scales, other)

        self.each(body)

    @unittest.skipIf(torch is None, "torch is not installed")
    def test_torch(self):
        def body(comm, handle, experts, rows):
            made = handle.dispatch(torch.from_numpy(rows), pad_rows=True)
            self.assertIs(type(made), torch.Tensor)
            numpy.testing.assert_array_equal(made.numpy(), self.arrived(handle, rows))
            self.assertEqual(handle.dispatch(torch.from_numpy(rows).bfloat16()).dtype, torch.bfloat16)
            scales = torch.zeros((made.shape[0], 1))
            codes = handle.dispatch(torch.from_numpy(rows), cast=Cast("fp8", scales))
            self.assertEqual((codes.dtype, tuple(codes.shape)), (torch.float8_e4m3fn, tuple(made.shape)))
            words = torch.zeros((made.shape[0], 1), dtype=torch.int32)
            codes = handle.dispatch(torch.from_numpy(rows), cast=Cast("mxfp4", words))
            self.assertEqual((codes.dtype, tuple(codes.shape)), (torch.uint8, (made.shape[0], HIDDEN // 2)))

        self.each(body)

    def test_a_rank_without_tokens(self):
        def body(comm):
            with comm.handle(EXPERTS, TOPK) as handle:
                experts, rows = inputs(0)
                count = TOKENS if comm.rank == 0 else 0
                handle.route(experts[:count])
                made = handle.dispatch(rows[:count])
                self.assertEqual(made.shape, (handle.counts().layout_rows, HIDDEN))

        world(body, **SETTINGS)

    def test_refusals(self):
        def body(comm):
            with comm.handle(EXPERTS, TOPK) as handle:
                experts, rows = inputs(comm.rank)
                with self.assertRaisesRegex(moecomm.InvalidUsage, "^dispatch: route.. has not been called"):
                    handle.dispatch(rows)
                for error, text, wrong in (
                    (TypeError, "^out_rows is left out, but rows is None: expected a numpy array", dict(rows=None)),
                    (TypeError, "^out_rows is left out, but rows is a int: ", dict(rows=4096)),
                    (ValueError, r"^rows has shape \(128,\), expected \[tokens, hidden\]$", dict(rows=rows[0])),
                    (TypeError, "^out_rows_max is given, but out_rows is left out", dict(out_rows_max=9)),
                    (TypeError, "^out_rows is left out and cast.type is 'fp8', but cast.out_scales is None",
                     dict(cast=Cast("fp8"))),
                    (ValueError, "^cast.type is 'fp7', expected one of", dict(cast=Cast("fp7"))),
                    (TypeError, "^cast is 'fp8', expected a Cast$", dict(cast="fp8")),
                    (TypeError, "did you mean 'pad_rows'", dict(pad_row=True)),
                ):
                    handle.route(experts)
                    with self.assertRaisesRegex(error, text):
                        handle.dispatch(**{"rows": rows, **wrong})
                handle.route(experts)
                self.assertEqual(handle.dispatch(rows).shape[1], HIDDEN)
            with self.assertRaisesRegex(moecomm.InvalidUsage, "^the handle has been destroyed$"):
                handle.dispatch(rows)

        world(body, ranks=1, **SETTINGS)

    def test_a_rank_that_refuses_holds_up_nobody(self):
        for mode in ("ht", "ll"):

            def body(comm, mode=mode):
                with comm.handle(EXPERTS, TOPK, mode=mode) as handle:
                    experts, rows = inputs(comm.rank)
                    handle.route(experts)
                    if comm.rank == 1:
                        with self.assertRaisesRegex(TypeError, "^out_rows is left out, but rows is None"):
                            handle.dispatch(None)
                    else:
                        with self.assertRaisesRegex(moecomm.MoeError, "rank 1 has refused its arguments"):
                            handle.dispatch(rows)
                    handle.route(experts)
                    self.assertEqual(handle.dispatch(rows).shape, (handle.counts().layout_rows, HIDDEN))

            world(body, RANKS, **SETTINGS)


if __name__ == "__main__":
    unittest.main()
