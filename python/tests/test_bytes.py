"""Rows and payloads of any dtype arrive bit for bit. An array of payloads is described by its shape alone. Ranks without
rows still pass gradients."""

import unittest

from support import MISSING, RANKS, Guards, numpy, world

import moecomm
from moecomm import Describe, Grads, Payload

try:
    import ml_dtypes
except ImportError:
    ml_dtypes = None
try:
    import torch
except ImportError:
    torch = None

TOKENS, HIDDEN = 5, 32
SETTINGS = dict(tokens_max=8, ll_tokens_max=8, row_bytes_max=512, side_bytes_max=128)


def noise(shape, dtype, rank):
    """Random bits that differ between ranks, as an array of `dtype`. They include NaN, negative zero and denormals."""
    itemsize = numpy.dtype(dtype).itemsize
    random = numpy.random.default_rng(rank)
    if numpy.dtype(dtype) == numpy.bool_:
        return random.integers(0, 2, shape, numpy.uint8).view(numpy.bool_)
    raw = random.integers(0, 256, (*shape[:-1], shape[-1] * itemsize), numpy.uint8)
    return raw.view(dtype)


def bits(array):
    return numpy.ascontiguousarray(array).view(numpy.uint8).reshape(-1)


def swap(comm, handle):
    """Routes all tokens to the other rank's expert."""
    handle.route(numpy.full((TOKENS, 1), 1 - comm.rank, numpy.int32))


