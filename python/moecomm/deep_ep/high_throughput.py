"""dispatch() and combine() of Buffer, and their internode names."""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Tuple, Union

import torch

from .. import errors, parts
from ..handle import Handle
from ..handle_refusals import was_refused
from ..torch.memory import counts_of
from ..values import integer
from . import columns, combined_weights
from .checks import INDEX_TYPES, require, require_divisible
from .columns import SUMMED
from .dispatch_handle import DispatchHandle, Place, require_handle
from .events import EventOverlap, Lane
from .routes import RouteMaker, Routes
from .sending import Outputs, Sending
from .settings import Config, ht_sizes, round_up
from .taking_part import AT_ONCE, COUNTED, takes_part

TOPK_LIMIT = 32  # moeLimits_t.topkMax
Rows = Union[torch.Tensor, Tuple[torch.Tensor, torch.Tensor]]


def ids_of_mask(mask: torch.Tensor, topk: int) -> torch.Tensor:
    """[tokens, topk] int64: the numbers of a token's ranks, and -1. With fewer entries than ranks, the last entry of a
    token that goes to more ranks has a number that no rank has: the route reports it to all ranks."""
    ranks = mask.shape[1]
    numbers = torch.arange(ranks, device=mask.device)
    if topk >= ranks:
        return torch.where(mask, numbers, -1)
    ids = torch.where(mask, numbers, ranks).sort(dim=1)[0][:, :topk]
    ids = torch.where(ids < ranks, ids, -1)
    ids[:, -1].masked_fill_(mask.sum(dim=1) > topk, ranks)
    return ids


def most_ranks(mask: torch.Tensor) -> int:
    """The most ranks of a token, for which the host waits."""
    return int(mask.sum(dim=1).max()) if mask.shape[0] else 0


def scales_of(received: Rows) -> Tuple[torch.Tensor, ...]:
    """The scales that Payload.unpack() has made, if there are some."""
    return received[1:] if isinstance(received, tuple) else ()


def round_all_up(counts: List[int], multiple: int) -> List[int]:
    return counts if multiple == 1 else [round_up(count, multiple) for count in counts]


def unpack_bias(bias: Any, x: torch.Tensor, tokens: int) -> Dict[str, Any]:
    """bias0 and bias1 of Handle.combine."""
    if bias is None:
        return {}
    biases = bias if isinstance(bias, tuple) else (bias,)
    if len(biases) > 2:
        raise ValueError(f"bias is a tuple of {len(biases)}, expected one or two")
    for one in biases:
        if one is not None:
            require(one, "bias", "[tokens, hidden]", (tokens, x.shape[1]), (x.dtype,), x.device)
    return {f"bias{number}": one for number, one in enumerate(biases)}


def _require_few(ranks: Dict[int, int]) -> None:
    """ranks: by rank, the most ranks of one of its tokens."""
    for rank, found in ranks.items():
        if found > TOPK_LIMIT:
            raise ValueError(
                f"is_token_in_rank sends a token of rank {rank} to {found} ranks, expected at most {TOPK_LIMIT}: pass topk_idx"
            )


def in_columns(scales: torch.Tensor) -> torch.Tensor:
    """A copy with strides (1, rows rounded up to 16 bytes), as GEMMs load scales by bulk copies."""
    rows, words = scales.shape
    stride = round_up(rows * scales.dtype.itemsize, 16) // scales.dtype.itemsize
    return scales.new_empty((words, stride)).T[:rows].copy_(scales)


