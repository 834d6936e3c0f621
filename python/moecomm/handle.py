"""Handles: a route, and dispatch and combine along it."""

import ctypes
from collections import namedtuple

from . import _native, errors
from .arrays import address, shape_of, stream_address

LAYOUTS = {
    "flat": _native.moeLayoutFlat,
    "expert-major": _native.moeLayoutExpertMajor,
    "expert-major-padded": _native.moeLayoutExpertMajorPadded,
    "rank-major": _native.moeLayoutRankMajor,
}
HANDLE_MODES = {"auto": _native.moeModeAuto, "ht": _native.moeModeHt, "ll": _native.moeModeLl}
INDEX_TYPES = {"int32": _native.moeIndexInt32, "int64": _native.moeIndexInt64}
ROW_TYPES = {
    "bytes": _native.moeRowBytes,
    "bfloat16": _native.moeRowBf16,
    "float16": _native.moeRowFp16,
    "float32": _native.moeRowFp32,
}
WEIGHTS = {"applied": _native.moeWeightsApplied, "apply": _native.moeWeightsApply}
CASTS = {None: _native.moeCastNone, "fp8": _native.moeCastFp8, "fp8-ue8m0": _native.moeCastFp8Ue8m0}
SCALE_LAYOUTS = {
    "row-major": _native.moeScalesRowMajor,
    "token-contiguous": _native.moeScalesTokenContiguous,
}

Counts = namedtuple("Counts", "rows layout_rows local_experts first_expert rows_per_rank rows_per_expert")
DeviceCounts = namedtuple("DeviceCounts", "rows rank_offsets rows_per_expert expert_offsets")
HandleView = namedtuple("HandleView", "rows side combine_rows")
Arrivals = namedtuple("Arrivals", "words failed")
ARRIVAL_SHIFT = 24


def _dtype_name(array):
    """"float32" for numpy and torch alike; None for addresses."""
    dtype = getattr(array, "dtype", None)
    return str(dtype).rpartition(".")[2] if dtype is not None else None


def _row_type(rows, given):
    if given is not None:
        return ROW_TYPES[given]
    name = _dtype_name(rows)
    if name is None:
        raise TypeError("row_type is needed where rows is an address or None")
    return ROW_TYPES.get(name, _native.moeRowBytes)


def _width(array, given, name):
    """The extent of the last axis, unless it is given."""
    if given is not None:
        return given
    shape = shape_of(array)
    if not shape:
        raise TypeError(f"{name} is needed where the rows are an address or None")
    return shape[-1]


def _expect(array, names, what):
    found = _dtype_name(array)
    if found is not None and found not in names:
        raise TypeError(f"{what} holds {found}, expected {' or '.join(names)}")
    return address(array, what)


