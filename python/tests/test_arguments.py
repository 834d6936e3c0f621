"""Tests how arrays reach the library, without the library: devices, scales of casts, gradients of ranks without rows,
and the row counts that the library gets if the number of rows is not known yet."""

import types
import unittest

from support import numpy

from moecomm import Cast, Describe, Grads, Payload, Ready, _native
from moecomm.casts import CASTS, code_bytes
from moecomm.checks import ROW_TYPES, Place, take
from moecomm.combine_arguments import CombineArguments
from moecomm.dispatch_arguments import DispatchArguments
from moecomm.errors import InvalidUsage
from moecomm.layouts import SCALE_LAYOUTS, Layout
from moecomm.options import COMBINE_DEFAULTS, DISPATCH_DEFAULTS
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
    arguments = DispatchArguments(GPU, Layout(layout, 2, 4, 2, 2), tokens, lambda: known)
    return arguments.make(rows, out_rows, index_type="int32", stays_in_view=stays, **{**DISPATCH_DEFAULTS, **more})


def combine(rows, out, known=None, capacity=None, layout="flat", tokens=3, **more):
    arguments = CombineArguments(GPU, Layout(layout, 2, 4, 2, 2), tokens, lambda: known)
    return arguments.make(rows, out, capacity=capacity, **{**COMBINE_DEFAULTS, **more})


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
    """If waiting for the counts would cost time, the library compares the rows. It gets the number of rows of the
    smallest output."""

    def test_the_fewest_rows_are_told(self):
        rows, out = OnGpu(3, 8), OnGpu(32, 8)
        self.assertEqual(dispatch(rows, out).outRowsMax, 32)
        self.assertEqual(dispatch(rows, out, out_rows_max=30).outRowsMax, 30)
        self.assertEqual(dispatch(rows, ADDRESS, out_rows_max=30).outRowsMax, 30)
        fewer = Describe(out_source_index=OnGpu(20, typestr="<i4"), out_topk_weights=OnGpu(25, 2))
        self.assertEqual(dispatch(rows, out, describe=fewer).outRowsMax, 20)
        more = [Payload(OnGpu(3, 4), OnGpu(19, 4))]
        self.assertEqual(dispatch(rows, out, describe=fewer, payloads=more).outRowsMax, 19)

    def test_rows_that_are_known_are_enough(self):
        rows, out, fewer = OnGpu(3, 8), OnGpu(32, 8), Describe(out_source_index=OnGpu(20, typestr="<i4"))
        self.assertEqual(dispatch(rows, out, known=(20, 20), describe=fewer).outRowsMax, 32)
        with self.assertRaisesRegex(ValueError, r"^describe.out_source_index has shape \(20,\), .* at least 21 rows$"):
            dispatch(rows, out, known=(21, 21), describe=fewer)

    def test_slots_are_known_always(self):
        rows, out = OnGpu(3, 8), OnGpu(8, 8)
        for index, good in ((OnGpu(8, typestr="<i4"), True), (OnGpu(7, typestr="<i4"), False)):
            for where in (dict(out_rows=out), dict(out_rows=None, out_rows_max=0, stays=True)):
                if good:
                    dispatch(rows, layout="rank-major", describe=Describe(out_source_index=index), **where)
                else:
                    with self.assertRaisesRegex(ValueError, "^describe.out_source_index .* at least 8 rows$"):
                        dispatch(rows, layout="rank-major", describe=Describe(out_source_index=index), **where)

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
        arguments = dict(cast=Cast(cast, scales, scale_layout), layout=layout)
        codes = OnGpu(16 if layout == "expert-major-padded" else 8, code_bytes(cast, 640), typestr="|u1")
        args = dispatch(self.ROWS, codes, **arguments)
        made = args.cast.contents
        self.assertEqual((made.type, args.hidden, args.rowType), (CASTS[cast], 640, ROW_TYPES["float32"]))
        self.assertEqual((made.outScales, made.scaleLayout), (ADDRESS, SCALE_LAYOUTS[scale_layout]))

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
        # There are 2 ranks with 4 tokens and 2 experts each.
        for layout, blocks in (("flat", (1,)), ("expert-major", (2,)), ("rank-major", (2, 1)), ("expert-major-padded", (2, 1))):
            for cast, words in (("fp8-ue8m0", 2), ("mxfp8", 5), ("mxfp4", 5), ("nvfp4", 10)):
                self.accept(cast, OnGpu(*blocks, words, 512, typestr="|u1"), layout, "128x4")
                self.accept(cast, OnGpu(*blocks, words, 128, typestr="<u4"), layout, "128x4")
                for wrong in ((0, *blocks[1:], words, 512), (*blocks, words, 511), (*blocks, words + 1, 512), (words, 512)):
                    with self.assertRaisesRegex(ValueError, "^cast.out_scales has shape .* expected "):
                        self.accept(cast, OnGpu(*wrong, typestr="|u1"), layout, "128x4")
        self.accept("nvfp4", OnGpu(9, 10, 512, typestr="|u1"), "expert-major", "128x4")
        with self.assertRaisesRegex(ValueError, "^cast.scale_layout is '128x4', but cast.type is 'fp8', whose"):
            self.accept("fp8", OnGpu(1, 5, 128), "flat", "128x4")

    def test_offsets_of_blocks(self):
        codes, scales, offsets = OnGpu(8, 320, typestr="|u1"), OnGpu(2, 10, 512, typestr="|u1"), OnGpu(3, typestr="<i4")
        cast, described = Cast("nvfp4", scales, "128x4"), Describe(out_block_offsets=offsets)
        args = dispatch(self.ROWS, codes, layout="expert-major", describe=described, cast=cast)
        self.assertEqual(args.describe.contents.outBlockOffsets, ADDRESS)
        blocks = [Payload(OnGpu(3, 1), OnGpu(2, 1, 512, typestr="|u1"), "128x4")]
        args = dispatch(self.ROWS, OnGpu(8, 640), layout="expert-major", describe=described, payloads=blocks)
        self.assertEqual(args.describe.contents.outBlockOffsets, ADDRESS)
        for more, layout in ((cast, "flat"), (Cast("nvfp4", OnGpu(8, 10, typestr="<i4")), "expert-major"), (None, "expert-major")):
            with self.assertRaisesRegex(ValueError, "^describe.out_block_offsets is given, but"):
                dispatch(self.ROWS, codes if more else OnGpu(8, 640), layout=layout, describe=described, cast=more)
        with self.assertRaisesRegex(ValueError, "^describe.out_block_offsets has shape"):
            wrong = Describe(out_block_offsets=OnGpu(2, typestr="<i4"))
            dispatch(self.ROWS, codes, layout="expert-major", describe=wrong, cast=cast)

    def test_the_exact_rule_and_weights_on_the_input_are_flags(self):
        for more, bits in (
            (dict(exact=True), _native.moeCastExact),
            (dict(weights_on_input=True), _native.moeWeightsOnInput),
            (dict(exact=True, weights_on_input=True), _native.moeCastExact | _native.moeWeightsOnInput),
        ):
            args = dispatch(self.ROWS, self.CODES, cast=Cast("fp8", OnGpu(8, 5), **more), send_only=True)
            self.assertEqual((args.flags, args.cast.contents.flags), (_native.moeSendOnly, bits))

    def test_a_name_is_no_cast(self):
        with self.assertRaisesRegex(TypeError, "^cast is 'fp8', expected a Cast$"):
            dispatch(self.ROWS, self.CODES, cast="fp8")
        with self.assertRaisesRegex(ValueError, "^cast.type is 'fp-8', expected one of .*; did you mean 'fp8'"):
            dispatch(self.ROWS, self.CODES, cast=Cast("fp-8"))
        with self.assertRaisesRegex(ValueError, "^cast.type is None, expected one of"):
            dispatch(self.ROWS, self.CODES, cast=Cast(None))
        with self.assertRaisesRegex(TypeError, "^describe is a dict, expected a Describe$"):
            dispatch(self.ROWS, OnGpu(8, 640), describe={})

    def test_factors_are_one_number_each(self):
        codes, scales = OnGpu(8, 320, typestr="|u1"), OnGpu(8, 10, typestr="<i4")
        cast = Cast("nvfp4", scales, input_scale=OnGpu(1), global_scale=OnGpu())
        made = dispatch(self.ROWS, codes, cast=cast).cast.contents
        self.assertEqual((made.inputScale, made.globalScale), (ADDRESS, ADDRESS))
        for sentence, more in (
            ("global_scale is given, but cast.type is 'fp8', expected 'nvfp4'", dict(global_scale=OnGpu(1))),
            (r"input_scale has shape \(2,\), expected one number", dict(input_scale=OnGpu(2))),
            ("input_scale holds float16, expected float32", dict(input_scale=OnGpu(1, typestr="<f2"))),
        ):
            with self.assertRaisesRegex((ValueError, TypeError), f"^cast.{sentence}"):
                dispatch(self.ROWS, self.CODES, cast=Cast("fp8", OnGpu(8, 5), **more))

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
        ):
            with self.assertRaisesRegex((ValueError, TypeError), "^cast.out_scales "):
                dispatch(self.ROWS, self.CODES, cast=Cast(cast, scales, layout))

    def test_codes_have_one_byte_for_each_element(self):
        for wrong, sentence in (
            (OnGpu(8, 640, typestr="<f2"), "out_rows holds float16, expected float8_e4m3fn or uint8 or int8"),
            (OnGpu(8, 639, typestr="|u1"), r"out_rows has shape \(8, 639\), expected rows of 640 codes"),
        ):
            with self.assertRaisesRegex((ValueError, TypeError), f"^{sentence}"):
                dispatch(self.ROWS, wrong, cast=Cast("fp8", OnGpu(8, 5)))
        with self.assertRaisesRegex(ValueError, r"^out_rows has shape \(8, 640\), expected rows of 320 bytes, one for two"):
            dispatch(self.ROWS, self.CODES, cast=Cast("mxfp4", OnGpu(8, 5, typestr="<i4")))

    def test_fewer_scales_than_codes_are_told(self):
        self.assertEqual(dispatch(self.ROWS, self.CODES, cast=Cast("fp8", OnGpu(7, 5))).outRowsMax, 7)