class Payload:
    """Rows, and the scales beside them, padded to 16 bytes."""

    def __init__(self, x: Any, device: torch.device):
        rows: Any = x
        scales: Any = None
        if isinstance(x, tuple):
            if len(x) != 2:
                raise ValueError(f"x is a tuple of {len(x)}, expected rows and scales")
            rows, scales = x
        name = "x" if scales is None else "x[0]"
        self.rows = require(rows, name, "[tokens, hidden]", (None, None), (), device)
        self.tokens, hidden = self.rows.shape
        self.row_bytes = hidden * max(2, self.rows.element_size())  # as bfloat16, which combine will bring back
        self.scales: Optional[torch.Tensor] = scales
        self.side: Optional[torch.Tensor] = None  # set by pack()
        self.side_bytes = 0
        if scales is not None:
            require(scales, "x[1]", "[tokens, scales]", (self.tokens, None), (), device, contiguous=False)
            self.side_bytes = round_up(scales.shape[1] * scales.element_size(), 16)

    def pack(self) -> None:
        """Prepares the scales, on torch's current stream."""
        if self.scales is not None:
            padding = self.side_bytes // self.scales.element_size() - self.scales.shape[1]
            padded = torch.nn.functional.pad(self.scales, (0, padding)) if padding else self.scales
            self.side = padded.contiguous()

    def beside(self, out_side: Optional[torch.Tensor]) -> Tuple[parts.Payload, ...]:
        """The payloads of Handle.dispatch, after pack()."""
        return () if self.side is None else (parts.Payload(self.side, out_side, "array"),)

    def output(self, count: int) -> Tuple[torch.Tensor, Optional[torch.Tensor]]:
        rows = self.rows.new_empty((count, self.rows.shape[1]))
        return rows, None if self.side is None else self.side.new_empty((count, self.side.shape[1]))

    def send_again(
        self, native: Handle, sizes: Dict[str, Any], out: torch.Tensor, out_side: Optional[torch.Tensor], **options: Any
    ) -> None:
        """Handle.dispatch along an earlier route. `sizes` are those of the route's communicator. On torch's current
        stream."""
        side = None if self.side is None or out_side is None else columns.Array(self.side, out_side)
        columns.dispatch(native, sizes, columns.Array(self.rows, out), side, self.beside(out_side), **options)

    def unpack(self, rows: torch.Tensor, side: Optional[torch.Tensor], column_major: bool = False) -> Rows:
        """The recv_x that dispatch() returns, on torch's current stream."""
        if side is None or self.scales is None:
            return rows
        scales = side[:, : self.scales.shape[1]]
        return rows, in_columns(scales) if column_major else scales.contiguous()


class _Call(NamedTuple):
    """How a call is queued."""

    previous_event: Optional[EventOverlap]
    async_finish: bool
    allocate_on_comm_stream: bool
    sms: int

    @property
    def allocates_there(self) -> bool:
        """With previous_event the communication stream may run ahead of the current stream, and memory that the current
        stream has freed may still be in use."""
        return self.allocate_on_comm_stream or self.previous_event is not None


class _Request(NamedTuple):
    """A checked dispatch with a new route. `mask` stands in for ids that were not given, which have topk entries."""

    payload: Payload
    ids: Optional[torch.Tensor]
    weights: Optional[torch.Tensor]
    mask: Optional[torch.Tensor]
    experts: int
    alignment: int
    worst: int
    topk: int


