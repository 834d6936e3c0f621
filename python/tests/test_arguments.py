"""How arrays reach the library, tested without the library: devices, the row counts that it is told when nobody
knows how many rows will come, scales of casts, gradients of ranks without rows."""

import types
import unittest

from support import numpy

from moecomm import _native
from moecomm.casts import CASTS, code_bytes
from moecomm.checks import ROW_TYPES, Place, take
from moecomm.combine_arguments import CombineArguments
from moecomm.dispatch_arguments import DESCRIBING, DispatchArguments
from moecomm.errors import InvalidUsage
from moecomm.layouts import Layout
from moecomm.window import WindowMemory

try:
    import torch
except ImportError:
    torch = None

GPU = Place("cuda", 0)
ADDRESS = 1 << 20


class OnGpu:
    """An array in GPU memory, as far as its description shows."""

    def __init__(self, *shape, typestr="<f4", read_only=False, **more):
        self.__cuda_array_interface__ = dict(
            shape=shape, typestr=typestr, data=(ADDRESS if 0 not in shape else 0, read_only), version=3, **more
        )


class Tensor:
    """A tensor of float32, as far as torch's description shows."""

    dtype = "torch.float32"

    def __init__(self, *shape, device="cuda", index=0):
        self.shape, self.device = shape, type("Device", (), {"type": device, "index": index})

    def data_ptr(self):
        return ADDRESS

    def element_size(self):
        return 4


def dispatch(rows, out_rows, known=None, layout="flat", stays=False, tokens=3, **more):
    keywords = dict(row_type=None, hidden=None, out_rows_max=None, side=None, side_bytes=None, out_side=None, payloads=(),
                    describing={}, index_type="int32", stays_in_view=stays, cast=None, out_scales=None,
                    exact=False, weights_on_input=False, scale_layout="row-major", out_scale_block_offsets=None, pad_indices=False, pad_rows=False, ids="local",
                    invalid_id=-1, send_only=False, sms=0, input_scale=None, global_scale=None)  # fmt: skip
    keywords.update(more)
    keywords["describing"] = {name: keywords.pop(name, None) for name in DESCRIBING}
    arguments = DispatchArguments(GPU, Layout(layout, 2, 4, 2, 2), tokens, lambda: known)
    return arguments.make(rows, out_rows, **keywords)


def combine(rows, out, known=None, capacity=None, layout="flat", tokens=3, **more):
    keywords = dict(row_type=None, hidden=None, weights="applied", wire="row", topk_weights=None, biases={},
                    weight_grads=None, out_weight_grads=None, cumulative_wait_ns=None, capacity=capacity,
                    ready=(None, 0, 0), send_only=False, sms=0, complete_sms=0)  # fmt: skip
    keywords.update(more)
    return CombineArguments(GPU, Layout(layout, 2, 4, 2, 2), tokens, lambda: known).make(rows, out, **keywords)


class DeviceTest(unittest.TestCase):
    def refuse(self, array, place, sentence):
        with self.assertRaises(ValueError) as caught:
            take(array, "rows", place)
        self.assertEqual(str(caught.exception), sentence)

    def test_arrays_on_the_other_kind_of_device(self):
        rest = "as the communicator's backend has it"
        self.refuse(OnGpu(3, 8), Place("cpu", None), f"rows is in memory of cuda, expected host memory, {rest}")
        self.refuse(Tensor(3, 8), Place("cpu", None), f"rows is in memory of cuda:0, expected host memory, {rest}")
        self.refuse(Tensor(3, device="cpu"), GPU, f"rows is in host memory, expected memory of cuda:0, {rest}")
        self.refuse(Tensor(3, index=1), GPU, f"rows is in memory of cuda:1, expected memory of cuda:0, {rest}")
        self.refuse(Tensor(3, device="meta"), GPU, f"rows is in memory of meta:0, expected memory of cuda:0, {rest}")
        self.assertEqual(take(Tensor(3, 8), "rows", GPU).address, ADDRESS)
        self.assertEqual(take(OnGpu(3, 8), "rows", GPU).address, ADDRESS)

    @unittest.skipIf(numpy is None, "numpy is not installed")
    def test_numpy_arrays_with_the_cuda_backend(self):
        rest = "as the communicator's backend has it"
        self.refuse(numpy.zeros((3, 8)), GPU, f"rows is in host memory, expected memory of cuda:0, {rest}")

    @unittest.skipIf(torch is None, "torch is not installed")
    def test_torch_tensors_with_the_cuda_backend(self):
        with self.assertRaisesRegex(ValueError, "^rows is in host memory, expected memory of cuda:0"):
            take(torch.zeros(3, 8), "rows", GPU)
        with self.assertRaisesRegex(ValueError, "^rows is in memory of meta, expected host memory"):
            take(torch.zeros(3, 8, device="meta"), "rows", Place("cpu", None))

    def test_arrays_of_gpus_are_checked_too(self):
        with self.assertRaisesRegex(ValueError, "^rows is read-only"):
            take(OnGpu(3, 8, read_only=True), "rows", GPU, writes=True)
        with self.assertRaisesRegex(ValueError, "^rows is not contiguous"):
            take(OnGpu(3, 8, strides=(64, 4)), "rows", GPU)


