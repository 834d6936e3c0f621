"""Casts against ml_dtypes, which has the same formats and shares no code with the library: every bfloat16 value, among
neighbours and among elements of all magnitudes. Skipped without numpy or ml_dtypes."""

import unittest

from support import MISSING, numpy, world

from moecomm import Cast

try:
    import ml_dtypes
except ImportError:
    ml_dtypes = None

TOKENS, HIDDEN = 16, 4096  # 65536 values
LARGEST = {"mxfp4": 6.0, "nvfp4": 6.0}  # of the others 448
BLOCKS = {"mxfp8": 32, "mxfp4": 32, "nvfp4": 16}  # of the others 128
FLOATS = ("fp8", "fp8-pow2")


def scales_of(cast, amax, factor):
    """Scales as they travel, and the factors for a block's elements. amax: NaN where the scale is to be one."""
    one, most = numpy.float32(1), numpy.finfo(numpy.float32).max
    nan = numpy.isnan(amax)
    amax = numpy.minimum(numpy.where(nan, 0, amax), most).astype(numpy.float32)
    if cast == "nvfp4":
        wanted = numpy.minimum(factor * amax / numpy.float32(6), numpy.float32(448))
        codes = wanted.astype(ml_dtypes.float8_e4m3fn)
        back = codes.astype(numpy.float32)
        inverse = numpy.where(nan | (back == 0), 0, factor / back).astype(numpy.float32)
        return numpy.where(nan, 0x7F, codes.view(numpy.uint8)), inverse
    if cast not in BLOCKS:
        amax = numpy.maximum(amax, numpy.float32(1e-4))
    largest = numpy.float32(LARGEST.get(cast, 448))
    if cast == "fp8":
        return amax / largest, largest / amax
    mantissa, exponent = numpy.frexp(amax.astype(numpy.float64) / largest)  # in [0.5, 1); exact enough: see below
    power = numpy.where(mantissa == 0.5, exponent - 1, exponent)
    power = numpy.where(largest * 2.0**power < amax, power + 1, power)  # a quotient that was rounded down
    power = numpy.where(amax == 0, -127, numpy.maximum(power, -127))
    inverse = numpy.where(nan, 0, one * 2.0**-power).astype(numpy.float32)
    if cast == "fp8-pow2":
        return (2.0**power).astype(numpy.float32), inverse
    return numpy.where(nan, 0xFF, power + 127).astype(numpy.uint8), inverse


def expected(cast, values, factor):
    """Codes, a byte each, and scales of `values` [tokens, hidden]."""
    packed, block = cast in LARGEST, BLOCKS.get(cast, 128)
    blocks = values.reshape(TOKENS, -1, block)
    amax = numpy.abs(blocks).max(axis=2) if packed else numpy.nanmax(numpy.abs(blocks), axis=2)
    if not packed:
        amax = numpy.where(numpy.isnan(amax), 0, amax)
    scales, inverse = scales_of(cast, amax, factor)
    largest = LARGEST.get(cast, 448)
    products = numpy.clip(blocks * inverse[:, :, None], -largest, largest)
    products = numpy.copysign(products, blocks).reshape(TOKENS, HIDDEN)
    if packed:
        products = numpy.where(numpy.isnan(products), numpy.copysign(0, values), products).astype(numpy.float32)
        codes = products.astype(ml_dtypes.float4_e2m1fn).view(numpy.uint8) & 15
        codes = numpy.where(numpy.signbit(values), codes | 8, codes & 7)
        return codes[:, ::2] | codes[:, 1::2] << 4, scales
    codes = products.astype(ml_dtypes.float8_e4m3fn).view(numpy.uint8)
    return codes, scales


@unittest.skipIf(MISSING, MISSING)
@unittest.skipIf(numpy is None or ml_dtypes is None, "needs numpy and ml_dtypes")
class CastTest(unittest.TestCase):
    def check(self, cast, input_scale, factor, step):
        halves = (numpy.arange(1 << 16, dtype=numpy.uint32) * step).astype(numpy.uint16).reshape(TOKENS, HIDDEN)
        values = (halves.astype(numpy.uint32) << 16).view(numpy.float32)
        negative = numpy.signbit(values) != (input_scale < 0)
        values = numpy.copysign(values * numpy.float32(input_scale), numpy.where(negative, -1, 1).astype(numpy.float32))
        codes, scales = expected(cast, values, numpy.float32(factor))

        def body(comm):
            for mode in ("ll", "ht"):
                dispatch(comm, mode)

        def dispatch(comm, mode):
            packed, words = cast in LARGEST, scales.nbytes // TOKENS // 4
            out = numpy.zeros((TOKENS, HIDDEN // 2 if packed else HIDDEN), numpy.uint8)
            out_scales = numpy.zeros((TOKENS, words), numpy.float32 if cast in FLOATS else numpy.uint32)
            numbers = dict(input_scale=numpy.array([input_scale], numpy.float32))
            if cast == "nvfp4":
                numbers["global_scale"] = numpy.array([factor], numpy.float32)
            with comm.handle(1, 1, tokens_max=TOKENS, mode=mode) as handle:
                handle.route(numpy.zeros((TOKENS, 1), numpy.int32))
                handle.dispatch(halves, out, row_type="bfloat16", cast=Cast(cast, out_scales, **numbers))
            numpy.testing.assert_array_equal(out_scales.view(scales.dtype), scales.reshape(TOKENS, -1))
            numpy.testing.assert_array_equal(out, codes)

        world(body, ranks=1, tokens_max=TOKENS, ll_tokens_max=TOKENS, row_bytes_max=2 * HIDDEN)

    def test_every_bfloat16_is_cast_as_ml_dtypes_does(self):
        with numpy.errstate(all="ignore"):
            for cast in (*FLOATS, "fp8-ue8m0", *BLOCKS):
                for input_scale in (1.0, -0.37, 1e-30):
                    for factor in (1.0, 71.68) if cast == "nvfp4" else (1.0,):
                        for step in (1, 40503):
                            with self.subTest(cast, input_scale=input_scale, factor=factor, step=step):
                                self.check(cast, input_scale, factor, step)


if __name__ == "__main__":
    unittest.main()
