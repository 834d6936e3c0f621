"""Collective calls that this rank refuses, and faults that a call of all ranks has met.

A rank that refuses a call by itself must not leave the others waiting for it: it takes part with a refusal (moeRefused),
which the others hear of, and only then raises its error. Decision 0095."""

from __future__ import annotations

import ctypes
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from . import _native, errors
from .arrays import describe, stream_address
from .checks import ROW_TYPES, row_format
from .combine_arguments import WIRES
from .membership import Membership

ON_FAULT = {"raise": 1, "status": 0}
# Results of calls that have changed nothing, so that the rank may still take part.
_CHANGED_NOTHING = (_native.moeInvalidArgument, _native.moeInvalidUsage)


def took_part(error: BaseException) -> bool:
    """Whether this rank took part in the call that raised `error`: the call counts, as it does on the other ranks."""
    return getattr(error, "took_part", False)


def was_refused(status: Optional[errors.MoeError]) -> bool:
    """Whether a handle's status() says that some rank has taken part in a call with a refusal."""
    return status is not None and "has refused its arguments" in str(status)


def alike(error: Any, cause: BaseException) -> Any:
    """Returns `error`, which replaces `cause` and has its took_part."""
    error.took_part = took_part(cause)
    return error


def noted(error: Any) -> Any:
    """Returns `error`, marked as one of a call in which this rank took part."""
    error.took_part = True
    return error


class SummedRows(NamedTuple):
    """The values that all ranks of a combine must share."""

    row_type: str
    hidden: int
    wire: str


