"""The arguments of dispatch, checked."""

from __future__ import annotations

import ctypes
import math
from typing import Any, Optional, Sequence

from . import _native
from .arguments import Arguments, require_kind
from .arrays import Array
from .casts import CASTS, SCALE_TYPES, code_bytes, code_types, is_packed, scale_words
from .checks import ROW_TYPES, RowFormat, row_format
from .layouts import SCALE_LAYOUTS, count_words
from .parts import Cast, Describe, Payload
from .payloads import BY_ROWS, MOST, Least, make_payload
from .values import INT64_MAX, choice, integer

ID_KINDS = {"local": _native.moeIdsLocal, "global": _native.moeIdsGlobal}


def cast_type(cast: Any) -> Optional[str]:
    """The name of a cast, checked; None: there is none."""
    if cast is None:
        return None
    choice(CASTS, require_kind(cast, Cast, "cast").type, "cast.type")
    return str(cast.type)


class DispatchArguments(Arguments):
    """`_capacity` is the number of rows for which every output has room. The library gets it."""

    _capacity: int

    def make(
        self,
        rows: Any,
        out_rows: Any,
        *,
        row_type: Optional[str],
        hidden: Optional[int],
        out_rows_max: Optional[int],
        cast: Optional[Cast],
        describe: Optional[Describe],
        payloads: Sequence[Payload],
        pad_indices: bool,
        pad_rows: bool,
        send_only: bool,
        sms: int,
        index_type: str,
        stays_in_view: bool,
    ) -> _native.moeDispatchArgs_t:
        """Builds moeDispatchArgs_t from the keywords of Handle.dispatch. `index_type` is the handle's. `stays_in_view`:
        rows may stay where they arrive."""
        codes = cast_type(cast)
        source, out = self._take(rows, "rows"), self._take(out_rows, "out_rows", writes=True)
        format = self._row_format(source, out, row_type, hidden, codes)
        args = _native.moeDispatchArgs_t(
            rows=self._per_token(source, "rows", format),
            rowType=ROW_TYPES[format.name],
            hidden=format.hidden,
            flags=_native.moeSendOnly if send_only else 0,
            sms=integer(sms, "sms"),
            outRows=out.address,
            padding=(_native.moePadIndices if pad_indices else 0) | (_native.moePadRows if pad_rows else 0),
        )
        self._pads = pad_indices or pad_rows
        self._require_output(out, format, codes)
        self._capacity = self._rows_of_output(out, out_rows_max, stays_in_view)
        self._set_payloads(args, payloads)
        layouts = [payload.layout for payload in payloads] + ([] if cast is None else [cast.scale_layout])
        if describe is not None:
            self._set_describe(args, require_kind(describe, Describe, "describe"), index_type, "128x4" in layouts)
        if cast is not None:
            self._set_cast(args, cast, format)
        args.outRowsMax = self._capacity
        return args

    # ---- Rows --------------------------------------------------------------------------------------------------------

    def _place_for(self, rows: int) -> None:
        """Notes that an output has room for this many rows. The room does not matter if the number of rows is known and
        no further rows are written."""
        self._note_room(rows)
        if self._least() is None or self._pads:
            self._capacity = min(self._capacity, rows)

    def _row_format(
        self, source: Array, out: Array, row_type: Optional[str], hidden: Optional[int], codes: Optional[str]
    ) -> RowFormat:
        if codes is None or source.is_array:
            return row_format((("rows", source), ("out_rows", out)), row_type, hidden)
        if row_type is None:
            raise TypeError("row_type is needed where rows is an address or None and cast is given")
        if hidden is None and out.shape:
            hidden = out.shape[-1] * (2 if is_packed(codes) else 1)
        return row_format((), row_type, hidden)

    def _require_output(self, out: Array, format: RowFormat, codes: Optional[str]) -> None:
        if codes is None:
            return format.require(out, "out_rows")
        if not out.is_array:
            return None
        types, count = code_types(codes), code_bytes(codes, format.hidden)
        if out.dtype not in types:
            raise TypeError(f"out_rows holds {out.dtype}, expected {' or '.join(types)}, for the codes of a cast")
        if out.shape[-1:] != (count,):
            what = "bytes, one for two codes" if is_packed(codes) else "codes, one per element"
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

    # ---- Payloads ----------------------------------------------------------------------------------------------------

    def _set_payloads(self, args: _native.moeDispatchArgs_t, payloads: Sequence[Payload]) -> None:
        if isinstance(payloads, Payload):
            raise TypeError("payloads is a Payload, expected a sequence of them")
        if len(payloads) > MOST:
            raise ValueError(f"payloads has {len(payloads)} of them, expected at most {MOST}")
        if not payloads:
            return
        made = (_native.moePayload_t * len(payloads))()
        for i, payload in enumerate(payloads):
            made[i] = self._payload(require_kind(payload, Payload, f"payloads[{i}]"), f"payloads[{i}]", args)
        args.payloads, args.payloadCount = made, len(payloads)

    def _payload(self, payload: Payload, what: str, args: _native.moeDispatchArgs_t) -> _native.moePayload_t:
        source = self._take(payload.rows, f"{what}.rows", strided=True)
        out = self._take(payload.out, f"{what}.out", writes=True, strided=payload.layout in BY_ROWS)
        if not source.given and self.tokens > 0:
            raise ValueError(f"{what}.rows is None, expected [tokens, elements] with {self.tokens} tokens")
        if not out.given and args.outRows and self._capacity > 0:
            raise ValueError(f"{what}.out is None, expected an array, since out_rows is given")
        least = Least(self._capacity, self._least())
        made: _native.moePayload_t
        made, rows = make_payload(source, out, payload, what, self.tokens, self._layout, least)
        if rows is not None:
            self._place_for(rows)
        return made

    # ---- Arrays that describe the rows -------------------------------------------------------------------------------

    def _set_describe(
        self, args: _native.moeDispatchArgs_t, given: Describe, index_type: str, blocked: bool
    ) -> None:
        """`blocked`: scales or a payload lie in blocks."""
        self._require_in_layout(given, blocked)
        made = _native.moeDescribe_t(
            idKind=choice(ID_KINDS, given.ids, "describe.ids"),
            invalidId=integer(given.invalid_id, "describe.invalid_id", -(2**31)),
        )
        if made.invalidId == 0:
            raise ValueError("describe.invalid_id is 0, which is an expert")
        layout, local = self._layout, self._layout.local_experts
        made.outTopkIdx = self._describing(given.out_topk_idx, "out_topk_idx", index_type, layout.count_entries)
        made.outTopkWeights = self._describing(
            given.out_topk_weights, "out_topk_weights", "float32", layout.count_entries
        )
        made.outSourceIndex = self._describing(
            given.out_source_index, "out_source_index", "int32", layout.count_plain
        )
        made.outRowExperts = self._describing(given.out_row_experts, "out_row_experts", "int32", layout.count_plain)
        for field, array, what in (
            ("outExpertOffsets", given.out_expert_offsets, "describe.out_expert_offsets"),
            ("outBlockOffsets", given.out_block_offsets, "describe.out_block_offsets"),
        ):
            setattr(made, field, self._of_shape(array, what, "int32", (local + 1,), "[local experts + 1]"))
        made.outLayoutRange = self._of_shape(
            given.out_layout_range, "describe.out_layout_range", "int64", (local, layout.nranks), "[local experts, nranks]"
        )
        for field, array, what in (
            ("outRowsPerExpert", given.out_rows_per_expert, "describe.out_rows_per_expert"),
            ("cumulativeRows", given.cumulative_rows, "describe.cumulative_rows"),
        ):
            setattr(made, field, self._of_shape(array, what, "int32", (local,), "[local experts]"))
        made.cumulativeWaitNs = self._wait_counter(given.cumulative_wait_ns, "describe.cumulative_wait_ns")
        args.describe = ctypes.pointer(made)

    def _require_in_layout(self, given: Describe, blocked: bool) -> None:
        name = self._layout.name
        for what, array, there in (
            ("out_topk_idx", given.out_topk_idx, not self._layout.by_expert),
            ("out_expert_offsets", given.out_expert_offsets, name == "expert-major"),
        ):
            if array is not None and not there:
                raise ValueError(f"describe.{what} is given, but the layout {name} has none: expected None")
        for what, array in (("out_layout_range", given.out_layout_range), ("out_row_experts", given.out_row_experts)):
            if array is not None and not self._layout.by_expert:
                raise ValueError(f"describe.{what} is given, but the layout {name} has no row per expert")
        if given.out_block_offsets is not None and not (blocked and name == "expert-major"):
            raise ValueError(
                "describe.out_block_offsets is given, but is for expert-major with scales or a payload in '128x4'"
            )

    def _describing(self, array: Any, what: str, dtype: str, count: Any) -> int:
        """The address of an array with an entry for each out row."""
        found = self._take(array, f"describe.{what}", (dtype,), writes=True)
        if found.is_array:
            self._place_for(count(found, f"describe.{what}", self._least()))
        return found.address

    # ---- The cast ----------------------------------------------------------------------------------------------------

    def _set_cast(self, args: _native.moeDispatchArgs_t, cast: Cast, format: RowFormat) -> None:
        made = _native.moeCast_t(
            type=CASTS[cast.type],
            scaleLayout=choice(SCALE_LAYOUTS, cast.scale_layout, "cast.scale_layout"),
            flags=(_native.moeCastExact if cast.exact else 0)
            | (_native.moeWeightsOnInput if cast.weights_on_input else 0),
        )
        if cast.scale_layout == "128x4" and "float32" in SCALE_TYPES[cast.type]:
            raise ValueError(
                f"cast.scale_layout is '128x4', but cast.type is {cast.type!r}, whose scales have 4 bytes, not one"
            )
        scales = self._take(cast.out_scales, "cast.out_scales", SCALE_TYPES[cast.type], writes=True)
        made.outScales = scales.address
        if scales.is_array:
            words = scale_words(cast.type, format.hidden)
            least = self._least()
            rows = count_words(
                self._layout, scales, "cast.out_scales", words, cast.scale_layout, self._capacity, least
            )
            if rows is not None:
                self._place_for(rows)
        if cast.global_scale is not None and cast.type != "nvfp4":
            raise ValueError(f"cast.global_scale is given, but cast.type is {cast.type!r}, expected 'nvfp4'")
        made.inputScale = self._factor(cast.input_scale, "cast.input_scale")
        made.globalScale = self._factor(cast.global_scale, "cast.global_scale")
        args.cast = ctypes.pointer(made)

    def _factor(self, given: Any, what: str) -> int:
        found = self._take(given, what, ("float32",))
        if found.is_array and math.prod(found.shape) != 1:
            raise ValueError(f"{what} has shape {found.shape}, expected one number")
        return found.address