class PayloadTest(unittest.TestCase):
    """The words of a payload, or the fact that it is an array."""

    ROWS, OUT = OnGpu(3, 8), OnGpu(8, 8)

    def made(self, *payload, **more):
        (found,) = dispatch(self.ROWS, self.OUT, payloads=[Payload(*payload, **more)]).payloads[:1]
        strides = (found.inRowStride, found.inWordStride, found.outRowStride, found.outWordStride)
        return found.bytes, getattr(found, "in"), found.out, strides

    def test_dense_rows_have_no_strides(self):
        dense = (16, ADDRESS, ADDRESS, (0, 0, 0, 0))
        self.assertEqual(self.made(OnGpu(3, 4), OnGpu(8, 4)), dense)
        self.assertEqual(self.made(OnGpu(3, 4, strides=(16, 4)), OnGpu(8, 4, strides=(16, 4))), dense)
        self.assertEqual(self.made(OnGpu(3, 4), OnGpu(8, 4, strides=(32, 4)))[3], (0, 0, 32, 0))
        self.assertEqual(self.made(OnGpu(3, 4, strides=(4, 12)), OnGpu(8, 4))[3], (4, 12, 0, 0))
        args = dispatch(OnGpu(3, 8), OnGpu(2, 4, 8), layout="rank-major", payloads=[Payload(OnGpu(3, 4), OnGpu(2, 4, 4))])
        self.assertEqual(args.payloads[0].outRowStride, 0)
        self.assertEqual(self.made(OnGpu(3, 4), OnGpu(8, 4), "array"), dense)

    @unittest.skipIf(torch is None, "torch is not installed")
    def test_tensors_tell_strides_that_say_nothing(self):
        arguments = DispatchArguments(Place("cpu", None), Layout("flat", 2, 4, 2, 2), 1, lambda: None)
        side, out = torch.zeros(1, 8)[:, :4], torch.zeros(8, 4)
        options = {**DISPATCH_DEFAULTS, "payloads": (Payload(side, out),)}
        args = arguments.make(
            torch.zeros(1, 8), torch.zeros(8, 8), index_type="int32", stays_in_view=False, **options
        )
        self.assertEqual((args.payloads[0].inRowStride, args.payloads[0].outRowStride), (0, 0))

    def test_bytes_are_needed_where_nothing_tells_them(self):
        self.assertEqual(self.made(ADDRESS, ADDRESS, bytes=32)[0], 32)
        self.assertEqual(self.made(ADDRESS, OnGpu(8, 4))[0], 16)
        self.assertEqual(self.made(OnGpu(3, 4), OnGpu(8, 16, typestr="|u1"), bytes=16)[0], 16)
        for error, sentence, payload in (
            (TypeError, "bytes is needed where payloads.0..rows is an address or None", Payload(ADDRESS, ADDRESS)),
            (TypeError, "bytes is needed", Payload(ADDRESS, OnGpu(5, 8), "token-contiguous")),
            (ValueError, "bytes is 6, expected a multiple of 4", Payload(ADDRESS, ADDRESS, bytes=6)),
            (ValueError, "bytes is 32, but payloads.0..rows has rows of 16 bytes: .3, 4. of float32",
             Payload(OnGpu(3, 4), OnGpu(8, 4), bytes=32)),
            (ValueError, "out has shape .8, 16. of uint8, expected rows of 16 bytes of float32",
             Payload(OnGpu(3, 4), OnGpu(8, 16, typestr="|u1"))),
            (ValueError, "rows is None, expected .tokens, elements. with 3 tokens", Payload(None, OnGpu(8, 4))),
            (ValueError, "out is None, expected an array, since out_rows is given", Payload(OnGpu(3, 4), None)),
            (ValueError, "rows has strides .32, 4. bytes, expected a contiguous array with layout 'array'",
             Payload(OnGpu(3, 4, strides=(32, 4)), OnGpu(8, 4), "array")),
            (ValueError, "out has strides .32, 4. bytes, expected a contiguous array",
             Payload(OnGpu(3, 4), OnGpu(8, 4, strides=(32, 4)), "array")),
            (ValueError, "out has shape .2, 4, 4. and strides", Payload(OnGpu(3, 4), OnGpu(2, 4, 4, strides=(128, 32, 4)))),
        ):  # fmt: skip
            with self.assertRaisesRegex(error, f"^payloads.0..{sentence}"):
                dispatch(self.ROWS, self.OUT, payloads=[payload])
        with self.assertRaisesRegex(TypeError, "^payloads is a Payload, expected a sequence of them$"):
            dispatch(self.ROWS, self.OUT, payloads=Payload(OnGpu(3, 4), OnGpu(8, 4)))