class HighThroughput:
    """The part of Buffer for large batches."""

    rank: int
    group_size: int
    group: Any
    device: torch.device
    place: Place
    sums_weights: bool
    lane: Lane
    routes: Routes

    def _sms(self, config: Optional[Config]) -> int:
        raise NotImplementedError

    # ---- High throughput ---------------------------------------------------------------------------------------------

    @takes_part(lambda given: AT_ONCE if given.get("num_worst_tokens") else COUNTED, handle_at=4)
    def dispatch(
        self,
        x: Rows,
        handle: Optional[DispatchHandle] = None,
        num_tokens_per_rank: Optional[torch.Tensor] = None,
        num_tokens_per_rdma_rank: Optional[torch.Tensor] = None,
        is_token_in_rank: Optional[torch.Tensor] = None,
        num_tokens_per_expert: Optional[torch.Tensor] = None,
        topk_idx: Optional[torch.Tensor] = None,
        topk_weights: Optional[torch.Tensor] = None,
        expert_alignment: int = 1,
        num_worst_tokens: int = 0,
        config: Optional[Config] = None,
        previous_event: Optional[EventOverlap] = None,
        async_finish: bool = False,
        allocate_on_comm_stream: bool = False,
    ) -> Tuple[Rows, Any, Any, Any, Any, EventOverlap]:
        """Sends tokens to the ranks of their experts, once per rank. Collective.

        x                [tokens, hidden] of any dtype; or a tuple with quantised rows and their scales [tokens, any]
        handle           of an earlier dispatch, whose route is used again; then neither ids nor weights are given
        topk_idx         [tokens, topk] int64 or int32: global expert, -1 = unused. None: is_token_in_rank decides
        topk_weights     [tokens, topk] float32; or None
        num_tokens_per_expert  [num_experts] of get_dispatch_layout: its length says how many experts there are
        is_token_in_rank       [tokens, ranks] bool, a token on at most 32 ranks; read only where topk_idx is None
        num_tokens_per_rank, num_tokens_per_rdma_rank  follow from the others, and are not read
        expert_alignment  what the counts in the list are rounded up to
        num_worst_tokens  0: as many rows as come, for which the host waits. Otherwise that many, with expert -1 behind
                          the last one; the list is empty, and the call may be captured. More rows than that: nothing
                          is delivered
        config            its num_sms

        Returns recv_x, recv_topk_idx [rows, topk] (local expert or -1), recv_topk_weights [rows, topk] (0 beside -1),
        the list of rows per local expert, the handle and the event. With a handle all but recv_x and the event are
        None. Rows come in the order of source rank, then token. Raises TypeError and ValueError that name the
        argument."""
        payload = Payload(x, self.device)
        call = _Call(previous_event, async_finish, allocate_on_comm_stream, self._sms(config))
        if handle is not None:
            if topk_idx is not None or topk_weights is not None:
                raise ValueError("handle is given, and so are topk_idx or topk_weights: expected only one of them")
            return self._send_again(payload, require_handle(handle), num_worst_tokens, call)
        if num_tokens_per_expert is None:
            raise ValueError("num_tokens_per_expert is None, expected that of get_dispatch_layout()")
        require(num_tokens_per_expert, "num_tokens_per_expert", "[experts]", (None,))
        experts = num_tokens_per_expert.shape[0]
        require_divisible(experts, self.group_size)
        alignment = integer(expert_alignment, "expert_alignment", 1)
        worst = integer(num_worst_tokens, "num_worst_tokens")
        if topk_idx is None:
            mask = self._require_mask(is_token_in_rank, payload.tokens, topk_weights)
            request = _Request(payload, None, None, mask, self.group_size, alignment, worst, 0)
            return self._send_by_mask(request, num_tokens_per_expert, call)
        axes, tokens = "[tokens, topk]", payload.tokens
        require(topk_idx, "topk_idx", axes, (tokens, None), tuple(INDEX_TYPES), self.device)
        if topk_weights is not None:
            require(topk_weights, "topk_weights", axes, topk_idx.shape, (torch.float32,), self.device)
        topk = topk_idx.shape[1]
        return self._send(_Request(payload, topk_idx, topk_weights, None, experts, alignment, worst, topk), call)

    internode_dispatch = dispatch

    def _maker(self, request: _Request) -> RouteMaker:
        payload, ids, sizes = request.payload, request.ids, (request.payload.row_bytes, request.payload.side_bytes)
        form = ("dispatch", *sizes, request.experts, request.topk, ids is None or ids.dtype)
        found: Optional[RouteMaker] = self.routes.known.get(form)
        if found is None:
            index_type = "int64" if ids is None else INDEX_TYPES[ids.dtype]
            shape = (request.experts, request.topk, index_type)
            most = ht_sizes(*sizes, request.topk)
            found = self.routes.high_throughput(*shape, most, payload.tokens, layout="flat")
            self.routes.known.keep(form, found)
        return found

    def _send(self, request: _Request, call: _Call) -> Tuple[Rows, Any, Any, Any, Any, EventOverlap]:
        payload, ids, weights, worst = request.payload, request.ids, request.weights, request.worst
        maker = self._maker(request)
        # torch.autograd.Function.forward turns gradients off, but tensors still know there whether they require some.
        route, native = maker.next(backward=payload.rows.requires_grad)
        stream = self.lane.start(maker.ring.comm, call.previous_event, call.async_finish)
        queue = 0 if stream is None else stream.cuda_stream
        ids_there = ids
        if ids_there is None or payload.scales is not None:
            with self.lane.on(stream):
                payload.pack()
                ids_there = self._ids_of(request)
        routed = ids_there.data_ptr(), 0 if weights is None else weights.data_ptr(), payload.tokens
        sent = Sending(maker.ring, native, payload.rows, payload.side, routed, call.sms, queue)
        there = stream if call.allocates_there else None
        try:
            if worst == 0:
                out, counts = self._send_and_count(request, maker, native, sent, stream, there)
            else:
                out, counts = self._send_to_worst(request, maker, native, sent, there), []
        except errors.MoeError as error:
            if worst or not self.grow(native, stream, error, payload.tokens, maker.tokens_max):
                raise
            return self._send(request, call)
        rows = out.rows.shape[0]
        received: Rows = out.rows
        if out.side is not None:
            with self.lane.on(stream):
                received = payload.unpack(out.rows, out.side)
        used, outputs = (payload.rows, payload.scales, ids, request.mask, weights), (out.rows, out.ids, out.weights)
        event = self.lane.finish(stream, call.async_finish, used, scales_of(received), outputs, call.allocates_there)
        handle = DispatchHandle(route, payload.tokens, rows, None if ids is None else request.topk, self.place)
        return received, out.ids, out.weights, counts, handle, event

    def _send_and_count(
        self, request: _Request, maker: RouteMaker, native: Handle, sent: Sending, stream: Any, there: Any
    ) -> Tuple[Outputs, List[int]]:
        """Outputs for the rows that come, and the rows per expert. Rows travel while the host waits for these numbers.
        there: the stream to which the outputs belong, or None."""
        try:
            sent.begin()
        except Exception as error:  # noqa: B902
            native.take_part("route_dispatch", error, sent.queue)
            raise
        maker.commit()
        try:
            found = counts_of(native, stream)
            with self.lane.on(there):
                out = self._outputs(request, found.rows)
            sent.complete(out)
        except Exception:  # noqa: B902
            sent.drop()
            raise
        return out, round_all_up(found.rows_per_expert, request.alignment)

    def _send_to_worst(
        self, request: _Request, maker: RouteMaker, native: Handle, sent: Sending, there: Any
    ) -> Outputs:
        """Outputs for num_worst_tokens rows."""
        with self.lane.on(there):
            out = self._outputs(request, request.worst)
        try:
            sent.route_dispatch(out)
        except Exception as error:  # noqa: B902
            native.take_part("route_dispatch", error, sent.queue)
            raise
        maker.commit()
        return out

    def _ids_of(self, request: _Request) -> torch.Tensor:
        """The ids that are routed, on torch's current stream."""
        if request.ids is not None:
            return request.ids
        assert request.mask is not None
        return ids_of_mask(request.mask, request.topk)

    def _outputs(self, request: _Request, rows: int) -> Outputs:
        """Outputs for this many rows, on torch's current stream."""
        ids, weights, entries = request.ids, request.weights, (rows, request.topk)
        return Outputs(
            *request.payload.output(rows),
            None if ids is None else ids.new_empty(entries),
            None if weights is None else weights.new_empty(entries),
        )

    def grow(self, native: Handle, stream: Any, error: errors.MoeError, tokens: int, bound: int) -> bool:
        """After a route that raised `error`: whether some rank had more tokens than the communicator takes, and nothing
        else was wrong. The next dispatch then makes a larger one. A rank with too many tokens takes part in the route
        with a refusal. All ranks hear of it alike, so all of them come here and exchange their numbers of tokens.

        tokens  of this rank; -1: it has refused for another reason"""
        if self.lane.stream is not None:
            stream.synchronize()  # status() answers for work that has run
        status = native.status()
        if not was_refused(status) or self.routes.lost:  # a larger communicator takes all ranks
            return False
        if tokens <= bound and str(error) != str(status):
            tokens = -1  # this rank has refused, for another reason
        wanted = self.routes.all_gather(tokens)
        if min(wanted) < 0 or max(wanted) <= bound:
            return False
        self.routes.raise_tokens_max(max(wanted))
        return True

    def _send_again(
        self, payload: Payload, handle: DispatchHandle, worst: int, call: _Call
    ) -> Tuple[Rows, Any, Any, Any, Any, EventOverlap]:
        """Along the route of an earlier dispatch."""
        if payload.tokens != handle.tokens:
            raise ValueError(f"x has {payload.tokens} tokens, but the dispatch of handle had {handle.tokens}")
        if worst not in (0, handle.rows):
            raise ValueError(f"num_worst_tokens is {worst}, but the dispatch of handle had {handle.rows} rows")
        native = handle.route.handle()
        stream = self.lane.start(handle.route.ring.comm, call.previous_event, call.async_finish)
        with self.lane.on(stream):
            payload.pack()
        with self.lane.on(stream if call.allocates_there else None):
            out, out_side = payload.output(handle.rows)
        handle.route.note("dispatch")
        with self.lane.on(stream):
            payload.send_again(native, handle.route.group.sizes, out, out_side, sms=call.sms, stream=stream)
            received = payload.unpack(out, out_side)
        used, made = (payload.rows, payload.scales), scales_of(received)
        event = self.lane.finish(stream, call.async_finish, used, made, (out,), call.allocates_there)
        return received, None, None, None, None, event

    def _require_mask(self, mask: Any, tokens: int, weights: Any) -> torch.Tensor:
        if weights is not None:
            raise ValueError("topk_weights is given, but topk_idx is None")
        shape = (tokens, self.group_size)
        return require(mask, "is_token_in_rank", "[tokens, ranks]", shape, (torch.bool,), self.device)

    def _send_by_mask(
        self, request: _Request, per_expert: torch.Tensor, call: _Call
    ) -> Tuple[Rows, Any, Any, Any, Any, EventOverlap]:
        """Each rank counts as one expert. Without num_worst_tokens, the ranks first exchange through the group how many
        rows experts get and to how many ranks a token goes. That is slow."""
        assert request.mask is not None
        large = self.group_size > TOPK_LIMIT
        if request.worst:
            if large and self.device.type == "cpu":  # on GPUs nothing may wait here, and the route finds it
                _require_few({self.rank: most_ranks(request.mask)})
            return self._send(request._replace(topk=min(self.group_size, TOPK_LIMIT)), call)
        local = per_expert.shape[0] // self.group_size
        mine = per_expert.tolist(), most_ranks(request.mask) if large else 0
        told = self.routes.all_gather(mine)
        try:
            return self._send_as_told(request, local, told, call)
        except Exception as error:  # noqa: B902
            setattr(error, "is_behind_exchange", True)
            raise

    def _send_as_told(
        self, request: _Request, local: int, told: List[Any], call: _Call
    ) -> Tuple[Rows, Any, Any, Any, Any, EventOverlap]:
        """told: for each rank, its rows for each expert and the most ranks of a token; or the text of its refusal."""
        for rank, one in enumerate(told):
            if isinstance(one, str):
                raise errors.InvalidUsage(f"rank {rank} has refused its arguments: {one}")
        all_counts, all_ranks = zip(*told)
        large = self.group_size > TOPK_LIMIT
        _require_few(dict(enumerate(all_ranks)))
        entries = max(all_ranks)
        topk = min(TOPK_LIMIT, 1 << max(entries - 1, 7).bit_length()) if large else self.group_size
        first = self.rank * local
        counts = [sum(counts[expert] for counts in all_counts) for expert in range(first, first + local)]
        found = self._send(request._replace(topk=topk), call)
        return (*found[:3], [round_up(count, request.alignment) for count in counts], *found[4:])

    def tell_refusal(self, given: Dict[str, Any], error: Exception) -> None:
        """Tells the other ranks of a refused dispatch by a mask, which wait for this rank before they route."""
        exchanges = given.get("is_token_in_rank") is not None and not given.get("num_worst_tokens")
        routes = given.get("handle") is None and given.get("topk_idx") is None
        if exchanges and routes and not self.routes.lost and not getattr(error, "is_behind_exchange", False):
            self.routes.all_gather(str(error))

    @takes_part(lambda _: ("combine",))
    def combine(
        self,
        x: torch.Tensor,
        handle: DispatchHandle,
        topk_weights: Optional[torch.Tensor] = None,
        bias: Union[None, torch.Tensor, Tuple[torch.Tensor, torch.Tensor]] = None,
        config: Optional[Config] = None,
        previous_event: Optional[EventOverlap] = None,
        async_finish: bool = False,
        allocate_on_comm_stream: bool = False,
        out: Optional[torch.Tensor] = None,
    ) -> Tuple[torch.Tensor, Optional[torch.Tensor], EventOverlap]:
        """Sums the rows of each token's ranks, without weights. Collective.

        x             [rows of the dispatch, hidden] bfloat16, float16 or float32
        handle        of that dispatch
        topk_weights  [rows, topk] float32, summed over each token's ranks as x is; or None. Given on all ranks or on
                      none
        bias          [tokens, hidden] of x's dtype, or two of them, added to the sum; or None
        config        its num_sms
        out           [tokens, hidden] of x's dtype for the result; or None. DeepEP has it in low_latency_combine() only

        The weights take a combine of their own. With configure(sum_weights=False) they travel with the rows, and each
        entry comes back from the rank that has its expert alone: the same if entries beside expert -1 are 0.

        Returns combined_x [tokens, hidden], the same bits on every run; combined_topk_weights [tokens, topk], or None;
        and the event."""
        x, biases = self._require_summable(x, require_handle(handle), topk_weights, bias, out)
        native, sms = handle.route.handle(), self._sms(config)
        stream = self.lane.start(handle.route.ring.comm, previous_event, async_finish)
        there = allocate_on_comm_stream or previous_event is not None  # as _Call.allocates_there
        grads: Optional[parts.Grads] = None
        with self.lane.on(stream if there else None):
            result = x.new_empty((handle.tokens, x.shape[1])) if out is None else out
            if topk_weights is not None and not self.sums_weights:
                grads = combined_weights.with_rows(topk_weights, handle.tokens, topk_weights.shape[1])
        handle.route.note("combine")
        columns.combine(handle.route, native, self.lane, columns.Array(x, result), biases, grads, sms, stream)
        weights = None if grads is None else grads.out_weight_grads
        outputs = (None if out is result else result, weights)
        made: Tuple[Optional[torch.Tensor], ...] = ()
        if topk_weights is not None and self.sums_weights:
            with self.lane.on(stream):
                weights = combined_weights.summed(native, topk_weights, handle.tokens, sms=sms, stream=stream)
            made = (weights,)
        used = (x, topk_weights, out, *biases.values())
        return result, weights, self.lane.finish(stream, async_finish, used, made, outputs, there)

    internode_combine = combine

    def _require_summable(
        self, x: Any, handle: DispatchHandle, topk_weights: Any, bias: Any, out: Any
    ) -> Tuple[torch.Tensor, Dict[str, Any]]:
        """The rows of a combine, and its biases for Handle.combine, after a check of all its arrays."""
        due: Tuple[int, Optional[int]] = (handle.rows, None)
        if isinstance(x, torch.Tensor) and x.numel() == 0 and x.dim() > 2:
            x = x.reshape(0, x.shape[-1])  # engines pass the output of experts that got no rows
        require(x, "x", "[rows of the dispatch, hidden]", due, SUMMED, self.device)
        biases = unpack_bias(bias, x, handle.tokens)
        if topk_weights is not None:
            if handle.topk is None:
                raise ValueError("topk_weights is given, but the dispatch of handle had no topk_idx")
            due = (handle.rows, handle.topk)
            require(topk_weights, "topk_weights", "[rows, topk]", due, (torch.float32,), self.device)
        if out is not None:
            require(out, "out", "[tokens, hidden]", (handle.tokens, x.shape[1]), (x.dtype,), self.device)
        return x, biases