class HandleRefusals:
    """The part of Handle that reports faults and refusals, of this rank or of others."""

    _comm: Membership
    _pointer: Optional[int]
    calls: int  # in which this rank took part
    _low_latency: bool
    _alone: bool  # no other rank takes part in its calls
    _rank: int
    _raises: bool  # calls raise the faults that they meet
    _fault: Optional[ctypes.c_uint32]  # not 0: the handle delivers nothing; None where the host cannot read it
    _summed: Optional[Tuple[str, int, str]]  # of the latest combine: SummedRows
    _sent: Optional[Tuple[str, int]]  # row type and hidden of the latest dispatch

    def _call(self, function: str, *arguments: Any) -> None:
        raise NotImplementedError

    def _known_rows(self) -> Optional[Tuple[int, int]]:
        raise NotImplementedError

    def _note_route(self, tokens: int) -> None:
        raise NotImplementedError

    # ---- Faults that all ranks may hear of ---------------------------------------------------------------------------

    def _native_status(self) -> _native.moeHandleStatus_t:
        status = _native.moeHandleStatus_t()
        self._call("moeHandleGetStatus", ctypes.byref(status))
        return status

    def status(self) -> Optional[errors.MoeError]:
        """The fault of an argument that showed only while the work ran, such as an expert id out of range, as an
        exception object; else None. The communicator stays good. This handle delivers nothing until its next route:
        dispatches store no rows, combines sum as if none had come. Answers for the work that has run: synchronize the
        stream first."""
        status = self._native_status()
        if status.result == _native.moeSuccess:
            return None
        return errors.of(status.result, status.sentence.decode(errors="replace"))

    def _delivers_nothing(self) -> bool:
        """Whether the handle has a fault; False if the host does not know."""
        return self._fault is not None and self._fault.value != 0

    @property
    def hears_at_once(self) -> bool:
        """Whether a call raises on all ranks if one of them has refused it. CPUs do so."""
        return self._fault is not None and self._raises

    def _raise_fault(self, combines_later: bool = False) -> None:
        """Raises the fault of the handle, when a call has run. `combines_later`: other ranks, which may not have heard
        of it, still wait for this rank's combine, so the combine raises it."""
        if not self._raises or not self._delivers_nothing():
            return
        status = self._native_status()
        if combines_later and self._is_own_matter(status):
            return
        raise noted(errors.of(status.result, status.sentence.decode(errors="replace")))

    def _is_own_matter(self, status: _native.moeHandleStatus_t) -> bool:
        """Whether no other rank hears of this fault: the output of a low-latency handle has no room for the rows that
        came. After faults that all ranks hear of, no rows come, or another rank is named."""
        known = self._known_rows() if self._low_latency and not self._alone else None
        return known is not None and known[0] > 0 and status.rank == self._rank

    # ---- Calls that this rank refuses --------------------------------------------------------------------------------

    def take_part(self, call: str, error: Exception, stream: Any = None, given: Optional[Dict[str, Any]] = None) -> None:
        """Takes part in a collective call that this rank refuses because of `error`. The caller raises it afterwards,
        and the step is over here as on the other ranks. Does nothing if no other rank waits, or if this rank has taken
        part already, or cannot. took_part(error) tells whether it took part.

        call   "route", "dispatch", "route_dispatch" or "combine"
        error  the exception that the caller raises
        given  the keywords of a combine: low-latency ones must have rows like those of the other ranks"""
        if took_part(error) or self._alone or self._pointer is None or self._comm.native.pointer is None:
            return
        if isinstance(error, errors.MoeError) and error.result not in _CHANGED_NOTHING:
            return
        try:
            address = stream_address(stream)
        except Exception:  # noqa: B902  this array may be the refused one
            address = 0
        try:
            self._refuse(call, address, given or {})
        except errors.MoeError:
            return  # the communicator has failed, or the handle is not at this call: nobody waits for this rank here
        noted(error)

    def _refuse(self, call: str, stream: int, given: Dict[str, Any]) -> None:
        if call == "dispatch":
            args = _native.moeDispatchArgs_t(flags=_native.moeRefused)
            self._call("moeDispatch", ctypes.byref(args), stream)
        elif call == "combine":
            self._call("moeCombine", ctypes.byref(self._refused_combine(given)), stream)
        elif call == "route":
            self._call("moeRoute", None, None, _native.moeTokensRefused, stream)
        else:
            self._call("moeRouteDispatch", None, None, _native.moeTokensRefused, None, stream)
        if call.startswith("route"):
            self._note_route(0)
        else:
            self.calls += 1

    def _refused_combine(self, given: Dict[str, Any]) -> _native.moeCombineArgs_t:
        args = _native.moeCombineArgs_t(flags=_native.moeRefused)
        if not self._low_latency:
            return args
        rows = self._likely_rows(given)
        args.rowType, args.hidden, args.wire = ROW_TYPES[rows.row_type], rows.hidden, WIRES[rows.wire]
        if given.get("grads") is not None:  # all ranks send gradients, even if one refuses the call
            args.grads = ctypes.pointer(_native.moeGrads_t())
        return args

    def _likely_rows(self, given: Dict[str, Any]) -> SummedRows:
        """A guess at the row type and width that the other ranks combine. It prefers an argument that is like the rows
        of the latest combine, or as wide as the rows of the dispatch. Otherwise it takes the latest combine's rows,
        then the first argument, then the dispatch's rows."""
        last = SummedRows(*self._summed) if self._summed is not None else None
        wire = given.get("wire")
        if not isinstance(wire, str) or wire not in WIRES:
            wire = last.wire if last is not None else "row"
        found = [SummedRows(name, hidden, wire) for name, hidden in _formats(given)]
        for rows in found:
            if rows == last:
                return rows
        widths = {self._sent[1] if self._sent else None, last.hidden if last else None}
        for rows in found:
            if rows.hidden in widths:
                return rows
        if last is not None:
            return last
        if found:
            return found[0]
        if self._sent is None:
            return SummedRows("bfloat16", 128, wire)
        return SummedRows(self._sent[0] if self._sent[0] != "bytes" else "bfloat16", self._sent[1], wire)


def _formats(given: Dict[str, Any]) -> List[Tuple[str, int]]:
    """Row type and hidden of each array of a combine for which they are known."""
    found = []
    for name in ("rows", "out", "bias0"):
        try:
            array = describe(given.get(name), name)
            format = row_format(((name, array),), given.get("row_type"), given.get("hidden"))
        except Exception:  # noqa: B902  this array may be the refused one
            continue
        if format.name != "bytes":
            found.append((format.name, format.hidden))
    return found
