"""The arguments of dispatch, checked."""

from __future__ import annotations

import math
from typing import Any, Dict, Optional, Sequence

from . import _native
from .arguments import Arguments
from .arrays import Array
from .casts import CASTS, SCALE_TYPES, code_bytes, code_types, is_packed
from .checks import ROW_TYPES, RowFormat, require_shape, row_format, side_format
from .layouts import SCALE_LAYOUTS, count_scales
from .payloads import MOST, Least, Payload, make_payload
from .values import INT64_MAX, choice, integer

ID_KINDS = {"local": _native.moeIdsLocal, "global": _native.moeIdsGlobal}
# The keywords of Handle.dispatch that make() takes as `describing`.
DESCRIBING = (
    *("out_topk_idx", "out_topk_weights", "out_source_index", "out_expert_offsets", "out_layout_range"),
    *("out_source_info", "out_row_experts", "cumulative_rows", "cumulative_wait_ns"),
)


class DispatchArguments(Arguments):
    """`_capacity` is the number that is passed to the library: the rows for which every output has room."""

    _capacity: int

    def make(
        self,
        rows: Any,
        out_rows: Any,
        *,
        row_type: Optional[str],
        hidden: Optional[int],
        out_rows_max: Optional[int],
        side: Any,
        side_bytes: Optional[int],
        out_side: Any,
        payloads: Sequence[Payload],
        describing: Dict[str, Any],
        index_type: str,
        stays_in_view: bool,
        cast: Optional[str],
        exact: bool,
        weights_on_input: bool,
        out_scales: Any,
        scale_layout: str,
        out_scale_block_offsets: Any,
        input_scale: Any,
        global_scale: Any,
        pad_indices: bool,
        pad_rows: bool,
        ids: str,
        invalid_id: int,
        send_only: bool,
        sms: int,
    ) -> _native.moeDispatchArgs_t:
        """Builds moeDispatchArgs_t from the keywords of Handle.dispatch. `stays_in_view`: rows may stay where they
        arrive."""
        choice(CASTS, cast, "cast")
        choice(SCALE_LAYOUTS, scale_layout, "scale_layout")
        for bit, name in ((exact, "exact"), (weights_on_input, "weights_on_input")):
            if bit and cast is None:
                raise ValueError(f"{name} is True, but cast is None")
        source, out = self._take(rows, "rows"), self._take(out_rows, "out_rows", writes=True)
        format = self._row_format(source, out, row_type, hidden, cast)
        args = _native.moeDispatchArgs_t(
            rows=self._per_token(source, "rows", format),
            rowType=ROW_TYPES[format.name],
            hidden=format.hidden,
            flags=(_native.moeSendOnly if send_only else 0)
            | (_native.moeCastExact if exact else 0)
            | (_native.moeWeightsOnInput if weights_on_input else 0),
            outRows=out.address,
            sms=integer(sms, "sms"),
            padding=(_native.moePadIndices if pad_indices else 0) | (_native.moePadRows if pad_rows else 0),
            idKind=choice(ID_KINDS, ids, "ids"),
            invalidId=integer(invalid_id, "invalid_id", -(2**31)),
        )
        if args.invalidId == 0:
            raise ValueError("invalid_id is 0, which is an expert")
        self._pads = pad_indices or pad_rows
        self._require_output(out, format, cast)
        self._capacity = self._rows_of_output(out, out_rows_max, stays_in_view)
        self._set_side(args, side, side_bytes, out_side)
        blocked = self._set_payloads(args, payloads) or (cast is not None and scale_layout == "128x4")
        self._set_describing(args, describing, index_type)
        self._set_cast(args, out_scales, format, cast, scale_layout)
        self._set_block_offsets(args, out_scale_block_offsets, blocked)
        self._set_factors(args, cast, input_scale, global_scale)
        args.outRowsMax = self._capacity
        return args

    def _place_for(self, rows: int) -> None:
        """Notes that an output has room for this many rows, unless their number is known and no others are written."""
        self._note_room(rows)
        if self._least() is None or self._pads:
            self._capacity = min(self._capacity, rows)

    def _row_format(
        self, source: Array, out: Array, row_type: Optional[str], hidden: Optional[int], cast: Optional[str]
    ) -> RowFormat:
        if cast is None or source.is_array:
            return row_format((("rows", source), ("out_rows", out)), row_type, hidden)
        if row_type is None:
            raise TypeError("row_type is needed where rows is an address or None and cast is set")
        if hidden is None and out.shape:
            hidden = out.shape[-1] * (2 if is_packed(cast) else 1)
        return row_format((), row_type, hidden)

    def _require_output(self, out: Array, format: RowFormat, cast: Optional[str]) -> None:
        if cast is None:
            return format.require(out, "out_rows")
        if not out.is_array:
            return None
        types, count = code_types(cast), code_bytes(cast, format.hidden)
        if out.dtype not in types:
            raise TypeError(f"out_rows holds {out.dtype}, expected {' or '.join(types)}, for the codes of a cast")
        if out.shape[-1:] != (count,):
            what = "bytes, one for two codes" if is_packed(cast) else "codes, one per element"
            raise ValueError(f"out_rows has shape {out.shape}, expected rows of {count} {what}")
        return None

    def _rows_of_output(self, out: Array, given: Optional[int], stays_in_view: bool) -> int:
        if given is not None:
            given = integer(given, "out_rows_max", 0, INT64_MAX)
        if not out.is_array:
            if given is None:
                raise TypeError("out_rows_max is needed where out_rows is an address or None")
            return given
        rows = self._layout.count(out, "out_rows", "[out rows, hidden]", 1)
        if rows == 0 and stays_in_view:
            slots = self._layout.rows
            raise ValueError(f"out_rows has shape {out.shape}, expected {slots} rows, or None to leave them in view()")
        if given is not None and given > rows:
            raise ValueError(f"out_rows_max is {given}, but out_rows has {rows} rows: shape {out.shape}")
        return rows if given is None else given

    def _set_side(self, args: _native.moeDispatchArgs_t, side: Any, side_bytes: Optional[int], out_side: Any) -> None:
        source, out = self._take(side, "side"), self._take(out_side, "out_side", writes=True)
        format = side_format((("side", source), ("out_side", out)), side_bytes)
        if format is None:
            return
        args.sideBytes = format.bytes
        args.side = self._per_token(source, "side", format, "[tokens, side payload]")
        if not out.given and args.outRows and self._capacity > 0:
            raise ValueError(f"out_side is None, expected [out rows, side payload] with rows of {format}")
        format.require(out, "out_side")
        args.outSide = out.address
        if out.is_array:
            self._place_for(self._layout.count(out, "out_side", "[out rows, side payload]", 1, self._least()))

    def _set_payloads(self, args: _native.moeDispatchArgs_t, payloads: Sequence[Payload]) -> bool:
        """Returns whether a payload lies in blocks."""
        if not payloads:
            return False
        if args.sideBytes:
            raise ValueError("payloads is given, but side too: side payload is one or the other")
        if len(payloads) > MOST:
            raise ValueError(f"payloads has {len(payloads)} of them, expected at most {MOST}")
        made = (_native.moePayload_t * len(payloads))()
        for i, payload in enumerate(payloads):
            what = f"payloads[{i}]"
            if not isinstance(payload, Payload):
                raise TypeError(f"{what} is a {type(payload).__name__}, expected a Payload")
            source = self._take(payload.rows, f"{what}.rows", strided=True)
            plain = payload.layout == "row-major"
            out = self._take(payload.out, f"{what}.out", writes=True, strided=plain)
            if not source.given and self.tokens > 0:
                raise ValueError(f"{what}.rows is None, expected [tokens, elements] with {self.tokens} tokens")
            if not out.given and args.outRows and self._capacity > 0:
                raise ValueError(f"{what}.out is None, expected an array, since out_rows is given")
            least = Least(self._capacity, self._least())
            made[i], rows = make_payload(source, out, payload.layout, what, self.tokens, self._layout, least)
            if rows is not None:
                self._place_for(rows)
        args.payloads, args.payloadCount = made, len(payloads)
        return any(payload.layout == "128x4" for payload in payloads)

    def _set_describing(self, args: _native.moeDispatchArgs_t, given: Dict[str, Any], index_type: str) -> None:
        absent = "out_topk_idx" if self._layout.by_expert else "out_expert_offsets"
        names = [absent] if self._layout.name != "expert-major-padded" else ["out_topk_idx", "out_expert_offsets"]
        for what in names:
            if given[what] is not None:
                raise ValueError(f"{what} is given, but the layout {self._layout.name} has none: expected None")
        args.outTopkIdx = self._describing(given, "out_topk_idx", (index_type,), self._layout.count_entries)
        args.outTopkWeights = self._describing(given, "out_topk_weights", ("float32",), self._layout.count_entries)
        args.outSourceIndex = self._describing(given, "out_source_index", ("int32",), self._layout.count_plain)
        offsets = self._take(given["out_expert_offsets"], "out_expert_offsets", ("int32",), writes=True)
        require_shape(offsets, "out_expert_offsets", (self._layout.local_experts + 1,), "[local experts + 1]")
        args.outExpertOffsets = offsets.address
        self._set_described(args, given)

    def _set_described(self, args: _native.moeDispatchArgs_t, given: Dict[str, Any]) -> None:
        for what in ("out_layout_range", "out_row_experts"):
            if given[what] is not None and not self._layout.by_expert:
                raise ValueError(f"{what} is given, but the layout {self._layout.name} has no row per expert")
        ranges = self._take(given["out_layout_range"], "out_layout_range", ("int64",), writes=True)
        shape = (self._layout.local_experts, self._layout.nranks)
        require_shape(ranges, "out_layout_range", shape, "[local experts, nranks]")
        args.outLayoutRange = ranges.address
        args.outSourceInfo = self._describing(given, "out_source_info", ("int32",), self._layout.count_triples)
        args.outRowExperts = self._describing(given, "out_row_experts", ("int32",), self._layout.count_plain)
        rows = self._take(given["cumulative_rows"], "cumulative_rows", ("int32",), writes=True)
        require_shape(rows, "cumulative_rows", (self._layout.local_experts,), "[local experts]")
        args.cumulativeRows = rows.address
        args.cumulativeWaitNs = self._wait_counter(given["cumulative_wait_ns"])

    def _describing(self, given: Dict[str, Any], what: str, dtypes: Sequence[str], count: Any) -> int:
        found = self._take(given[what], what, dtypes, writes=True)
        if found.is_array:
            self._place_for(count(found, what, self._least()))
        return found.address

    def _set_cast(
        self,
        args: _native.moeDispatchArgs_t,
        out_scales: Any,
        format: RowFormat,
        cast: Optional[str],
        scale_layout: str,
    ) -> None:
        if cast is None:
            if out_scales is not None:
                raise ValueError("out_scales is given, but cast is None")
            return
        args.cast, args.scaleLayout = CASTS[cast], SCALE_LAYOUTS[scale_layout]
        if scale_layout == "128x4" and "float32" in SCALE_TYPES[cast]:
            raise ValueError(f"scale_layout is '128x4', but cast is {cast!r}, whose scales have 4 bytes, not one")
        found = self._take(out_scales, "out_scales", SCALE_TYPES[cast], writes=True)
        args.outScales = found.address
        if not found.is_array:
            return
        rows = count_scales(self._layout, found, cast, format.hidden, scale_layout, self._capacity, self._least())
        if rows is not None:
            self._place_for(rows)

    def _set_block_offsets(self, args: _native.moeDispatchArgs_t, given: Any, blocked: bool) -> None:
        if given is not None and not (blocked and self._layout.name == "expert-major"):
            raise ValueError(
                "out_scale_block_offsets is given, but is for expert-major with scales or a payload in '128x4'"
            )
        found = self._take(given, "out_scale_block_offsets", ("int32",), writes=True)
        require_shape(found, "out_scale_block_offsets", (self._layout.local_experts + 1,), "[local experts + 1]")
        args.outScaleBlockOffsets = found.address

    def _set_factors(
        self, args: _native.moeDispatchArgs_t, cast: Optional[str], input_scale: Any, global_scale: Any
    ) -> None:
        if input_scale is not None and cast is None:
            raise ValueError("input_scale is given, but cast is None")
        if global_scale is not None and cast != "nvfp4":
            raise ValueError(f"global_scale is given, but cast is {cast!r}, expected 'nvfp4'")
        args.inputScale = self._factor(input_scale, "input_scale")
        args.globalScale = self._factor(global_scale, "global_scale")

    def _factor(self, given: Any, what: str) -> int:
        found = self._take(given, what, ("float32",))
        if found.is_array and math.prod(found.shape) != 1:
            raise ValueError(f"{what} has shape {found.shape}, expected one number")
        return found.address
