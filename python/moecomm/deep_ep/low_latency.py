"""low_latency_dispatch() and low_latency_combine() of Buffer."""

from __future__ import annotations

import functools
from typing import Any, Callable, Dict, Iterator, NamedTuple, Optional, Tuple, Union

import torch

from .. import errors
from ..handle import Handle
from ..names import CastType
from ..own_calls import OwnCombine, OwnDispatch
from ..parts import Cast, Describe
from ..torch.memory import form_of
from ..values import integer
from .checks import INDEX_TYPES, is_same, require, require_divisible
from .events import EventOverlap, Lane
from .routes import Route, RouteMaker, Routes, collective
from .taking_part import AT_ONCE, takes_part

Received = Union[torch.Tensor, Tuple[torch.Tensor, torch.Tensor]]
Hook = Optional[Callable[[], None]]
Tensors = Tuple[Optional[torch.Tensor], ...]
MakeTensor = Callable[[], torch.Tensor]


class LowLatencyHandle(tuple[Any, ...]):
    """The `handle` of low_latency_dispatch(), a tuple with DeepEP's entries:

    [0]  [local experts, ranks * num_max] int32: source token of each row. Each access makes it anew on torch's current
         stream. Access it only after the event or the hook, when the rows have arrived
    [1]  [local experts, ranks] int64: first row of each source << 32 | its rows. Each access makes a view
    [2], [3], [4]  num_max_dispatch_tokens_per_rank, hidden, num_experts

    It is good for configure()'s low_latency_in_flight dispatches of the same shape."""

    route: Route
    shape: _Shape
    words: torch.Tensor  # the arrays that describe the rows: see _Shape.words
    ids: _Seen  # of the dispatch
    weights: _Seen
    combine_buffer: Optional[torch.Tensor] = None

    @property
    def tokens(self) -> int:
        """The tokens that this rank sent."""
        return self.shape.tokens

    @property
    def places(self) -> Tuple[int, int]:
        """Local experts, and rows of each."""
        return self.shape.places

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return tuple(self)[index]
        if index in (0, -len(self)):
            return self.shape.sources(self.words) % self[2]  # the library has rank * num_max + token
        return self.shape.ranges(self.words) if index in (1, 1 - len(self)) else super().__getitem__(index)

    def __iter__(self) -> Iterator[Any]:
        return (self[index] for index in range(len(self)))


class _Shape(NamedTuple):
    """The values that follow from the forms of a dispatch's arguments, computed once per form.

    tokens, topk, hidden  of this rank's rows
    ranks        of the group
    places       [local experts, rows of each]
    cast         the type of the rows' cast, or None
    send_only    with a hook
    make_rows    makes the tensor for the rows that arrive
    make_scales  the same for their scales, if they have some
    make_sums    the same for the result of a combine
    make_words   the same for all arrays about the rows, since each tensor costs an engine host time: int32 with counts
                 from 0 on, ranges from ranges_at, sources from sources_at
    calls        the library's call, by what send() knows beside this shape"""

    maker: RouteMaker
    tokens: int
    topk: int
    hidden: int
    ranks: int
    places: Tuple[int, int]
    cast: Optional[CastType]
    send_only: bool
    make_rows: MakeTensor
    make_scales: Optional[MakeTensor]
    make_sums: MakeTensor
    make_words: MakeTensor
    ranges_at: int
    sources_at: int
    calls: Dict[Any, OwnDispatch]

    def counts(self, words: torch.Tensor) -> torch.Tensor:
        return words.as_strided(self.places[:1], (1,))  # in less time than a slice

    def send(
        self,
        native: Handle,
        stream: Any,
        x: torch.Tensor,
        ids: torch.Tensor,
        weights: Optional[torch.Tensor],
        words: torch.Tensor,
        stats: Optional[torch.Tensor],
        waits: Optional[torch.Tensor],
        rows: torch.Tensor,
        scales: Optional[torch.Tensor],
    ) -> None:
        """Handle.route_dispatch() for tensors of a known form."""
        key, at = (stats is None, waits is None), words.data_ptr()
        sources, ranges = at + 4 * self.sources_at, at + 4 * self.ranges_at
        call = self.calls.pop(key, None)
        if call is None:
            options: Dict[str, Any] = dict(send_only=self.send_only)
            if self.cast is not None and scales is not None:
                options["cast"] = Cast(self.cast, scales.transpose(1, 2), "token-contiguous")
            options["describe"] = Describe(
                out_source_index=sources,
                out_rows_per_expert=at,
                out_layout_range=ranges,
                cumulative_rows=stats,
                cumulative_wait_ns=waits,
            )
            call = OwnDispatch(native, self.tokens, x, rows, **options)
        addresses = [x.data_ptr(), rows.data_ptr()]
        if scales is not None:
            addresses.append(scales.data_ptr())
        addresses += sources, at, ranges
        for counter in (stats, waits):
            if counter is not None:
                addresses.append(counter.data_ptr())
        route = ids.data_ptr(), 0 if weights is None else weights.data_ptr(), self.tokens
        room = self.places[0] * self.places[1]
        queue = 0 if stream is None else stream.cuda_stream
        call.route_dispatch(native, *route, addresses, room, queue, (x, rows, scales, stats, waits, words))
        self.calls[key] = call

    def ranges(self, words: torch.Tensor) -> torch.Tensor:
        return words[self.ranges_at : self.sources_at].view(torch.int64).view(self.places[0], self.ranks)

    def sources(self, words: torch.Tensor) -> torch.Tensor:
        return words[self.sources_at :].view(self.places)


