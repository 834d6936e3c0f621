"""Checks numbers and names from callers, before ctypes would wrap a number or a dictionary would raise KeyError."""

from __future__ import annotations

import operator
from typing import Any, Mapping

INT32_MAX = 2**31 - 1
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


def choice(table: Mapping[Any, int], value: Any, name: str) -> int:
    """The number that `table` has for the name `value`. Other names are refused with a list of the known ones."""
    if value is None or isinstance(value, str):
        if value in table:
            return table[value]
    raise ValueError(f"{name} is {value!r}, expected one of {', '.join(repr(known) for known in table)}")


def without_zero(text: bytes, given: Any, name: str) -> bytes:
    """`text`, which the library would read up to its first zero byte only."""
    if b"\0" in text:
        raise ValueError(f"{name} is {given!r}, which has a zero byte")
    return text