@unittest.skipIf(MISSING, MISSING)
@unittest.skipIf(numpy is None, "numpy is not installed")
class BitForBitTest(unittest.TestCase):
    def test_rows_that_nothing_arrives_for(self):
        def body(comm):
            for mode in ("ht", "ll"):
                with comm.handle(RANKS, 1, mode=mode) as handle:
                    swap(comm, handle)
                    rows = numpy.ones((TOKENS, HIDDEN), numpy.float32)
                    guards = Guards()
                    out_rows = guards.empty((TOKENS + 3, HIDDEN), numpy.float32)
                    out_ids = guards.empty((TOKENS + 2, 1), numpy.int32)
                    with self.assertRaisesRegex(ValueError, "describe.ids is 'near', expected one of 'local', 'global'"):
                        handle.dispatch(rows, out_rows, describe=Describe(out_ids, ids="near"))
                    swap(comm, handle)
                    described = Describe(out_ids, ids="global", invalid_id=77)
                    handle.dispatch(rows, out_rows, describe=described, pad_indices=True, pad_rows=True)
                    self.assertEqual(out_ids[:, 0].tolist(), [comm.rank] * TOKENS + [77, 77])
                    self.assertTrue((out_rows[:TOKENS] == 1).all() and (out_rows[TOKENS : TOKENS + 2] == 0).all())
                    self.assertTrue((bits(out_rows[TOKENS + 2 :]) == 0xA5).all())  # for which out_ids has no room
                    self.assertEqual(guards.broken(), 0)

        world(body)

    def test_a_route_with_its_dispatch(self):
        def body(comm):
            for mode in ("ht", "ll"):
                with comm.handle(RANKS, 1, mode=mode) as handle:
                    experts = numpy.full((TOKENS, 1), 1 - comm.rank, numpy.int32)
                    rows = numpy.arange(TOKENS * HIDDEN, dtype=numpy.float32).reshape(TOKENS, HIDDEN) + comm.rank
                    sources = numpy.empty(TOKENS, numpy.int32)
                    out_rows = numpy.empty_like(rows)
                    with self.assertRaisesRegex(moecomm.InvalidUsage, r"route\(\) has not been called"):
                        handle.dispatch(rows, out_rows)
                    with self.assertRaisesRegex(TypeError, "no keyword .out_row_max.; did you mean .out_rows_max.\\?"):
                        handle.route_dispatch(experts, None, rows, out_rows, out_row_max=4)
                    with self.assertRaisesRegex(ValueError, "rows has shape"):
                        handle.route_dispatch(experts, None, rows[1:], out_rows)
                    described = Describe(out_source_index=sources)
                    handle.route_dispatch(experts, None, rows, out_rows, describe=described)
                    self.assertTrue((out_rows == rows + (1 - 2 * comm.rank)).all())
                    self.assertEqual(handle.counts().rows, TOKENS)
                    first = (1 - comm.rank) * handle.tokens_max
                    self.assertEqual(sources.tolist(), list(range(first, first + TOKENS)))
                    sums = numpy.empty_like(rows)
                    handle.combine(out_rows, sums)
                    self.assertTrue((sums == rows).all())

        world(body)

    def send(self, dtypes):
        def body(comm):
            for mode in ("ht", "ll"):
                with comm.handle(RANKS, 1, mode=mode) as handle:
                    swap(comm, handle)
                    for dtype in dtypes:
                        guards = Guards()
                        rows = guards.like(noise((TOKENS, HIDDEN), dtype, comm.rank))
                        side = guards.like(noise((TOKENS, 16), dtype, 10 + comm.rank))
                        out_rows, out_side = guards.empty(rows.shape, dtype), guards.empty(side.shape, dtype)
                        handle.dispatch(rows, out_rows, payloads=[Payload(side, out_side)])
                        other = 1 - comm.rank
                        self.assertTrue((bits(out_rows) == bits(noise(rows.shape, dtype, other))).all(), (mode, dtype))
                        self.assertTrue((bits(out_side) == bits(noise(side.shape, dtype, 10 + other))).all(), dtype)
                        self.assertEqual(guards.broken(), 0)

        world(body, **SETTINGS)

    def test_numpy_types(self):
        names = "int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 float32 float64 complex64 bool >i4 V4"
        self.send([numpy.dtype(name) for name in names.split()])

    @unittest.skipIf(ml_dtypes is None, "ml_dtypes is not installed")
    def test_small_floats_of_ml_dtypes(self):
        names = ("bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu")
        self.send([numpy.dtype(getattr(ml_dtypes, name)) for name in names if hasattr(ml_dtypes, name)])

    @unittest.skipIf(torch is None, "torch is not installed")
    def test_torch_types(self):
        names = ("bfloat16", "float16", "int16", "int32", "float64", "float8_e4m3fn", "float8_e5m2", "complex64")

        def body(comm):
            for mode in ("ht", "ll"):
                with comm.handle(RANKS, 1, mode=mode) as handle:
                    swap(comm, handle)
                    for name in names:
                        guards = Guards()
                        rows = guards.like(noise((TOKENS, 128), numpy.uint8, comm.rank))
                        out_rows = guards.empty(rows.shape, numpy.uint8)
                        # Views of the same memory.
                        dtype = getattr(torch, name)
                        handle.dispatch(*(torch.from_numpy(array).view(dtype) for array in (rows, out_rows)))
                        self.assertTrue((out_rows == noise(rows.shape, numpy.uint8, 1 - comm.rank)).all(), name)
                        self.assertEqual(guards.broken(), 0)

        world(body, **SETTINGS)

    def test_row_type_says_what_integers_carry(self):
        def body(comm):
            with comm.handle(RANKS, 1) as handle:
                swap(comm, handle)
                rows = numpy.full((TOKENS, HIDDEN), 0x3F80, numpy.uint16)  # 1.0 in bfloat16
                out = numpy.zeros_like(rows)
                handle.dispatch(rows, out, row_type="bfloat16")
                handle.combine(out, rows, bias0=out, row_type="bfloat16")
                self.assertTrue((rows == 0x4000).all())  # 2.0
                with self.assertRaisesRegex(
                    TypeError, "^rows holds uint16, expected float32 or uint32 or int32 or uint8"
                ):
                    handle.dispatch(rows, out, row_type="float32")
                with self.assertRaisesRegex(ValueError, "^hidden is 16, but rows has rows of 32 bfloat16"):
                    handle.dispatch(rows, out, row_type="bfloat16", hidden=16)

        world(body, **SETTINGS)

    def test_python_objects_are_refused(self):
        def body(comm):
            with comm.handle(RANKS, 1) as handle:
                swap(comm, handle)
                objects = numpy.full((TOKENS, HIDDEN), None)
                with self.assertRaisesRegex(TypeError, "^rows holds object: Python objects cannot travel$"):
                    handle.dispatch(objects, numpy.empty_like(objects))

        world(body, **SETTINGS)


