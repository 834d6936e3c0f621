"""Payloads of a dispatch: words of 4 bytes beside each row, in arrays of any strides."""

from __future__ import annotations

from typing import Any, NamedTuple, Optional, Tuple

from . import _native
from .arrays import Array
from .layouts import SCALE_LAYOUTS, Layout, count_words
from .names import ScaleLayout
from .values import choice

_WORD = 4
MOST = 4  # payloads of a row


class Payload(NamedTuple):
    """One of up to four payloads of a dispatch.

    rows    [tokens, n] of any dtype. The n elements are a multiple of 4 bytes. Strides are multiples of 4 bytes, such
            as those of columns; elements of other sizes than 4 bytes lie behind one another. None or without rows if
            this rank routed 0 tokens
    out     layout "row-major": [out rows, n] of the same dtype, with strides of its own. "token-contiguous" and
            "128x4": 32-bit words or bytes in the shapes that out_scales has there, contiguous. None where out_rows is
    layout  "row-major", "token-contiguous" or "128x4" """

    rows: Any
    out: Any
    layout: ScaleLayout = "row-major"


class _Words(NamedTuple):
    """Rows of words: bytes of a row, and the distances of rows and of words in bytes. 0: dense."""

    bytes: int
    row_stride: int
    word_stride: int


def _words_of(found: Array, what: str) -> _Words:
    if len(found.shape) != 2:
        raise ValueError(f"{what} has shape {found.shape}, expected [rows, elements]")
    count, own = found.shape[1], found.itemsize
    if count == 0 or count * own % _WORD:
        raise ValueError(f"{what} has shape {found.shape} of {found.dtype}, expected rows of a multiple of 4 bytes")
    if found.strides is None or 0 in found.shape:
        return _Words(count * own, 0, 0)
    rows, columns = found.strides
    apart = count > 1 and columns != own
    if (own != _WORD and apart) or rows % _WORD or rows <= 0 or columns <= 0:
        raise ValueError(
            f"{what} has strides {found.strides} bytes, expected positive multiples of 4, and with elements of "
            f"{own} bytes that lie behind one another" if own != _WORD else
            f"{what} has strides {found.strides} bytes, expected positive multiples of 4"
        )
    return _Words(count * own, rows, columns if own == _WORD and apart else 0)


def _set_out(made: Any, found: Array, what: str, source: Array, layout: Layout, name: str, least: Any) -> Optional[int]:
    """Returns the rows of the output if there may be more of them than arrive."""
    if name != "row-major":
        return count_words(layout, found, what, made.bytes // _WORD, name, least.capacity, least.rows)
    words = _words_of(found, what)
    if words.bytes != made.bytes or (source.is_array and found.dtype != source.dtype):
        raise ValueError(
            f"{what} has shape {found.shape} of {found.dtype}, expected rows of {made.bytes} bytes"
            + (f" of {source.dtype}" if source.is_array else "")
        )
    made.outRowStride, made.outWordStride = words.row_stride, words.word_stride
    return layout.count(found, what, "[out rows, elements]", 1, least.rows)


class Least(NamedTuple):
    """What is known of the rows of outputs: for how many there must be room, and how many arrive at least."""

    capacity: int
    rows: Optional[int]


def make_payload(
    source: Array, out: Array, name: str, what: str, tokens: int, layout: Layout, least: Least
) -> Tuple[Any, Optional[int]]:
    """moePayload_t, and the rows of its output if there may be more of them than arrive. `what` names the payload."""
    if not source.is_array and not out.is_array:
        raise ValueError(f"{what} has neither rows nor out, so the size of its rows is not known")
    given = source if source.is_array else out
    if given is out and name != "row-major":
        raise ValueError(f"{what}.rows is None, expected an array, whose shape tells the size of a row")
    words = _words_of(given, f"{what}.rows" if source.is_array else f"{what}.out")
    made = _native.moePayload_t(bytes=words.bytes, outLayout=choice(SCALE_LAYOUTS, name, f"{what}.layout"))
    if source.is_array:
        if source.shape[0] != tokens:
            raise ValueError(f"{what}.rows has shape {source.shape}, expected [tokens, elements] with {tokens} tokens")
        made.inRowStride, made.inWordStride = words.row_stride, words.word_stride
    setattr(made, "in", source.address)
    made.out = out.address
    rows = _set_out(made, out, f"{what}.out", source, layout, name, least) if out.is_array else None
    return made, rows
