"""The arguments of combine, checked."""

from __future__ import annotations

from typing import Any, Dict, Optional, Tuple

from . import _native
from .arguments import Arguments
from .arrays import Array
from .checks import ROW_TYPES, require_shape, row_format
from .values import choice, integer

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
        biases: Dict[str, Any],
        weight_grads: Any,
        out_weight_grads: Any,
        cumulative_wait_ns: Any,
        ready: Tuple[Any, int, int],
        capacity: Optional[int],
        send_only: bool,
        sms: int,
        complete_sms: int,
    ) -> _native.moeCombineArgs_t:
        """Builds moeCombineArgs_t from the keywords of Handle.combine; `ready` has ready, ready_rows and ready_value."""
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
            weights=choice(WEIGHTS, weights, "weights"),
            wire=WIRES[wire],
            flags=_native.moeSendOnly if send_only else 0,
            out=self._per_token(sums, "out", format),
            sms=integer(sms, "sms"),
            completeSms=integer(complete_sms, "complete_sms"),
            cumulativeWaitNs=self._wait_counter(cumulative_wait_ns),
        )
        for what, bias in biases.items():
            setattr(args, what, self._per_token_or_none(self._take(bias, what), what, format))
        given = self._take(topk_weights, "topk_weights", ("float32",))
        require_shape(given, "topk_weights", (self.tokens, self._layout.topk), "[tokens, topk]")
        args.topkWeights = given.address
        self._set_grads(args, weight_grads, out_weight_grads)
        self._set_ready(args, *ready)
        return args

    def _set_ready(self, args: _native.moeCombineArgs_t, ready: Any, ready_rows: int, ready_value: int) -> None:
        """Of blocks, the library knows how many words there are."""
        words = self._take(ready, "ready", ("int32", "uint32"))
        rows = integer(ready_rows, "ready_rows")
        if rows == 0:
            require_shape(words, "ready", (self._layout.local_experts,), "[local experts]")
        args.ready, args.readyRows = words.address, rows
        args.readyValue = integer(ready_value, "ready_value") & 0xFFFFFFFF  # words wrap

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

    def _set_grads(self, args: _native.moeCombineArgs_t, weight_grads: Any, out_weight_grads: Any) -> None:
        if (weight_grads is None) != (out_weight_grads is None):
            given, missing = "weight_grads", "out_weight_grads"
            if weight_grads is None:
                given, missing = missing, given
            raise ValueError(
                f"{given} is given, but {missing} is None: expected both or neither, alike on all ranks (a rank without "
                "rows passes an array without rows)"
            )
        if weight_grads is None:
            return
        grads = self._take(weight_grads, "weight_grads", ("float32",))
        self._require_rows(
            grads, "weight_grads", lambda least: self._layout.count_entries(grads, "weight_grads", least)
        )
        out = self._take(out_weight_grads, "out_weight_grads", ("float32",), writes=True)
        require_shape(out, "out_weight_grads", (self.tokens, self._layout.topk), "[tokens, topk]")
        args.weightGrads, args.outWeightGrads = grads.address, out.address
        if grads.address == 0 or out.address == 0:
            args.flags |= _native.COMBINE_GRADS