class Handle:
    """Made by Communicator.handle. `layout` is "flat", "expert-major", "expert-major-padded" or "rank-major"; `mode`
    "auto", "ht" or "ll"; `index_type` "int32" or "int64". `arrivals`, of expert-major layouts: see arrivals().

    Arrays are device memory with the cuda backend, host memory with the host backend: numpy arrays, tensors, objects
    with __dlpack__, or addresses. With the cuda backend the calls only queue work on `stream` (an int, a
    torch.cuda.Stream, None for the default stream); keep the arrays alive until it has run."""

    def __init__(
        self,
        comm,
        experts,
        topk,
        layout="flat",
        mode="auto",
        tokens_max=0,
        expert_alignment=0,
        index_type="int32",
        arrivals=False,
    ):
        from .comm import library  # comm imports this module

        self._library = library()
        self._comm = comm
        self.pointer = None
        self.topk = topk
        self.layout = layout
        self._index_type = index_type
        config = _native.moeHandleConfig_t(
            experts=experts,
            topk=topk,
            layout=LAYOUTS[layout],
            mode=HANDLE_MODES[mode],
            tokensMax=tokens_max,
            expertAlignment=expert_alignment,
            indexType=INDEX_TYPES[index_type],
            arrivals=1 if arrivals else 0,
        )
        pointer = _native.moeHandle_t()
        self._check(self._library.moeHandleCreate(ctypes.byref(pointer), comm.pointer, ctypes.byref(config)))
        self.pointer = pointer.value

    def _check(self, result):
        errors.check(self._library, result, self._comm.pointer)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.destroy()

    def destroy(self):
        """Frees the handle. All work that uses it must have run. The communicator's destroy does it too."""
        pointer, self.pointer = self.pointer, None
        if pointer and self._comm.pointer:
            self._check(self._library.moeHandleDestroy(pointer))

    def route(self, topk_idx, topk_weights=None, tokens=None, stream=None):
        """Decides who gets which token. Collective.

        topk_idx      [tokens, topk] global expert of the handle's index type, -1 = unused
        topk_weights  [tokens, topk] float32, or None for 1.0 everywhere
        tokens        needed where topk_idx is an address or None"""
        if tokens is None:
            shape = shape_of(topk_idx)
            if shape is None or len(shape) != 2 or shape[1] != self.topk:
                raise ValueError(f"topk_idx: shape {shape}, expected [tokens, {self.topk}]")
            tokens = shape[0]
        self._check(
            self._library.moeRoute(
                self.pointer,
                _expect(topk_idx, (self._index_type,), "topk_idx"),
                _expect(topk_weights, ("float32",), "topk_weights"),
                tokens,
                stream_address(stream),
            )
        )

    def counts(self):
        """Counts of what this rank receives. Waits for the last route; the lists are copies."""
        counts = _native.moeCounts_t()
        self._check(self._library.moeHandleGetCounts(self.pointer, ctypes.byref(counts)))
        return Counts(
            counts.rows,
            counts.layoutRows,
            counts.localExperts,
            counts.firstExpert,
            counts.rowsPerRank[: self._comm.nranks],
            counts.rowsPerExpert[: counts.localExperts],
        )

    def device_counts(self):
        """DeviceCounts: addresses of int32 on the device, [1], [nranks + 1], [local experts], [local experts + 1]. They
        stay the same; each route writes the counts, in stream order."""
        counts = self._device_counts()
        return DeviceCounts(counts.rows, counts.rankOffsets, counts.rowsPerExpert, counts.expertOffsets)

    @property
    def mode(self):
        """"ht" or "ll": what the handle uses, also where it was made with "auto"."""
        mode = self._device_counts().mode
        return next(name for name, value in HANDLE_MODES.items() if value == mode)

    def _device_counts(self):
        counts = _native.moeDeviceCounts_t()
        self._check(self._library.moeHandleGetDeviceCounts(self.pointer, ctypes.byref(counts)))
        return counts

    def arrivals(self):
        """Arrivals of a handle made with arrivals=True: addresses on the device. `words`, uint64 [local experts]: shifted
        right by ARRIVAL_SHIFT, the dispatches whose rows of an expert are complete, for kernels that run beside dispatch;
        `failed`, uint32 [1]: not 0: what is missing will not come. They stay the same: see moeHandleGetArrivals."""
        found = _native.moeArrivals_t()
        self._check(self._library.moeHandleGetArrivals(self.pointer, ctypes.byref(found)))
        return Arrivals(found.words, found.failed)

    def view(self):
        """HandleView of a low-latency rank-major handle: addresses of window memory on the device, [nranks, tokens_max]
        rows each. `rows` and `side` (None without side payloads) hold what came with a dispatch whose out_rows is None;
        `combine_rows` may be filled and passed to combine, which then copies nothing. They stay the same. They are the
        caller's from the end of dispatch until combine begins: see moeHandleGetView."""
        view = _native.moeHandleView_t()
        self._check(self._library.moeHandleGetView(self.pointer, ctypes.byref(view)))
        return HandleView(view.rows, view.side, view.combineRows)

    def dispatch(
        self,
        rows,
        out_rows,
        *,
        row_type=None,
        hidden=None,
        out_rows_max=None,
        side=None,
        side_bytes=0,
        out_side=None,
        out_topk_idx=None,
        out_topk_weights=None,
        out_source_index=None,
        out_expert_offsets=None,
        cast=None,
        out_scales=None,
        scale_layout="row-major",
        send_only=False,
        sms=0,
        stream=None,
    ):
        """Sends each token to the ranks of its experts, once per rank. Collective.

        rows      [tokens, hidden]
        out_rows  [out rows, hidden] in the handle's layout (its leading axes may be several). Low-latency rank-major
                  handles: None, with out_rows_max 0, leaves the rows in view().rows
        side      [tokens, side_bytes] carried along, to out_side [out rows, side_bytes]
        out_topk_idx, out_topk_weights, out_source_index, out_expert_offsets: as moeDispatchArgs_t
        row_type  "bfloat16", "float16", "float32" or "bytes"; taken from the dtype of rows if not given
        cast      low-latency handles: "fp8" or "fp8-ue8m0" casts the rows on their way. out_rows takes codes of one byte,
                  out_scales (float32; 32-bit words of four bytes with "fp8-ue8m0") the scales, "row-major" or
                  "token-contiguous" as moeDispatchArgs_t says
        out_rows_max  rows that out_rows can hold; needed where out_rows is an address or None"""
        hidden = _width(rows if shape_of(rows) else out_rows, hidden, "hidden")
        if out_rows_max is None:
            shape = shape_of(out_rows)
            if shape is None:
                raise TypeError("out_rows_max is needed where out_rows is an address or None")
            out_rows_max = 1
            for extent in shape[:-1]:
                out_rows_max *= extent
        args = _native.moeDispatchArgs_t(
            rows=address(rows, "rows"),
            rowType=_row_type(rows if _dtype_name(rows) else out_rows, row_type),
            hidden=hidden,
            side=address(side, "side"),
            sideBytes=side_bytes,
            flags=_native.moeSendOnly if send_only else 0,
            outRows=address(out_rows, "out_rows"),
            outSide=address(out_side, "out_side"),
            outRowsMax=out_rows_max,
            outTopkIdx=_expect(out_topk_idx, (self._index_type,), "out_topk_idx"),
            outTopkWeights=_expect(out_topk_weights, ("float32",), "out_topk_weights"),
            outSourceIndex=_expect(out_source_index, ("int32",), "out_source_index"),
            outExpertOffsets=_expect(out_expert_offsets, ("int32",), "out_expert_offsets"),
            sms=sms,
            cast=CASTS[cast],
            outScales=address(out_scales, "out_scales"),
            scaleLayout=SCALE_LAYOUTS[scale_layout] if cast is not None else 0,
        )
        self._check(self._library.moeDispatch(self.pointer, ctypes.byref(args), stream_address(stream)))

    def combine(
        self,
        rows,
        out,
        *,
        row_type=None,
        hidden=None,
        weights="applied",
        bias0=None,
        bias1=None,
        weight_grads=None,
        out_weight_grads=None,
        send_only=False,
        sms=0,
        stream=None,
    ):
        """Brings the experts' rows back and sums them for each token. Collective.

        rows     [out rows, hidden] in the layout that dispatch produced; view().combine_rows, or high-throughput window
                 memory in a layout with one row per token, is read without a copy
        out      [tokens, hidden]
        weights  "applied": a plain sum; "apply": each expert's row times its weight (expert-major layouts)
        bias0, bias1  [tokens, hidden] added to the sum
        weight_grads, out_weight_grads: as moeCombineArgs_t"""
        args = _native.moeCombineArgs_t(
            rows=address(rows, "rows"),
            rowType=_row_type(rows if _dtype_name(rows) else out, row_type),
            hidden=_width(rows if shape_of(rows) else out, hidden, "hidden"),
            weights=WEIGHTS[weights],
            flags=_native.moeSendOnly if send_only else 0,
            out=address(out, "out"),
            bias0=address(bias0, "bias0"),
            bias1=address(bias1, "bias1"),
            weightGrads=_expect(weight_grads, ("float32",), "weight_grads"),
            outWeightGrads=_expect(out_weight_grads, ("float32",), "out_weight_grads"),
            sms=sms,
        )
        self._check(self._library.moeCombine(self.pointer, ctypes.byref(args), stream_address(stream)))

    def complete(self, stream=None):
        """Finishes the send-only dispatch or combine of this handle. Collective."""
        self._check(self._library.moeComplete(self.pointer, stream_address(stream)))
