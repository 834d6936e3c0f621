"""Checks arrays: they must be on the right device, of the right type and shape, and writable if they are outputs. An
error names the argument, what was found and what was expected. It is raised before the library is called, because
the library sees plain addresses and would access memory past the end. Plain addresses cannot be checked."""

from __future__ import annotations

from typing import Any, NamedTuple, Optional, Sequence, Tuple

from . import _native
from .arrays import Array, describe
from .values import choice, integer

ROW_TYPES = {
    "bytes": _native.moeRowBytes,
    "bfloat16": _native.moeRowBf16,
    "float16": _native.moeRowFp16,
    "float32": _native.moeRowFp32,
}
_ELEMENT_BYTES = {"bytes": 1, "bfloat16": 2, "float16": 2, "float32": 4}


class Place(NamedTuple):
    """Where arrays must be: "cpu", or "cuda" with its ordinal."""

    device: str
    ordinal: Optional[int]

    def __str__(self) -> str:
        return "host memory" if self.device == "cpu" else f"memory of cuda:{self.ordinal}"


def _place_of(found: Array) -> str:
    if found.device == "cpu":
        return "host memory"
    return f"memory of {found.device or 'an unknown device'}" + (
        f":{found.ordinal}" if found.ordinal is not None else ""
    )


def take(
    array: Any, what: str, place: Place, dtypes: Sequence[str] = (), writes: bool = False, strided: bool = False
) -> Array:
    """Describes an argument and checks all but its shape. `dtypes` empty: any."""
    found = describe(array, what, strided)
    if not found.is_array:
        return found
    if found.dtype is None:
        raise TypeError(f"{what}: a {type(array).__name__} that does not tell its dtype")
    if dtypes and found.dtype not in dtypes:
        raise TypeError(f"{what} holds {found.dtype}, expected {' or '.join(dtypes)}")
    same_ordinal = None in (found.ordinal, place.ordinal) or found.ordinal == place.ordinal
    if found.device != "managed" and (found.device != place.device or not same_ordinal):
        raise ValueError(f"{what} is in {_place_of(found)}, expected {place}, as the communicator's backend has it")
    if writes:
        _require_writable(array, found, what)
    return found


# Frameworks whose arrays never change, and those whose tensors may be written though their capsules do not say so.
_IMMUTABLE = ("jax", "jaxlib")
_WRITABLE = ("torch", "cupy")


def _require_writable(array: Any, found: Array, what: str) -> None:
    framework = type(array).__module__.partition(".")[0]
    if framework in _IMMUTABLE:
        raise ValueError(
            f"{what} is an array of jax, which is immutable: expected an array that may be written, such as one of numpy "
            "or a torch tensor"
        )
    if not found.writable:
        raise ValueError(f"{what} is read-only, expected a writable array")
    if not found.tells_writable and framework not in _WRITABLE:
        raise ValueError(
            f"{what} is a {type(array).__name__} whose __dlpack__ has no version, and so does not tell whether it may be "
            "written: expected DLPack 1.0 or later, or an array of numpy, torch or cupy"
        )


def require_shape(found: Array, what: str, expected: Tuple[int, ...], axes: str) -> None:
    """Requires exactly this shape."""
    if found.is_array and found.shape != expected:
        raise ValueError(f"{what} has shape {found.shape}, expected {axes} = {expected}")


class RowFormat(NamedTuple):
    """The format of a row: `bytes` long, with `hidden` elements of the row type `name`. `dtype` is that of the array
    named `source` if the type was taken from there, otherwise None."""

    name: str
    hidden: int
    bytes: int
    dtype: Optional[str]
    source: str

    def __str__(self) -> str:
        if self.dtype is not None and self.name == "bytes":
            return f"{self.bytes} bytes, as {self.source} has"
        return f"{self.hidden} {self.name}" + (f", as {self.source} has" if self.dtype is not None else "")

    def require(self, found: Array, what: str) -> None:
        """Checks an array of such rows. It must have the same dtype. If the row type was given, the array may
        instead have that type, or hold integers of its size or bytes."""
        if not found.is_array:
            return
        size = _ELEMENT_BYTES[self.name]
        if self.dtype is not None:
            allowed: Tuple[str, ...] = (self.dtype,)
        else:
            allowed = (self.name, f"uint{8 * size}", f"int{8 * size}", "uint8", "int8")
        if (self.dtype is not None or self.name != "bytes") and found.dtype not in allowed:
            raise TypeError(f"{what} holds {found.dtype}, expected {_alternatives(self, allowed)}")
        width = found.shape[-1] * found.itemsize if found.shape else 0
        if width != self.bytes:
            raise ValueError(f"{what} has shape {found.shape} of {found.dtype}, expected rows of {self}")


def _alternatives(format: RowFormat, allowed: Sequence[str]) -> str:
    if format.dtype is not None:
        return f"{format.dtype}, as {format.source} does"
    return " or ".join(dict.fromkeys(allowed)) + ", as row_type says"


def row_format(arrays: Sequence[Tuple[str, Array]], row_type: Optional[str], hidden: Optional[int]) -> RowFormat:
    """The format of rows, from the arguments given and from the first of `arrays` (names and arguments) that is an
    array. Types that cannot be summed travel as bytes, and `hidden` is then their number."""
    known = next(((name, found) for name, found in arrays if found.is_array), None)
    if row_type is not None:
        choice(ROW_TYPES, row_type, "row_type")
    if hidden is not None:
        hidden = integer(hidden, "hidden", 1)
    if known is None:
        if row_type is None:
            raise TypeError("row_type is needed where rows is an address or None")
        if hidden is None:
            raise TypeError("hidden is needed where the rows are an address or None")
        return RowFormat(row_type, hidden, hidden * _ELEMENT_BYTES[row_type], None, "")
    what, found = known
    if len(found.shape) < 2:
        raise ValueError(f"{what} has shape {found.shape}, expected [rows, hidden]")
    name = row_type or (found.dtype if found.dtype in ROW_TYPES else "bytes")
    width = found.shape[-1] * found.itemsize
    derived = width // _ELEMENT_BYTES[name]
    if hidden is not None and hidden != derived:
        raise ValueError(f"hidden is {hidden}, but {what} has rows of {derived} {name}: shape {found.shape}")
    return RowFormat(name, derived, derived * _ELEMENT_BYTES[name], found.dtype if row_type is None else None, what)