class WindowTest(unittest.TestCase):
    def test_window_memory_of_a_gpu_is_an_array(self):
        memory = WindowMemory.__new__(WindowMemory)
        memory.shape, memory.typestr, memory.address = (6, 8), "<f4", ADDRESS
        memory._on_host, memory._freed = False, False
        memory._comm = types.SimpleNamespace(native=types.SimpleNamespace(pointer=1))
        found = take(memory, "out_rows", GPU, ("float32",), writes=True)
        self.assertEqual((found.address, found.shape), (ADDRESS, (6, 8)))
        with self.assertRaisesRegex(ValueError, "^out_rows is in memory of cuda, expected host memory"):
            take(memory, "out_rows", Place("cpu", None))
        memory._comm.native.pointer = None
        with self.assertRaisesRegex(InvalidUsage, "^the window memory has been freed$"):
            take(memory, "out_rows", GPU)


class CapacityTest(unittest.TestCase):
    """Where waiting for the counts would cost time, the library compares them. It is told of the output with the
    fewest rows."""

    def test_the_fewest_rows_are_told(self):
        rows, out = OnGpu(3, 8), OnGpu(32, 8)
        self.assertEqual(dispatch(rows, out).outRowsMax, 32)
        self.assertEqual(dispatch(rows, out, out_rows_max=30).outRowsMax, 30)
        self.assertEqual(dispatch(rows, ADDRESS, out_rows_max=30).outRowsMax, 30)
        fewer = dict(out_source_index=OnGpu(20, typestr="<i4"), out_topk_weights=OnGpu(25, 2))
        self.assertEqual(dispatch(rows, out, **fewer).outRowsMax, 20)
        more = dict(side=OnGpu(3, 4), out_side=OnGpu(19, 4))
        self.assertEqual(dispatch(rows, out, **fewer, **more).outRowsMax, 19)

    def test_rows_that_are_known_are_enough(self):
        rows, out, fewer = OnGpu(3, 8), OnGpu(32, 8), OnGpu(20, typestr="<i4")
        self.assertEqual(dispatch(rows, out, known=(20, 20), out_source_index=fewer).outRowsMax, 32)
        with self.assertRaisesRegex(ValueError, r"^out_source_index has shape \(20,\), .* at least 21 rows$"):
            dispatch(rows, out, known=(21, 21), out_source_index=fewer)

    def test_slots_are_known_always(self):
        rows, out = OnGpu(3, 8), OnGpu(8, 8)
        for index, good in ((OnGpu(8, typestr="<i4"), True), (OnGpu(7, typestr="<i4"), False)):
            for where in (dict(out_rows=out), dict(out_rows=None, out_rows_max=0, stays=True)):
                if good:
                    dispatch(rows, layout="rank-major", out_source_index=index, **where)
                else:
                    with self.assertRaisesRegex(ValueError, "^out_source_index .* at least 8 rows$"):
                        dispatch(rows, layout="rank-major", out_source_index=index, **where)

    def test_combine_reads_as_many_rows_as_dispatch_wrote(self):
        out = OnGpu(3, 8)
        combine(OnGpu(32, 8), out, capacity=32)
        combine(OnGpu(20, 8), out, capacity=32, known=(20, 20))
        combine(ADDRESS, out, capacity=32)
        combine(None, out)  # the library refuses if anything came
        with self.assertRaisesRegex(ValueError, r"^rows has shape \(31, 8\), .* at least 32 rows$"):
            combine(OnGpu(31, 8), out, capacity=32)
        with self.assertRaises(ValueError) as caught:
            combine(OnGpu(32, 8), out)
        sentence = "rows needs as many rows as came, which is not known here: call counts() after route()"
        self.assertEqual(str(caught.exception), sentence)