@unittest.skipIf(MISSING, MISSING)
@unittest.skipIf(numpy is None, "numpy is not installed")
class ArrayOfPayloadsTest(unittest.TestCase):
    def test_its_shape_says_how_long_it_is(self):
        def body(comm):
            with comm.handle(RANKS, 1) as handle:
                swap(comm, handle)
                rows = numpy.ones((TOKENS, HIDDEN), numpy.float32)
                side = noise((TOKENS, 4), numpy.float32, comm.rank)
                out_rows, out_side = numpy.zeros_like(rows), numpy.zeros_like(side)
                handle.dispatch(rows, out_rows, payloads=[Payload(side, out_side)])
                expected = bits(noise((TOKENS, 4), numpy.float32, 1 - comm.rank))
                self.assertTrue((bits(out_side) == expected).all())
                addresses = side.ctypes.data, out_side.ctypes.data
                with self.assertRaisesRegex(TypeError, "bytes is needed where payloads.0..rows is an address or None$"):
                    handle.dispatch(rows, out_rows, payloads=[Payload(*addresses)])
                out_side[...] = 0
                swap(comm, handle)
                handle.dispatch(rows, out_rows, payloads=[Payload(*addresses, bytes=16)])
                self.assertTrue((bits(out_side) == expected).all())

        world(body, **SETTINGS)

    def test_a_rank_without_tokens_need_not_have_any(self):
        def body(comm):
            tokens = TOKENS if comm.rank == 0 else 0
            with comm.handle(RANKS, 1) as handle:
                handle.route(numpy.ones((tokens, 1), numpy.int32))
                count = handle.counts().layout_rows
                rows = numpy.ones((tokens, HIDDEN), numpy.float32) if tokens else None
                side = noise((TOKENS, 16), numpy.uint8, 0) if tokens else None
                out_rows, out_side = numpy.zeros((count, HIDDEN), numpy.float32), numpy.zeros((count, 16), numpy.uint8)
                handle.dispatch(rows, out_rows, payloads=[Payload(side, out_side)])
                self.assertTrue((out_side == noise((TOKENS, 16), numpy.uint8, 0)[:count]).all())

        world(body, **SETTINGS)


@unittest.skipIf(MISSING, MISSING)
@unittest.skipIf(numpy is None, "numpy is not installed")
class GradientsTest(unittest.TestCase):
    def carry(self, layout, mode):
        """All tokens go to rank 1, so rank 0 has no rows, and its array of gradients has no address."""

        def body(comm):
            with comm.handle(RANKS, 1, layout=layout, mode=mode) as handle:
                handle.route(numpy.ones((TOKENS, 1), numpy.int32))
                rows = handle.counts().layout_rows
                guards = Guards()
                shape = (rows,) if layout.startswith("expert") else (rows, 1)
                grads = guards.like(numpy.full(shape, 7, numpy.float32))
                arrived = guards.empty((rows, HIDDEN), numpy.float32)
                tokens = numpy.ones((TOKENS, HIDDEN), numpy.float32)
                handle.dispatch(tokens, arrived)
                out = guards.empty((TOKENS, 1), numpy.float32)
                handle.combine(arrived, tokens, grads=Grads(grads, out))
                self.assertTrue((out == 7).all())
                self.assertEqual(guards.broken(), 0)

        world(body, **SETTINGS)

    def test_ranks_without_rows_take_part(self):
        for layout in ("flat", "expert-major", "expert-major-padded", "rank-major"):
            for mode in ("ht", "ll"):
                with self.subTest(layout=layout, mode=mode):
                    self.carry(layout, mode)


if __name__ == "__main__":
    unittest.main()
