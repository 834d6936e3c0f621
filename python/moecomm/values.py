"""Checks numbers and names from callers, before ctypes would wrap a number or a dictionary would raise KeyError."""

from __future__ import annotations

import difflib
import operator
from typing import Any, Iterable, Mapping

INT32_MAX = 2**31 - 1
UINT32_MAX = 2**32 - 1
INT64_MAX = 2**63 - 1
ADDRESS_MAX = 2**64 - 1


def integer(value: Any, name: str, least: int = 0, most: int = INT32_MAX) -> int:
    """`value` as an int of least..most. Accepts ints and objects that act as one (numpy's integers), but no bool and
    no float."""
    try:
        if type(value).__name__ in ("bool", "bool_"):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} is {value!r}, expected an integer") from None
    if not least <= number <= most:
        raise ValueError(f"{name} is {number}, expected {least}..{most}")
    return number


def did_you_mean(given: Any, known: Iterable[Any]) -> str:
    """The end of a sentence about an unknown name: the nearest known one, or nothing if none is near."""
    if not isinstance(given, str):
        return ""
    near = difflib.get_close_matches(given, [name for name in known if name is not None], 1)
    return f"; did you mean {near[0]!r}?" if near else ""


def no_keyword(call: str, name: str, known: Iterable[str]) -> TypeError:
    """The error for a keyword that a call does not have."""
    names = list(known)
    meant = did_you_mean(name, names) or f", expected one of {', '.join(names)}"
    return TypeError(f"{call}() has no keyword {name!r}{meant}")


def no_choice(value: Any, name: str, known: Iterable[Any]) -> ValueError:
    """The error for a value that is none of the known names."""
    names = list(known)
    return ValueError(f"{name} is {value!r}, expected one of {', '.join(map(repr, names))}{did_you_mean(value, names)}")


def choice(table: Mapping[Any, int], value: Any, name: str) -> int:
    """The number that `table` has for the name `value`. Other names are refused with a list of the known ones."""
    if value is None or isinstance(value, str):
        if value in table:
            return table[value]
    raise no_choice(value, name, table)


def without_zero(text: bytes, given: Any, name: str) -> bytes:
    """`text`, which the library would read up to its first zero byte only."""
    if b"\0" in text:
        raise ValueError(f"{name} is {given!r}, which has a zero byte")
    return text
