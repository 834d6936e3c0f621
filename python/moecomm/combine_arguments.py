"""The arguments of combine, checked."""

from __future__ import annotations

import ctypes
from typing import Any, Optional

from . import _native
from .arguments import Arguments, require_kind
from .arrays import Array
from .checks import ROW_TYPES, require_shape, row_format
from .parts import Grads, Ready
from .values import UINT32_MAX, choice, integer

WEIGHTS = {"applied": _native.moeWeightsApplied, "apply": _native.moeWeightsApply}
WIRES = {
    "row": _native.moeWireRow,
    "fp8": _native.moeWireFp8,
    "fp8-block": _native.moeWireFp8Block,
    "nvfp4": _native.moeWireNvfp4,
    "logfmt10": _native.moeWireLogfmt10,
}


class CombineArguments(Arguments):
    """`_capacity` is the number of out rows that the last dispatch passed to the library; None if there was none."""

    _capacity: Optional[int]
    reads_nothing = False  # the handle delivers nothing until its next route, so that no row is read

    def make(
        self,
        rows: Any,
        out: Any,
        *,
        row_type: Optional[str],
        hidden: Optional[int],
        weights: str,
        wire: str,
        topk_weights: Any,
        bias0: Any,
        bias1: Any,
        grads: Optional[Grads],
        ready: Optional[Ready],
        cumulative_wait_ns: Any,
        send_only: bool,
        sms: int,
        capacity: Optional[int],
    ) -> _native.moeCombineArgs_t:
        """Builds moeCombineArgs_t from the keywords of Handle.combine. `capacity`: _capacity."""
        self._capacity = capacity
        source, sums = self._take(rows, "rows"), self._take(out, "out", writes=True)
        format = row_format((("rows", source), ("out", sums)), row_type, hidden)
        if format.name == "bytes":
            summed = "bfloat16, float16 or float32"
            raise TypeError(f"{format.source or 'row_type'} holds {format.dtype or 'bytes'}, expected {summed}")
        if choice(WIRES, wire, "wire") != _native.moeWireRow and format.hidden % 128:
            what = format.source or "hidden"
            raise ValueError(f"{what} has rows of {format.hidden} elements, expected a multiple of 128 with wire {wire!r}")
        format.require(source, "rows")
        self._require_rows(
            source, "rows", lambda least: self._layout.count(source, "rows", "[out rows, hidden]", 1, least)
        )
        args = _native.moeCombineArgs_t(
            rows=source.address,
            rowType=ROW_TYPES[format.name],
            hidden=format.hidden,
            flags=_native.moeSendOnly if send_only else 0,
            sms=integer(sms, "sms"),
            wire=WIRES[wire],
            weights=choice(WEIGHTS, weights, "weights"),
            out=self._per_token(sums, "out", format),
            bias0=self._per_token_or_none(self._take(bias0, "bias0"), "bias0", format),
            bias1=self._per_token_or_none(self._take(bias1, "bias1"), "bias1", format),
            topkWeights=self._per_entry(topk_weights, "topk_weights", writes=False),
            cumulativeWaitNs=self._wait_counter(cumulative_wait_ns, "cumulative_wait_ns"),
        )
        if grads is not None:
            self._set_grads(args, require_kind(grads, Grads, "grads"))
        if ready is not None:
            self._set_ready(args, require_kind(ready, Ready, "ready"))
        return args

    def _per_entry(self, array: Any, what: str, writes: bool) -> int:
        """The address of a float32 for each entry of the route."""
        return self._of_shape(array, what, "float32", (self.tokens, self._layout.topk), "[tokens, topk]", writes)

    def _set_ready(self, args: _native.moeCombineArgs_t, ready: Ready) -> None:
        """For blocks, the library knows the number of words."""
        words = self._take(ready.words, "ready.words", ("int32", "uint32"))
        made = _native.moeReady_t(
            words=words.address,
            blockRows=integer(ready.block_rows, "ready.block_rows"),
            value=integer(ready.value, "ready.value", 0, UINT32_MAX),
            completeSms=integer(ready.complete_sms, "ready.complete_sms"),
        )
        if made.blockRows == 0:
            require_shape(words, "ready.words", (self._layout.local_experts,), "[local experts]")
        args.ready = ctypes.pointer(made)

    def _require_rows(self, found: Array, what: str, count: Any) -> None:
        """Requires enough rows in an array that is read. `count` is called with the required number."""
        if not found.is_array:
            return  # if rows came, the library reports the NULL to all ranks
        known = self._known_rows()
        if self.reads_nothing or (known is not None and known[0] == 0) or (known is None and found.address == 0):
            return self._try_rows(count)  # nothing is read
        least = self._least()
        if least is None:
            least = self._capacity
        if least is None:
            raise ValueError(f"{what} needs as many rows as came, which is not known here: call counts() after route()")
        self._note_room(count(least))
        return None

    def _try_rows(self, count: Any) -> None:
        """Whether an array would do for later routes, that bring rows."""
        try:
            self._note_room(count(self._layout.rows))
        except ValueError:
            self.reusable = False

    def _set_grads(self, args: _native.moeCombineArgs_t, given: Grads) -> None:
        what = "grads.weight_grads"
        grads = self._take(given.weight_grads, what, ("float32",))
        if not grads.given:
            self._require_no_rows(what)
        self._require_rows(grads, what, lambda least: self._layout.count_entries(grads, what, least))
        if given.out_weight_grads is None and self.tokens > 0:
            raise ValueError(f"grads.out_weight_grads is None, expected [tokens, topk] with {self.tokens} tokens")
        made = _native.moeGrads_t(
            weightGrads=grads.address,
            outWeightGrads=self._per_entry(given.out_weight_grads, "grads.out_weight_grads", writes=True),
        )
        args.grads = ctypes.pointer(made)

    def _require_no_rows(self, what: str) -> None:
        """Refuses an array that is None if rows came. If that is not known, the library checks it, and reports it on
        all ranks."""
        known = self._known_rows()
        if known is not None and known[0] > 0 and not self.reads_nothing:
            raise ValueError(f"{what} is None, but {known[0]} rows came: expected gradients for them")
        self.reusable = False  # for routes that bring rows