def _tensor_maker(
    device: torch.device, dtype: torch.dtype, shape: Tuple[int, ...], strides: Tuple[int, ...]
) -> MakeTensor:
    """Makes tensors of this shape. torch.empty would take longer to read the same arguments."""
    return functools.partial(torch.empty_strided, shape, strides, dtype=dtype, device=device)


def _sum(
    calls: Dict[Any, OwnCombine],
    tokens: int,
    native: Handle,
    stream: Any,
    use_logfmt: bool,
    send_only: bool,
    *tensors: Optional[torch.Tensor],
) -> None:
    """Handle.combine() for tensors of a known form: x, out, weights, waits. `calls`: those of the form."""
    x, out, weights, waits = tensors
    key = (weights is None, waits is None)
    call = calls.pop(key, None)
    if call is None:
        options: Any = dict(weights="apply", topk_weights=weights, cumulative_wait_ns=waits, send_only=send_only)
        call = OwnCombine(native, tokens, x, out, wire="logfmt10" if use_logfmt else "row", **options)
    addresses = [one.data_ptr() for one in tensors if one is not None]
    call.combine(native, addresses, 0 if stream is None else stream.cuda_stream, tensors)
    calls[key] = call


class _Seen(NamedTuple):
    """A tensor, and how often torch has written it."""

    tensor: Optional[torch.Tensor]
    version: int

    def is_still(self, tensor: torch.Tensor) -> bool:
        return self.tensor is not None and is_same(tensor, self.tensor) and _version(tensor) == self.version


_NOTHING_SEEN = _Seen(None, 0)