class GradientsTest(unittest.TestCase):
    """Arrays without elements have the address NULL. The struct says that gradients travel."""

    def made(self, rows, tokens, known=None):
        given = Grads(rows, tokens)
        args = combine(OnGpu(8, 8), OnGpu(3, 8), capacity=8, tokens=0 if tokens is None else 3, grads=given, known=known)
        return args.grads.contents.weightGrads, args.grads.contents.outWeightGrads

    def test_the_struct_is_there_with_and_without_rows(self):
        self.assertEqual(self.made(OnGpu(8, 2), OnGpu(3, 2)), (ADDRESS, ADDRESS))
        self.assertEqual(self.made(OnGpu(0, 2), OnGpu(3, 2), (0, 0)), (None, ADDRESS))
        self.assertEqual(self.made(None, OnGpu(3, 2), (0, 0)), (None, ADDRESS))
        self.assertEqual(self.made(None, OnGpu(3, 2)), (None, ADDRESS))  # the library sees whether rows came
        args = combine(OnGpu(0, 8), OnGpu(0, 8), tokens=0, known=(0, 0), grads=Grads(None, None))
        self.assertEqual((args.grads.contents.weightGrads, args.grads.contents.outWeightGrads), (None, None))

    def test_what_is_missing_is_told(self):
        with self.assertRaisesRegex(ValueError, "^grads.weight_grads is None, but 8 rows came"):
            self.made(None, OnGpu(3, 2), (8, 8))
        with self.assertRaisesRegex(ValueError, "^grads.out_weight_grads is None, expected .tokens, topk. with 3 tokens"):
            combine(OnGpu(8, 8), OnGpu(3, 8), capacity=8, grads=Grads(OnGpu(8, 2), None))
        with self.assertRaisesRegex(TypeError, "^grads is a OnGpu, expected a Grads$"):
            combine(OnGpu(8, 8), OnGpu(3, 8), capacity=8, grads=OnGpu(8, 2))

    def test_combines_without_gradients_do_not_have_it(self):
        self.assertFalse(combine(OnGpu(0, 8), OnGpu(0, 8), tokens=0, known=(0, 0)).grads)


