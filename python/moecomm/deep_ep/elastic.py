"""ElasticBuffer: dispatch and combine of DeepEP's second interface. Its other methods raise NotImplementedError."""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch

from .. import errors, parts
from ..comm import memory_size
from ..handle import Handle
from ..torch.groups import Members, place_of
from ..torch.memory import counts_of, rows_per_expert
from ..values import integer
from . import columns, combined_weights
from .checks import INDEX_TYPES, require, require_divisible
from .columns import SUMMED
from .events import EventHandle, EventOverlap, Lane
from .high_throughput import Payload, Rows, scales_of, unpack_bias
from .routes import Route, RouteMaker, Routes, agree
from .settings import ht_sizes, round_up
from .standing import Standing
from .taking_part import AT_ONCE, ROUTED, takes_part

# The most tokens of a rank for which dispatches and combines run in low-latency mode, as in the library's own default.
LOW_LATENCY_TOKENS = 128
NO_EPILOGUE = "there is no epilogue, pass previous_event"
UNSUPPORTED = {
    "engram_write": "moecomm has no store of embeddings",
    "engram_fetch": "moecomm has no store of embeddings",
    "pp_set_config": "moecomm has no pipelines: use torch.distributed",
    "pp_send": "moecomm has no pipelines: use torch.distributed",
    "pp_recv": "moecomm has no pipelines: use torch.distributed",
    "create_agrs_session": "moecomm has no all-gather: use torch.distributed",
    "all_gather": "moecomm has no all-gather: use torch.distributed",
    "barrier": "moecomm has no barrier: use torch.distributed.barrier",
}


class EPHandle:
    """The handle of ElasticBuffer.dispatch. It is good for configure()'s in_flight dispatches of the same shape.

    do_expand, num_experts, expert_alignment, num_max_tokens_per_rank, topk_idx  as they were given
    num_recv_tokens, num_expanded_tokens, num_recv_tokens_per_expert_list  with do_cpu_sync only; else 0 and empty
    num_unaligned_recv_tokens_per_expert  [local experts] int32
    psum_num_recv_tokens_per_expert       [local experts] int32: where each expert's rows end. With do_expand the groups
                                          begin at multiples of expert_alignment; otherwise the counts are rounded up
    recv_src_metadata                     [rows] int32: source rank * tokens_max + source token"""

    def __init__(self, route: Route, topk_idx: torch.Tensor, shape: Tuple[bool, int, int, int]):
        self.route, self.rows, self.topk_idx = route, 0, topk_idx
        self.tokens, self.topk = topk_idx.shape
        self._do_expand, self.num_experts, self.expert_alignment, self.num_max_tokens_per_rank = shape
        self.num_recv_tokens = self.num_expanded_tokens = 0
        self.num_recv_tokens_per_expert_list: List[int] = []
        self.num_unaligned_recv_tokens_per_expert: Any = None
        self.psum_num_recv_tokens_per_expert: Any = None
        self.recv_src_metadata: Any = None

    @property
    def do_expand(self) -> bool:
        """Whether there is a row for each expert of a token. It cannot be changed."""
        return self._do_expand

    @do_expand.setter
    def do_expand(self, value: bool) -> None:
        if value != self._do_expand:
            raise NotImplementedError(f"do_expand becomes {value}: a route keeps the layout of its dispatch")

    def entries(self) -> Tuple[int, ...]:
        """The shape of weights beside the rows: [rows] with do_expand, else [rows, topk]."""
        return (self.rows,) if self.do_expand else (self.rows, self.topk)


def _calls(given: Dict[str, Any]) -> Sequence[str]:
    """The library's calls in a dispatch: the same as in the latest one."""
    ring = given["self"].__dict__.get("_latest_rings", {}).get("dispatch")
    return AT_ONCE if ring is not None and ring.handles and ring.handles[0].mode == "ll" else ROUTED


class _Unrouted(NamedTuple):
    """The arguments by which a low-latency dispatch routes when it sends."""

    maker: RouteMaker
    native: Handle
    ids: torch.Tensor


class _Call(NamedTuple):
    """How a dispatch is queued, and its further options."""

    previous_event: Optional[EventHandle]
    asynchronous: bool
    allocates_there: bool
    sms: int
    stats: Optional[torch.Tensor]
    zero_padding: bool
    column_major: bool
    waits: bool