def _version(tensor: torch.Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


def _require_ll_handle(handle: Any) -> LowLatencyHandle:
    if not isinstance(handle, LowLatencyHandle):
        raise TypeError(f"handle is a {type(handle).__name__}, expected what low_latency_dispatch() returned")
    return handle


class LowLatency:
    """The part of Buffer for decoding."""

    rank: int
    group_size: int
    device: torch.device
    lane: Lane
    routes: Routes

    # ---- Low latency -------------------------------------------------------------------------------------------------

    @collective
    def clean_low_latency_buffer(self, num_max_dispatch_tokens_per_rank: int, hidden: int, num_experts: int) -> None:
        """Makes what low_latency_dispatch() of these sizes needs, so that a later capture finds the memory. Nothing
        needs cleaning. Collective. Handles depend on topk too, so the first dispatch of a shape still makes them.

        num_max_dispatch_tokens_per_rank  the most tokens of a rank
        hidden       elements of a row, bfloat16
        num_experts  of all ranks together, a multiple of the ranks"""
        require_divisible(integer(num_experts, "num_experts", 1), self.group_size)
        self.routes.low_latency_group(num_max_dispatch_tokens_per_rank, hidden, num_experts, 8)

    @takes_part(lambda _: AT_ONCE, handle_at=2)
    def low_latency_dispatch(
        self,
        x: torch.Tensor,
        topk_idx: torch.Tensor,
        num_max_dispatch_tokens_per_rank: int,
        num_experts: int,
        cumulative_local_expert_recv_stats: Optional[torch.Tensor] = None,
        dispatch_wait_recv_cost_stats: Optional[torch.Tensor] = None,
        use_fp8: bool = True,
        round_scale: bool = False,
        use_ue8m0: bool = False,
        async_finish: bool = False,
        return_recv_hook: bool = False,
        topk_weights: Optional[torch.Tensor] = None,
    ) -> Tuple[Received, torch.Tensor, LowLatencyHandle, EventOverlap, Hook]:
        """Sends tokens to their experts. Collective. Nothing waits on the host, so it may be captured, once a dispatch
        of the shape has made its handles.

        x         [tokens, hidden] bfloat16; a multiple of 128 elements with use_fp8
        topk_idx  [tokens, topk] int64 or int32: global expert, -1 = unused. An expert that a token names again counts
                  once, with the sum of its weights
        num_max_dispatch_tokens_per_rank  the most tokens of a rank, alike on all ranks
        num_experts  of all ranks together, a multiple of the ranks
        cumulative_local_expert_recv_stats  [local experts] int32, to which the rows of each expert are added; or None
        dispatch_wait_recv_cost_stats       [ranks] or [ranks, ranks] int64, to which (to whose row of this rank) the
                  nanoseconds waited for each rank are added; or None
        use_fp8      cast to float8_e4m3fn, a scale for 128 elements
        round_scale  powers of two as scales
        use_ue8m0    these as bytes, four in an int32; only with round_scale
        async_finish      the current stream does not wait; the event does
        return_recv_hook  only sends, on the current stream. hook() receives, on the stream that is current then
        topk_weights      [tokens, topk] float32, on all ranks or on none; DeepEP has no such argument. The weights travel
                  with the rows. low_latency_combine() must get the same two tensors, unchanged; it saves an exchange
                  between the ranks, and nothing waits before its hook

        Returns recv_x [local experts, ranks * num_max, hidden], with use_fp8 a pair with scales [local experts, ranks *
        num_max, hidden / 128] float32 ([.., hidden / 512 rounded up] int32 with use_ue8m0), of which the last but one
        axis is contiguous; recv_count [local experts] int32; the handle; the event; the hook, or None. Rows of an
        expert are ordered by source rank, then token; those behind recv_count are not written."""
        form: Tuple[Any, ...] = (num_max_dispatch_tokens_per_rank, num_experts, use_fp8, round_scale, use_ue8m0)
        form = (*form, async_finish, return_recv_hook, form_of(x), form_of(topk_idx), form_of(topk_weights))
        shape = self.routes.known.get(form)
        if shape is None:
            shape = self._ll_shape(x, topk_idx, topk_weights, *form[:7])
            self.routes.known.keep(form, shape)
        maker, places = shape.maker, shape.places
        stats, waits = cumulative_local_expert_recv_stats, dispatch_wait_recv_cost_stats
        if stats is not None:
            stats = self._row_stats(stats, places[0])
        if waits is not None:
            waits = self._wait_stats(waits, "dispatch_wait_recv_cost_stats")
        route, native = maker.next()
        stream = self.lane.start(maker.ring.comm, None, async_finish)
        words, rows = shape.make_words(), shape.make_rows()
        scales = None if shape.make_scales is None else shape.make_scales()
        tensors = (x, topk_idx, topk_weights, words, stats, waits, rows, scales)
        try:
            shape.send(native, stream, *tensors)
        except Exception as error:  # noqa: B902
            native.take_part("route_dispatch", error, stream)
            raise
        maker.commit()
        handle = LowLatencyHandle((None, None, form[0], shape.hidden, num_experts))
        handle.route, handle.shape, handle.words = route, shape, words
        handle.ids = _Seen(topk_idx, _version(topk_idx))
        handle.weights = _NOTHING_SEEN if topk_weights is None else _Seen(topk_weights, _version(topk_weights))
        received: Received = rows if scales is None else (rows, scales)
        event, hook = self._end(native, route, stream, tensors, async_finish, return_recv_hook)
        return received, shape.counts(words), handle, event, hook

    def _ll_shape(
        self,
        x: torch.Tensor,
        topk_idx: torch.Tensor,
        topk_weights: Optional[torch.Tensor],
        num_max: int,
        num_experts: int,
        use_fp8: bool,
        round_scale: bool,
        use_ue8m0: bool,
        async_finish: bool,
        hook: bool,
    ) -> _Shape:
        """Checks the arguments of a dispatch whose form is new."""
        num_max = integer(num_max, "num_max_dispatch_tokens_per_rank", 1)
        local = require_divisible(integer(num_experts, "num_experts", 1), self.group_size)
        require(x, "x", "[tokens, hidden]", (None, None), (torch.bfloat16,), self.device)
        tokens, hidden = x.shape
        require(topk_idx, "topk_idx", "[tokens, topk]", (tokens, None), tuple(INDEX_TYPES), self.device)
        self._require_modes(use_fp8, round_scale, use_ue8m0, hidden, async_finish, hook)
        topk = topk_idx.shape[1]
        if topk_weights is not None:
            require(topk_weights, "topk_weights", "[tokens, topk]", (tokens, topk), (torch.float32,), self.device)
        maker = self.routes.low_latency(num_max, hidden, num_experts, topk, INDEX_TYPES[topk_idx.dtype], topk_weights is not None)
        places = (local, self.group_size * num_max)
        make_rows = self._rows_maker(places, hidden, torch.float8_e4m3fn if use_fp8 else torch.bfloat16)
        ranges_at = local + local % 2  # aligned to 8 bytes
        sources_at = ranges_at + 2 * local * self.group_size
        make_words = _tensor_maker(self.device, torch.int32, (sources_at + local * places[1],), (1,))
        cast: Optional[CastType] = None
        make_scales: Optional[MakeTensor] = None
        if use_fp8:
            words, word = (-(-hidden // 512), torch.int32) if use_ue8m0 else (hidden // 128, torch.float32)
            cast = "fp8-ue8m0" if use_ue8m0 else "fp8-pow2" if round_scale else "fp8"
            make_scales = _tensor_maker(self.device, word, (*places, words), (words * places[1], 1, places[1]))
        make_sums = _tensor_maker(self.device, torch.bfloat16, (tokens, hidden), (hidden, 1))
        made = (cast, hook, make_rows, make_scales, make_sums, make_words)
        return _Shape(maker, tokens, topk, hidden, self.group_size, places, *made, ranges_at, sources_at, {})

    def _rows_maker(self, places: Tuple[int, int], hidden: int, dtype: torch.dtype) -> MakeTensor:
        return _tensor_maker(self.device, dtype, (*places, hidden), (places[1] * hidden, hidden, 1))

    @takes_part(lambda _: ("combine",))
    def low_latency_combine(
        self,
        x: torch.Tensor,
        topk_idx: torch.Tensor,
        topk_weights: torch.Tensor,
        handle: LowLatencyHandle,
        use_logfmt: bool = False,
        zero_copy: bool = False,
        async_finish: bool = False,
        return_recv_hook: bool = False,
        out: Optional[torch.Tensor] = None,
        combine_wait_recv_cost_stats: Optional[torch.Tensor] = None,
    ) -> Tuple[torch.Tensor, EventOverlap, Hook]:
        """Sums each token's rows times their weights, in fp32 and in a fixed order. Collective.

        x             [local experts, ranks * num_max, hidden] bfloat16, ordered as recv_x
        topk_idx      that of the dispatch. Another tensor leaves out entries where it has -1: their weights count as 0
        topk_weights  [tokens, topk] float32. If the dispatch got weights, topk_idx and topk_weights must be its tensors;
                      else the half before the hook waits until all ranks have called
        use_logfmt    rows travel as LogFMT-10, in two thirds of the bytes. Alike on all ranks
        zero_copy     the rows are in get_next_low_latency_combine_buffer(handle), and x is not read
        out           [tokens, hidden] bfloat16 for the result; or None
        combine_wait_recv_cost_stats  as dispatch_wait_recv_cost_stats
        async_finish, return_recv_hook  as in low_latency_dispatch

        Returns combined_x [tokens, hidden], the event, and the hook or None."""
        shape = _require_ll_handle(handle).shape
        if zero_copy:
            if handle.combine_buffer is None:
                raise ValueError("zero_copy is True, but get_next_low_latency_combine_buffer(handle) was not called")
            x = handle.combine_buffer
        form: Tuple[Any, ...] = ("combine", shape.tokens, shape.topk, shape.hidden, shape.places, use_logfmt)
        arrays = (form_of(x), form_of(topk_idx), form_of(topk_weights), form_of(out))
        form = (*form, async_finish, return_recv_hook, *arrays)
        calls = self.routes.known.get(form)
        if calls is None:
            self._require_combine(shape, x, topk_idx, topk_weights, use_logfmt, async_finish, return_recv_hook, out)
            calls = {}
            self.routes.known.keep(form, calls)
        for given, seen, name in ((topk_idx, handle.ids, "topk_idx"), (topk_weights, handle.weights, "topk_weights")):
            if handle.weights.tensor is not None and not seen.is_still(given):
                raise ValueError(f"{name} is not that of the dispatch, which got topk_weights, or was written since then")
        waits = combine_wait_recv_cost_stats
        if waits is not None:
            waits = self._wait_stats(waits, "combine_wait_recv_cost_stats")
        if out is None:
            out = shape.make_sums()
        native, route = handle.route.handle(), handle.route
        stream = self.lane.start(route.ring.comm, None, async_finish)
        weights = None if handle.weights.tensor is not None else topk_weights
        if weights is not None and not handle.ids.is_still(topk_idx):
            with self.lane.on(stream):
                weights = topk_weights.masked_fill(topk_idx < 0, 0.0)
        try:
            _sum(calls, shape.tokens, native, stream, use_logfmt, return_recv_hook, x, out, weights, waits)
        except Exception as error:  # noqa: B902
            wire = "logfmt10" if use_logfmt else "row"
            native.take_part("combine", error, stream, {"rows": x, "out": out, "wire": wire})
            raise
        tensors = (x, topk_idx, topk_weights, out, waits)
        event, hook = self._end(native, route, stream, tensors, async_finish, return_recv_hook)
        return out, event, hook

    def _require_combine(
        self,
        shape: _Shape,
        x: torch.Tensor,
        topk_idx: torch.Tensor,
        topk_weights: torch.Tensor,
        use_logfmt: bool,
        async_finish: bool,
        return_recv_hook: bool,
        out: Optional[torch.Tensor],
    ) -> None:
        """Checks the arguments of a combine whose form is new."""
        tokens, hidden, entries = shape.tokens, shape.hidden, (shape.tokens, shape.topk)
        places = (*shape.places, hidden)
        require(x, "x", "[local experts, ranks * num_max, hidden]", places, (torch.bfloat16,), self.device)
        require(topk_idx, "topk_idx", "[tokens, topk]", entries, tuple(INDEX_TYPES), self.device)
        require(topk_weights, "topk_weights", "[tokens, topk]", entries, (torch.float32,), self.device)
        self._require_one(async_finish, return_recv_hook)
        if use_logfmt and hidden % 128:
            raise ValueError(f"x has rows of {hidden} elements, expected a multiple of 128 with use_logfmt")
        if out is not None:
            require(out, "out", "[tokens, hidden]", (tokens, hidden), (torch.bfloat16,), self.device)

    def get_next_low_latency_combine_buffer(self, handle: LowLatencyHandle) -> torch.Tensor:
        """[local experts, ranks * num_max, hidden] bfloat16, for the rows of a combine with zero_copy. It is ordinary
        memory that lives as long as the handle: combine still sends from it, and saves no copy."""
        buffer = _require_ll_handle(handle).combine_buffer
        if buffer is None:
            shape = (*handle.places, handle[3])
            buffer = handle.combine_buffer = torch.empty(shape, dtype=torch.bfloat16, device=self.device)
        return buffer

    # ---- Parts -------------------------------------------------------------------------------------------------------

    def _require_one(self, async_finish: bool, return_recv_hook: bool) -> None:
        if async_finish and return_recv_hook:
            raise ValueError("async_finish and return_recv_hook are True, expected one of them")

    def _require_modes(
        self, use_fp8: bool, round_scale: bool, use_ue8m0: bool, hidden: int, async_finish: bool, hook: bool
    ) -> None:
        self._require_one(async_finish, hook)
        if use_ue8m0 and not round_scale:
            raise ValueError("use_ue8m0 is True, but round_scale is False: such scales are powers of two")
        if round_scale and not use_fp8:
            raise ValueError("round_scale is True, but use_fp8 is False")
        if use_fp8 and hidden % 128:
            raise ValueError(f"x has rows of {hidden} elements, expected a multiple of 128 with use_fp8")

    def _row_stats(self, stats: torch.Tensor, local: int) -> torch.Tensor:
        name = "cumulative_local_expert_recv_stats"
        return require(stats, name, "[local experts]", (local,), (torch.int32,), self.device)

    def _wait_stats(self, stats: torch.Tensor, name: str) -> torch.Tensor:
        ranks = self.group_size
        if isinstance(stats, torch.Tensor) and stats.dim() == 2:
            return require(stats, name, "[ranks, ranks]", (ranks, ranks), (torch.int64,), self.device)[self.rank]
        return require(stats, name, "[ranks]", (ranks,), (torch.int64,), self.device)

    def _end(
        self,
        native: Handle,
        route: Route,
        stream: Any,
        tensors: Tuple[Optional[torch.Tensor], ...],
        async_finish: bool,
        return_recv_hook: bool,
    ) -> Tuple[EventOverlap, Hook]:
        if not return_recv_hook:
            return self.lane.finish(stream, async_finish, tensors), None

        kept = tensors  # until the second half has been queued
        comm = route.ring.comm

        def hook() -> None:
            nonlocal kept
            current = self.lane.start(comm, None)
            try:
                native.complete(stream=current)
            except errors.MoeError as error:
                self.routes.explain(error, [route.group])
                raise
            kept = ()

        return EventOverlap(), hook