class ReadyTest(unittest.TestCase):
    def made(self, *ready, **more):
        args = combine(OnGpu(8, 8), OnGpu(3, 8), capacity=8, ready=Ready(*ready, **more))
        found = args.ready.contents
        return found.words, found.blockRows, found.value, found.completeSms

    def test_words_of_experts_and_of_blocks(self):
        self.assertEqual(self.made(OnGpu(2, typestr="<u4")), (ADDRESS, 0, 1, 0))
        self.assertEqual(self.made(OnGpu(9, typestr="<i4"), 64, 2**32 - 1, 16), (ADDRESS, 64, 2**32 - 1, 16))
        self.assertEqual(self.made(complete_sms=8), (None, 0, 1, 8))

    def test_others_are_refused(self):
        for error, sentence, ready in (
            (ValueError, r"words has shape \(3,\), expected \[local experts\] = \(2,\)", Ready(OnGpu(3, typestr="<u4"))),
            (TypeError, "words holds float32, expected int32 or uint32", Ready(OnGpu(2))),
            (ValueError, "value is -1, expected 0..4294967295", Ready(value=-1)),
            (TypeError, "block_rows is 1.0, expected an integer", Ready(block_rows=1.0)),
            (TypeError, "complete_sms is True, expected an integer", Ready(complete_sms=True)),
        ):
            with self.assertRaisesRegex(error, f"^ready.{sentence}"):
                combine(OnGpu(8, 8), OnGpu(3, 8), capacity=8, ready=ready)
        with self.assertRaisesRegex(TypeError, "^ready is 4096, expected a Ready$"):
            combine(OnGpu(8, 8), OnGpu(3, 8), capacity=8, ready=4096)


if __name__ == "__main__":
    unittest.main()