class CastTest(unittest.TestCase):
    """hidden 640 has five scales, or two words of four one-byte scales."""

    ROWS, CODES = OnGpu(3, 640, typestr="<f4"), OnGpu(8, 640, typestr="|u1")

    def accept(self, cast, scales, layout="flat", scale_layout="row-major"):
        arguments = dict(cast=cast, out_scales=scales, scale_layout=scale_layout, layout=layout)
        codes = OnGpu(16 if layout == "expert-major-padded" else 8, code_bytes(cast, 640), typestr="|u1")
        args = dispatch(self.ROWS, codes, **arguments)
        self.assertEqual((args.cast, args.hidden, args.rowType), (CASTS[cast], 640, ROW_TYPES["float32"]))

    def test_shapes_of_scales(self):
        self.accept("fp8", OnGpu(8, 5))
        self.accept("fp8-ue8m0", OnGpu(8, 2, typestr="<i4"))
        self.accept("fp8-ue8m0", OnGpu(8, 8, typestr="|u1"))
        self.accept("fp8-pow2", OnGpu(8, 5))
        for cast in ("mxfp8", "mxfp4"):
            self.accept(cast, OnGpu(8, 5, typestr="<i4"))
            self.accept(cast, OnGpu(8, 20, typestr="|u1"))
        self.accept("nvfp4", OnGpu(8, 10, typestr="<i4"))
        self.accept("nvfp4", OnGpu(8, 40, typestr="|u1"))
        for layout, shape in (("flat", (8,)), ("rank-major", (8,)), ("expert-major-padded", (8,))):
            groups = (2,) if layout == "expert-major-padded" else ()
            self.accept("fp8", OnGpu(*groups, 5, *shape), layout, "token-contiguous")
            self.accept("fp8-ue8m0", OnGpu(*groups, 2, *shape, typestr="<u4"), layout, "token-contiguous")
            self.accept("nvfp4", OnGpu(*groups, 10, *shape, typestr="<u4"), layout, "token-contiguous")

    def test_scales_in_blocks(self):
        # Of 2 ranks with 4 tokens each, and 2 experts of each.
        for layout, blocks in (("flat", (1,)), ("expert-major", (2,)), ("rank-major", (2, 1)), ("expert-major-padded", (2, 1))):
            for cast, words in (("fp8-ue8m0", 2), ("mxfp8", 5), ("mxfp4", 5), ("nvfp4", 10)):
                self.accept(cast, OnGpu(*blocks, words, 512, typestr="|u1"), layout, "128x4")
                self.accept(cast, OnGpu(*blocks, words, 128, typestr="<u4"), layout, "128x4")
                for wrong in ((0, *blocks[1:], words, 512), (*blocks, words, 511), (*blocks, words + 1, 512), (words, 512)):
                    with self.assertRaisesRegex(ValueError, "^out_scales has shape .* expected "):
                        self.accept(cast, OnGpu(*wrong, typestr="|u1"), layout, "128x4")
        self.accept("nvfp4", OnGpu(9, 10, 512, typestr="|u1"), "expert-major", "128x4")
        with self.assertRaisesRegex(ValueError, "^scale_layout is '128x4', but cast is 'fp8', whose scales have 4 bytes"):
            self.accept("fp8", OnGpu(1, 5, 128), "flat", "128x4")

    def test_offsets_of_blocks(self):
        codes, scales, offsets = OnGpu(8, 320, typestr="|u1"), OnGpu(2, 10, 512, typestr="|u1"), OnGpu(3, typestr="<i4")
        cast = dict(cast="nvfp4", out_scales=scales, scale_layout="128x4")
        args = dispatch(self.ROWS, codes, layout="expert-major", out_scale_block_offsets=offsets, **cast)
        self.assertEqual(args.outScaleBlockOffsets, ADDRESS)
        for name, more, layout in (
            ("given", cast, "flat"),
            ("given", dict(cast, scale_layout="row-major", out_scales=OnGpu(8, 10, typestr="<i4")), "expert-major"),
        ):
            with self.assertRaisesRegex(ValueError, f"^out_scale_block_offsets is {name}, but"):
                dispatch(self.ROWS, codes, layout=layout, out_scale_block_offsets=offsets, **more)
        with self.assertRaisesRegex(ValueError, "^out_scale_block_offsets has shape"):
            dispatch(self.ROWS, codes, layout="expert-major", out_scale_block_offsets=OnGpu(2, typestr="<i4"), **cast)

    def test_the_exact_rule_is_a_flag_of_casts(self):
        args = dispatch(self.ROWS, self.CODES, cast="fp8", out_scales=OnGpu(8, 5), exact=True, send_only=True)
        self.assertEqual(args.flags, _native.moeCastExact | _native.moeSendOnly)
        with self.assertRaisesRegex(ValueError, "^exact is True, but cast is None$"):
            dispatch(self.ROWS, OnGpu(8, 640, typestr="<f4"), exact=True)

    def test_weights_on_the_input_are_a_flag_of_casts(self):
        args = dispatch(self.ROWS, self.CODES, cast="fp8", out_scales=OnGpu(8, 5), weights_on_input=True)
        self.assertEqual(args.flags, _native.moeWeightsOnInput)
        with self.assertRaisesRegex(ValueError, "^weights_on_input is True, but cast is None$"):
            dispatch(self.ROWS, OnGpu(8, 640, typestr="<f4"), weights_on_input=True)

    def test_factors_are_one_number_each(self):
        codes, scales = OnGpu(8, 320, typestr="|u1"), OnGpu(8, 10, typestr="<i4")
        args = dispatch(self.ROWS, codes, cast="nvfp4", out_scales=scales, input_scale=OnGpu(1), global_scale=OnGpu())
        self.assertEqual((args.inputScale, args.globalScale), (ADDRESS, ADDRESS))
        for sentence, cast, more in (
            ("input_scale is given, but cast is None", None, dict(input_scale=OnGpu(1))),
            ("global_scale is given, but cast is 'fp8', expected 'nvfp4'", "fp8", dict(global_scale=OnGpu(1))),
            (r"input_scale has shape \(2,\), expected one number", "fp8", dict(input_scale=OnGpu(2))),
            ("input_scale holds float16, expected float32", "fp8", dict(input_scale=OnGpu(1, typestr="<f2"))),
        ):
            out = self.CODES if cast else OnGpu(8, 640)
            with self.assertRaisesRegex((ValueError, TypeError), f"^{sentence}"):
                dispatch(self.ROWS, out, cast=cast, out_scales=OnGpu(8, 5) if cast else None, **more)

    def test_other_scales_are_refused(self):
        for cast, scales, layout in (
            ("fp8", OnGpu(8, 4), "row-major"),
            ("fp8", OnGpu(8, 5, typestr="<i4"), "row-major"),
            ("fp8", OnGpu(40), "row-major"),
            ("fp8", OnGpu(8, 5), "token-contiguous"),
            ("fp8", OnGpu(5, 7), "token-contiguous"),
            ("fp8-ue8m0", OnGpu(8, 5, typestr="<i4"), "row-major"),
            ("fp8-ue8m0", OnGpu(8, 2, typestr="|u1"), "row-major"),
            ("fp8-ue8m0", OnGpu(8, 2), "row-major"),
            ("fp8-ue8m0", OnGpu(8, 8, typestr="|u1"), "token-contiguous"),
            (None, OnGpu(8, 5), "row-major"),
        ):
            with self.assertRaisesRegex((ValueError, TypeError), "^out_scales "):
                out = self.CODES if cast else OnGpu(8, 640)
                dispatch(self.ROWS, out, cast=cast, out_scales=scales, scale_layout=layout)

    def test_codes_have_one_byte_for_each_element(self):
        for wrong, sentence in (
            (OnGpu(8, 640, typestr="<f2"), "out_rows holds float16, expected float8_e4m3fn or uint8 or int8"),
            (OnGpu(8, 639, typestr="|u1"), r"out_rows has shape \(8, 639\), expected rows of 640 codes"),
        ):
            with self.assertRaisesRegex((ValueError, TypeError), f"^{sentence}"):
                dispatch(self.ROWS, wrong, cast="fp8", out_scales=OnGpu(8, 5))
        with self.assertRaisesRegex(ValueError, r"^out_rows has shape \(8, 640\), expected rows of 320 bytes, one for two"):
            dispatch(self.ROWS, self.CODES, cast="mxfp4", out_scales=OnGpu(8, 5, typestr="<i4"))

    def test_fewer_scales_than_codes_are_told(self):
        self.assertEqual(dispatch(self.ROWS, self.CODES, cast="fp8", out_scales=OnGpu(7, 5)).outRowsMax, 7)


class GradientsTest(unittest.TestCase):
    """Arrays without elements have the address NULL, so a bit of the flags announces the gradients."""

    def flags(self, rows, tokens, **more):
        grads = dict(weight_grads=OnGpu(rows, 2), out_weight_grads=OnGpu(tokens, 2))
        return combine(OnGpu(rows, 8), OnGpu(tokens, 8), capacity=rows, tokens=tokens, **grads, **more).flags

    def test_the_bit_is_set_where_no_pointer_says_it(self):
        self.assertEqual(self.flags(8, 3), 0)
        self.assertEqual(self.flags(0, 3), _native.COMBINE_GRADS)
        self.assertEqual(self.flags(8, 0), _native.COMBINE_GRADS)
        self.assertEqual(self.flags(0, 0, send_only=True), _native.COMBINE_GRADS | 1)

    def test_combines_without_gradients_do_not_have_it(self):
        self.assertEqual(combine(OnGpu(0, 8), OnGpu(0, 8), tokens=0, known=(0, 0)).flags, 0)


if __name__ == "__main__":
    unittest.main()
