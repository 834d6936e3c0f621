"""low_latency_dispatch() and low_latency_combine() of Buffer."""

from __future__ import annotations

from typing import Any, Callable, Iterator, Optional, Tuple, Union

import torch

from .. import errors
from ..handle import Handle
from ..torch.memory import order_of, rows_per_expert
from ..values import integer
from .checks import INDEX_TYPES, require, require_divisible
from .events import EventOverlap, Lane
from .routes import Route, Routes, collective
from .taking_part import AT_ONCE, takes_part

Received = Union[torch.Tensor, Tuple[torch.Tensor, torch.Tensor]]
Hook = Optional[Callable[[], None]]


class LowLatencyHandle(tuple):
    """The `handle` of low_latency_dispatch(), a tuple with DeepEP's entries:

    [0]  [local experts, ranks * num_max] int32: source token of each row. Made anew by each access, on torch's current
         stream, so only once the rows have come: behind the event or the hook
    [1]  [local experts, ranks] int64: first row of each source << 32 | its rows
    [2], [3], [4]  num_max_dispatch_tokens_per_rank, hidden, num_experts

    It is good for configure()'s low_latency_in_flight dispatches of the same shape."""

    route: Route
    tokens: int
    topk: int
    combine_buffer: Optional[torch.Tensor]

    @property
    def places(self) -> Tuple[int, int]:
        """Local experts, and rows of each."""
        experts, rows = super().__getitem__(0).shape
        return experts, rows

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return tuple(self)[index]
        found = super().__getitem__(index)
        return found % self[2] if index in (0, -len(self)) else found  # the library has rank * num_max + token

    def __iter__(self) -> Iterator[Any]:
        return (self[index] for index in range(len(self)))


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

    @collective
    def clean_low_latency_buffer(self, num_max_dispatch_tokens_per_rank: int, hidden: int, num_experts: int) -> None:
        """Makes what low_latency_dispatch() of these sizes needs, so that a later capture finds the memory. Nothing
        needs cleaning. Collective. Handles depend on topk too, so the first dispatch of a shape still makes them."""
        require_divisible(integer(num_experts, "num_experts", 1), self.group_size)
        self.routes.low_latency_group(num_max_dispatch_tokens_per_rank, hidden, num_experts, 8)

    @collective
    @takes_part(lambda _: AT_ONCE)
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
    ) -> Tuple[Received, torch.Tensor, LowLatencyHandle, EventOverlap, Hook]:
        """Sends tokens to their experts. Collective. Nothing waits on the host, so it may be captured, once a dispatch
        of the shape has made its handles.

        x         [tokens, hidden] bfloat16; a multiple of 128 elements with use_fp8
        topk_idx  [tokens, topk] int64 or int32: global expert, -1 = unused. An expert that a token names again counts
                  once, with the sum of its weights
        num_max_dispatch_tokens_per_rank  the most tokens of a rank, alike on all ranks
        cumulative_local_expert_recv_stats  [local experts] int32, to which the rows of each expert are added; or None
        dispatch_wait_recv_cost_stats       [ranks] or [ranks, ranks] int64, to which (to whose row of this rank) the
                  nanoseconds waited for each rank are added; or None
        use_fp8      cast to float8_e4m3fn, a scale for 128 elements
        round_scale  powers of two as scales. use_ue8m0: as bytes, four in an int32; only with round_scale
        async_finish      the current stream does not wait; the event does
        return_recv_hook  only sends, on the current stream. hook() receives, on the stream that is current then

        Returns recv_x [local experts, ranks * num_max, hidden], with use_fp8 a pair with scales [local experts, ranks *
        num_max, hidden / 128] float32 ([.., hidden / 512 rounded up] int32 with use_ue8m0), of which the last but one
        axis is contiguous; recv_count [local experts] int32; the handle; the event; the hook, or None. Rows of an
        expert are ordered by source rank, then token; those behind recv_count are not written."""
        num_max = integer(num_max_dispatch_tokens_per_rank, "num_max_dispatch_tokens_per_rank", 1)
        local = require_divisible(integer(num_experts, "num_experts", 1), self.group_size)
        require(x, "x", "[tokens, hidden]", (None, None), (torch.bfloat16,), self.device)
        tokens, hidden = x.shape
        require(topk_idx, "topk_idx", "[tokens, topk]", (tokens, None), tuple(INDEX_TYPES), self.device)
        self._require_modes(use_fp8, round_scale, use_ue8m0, hidden, async_finish, return_recv_hook)
        stats = self._row_stats(cumulative_local_expert_recv_stats, local)
        waits = self._wait_stats(dispatch_wait_recv_cost_stats, "dispatch_wait_recv_cost_stats")
        topk, index_type = topk_idx.shape[1], INDEX_TYPES[topk_idx.dtype]
        maker = self.routes.low_latency(num_max, hidden, num_experts, topk, index_type)
        route, native = maker.next()
        stream = self._start(maker.comm, return_recv_hook)
        places = self.group_size * num_max
        sources = torch.empty((local, places), dtype=torch.int32, device=self.device)
        ranges = torch.empty((local, self.group_size), dtype=torch.int64, device=self.device)
        counts = torch.empty(local, dtype=torch.int32, device=self.device)
        output = _Output(x, (local, places), use_fp8, round_scale, use_ue8m0)
        described: Any = dict(out_source_index=sources, out_layout_range=ranges, cumulative_rows=stats)
        options = dict(cumulative_wait_ns=waits, send_only=return_recv_hook, stream=stream, **output.options)
        native.route_dispatch(topk_idx, None, x, output.rows, **described, **options)
        maker.commit()
        handle = LowLatencyHandle((sources, ranges, num_max, hidden, num_experts))
        handle.route, handle.tokens, handle.topk, handle.combine_buffer = route, tokens, topk, None

        def arrive() -> None:
            counts.copy_(rows_per_expert(native, self.device))

        tensors = (x, topk_idx, sources, ranges, counts, stats, waits, *output.tensors)
        event, hook = self._end(native, route, stream, arrive, tensors, async_finish, return_recv_hook)
        return output.received, counts, handle, event, hook

    @collective
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
        topk_idx      that of the dispatch. Only its shape is looked at: the route has its contents
        topk_weights  [tokens, topk] float32
        use_logfmt    rows travel as LogFMT-10, in two thirds of the bytes. Alike on all ranks
        zero_copy     the rows are in get_next_low_latency_combine_buffer(handle), and x is not read
        out           [tokens, hidden] bfloat16 for the result; or None
        combine_wait_recv_cost_stats  as dispatch_wait_recv_cost_stats
        async_finish, return_recv_hook  as in low_latency_dispatch

        Returns combined_x [tokens, hidden], the event, and the hook or None."""
        shape = (_require_ll_handle(handle).tokens, handle.topk)
        if zero_copy:
            if handle.combine_buffer is None:
                raise ValueError("zero_copy is True, but get_next_low_latency_combine_buffer(handle) was not called")
            x = handle.combine_buffer
        places, hidden = (*handle.places, handle[3]), handle[3]
        require(x, "x", "[local experts, ranks * num_max, hidden]", places, (torch.bfloat16,), self.device)
        require(topk_idx, "topk_idx", "[tokens, topk]", shape, tuple(INDEX_TYPES), self.device)
        require(topk_weights, "topk_weights", "[tokens, topk]", shape, (torch.float32,), self.device)
        self._require_one(async_finish, return_recv_hook)
        if use_logfmt and hidden % 128:
            raise ValueError(f"x has rows of {hidden} elements, expected a multiple of 128 with use_logfmt")
        waits = self._wait_stats(combine_wait_recv_cost_stats, "combine_wait_recv_cost_stats")
        if out is None:
            out = x.new_empty((handle.tokens, hidden))
        require(out, "out", "[tokens, hidden]", (handle.tokens, hidden), (torch.bfloat16,), self.device)
        native, route = handle.route.handle(), handle.route
        stream = self._start(route.ring.comm, return_recv_hook)
        native.combine(
            x,
            out,
            weights="apply",
            wire="logfmt10" if use_logfmt else "row",
            topk_weights=topk_weights,
            cumulative_wait_ns=waits,
            send_only=return_recv_hook,
            stream=stream,
        )
        tensors = (x, topk_weights, out, waits)
        event, hook = self._end(native, route, stream, lambda: None, tensors, async_finish, return_recv_hook)
        return out, event, hook

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

    def _row_stats(self, stats: Optional[torch.Tensor], local: int) -> Optional[torch.Tensor]:
        if stats is None:
            return None
        name = "cumulative_local_expert_recv_stats"
        return require(stats, name, "[local experts]", (local,), (torch.int32,), self.device)

    def _wait_stats(self, stats: Optional[torch.Tensor], name: str) -> Optional[torch.Tensor]:
        if stats is None:
            return None
        ranks = self.group_size
        if isinstance(stats, torch.Tensor) and stats.dim() == 2:
            return require(stats, name, "[ranks, ranks]", (ranks, ranks), (torch.int64,), self.device)[self.rank]
        return require(stats, name, "[ranks]", (ranks,), (torch.int64,), self.device)

    def _start(self, comm: Any, return_recv_hook: bool) -> Any:
        """The stream of a call: with a hook the current one, where both halves belong."""
        if not return_recv_hook:
            return self.lane.start(comm, None)
        stream = self.lane.current()
        order_of(comm).enter(stream)
        return stream

    def _end(
        self,
        native: Handle,
        route: Route,
        stream: Any,
        arrive: Callable[[], None],
        tensors: Tuple[Optional[torch.Tensor], ...],
        async_finish: bool,
        return_recv_hook: bool,
    ) -> Tuple[EventOverlap, Hook]:
        if not return_recv_hook:
            with self.lane.on(stream):
                arrive()
            return self.lane.finish(async_finish, tensors), None

        kept = tensors  # until the second half has been queued
        comm = route.ring.comm

        def hook() -> None:
            nonlocal kept
            current = self.lane.current()
            order_of(comm).enter(current)
            try:
                native.complete(stream=current)
            except errors.MoeError as error:
                self.routes.explain(error, [route.group])
                raise
            arrive()
            kept = ()

        return EventOverlap(), hook


class _Output:
    """The rows of a low-latency dispatch. `received` is what the caller gets."""

    def __init__(self, x: torch.Tensor, places: Tuple[int, int], use_fp8: bool, round_scale: bool, use_ue8m0: bool):
        hidden = x.shape[1]
        dtype = torch.float8_e4m3fn if use_fp8 else x.dtype
        self.rows = x.new_empty((*places, hidden), dtype=dtype)
        self.received: Received = self.rows
        self.options: Any = {}
        self.tensors: Tuple[torch.Tensor, ...] = (self.rows,)
        if not use_fp8:
            return
        words, word = (-(-hidden // 512), torch.int32) if use_ue8m0 else (hidden // 128, torch.float32)
        scales = x.new_empty((places[0], words, places[1]), dtype=word)
        cast = "fp8-ue8m0" if use_ue8m0 else "fp8-pow2" if round_scale else "fp8"
        self.options = dict(cast=cast, out_scales=scales, scale_layout="token-contiguous")
        self.received = self.rows, scales.transpose(1, 2)
        self.tensors = (self.rows, scales)
