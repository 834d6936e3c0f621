"""The rows of a handle's layout, and how much is known of their number when arrays for them are passed."""

from __future__ import annotations

import math
from typing import Optional, Tuple

from . import _native
from .arrays import Array

LAYOUTS = {
    "flat": _native.moeLayoutFlat,
    "expert-major": _native.moeLayoutExpertMajor,
    "expert-major-padded": _native.moeLayoutExpertMajorPadded,
    "rank-major": _native.moeLayoutRankMajor,
}
SCALE_LAYOUTS = {
    "row-major": _native.moeScalesRowMajor,
    "token-contiguous": _native.moeScalesTokenContiguous,
    "128x4": _native.moeScales128x4,
}


class Layout:
    """A handle's layout on this rank.

    by_expert  one row per expert of a token; otherwise one row per token
    slots      (groups, rows of each) if the rows do not depend on the route; otherwise None
    rows       the product of the two
    alignment  the handle's expert_alignment"""

    def __init__(
        self, name: str, nranks: int, tokens_max: int, local_experts: int, topk: int, alignment: int = 1
    ):
        self.name, self.nranks, self.tokens_max, self.topk = name, nranks, tokens_max, topk
        self.local_experts, self.alignment = local_experts, alignment
        self.by_expert = name.startswith("expert-major")
        self.slots: Optional[Tuple[int, int]] = None
        if name == "rank-major":
            self.slots = nranks, tokens_max
        elif name == "expert-major-padded":
            self.slots = local_experts, nranks * tokens_max
        self.rows = self.slots[0] * self.slots[1] if self.slots else None

    def count(self, found: Array, what: str, axes: str, own_axes: int = 0, least: Optional[int] = None) -> int:
        """Rows of an array [out rows, ...] with `own_axes` further axes, which `axes` describes in words. The rows
        may be one axis. In grouped layouts they may also be two, [groups, rows of each]. Refuses fewer than `least`."""
        lead = found.shape[: len(found.shape) - own_axes]
        rows = math.prod(lead)
        grouped = self.slots is not None and lead[:1] == self.slots[:1] and rows == self.rows
        if len(lead) < 1 or (len(lead) > 1 and not grouped and (self.slots is not None or own_axes == 0)):
            raise ValueError(f"{what} has shape {found.shape}, expected {axes}{self._groups()}")
        if least is not None and rows < least:
            raise ValueError(f"{what} has shape {found.shape}, expected {axes} of at least {least} rows")
        return rows

    def _groups(self) -> str:
        return f" with {self.slots[0]} x {self.slots[1]} rows" if self.slots else ""

    def count_plain(self, found: Array, what: str, least: Optional[int]) -> int:
        """Rows of an array [out rows]."""
        return self.count(found, what, "[out rows]", 0, least)

    def count_entries(self, found: Array, what: str, least: Optional[int]) -> int:
        """Rows of an array of entries: [out rows, topk], or [out rows] in layouts by expert."""
        if self.by_expert:
            return self.count_plain(found, what, least)
        if len(found.shape) < 2 or found.shape[-1] != self.topk:
            raise ValueError(f"{what} has shape {found.shape}, expected [out rows, topk] with topk {self.topk}")
        return self.count(found, what, "[out rows, topk]", 1, least)


def block_axes(layout: Layout, rows: int) -> Tuple[int, ...]:
    """The blocks of 128 rows that hold the scales of an output of `rows` rows: [blocks] or [groups, blocks]."""
    if layout.slots is not None:
        return layout.slots[0], -(-layout.slots[1] // 128)
    if layout.name == "flat":
        return (-(-rows // 128),)
    return ((rows + layout.local_experts * (128 - math.gcd(layout.alignment, 128))) // 128,)


def _require_blocks(layout: Layout, found: Array, what: str, words: int, capacity: int) -> None:
    """Checks the shape of words that are in blocks: more of them than needed are welcome."""
    least = block_axes(layout, capacity)
    column = (words, 512 // found.itemsize)
    lead = found.shape[:-2]
    fits = lead[:-1] == least[:-1] and len(lead) == len(least) and (lead == least or layout.slots is None)
    if not fits or found.shape[-2:] != column or lead[-1] < least[-1]:
        axes = "[groups, blocks, words, block column]" if layout.slots else "[blocks, words, block column]"
        raise ValueError(f"{what} has shape {found.shape} of {found.dtype}, expected {axes} = {least + column}")


def count_words(
    layout: Layout, found: Array, what: str, words: int, name: str, capacity: int, least: Optional[int]
) -> Optional[int]:
    """Checks the shape of words that belong to rows, in the scale layout `name`. Returns its rows if there may be more of
    them than arrive."""
    if name == "128x4":
        _require_blocks(layout, found, what, words, capacity)
        return None
    last = words * 4 // found.itemsize
    if name == "row-major":
        if len(found.shape) < 2 or found.shape[-1] != last:
            raise ValueError(f"{what} has shape {found.shape} of {found.dtype}, expected [out rows, {last}]")
        return layout.count(found, what, f"[out rows, {last}]", 1, least)
    if found.itemsize != 4:
        raise TypeError(f"{what} holds {found.dtype}, expected 32-bit words with the layout 'token-contiguous'")
    expected: Tuple[int, ...] = (words, capacity)
    axes = "[words, out_rows_max]"
    if layout.slots is not None:
        groups, rows = layout.slots
        expected, axes = (words, groups * rows), "[words, nranks * tokens_max]"
        if layout.by_expert:
            expected, axes = (groups, words, rows), "[local experts, words, nranks * tokens_max]"
    if found.shape != expected:
        raise ValueError(f"{what} has shape {found.shape}, expected {axes} = {expected}")
    return None
