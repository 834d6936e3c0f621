"""What a handle tells of its route and its memory."""

from __future__ import annotations

import ctypes
from typing import Any, List, NamedTuple, Optional

from . import _native, errors

HANDLE_MODES = {"auto": _native.moeModeAuto, "ht": _native.moeModeHt, "ll": _native.moeModeLl}


class Counts(NamedTuple):
    """The answer of moeHandleGetCounts. The lists are copies."""

    rows: int
    layout_rows: int
    local_experts: int
    first_expert: int
    rows_per_rank: List[int]
    rows_per_expert: List[int]


class DeviceCounts(NamedTuple):
    """Addresses of int32 on the device, and of the uint32 that is not 0 if the handle delivers nothing."""

    rows: int
    rank_offsets: int
    rows_per_expert: int
    expert_offsets: int
    fault: int


class HandleView(NamedTuple):
    """Addresses of window memory."""

    rows: int
    side: Optional[int]
    combine_rows: int


class Arrivals(NamedTuple):
    """Addresses of arrival words on the device."""

    words: int
    failed: int


class Answers:
    """What a handle can be asked at any time."""

    _call: Any  # Handle._call

    def device_counts(self) -> DeviceCounts:
        """DeviceCounts: addresses of int32 on the device, [1], [nranks + 1], [local experts], [local experts + 1], and of
        a uint32 that is not 0 if status() is not None. The addresses stay the same. Each route writes the counts, in
        stream order."""
        counts = self._device_counts()
        return DeviceCounts(counts.rows, counts.rankOffsets, counts.rowsPerExpert, counts.expertOffsets, counts.fault)

    def status(self) -> Optional[errors.MoeError]:
        """What an argument did that only the work could see, such as an expert id out of range, as an exception object;
        else None. The communicator stays good. This handle delivers nothing until its next route: dispatches store no
        rows, combines sum as if none had come. Answers for the work that has run: synchronize the stream first."""
        status = _native.moeHandleStatus_t()
        self._call("moeHandleGetStatus", ctypes.byref(status))
        if status.result == _native.moeSuccess:
            return None
        return errors.of(status.result, status.sentence.decode(errors="replace"))

    @property
    def mode(self) -> str:
        """The mode in use, "ht" or "ll", even if the handle was made with "auto"."""
        mode = self._device_counts().mode
        return next(name for name, value in HANDLE_MODES.items() if value == mode)

    def _device_counts(self):
        counts = _native.moeDeviceCounts_t()
        self._call("moeHandleGetDeviceCounts", ctypes.byref(counts))
        return counts

    def arrivals(self) -> Arrivals:
        """Arrivals of a handle made with arrivals=True: addresses on the device, for kernels that run beside dispatch.
        `words`, uint64 [local experts], shifted right by ARRIVAL_SHIFT: the dispatches whose rows of an expert are
        complete. `failed`, uint32 [1], not 0: missing words will not come. The addresses stay the same: see
        moeHandleGetArrivals."""
        found = _native.moeArrivals_t()
        self._call("moeHandleGetArrivals", ctypes.byref(found))
        return Arrivals(found.words, found.failed)

    def view(self) -> HandleView:
        """HandleView of a low-latency rank-major handle: addresses of window memory on the device, [nranks, tokens_max]
        rows each. `rows` and `side` (None without side payloads) hold what came with a dispatch whose out_rows is None.
        `combine_rows` may be filled and passed to combine, which then copies nothing. The addresses stay the same. The
        memory is the caller's from the end of dispatch until combine begins: see moeHandleGetView."""
        view = _native.moeHandleView_t()
        self._call("moeHandleGetView", ctypes.byref(view))
        return HandleView(view.rows, view.side, view.combineRows)
