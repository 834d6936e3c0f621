"""The casts of a dispatch: names, dtypes and sizes."""

from __future__ import annotations

from typing import Tuple

from . import _native

CASTS = {
    "fp8": _native.moeCastFp8,
    "fp8-ue8m0": _native.moeCastFp8Ue8m0,
    "fp8-pow2": _native.moeCastFp8Pow2,
    "mxfp8": _native.moeCastMxfp8,
    "mxfp4": _native.moeCastMxfp4,
    "nvfp4": _native.moeCastNvfp4,
}
_E4M3 = ("float8_e4m3fn", "uint8", "int8")
_E2M1 = ("uint8", "int8", "float4_e2m1fn_x2")  # two codes in a byte
_E8M0 = ("int32", "uint32", "uint8", "float8_e8m0fnu")
_WORDS = {"fp8-ue8m0": 512, "nvfp4": 64}  # elements for a word of scales; 128 for the other casts
SCALE_TYPES = {
    "fp8": ("float32",),
    "fp8-pow2": ("float32",),
    "fp8-ue8m0": _E8M0,
    "mxfp8": _E8M0,
    "mxfp4": _E8M0,
    "nvfp4": ("int32", "uint32", "uint8", "float8_e4m3fn"),
}


def is_packed(cast: str) -> bool:
    """True if a byte has two codes."""
    return cast in ("mxfp4", "nvfp4")


def code_types(cast: str) -> Tuple[str, ...]:
    """The dtypes that codes may have."""
    return _E2M1 if is_packed(cast) else _E4M3


def code_bytes(cast: str, hidden: int) -> int:
    """Bytes of a row's codes."""
    return hidden // 2 if is_packed(cast) else hidden


def scale_words(cast: str, hidden: int) -> int:
    """32-bit words of a row's scales."""
    return -(-hidden // _WORDS.get(cast, 128))
