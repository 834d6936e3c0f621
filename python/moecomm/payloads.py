"""Payloads of a dispatch: words of 4 bytes beside each row, in arrays of any strides."""

from __future__ import annotations

from typing import Any, NamedTuple, Optional, Tuple

from . import _native
from .arrays import Array, is_dense
from .layouts import SCALE_LAYOUTS, Layout, count_words
from .parts import Payload
from .values import choice, integer

_WORD = 4
MOST = 4  # payloads of a row
PAYLOAD_LAYOUTS = {**SCALE_LAYOUTS, "array": _native.moePayloadArray}
BY_ROWS = ("row-major", "array")  # layouts whose outputs are like the rows that are sent


class _Words(NamedTuple):
    """Rows of words: bytes of a row, and the distances of rows and of words in bytes. 0: dense."""

    bytes: int
    row_stride: int = 0
    word_stride: int = 0


def _words_of(found: Array, what: str) -> _Words:
    if len(found.shape) < 2:
        raise ValueError(f"{what} has shape {found.shape}, expected [rows, elements]")
    count, own = found.shape[-1], found.itemsize
    if count == 0 or count * own % _WORD:
        raise ValueError(f"{what} has shape {found.shape} of {found.dtype}, expected rows of a multiple of 4 bytes")
    if found.strides is None or is_dense(found.shape, found.strides, own):
        return _Words(count * own)
    if len(found.shape) > 2:
        raise ValueError(
            f"{what} has shape {found.shape} and strides {found.strides} bytes, expected [rows, elements] or contiguous"
        )
    rows, columns = found.strides
    apart = count > 1 and columns != own
    if (own != _WORD and apart) or rows % _WORD or rows <= 0 or columns <= 0:
        raise ValueError(
            f"{what} has strides {found.strides} bytes, expected positive multiples of 4, and with elements of "
            f"{own} bytes that lie behind one another" if own != _WORD else
            f"{what} has strides {found.strides} bytes, expected positive multiples of 4"
        )
    return _Words(count * own, rows, columns if own == _WORD and apart else 0)


def _known_words(source: Array, out: Array, payload: Payload, what: str) -> _Words:
    """The words of the rows that are sent or, if those are not known, of the rows that arrive."""
    given = None if payload.bytes is None else integer(payload.bytes, f"{what}.bytes", _WORD)
    if given is not None and given % _WORD:
        raise ValueError(f"{what}.bytes is {given}, expected a multiple of 4")
    if not source.is_array and (not out.is_array or payload.layout not in BY_ROWS):
        if given is None:
            raise TypeError(f"{what}.bytes is needed where {what}.rows is an address or None")
        return _Words(given)
    name, found = (f"{what}.rows", source) if source.is_array else (f"{what}.out", out)
    words = _words_of(found, name)
    _require_dense(words, name, found, payload)
    if given is not None and given != words.bytes:
        raise ValueError(
            f"{what}.bytes is {given}, but {name} has rows of {words.bytes} bytes: {found.shape} of {found.dtype}"
        )
    return words


def _require_dense(words: _Words, name: str, found: Array, payload: Payload) -> None:
    if payload.layout == "array" and words.row_stride != 0:
        raise ValueError(f"{name} has strides {found.strides} bytes, expected a contiguous array with layout 'array'")


class Least(NamedTuple):
    """Bounds of the rows of outputs: the number for which there must be room, and the least number that arrives."""

    capacity: int
    rows: Optional[int]


def _set_out(
    made: Any, found: Array, what: str, source: Array, payload: Payload, layout: Layout, least: Least
) -> Optional[int]:
    """Returns the rows of the output if there may be more of them than arrive."""
    if payload.layout not in BY_ROWS:
        return count_words(layout, found, what, made.bytes // _WORD, payload.layout, least.capacity, least.rows)
    words = _words_of(found, what)
    _require_dense(words, what, found, payload)
    alike = source.is_array and payload.bytes is None  # then the dtypes are, too
    rows = what.replace(".out", ".rows")
    if words.bytes != made.bytes or (alike and found.dtype != source.dtype):
        raise ValueError(
            f"{what} has shape {found.shape} of {found.dtype}, expected rows of {made.bytes} bytes"
            + (f" of {source.dtype}, as {rows} has" if alike else "")
        )
    made.outRowStride, made.outWordStride = words.row_stride, words.word_stride
    return layout.count(found, what, "[out rows, elements]", 1, least.rows)


def make_payload(
    source: Array, out: Array, payload: Payload, what: str, tokens: int, layout: Layout, least: Least
) -> Tuple[Any, Optional[int]]:
    """A moePayload_t, and the number of rows of its output, if that may be more than arrive. `what` names the
    payload."""
    number = choice(PAYLOAD_LAYOUTS, payload.layout, f"{what}.layout")
    words = _known_words(source, out, payload, what)
    made = _native.moePayload_t(bytes=words.bytes, outLayout=number)
    if source.is_array:
        if len(source.shape) != 2 or source.shape[0] != tokens:
            raise ValueError(f"{what}.rows has shape {source.shape}, expected [tokens, elements] with {tokens} tokens")
        made.inRowStride, made.inWordStride = words.row_stride, words.word_stride
    setattr(made, "in", source.address)
    made.out = out.address
    rows = _set_out(made, out, f"{what}.out", source, payload, layout, least) if out.is_array else None
    return made, rows
