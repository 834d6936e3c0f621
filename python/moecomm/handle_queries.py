"""Queries of a handle about its route and its memory."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, Optional, Tuple

from . import _native
from .casts import CASTS, scale_words
from .handle_answers import Arrivals, Counts, DeviceCounts, HandleView, Statistics
from .layouts import Layout, block_axes
from .membership import Membership
from .values import choice, integer

if TYPE_CHECKING:
    from .names import CastType

HANDLE_MODES = {"auto": _native.moeModeAuto, "ht": _native.moeModeHt, "ll": _native.moeModeLl}


class HandleQueries:
    """The part of Handle that asks."""

    _comm: Membership
    _layout: Layout
    _next_layout: Layout
    _experts: int
    _tokens: Optional[int]  # of the last route
    _rows: Optional[Tuple[int, int]]  # of the last route, once asked for: arrived tokens, out rows

    def _call(self, function: str, *arguments: Any) -> None:
        raise NotImplementedError

    # ---- What it tells -----------------------------------------------------------------------------------------------

    def _native_counts(self) -> _native.moeCounts_t:
        counts = _native.moeCounts_t()
        self._call("moeHandleGetCounts", ctypes.byref(counts))
        self._rows = (counts.rows, counts.layoutRows)
        return counts

    @property
    def local_experts(self) -> int:
        """The experts of this rank."""
        return self._layout.local_experts

    def scale_shape(self, cast: CastType, hidden: int, out_rows_max: int = 0) -> Tuple[int, ...]:
        """The shape of out_scales of one byte each with scale_layout "128x4": [blocks, words, 512], of rank-major and
        expert-major-padded [groups, blocks, words, 512]. It follows the tokens bound of the next route.

        cast          the type of a Cast
        hidden        elements of a row
        out_rows_max  rows that the output can hold; flat and expert-major"""
        choice(CASTS, cast, "cast")
        rows = integer(out_rows_max, "out_rows_max", 0)
        return (*block_axes(self._next_layout, rows), scale_words(cast, integer(hidden, "hidden", 1)), 512)

    def counts(self) -> Counts:
        """Counts of what this rank receives. Waits for the last route, at most for the timeout. Not collective. Not during
        a capture. Raises InvalidUsage without a route, and Timeout."""
        counts = self._native_counts()
        return Counts(
            counts.rows,
            counts.layoutRows,
            counts.localExperts,
            counts.firstExpert,
            counts.rowsPerRank[: self._layout.nranks],
            counts.rowsPerExpert[: counts.localExperts],
            counts.rowsWanted,
            counts.rowsWantedPerExpert[: counts.localExperts],
            counts.rowsOfAllExperts[: self._experts] if counts.rowsOfAllExperts else None,
        )

    def device_counts(self) -> DeviceCounts:
        """The addresses of the counts for kernels. Local; possible before the first route."""
        counts = self._device_counts()
        fields = (field[0] for field in _native.moeDeviceCounts_t._fields_)
        names = [name for name in fields if name not in ("size", "mode", "reserved")]
        return DeviceCounts(*(getattr(counts, name) for name in names))

    @property
    def mode(self) -> str:
        """The mode in use, "ht" or "ll", even if the handle was made with "auto"."""
        mode = self._device_counts().mode
        return next(name for name, value in HANDLE_MODES.items() if value == mode)

    def _device_counts(self) -> _native.moeDeviceCounts_t:
        counts = _native.moeDeviceCounts_t()
        self._call("moeHandleGetDeviceCounts", ctypes.byref(counts))
        return counts

    def arrivals(self) -> Arrivals:
        """The arrival words of a handle made with arrivals=True, for kernels that run beside dispatch. Local. Raises
        InvalidUsage without arrivals. See moeHandleGetArrivals."""
        found = _native.moeArrivals_t()
        self._call("moeHandleGetArrivals", ctypes.byref(found))
        return Arrivals(found.words, found.failed)

    def statistics(self) -> Statistics:
        """Where a handle made with statistics=True adds up rows and waits. Local. Raises InvalidUsage without
        statistics."""
        found = _native.moeStatistics_t()
        self._call("moeHandleGetStatistics", ctypes.byref(found))
        return Statistics(
            found.rowsPerExpert, found.rowsPerRank, found.dispatchWaitNs, found.combineWaitNs, found.lateSteps
        )

    def view(self) -> HandleView:
        """The slots of a low-latency rank-major handle. Local. Raises InvalidUsage of other handles. See
        moeHandleGetView."""
        view = _native.moeHandleView_t()
        self._call("moeHandleGetView", ctypes.byref(view))
        return HandleView(view.rows, view.side, view.combineRows)