class ElasticBuffer(Standing):
    """DeepEP's ElasticBuffer, as far as it sends tokens. docs/guide/deepep.md says what differs.

    group                    as for Buffer
    num_max_tokens_per_rank  the most tokens of a rank; 0: every dispatch says it
    explicitly_destroy       destroy() may be called

    The other arguments describe DeepEP's memory and transports: they are accepted and have no meaning here, since
    results are always deterministic and memory is taken by the first dispatch: num_bytes, hidden, num_topk,
    use_fp8_dispatch, allow_hybrid_mode, allow_multiple_reduction, prefer_overlap_with_compute, sl_idx,
    num_allocated_qps, num_cpu_timeout_secs, num_gpu_timeout_secs. The constructor is collective. It raises
    NotImplementedError for num_cpu_bytes.

    What dispatch() and combine() have in common:

    num_sms                    multiprocessors of the call; 0: the library's choice
    num_qps                    has no meaning here
    previous_event             the call waits for this event instead of the current stream; or None
    async_with_compute_stream  the current stream does not wait for the call; the event that it returns does
    allocate_on_comm_stream    outputs are made on the communication stream, get_comm_stream()
    previous_event_before_epilogue  None: anything else raises NotImplementedError"""

    def __init__(
        self,
        group: Any,
        num_bytes: Optional[int] = None,
        num_cpu_bytes: int = 0,
        num_max_tokens_per_rank: int = 0,
        hidden: int = 0,
        num_topk: int = 0,
        use_fp8_dispatch: bool = False,
        deterministic: bool = False,
        allow_hybrid_mode: bool = True,
        allow_multiple_reduction: bool = True,
        prefer_overlap_with_compute: bool = True,
        sl_idx: int = 3,
        num_allocated_qps: int = 0,
        num_cpu_timeout_secs: int = 300,
        num_gpu_timeout_secs: int = 100,
        explicitly_destroy: bool = False,
    ):
        if num_cpu_bytes:
            raise NotImplementedError(f"num_cpu_bytes is {num_cpu_bytes}: moecomm has no store of embeddings")
        self.group, self.num_max_tokens_per_rank = group, integer(num_max_tokens_per_rank, "num_max_tokens_per_rank")
        self.explicitly_destroy = explicitly_destroy
        members = Members(group)
        settings, self.domain_size = agree(members)
        self.rank_idx, self.num_ranks = members.rank, members.size
        self.device = place_of(settings["device"])
        self.lane, self.routes = Lane(self.device), Routes(members, self.device, settings)

    def __getattr__(self, name: str) -> Any:
        if name in UNSUPPORTED:
            raise NotImplementedError(f"{name}: {UNSUPPORTED[name]}")
        raise AttributeError(f"ElasticBuffer has no attribute {name}")

    def destroy(self) -> None:
        """Frees the memory, as Buffer.destroy() does. All work must have run. Not collective. Raises InvalidUsage unless
        explicitly_destroy was set."""
        if not self.explicitly_destroy:
            raise errors.InvalidUsage("destroy() is called, but explicitly_destroy is False")
        self.routes.release()

    @staticmethod
    def capture() -> EventHandle:
        """An event of the current stream, for previous_event."""
        return EventHandle()

    @staticmethod
    def get_buffer_size_hint(
        group: Any,
        num_max_tokens_per_rank: int,
        hidden: int,
        num_topk: int = 0,
        use_fp8_dispatch: bool = False,
        allow_hybrid_mode: bool = True,
        allow_multiple_reduction: bool = True,
    ) -> int:
        """Bytes that moecomm will allocate on each rank for rows of `hidden` bfloat16. Collective over `group`.

        num_max_tokens_per_rank  the most tokens of a rank
        num_topk                 experts of a token; at least 8 count
        use_fp8_dispatch, allow_hybrid_mode, allow_multiple_reduction  change nothing"""
        tokens = integer(num_max_tokens_per_rank, "num_max_tokens_per_rank", 1)
        sizes = ht_sizes(2 * integer(hidden, "hidden", 1))
        topk = max(8, integer(num_topk, "num_topk"))
        most: Dict[str, Any] = dict(modes="ht", tokens_max=tokens)
        if tokens <= LOW_LATENCY_TOKENS:
            most = dict(modes="ll", ll_tokens_max=tokens, ll_sets=2)
        return memory_size(Members(group).size, topk_max=topk, **most, **sizes).window_bytes

    def get_physical_domain_size(self) -> Tuple[int, int]:
        """Domains, and ranks of a domain."""
        return self.num_ranks // self.domain_size, self.domain_size

    get_logical_domain_size = get_physical_domain_size

    def get_theoretical_num_sms(self, num_experts: int, num_topk: int, *_: Any, **__: Any) -> int:
        """0 for all num_experts and num_topk: a call with num_sms=0 leaves the choice to the library."""
        return 0

    def get_theoretical_num_qps(self, num_sms: int) -> int:
        """0 for all num_sms: moecomm has no such number."""
        return 0

    def get_comm_stream(self) -> Any:
        """The torch.cuda.Stream on which calls are queued; None on CPUs."""
        return self.lane.stream

    @takes_part(_calls, handle_at=3)
    def dispatch(
        self,
        x: Rows,
        topk_idx: Optional[torch.Tensor] = None,
        topk_weights: Optional[torch.Tensor] = None,
        cumulative_local_expert_recv_stats: Optional[torch.Tensor] = None,
        num_experts: Optional[int] = None,
        num_max_tokens_per_rank: Optional[int] = None,
        expert_alignment: Optional[int] = None,
        num_sms: int = 0,
        num_qps: int = 0,
        previous_event: Optional[EventHandle] = None,
        previous_event_before_epilogue: Optional[EventHandle] = None,
        async_with_compute_stream: bool = False,
        allocate_on_comm_stream: bool = False,
        handle: Optional[EPHandle] = None,
        do_handle_copy: bool = True,
        do_cpu_sync: Optional[bool] = None,
        do_expand: bool = False,
        do_zero_padding: bool = False,
        use_tma_aligned_col_major_sf: bool = False,
    ) -> Tuple[Rows, Optional[torch.Tensor], Optional[torch.Tensor], EPHandle, EventOverlap]:
        """Sends tokens to the ranks of their experts. Collective.

        x, topk_idx, topk_weights  as for Buffer.dispatch
        num_experts        of all ranks together, a multiple of the ranks
        cumulative_local_expert_recv_stats  [local experts] int32, to which the rows of each expert are added; or None
        do_expand          one row per expert of a token, grouped by expert, groups aligned to expert_alignment; else
                           one row per rank
        do_zero_padding    with do_expand: rows that nothing came for are zero
        do_cpu_sync        True: as many rows as come, for which the host waits. False: as many as may come
        handle             its route is used again; topk_idx and topk_weights are then None
        do_handle_copy     the handle keeps a copy of topk_idx; else the tensor itself
        use_tma_aligned_col_major_sf  the scales that arrive have strides (1, rows rounded up to 16 bytes)

        All ranks pass the same num_max_tokens_per_rank, and up to LOW_LATENCY_TOKENS the mode is low-latency: one call
        routes and sends, into outputs for as many rows as may come, of which do_cpu_sync=True returns the first ones.

        Returns recv_x; recv_topk_idx [rows, topk] (local expert or -1), None with do_expand; recv_topk_weights
        [rows, topk], or [rows] with do_expand, None without topk_weights; handle; event."""
        if previous_event_before_epilogue is not None:
            raise NotImplementedError(f"previous_event_before_epilogue is given: {NO_EPILOGUE}")
        payload = Payload(x, self.device)
        call = _Call(
            previous_event,
            async_with_compute_stream,
            allocate_on_comm_stream or previous_event is not None,
            integer(num_sms, "num_sms"),
            cumulative_local_expert_recv_stats,
            do_zero_padding,
            use_tma_aligned_col_major_sf,
            do_cpu_sync is None or do_cpu_sync,
        )
        if handle is not None:
            if topk_idx is not None:
                raise ValueError("handle is given, and so is topk_idx: expected only one of them")
            if topk_weights is not None:
                raise NotImplementedError("topk_weights is given with a handle, whose route has its weights already")
            if payload.tokens != handle.tokens:
                raise ValueError(f"x has {payload.tokens} tokens, but the dispatch of handle had {handle.tokens}")
            stream = self.lane.start(handle.route.ring.comm, previous_event, call.asynchronous)
            handle.route.note("dispatch")
            return self._deliver(payload, handle, None, stream, call)
        axes = "[tokens, topk]"
        ids = require(topk_idx, "topk_idx", axes, (payload.tokens, None), tuple(INDEX_TYPES), self.device)
        if topk_weights is not None:
            require(topk_weights, "topk_weights", axes, ids.shape, (torch.float32,), self.device)
        shape = self._shape(do_expand, num_experts, expert_alignment, num_max_tokens_per_rank)
        maker = self._maker(payload, ids, shape)
        route, native = maker.next(backward=payload.rows.requires_grad)
        stream = self.lane.start(maker.comm, previous_event, call.asynchronous)
        with self.lane.on(stream):
            handle = EPHandle(route, ids.clone() if do_handle_copy else ids, shape)
        if native.mode == "ll":
            return self._deliver(payload, handle, topk_weights, stream, call, _Unrouted(maker, native, ids))
        native.route(ids, topk_weights, stream=stream)
        maker.commit()
        with self.lane.on(stream):
            self._count(handle, native, call.waits, stream)
            self._describe(handle, native)
        return self._deliver(payload, handle, topk_weights, stream, call)

    def _shape(self, do_expand: bool, experts: Any, alignment: Any, tokens_max: Any) -> Tuple[bool, int, int, int]:
        if experts is None:
            raise ValueError("num_experts is None, expected the number of all experts")
        require_divisible(integer(experts, "num_experts", 1), self.num_ranks)
        tokens_max = integer(tokens_max or self.num_max_tokens_per_rank, "num_max_tokens_per_rank", 1)
        return bool(do_expand), experts, integer(alignment or 1, "expert_alignment", 1), tokens_max

    def _maker(self, payload: Payload, ids: torch.Tensor, shape: Tuple[bool, int, int, int]) -> RouteMaker:
        do_expand, experts, alignment, tokens_max = shape
        sizes = ht_sizes(payload.row_bytes, payload.side_bytes, ids.shape[1])
        options: Any = dict(layout="flat", tokens_max=tokens_max)
        if do_expand:
            options.update(layout="expert-major", expert_alignment=alignment)
        form = experts, ids.shape[1], INDEX_TYPES[ids.dtype]
        if tokens_max <= LOW_LATENCY_TOKENS:
            return self.routes.small_batches(*form, sizes, **options)
        return self.routes.high_throughput(*form, dict(sizes, tokens_max=tokens_max), payload.tokens, **options)

    def _count(self, handle: EPHandle, native: Handle, waits: bool, stream: Any) -> None:
        """The rows of a new handle: as many as come, or as may come."""
        local, alignment = native.local_experts, handle.expert_alignment
        if waits:
            found = counts_of(native, stream)
            handle.rows = found.layout_rows if handle.do_expand else found.rows
            handle.num_recv_tokens, handle.num_expanded_tokens = found.rows, found.layout_rows * handle.do_expand
            handle.num_recv_tokens_per_expert_list = [round_up(count, alignment) for count in found.rows_per_expert]
        else:
            handle.rows = self.num_ranks * handle.num_max_tokens_per_rank
            if handle.do_expand:
                handle.rows = handle.rows * min(handle.topk, local) + local * (alignment - 1)

    def _describe(self, handle: EPHandle, native: Handle) -> None:
        """Fills the counts of a new handle, on torch's current stream."""
        alignment = handle.expert_alignment
        counts = rows_per_expert(native, self.device).clone()
        padded = torch.div(counts + alignment - 1, alignment, rounding_mode="floor") * alignment
        ends = padded.cumsum(0, dtype=torch.int32)
        handle.num_unaligned_recv_tokens_per_expert = counts
        handle.psum_num_recv_tokens_per_expert = ends - padded + counts if handle.do_expand else ends

    def _deliver(
        self,
        payload: Payload,
        handle: EPHandle,
        weights: Optional[torch.Tensor],
        stream: Any,
        call: _Call,
        unrouted: Optional[_Unrouted] = None,
    ) -> Tuple[Rows, Optional[torch.Tensor], Optional[torch.Tensor], EPHandle, EventOverlap]:
        native = handle.route.handle() if unrouted is None else unrouted.native
        with self.lane.on(stream):
            payload.pack()
            if unrouted is not None:
                self._count(handle, native, False, stream)
            if handle.recv_src_metadata is None:
                handle.recv_src_metadata = torch.empty(handle.rows, dtype=torch.int32, device=self.device)
        with self.lane.on(stream if call.allocates_there else None):
            out, out_side = payload.output(handle.rows)
            out_weights = None if weights is None else weights.new_empty(handle.entries())
            ids = None if handle.do_expand else handle.topk_idx.new_empty(handle.entries())
        described = parts.Describe(ids, out_weights, handle.recv_src_metadata, cumulative_rows=call.stats)
        options: Any = dict(pad_indices=True, pad_rows=call.zero_padding, sms=call.sms, stream=stream, describe=described)
        with self.lane.on(stream):
            if unrouted is None:
                payload.send_again(native, handle.route.group.sizes, out, out_side, **options)
            else:
                options["payloads"] = payload.beside(out_side)
                native.route_dispatch(unrouted.ids, weights, payload.rows, out, **options)
                unrouted.maker.commit()
                self._describe(handle, native)
                if call.waits:
                    self._count(handle, native, True, stream)
                    handle.recv_src_metadata, out = handle.recv_src_metadata[: handle.rows], out[: handle.rows]
                    out_side, ids, out_weights = (
                        None if one is None else one[: handle.rows] for one in (out_side, ids, out_weights)
                    )
            received = payload.unpack(out, out_side, call.column_major)
        used, outputs = (payload.rows, payload.scales, weights, call.stats, handle.topk_idx), (out, ids, out_weights)
        made = (handle.recv_src_metadata, handle.num_unaligned_recv_tokens_per_expert, *scales_of(received))
        made += (handle.topk_idx, handle.psum_num_recv_tokens_per_expert)
        event = self.lane.finish(stream, call.asynchronous, used, made, outputs, call.allocates_there)
        return received, ids, out_weights, handle, event

    @takes_part(lambda _: ("combine",))
    def combine(
        self,
        x: torch.Tensor,
        handle: EPHandle,
        topk_weights: Optional[torch.Tensor] = None,
        bias: Any = None,
        num_sms: int = 0,
        num_qps: int = 0,
        previous_event: Optional[EventHandle] = None,
        previous_event_before_epilogue: Optional[EventHandle] = None,
        async_with_compute_stream: bool = False,
        allocate_on_comm_stream: bool = False,
    ) -> Tuple[torch.Tensor, Optional[torch.Tensor], EventOverlap]:
        """Sums the rows of each token, without weights. Collective.

        x             [rows of the dispatch, hidden] bfloat16, float16 or float32
        handle        of that dispatch
        topk_weights  [rows, topk], with do_expand [rows], float32: brings each entry back; or None, on all ranks
        bias          [tokens, hidden] of x's dtype, or two of them; or None

        Returns combined_x [tokens, hidden], combined_topk_weights [tokens, topk] or None, and the event."""
        if previous_event_before_epilogue is not None:
            raise NotImplementedError(f"previous_event_before_epilogue is given: {NO_EPILOGUE}")
        if not isinstance(handle, EPHandle):
            raise TypeError(f"handle is a {type(handle).__name__}, expected what dispatch() returned")
        require(x, "x", "[rows of the dispatch, hidden]", (handle.rows, None), SUMMED, self.device)
        biases = unpack_bias(bias, x, handle.tokens)
        if topk_weights is not None:
            require(topk_weights, "topk_weights", "[rows]", handle.entries(), (torch.float32,), self.device)
        native = handle.route.handle()
        stream = self.lane.start(handle.route.ring.comm, previous_event, async_with_compute_stream)
        there = allocate_on_comm_stream or previous_event is not None
        grads: Optional[parts.Grads] = None
        with self.lane.on(stream if there else None):
            out = x.new_empty((handle.tokens, x.shape[1]))
            if topk_weights is not None:
                grads = combined_weights.with_rows(topk_weights, handle.tokens, handle.topk)
        handle.route.note("combine")
        sms, rows = integer(num_sms, "num_sms"), columns.Array(x, out)
        columns.combine(handle.route, native, self.lane, rows, biases, grads, sms, stream)
        weights = None if grads is None else grads.out_weight_grads
        used, outputs = (x, topk_weights, *biases.values()), (out, weights)
        return out, weights, self.lane.finish(stream, async_with_compute_stream, used, (), outputs, there)
