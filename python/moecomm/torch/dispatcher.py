"""The tensors of dispatch and combine, for callers who keep no handles: see Dispatcher."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Dict, List, Literal, NamedTuple, Optional, Union

import torch

from .. import errors
from ..casts import CASTS
from ..combine_arguments import WEIGHTS
from ..comm import Communicator
from ..handle import Handle
from ..options import RouteOptions
from ..parts import Grads
from ..ring import HandleRing
from ..values import INT32_MAX, did_you_mean, integer, no_choice, no_keyword
from . import ops
from .memory import CurrentStream, device_of, order_of, prepare, require_tensor

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ..names import CastType, IndexType, LayoutName, Mode, Weights

INDEX_DTYPES = {"int32": torch.int32, "int64": torch.int64}
SUMMED = (torch.bfloat16, torch.float16, torch.float32)
_KEYWORDS = ("layout", "mode", "in_flight", "out_rows_max", "index_type")  # of Dispatcher, beside RouteOptions
WHY_GRADS = "weights of combine are multiplied after the experts: only layouts with a row per expert have such rows"


class Dispatched(NamedTuple):
    """The result of a dispatch. `n` below is the number of out rows.

    rows             [n, hidden] of the dtype of the rows sent; float8_e4m3fn after a cast
    topk_idx         flat, rank-major: [n, topk] local expert or -1, of the index type. Others: [n] int32, the local
                     expert of each row or -1
    topk_weights     float32; flat, rank-major: [n, topk], 0 where topk_idx is -1. Others: [n]. Without weights in the
                     route, 1 for each expert
    side             [n, any], the side payload; with a cast the scales, [n, words]. [0] without either
    rows_per_expert  [local experts] int32, without alignment rows. In layouts by expert, 0 after a fault of the step,
                     whose rows were not delivered: Dispatcher.check() says why
    ticket           [1] int64 on the CPU, for Dispatcher.combine
    tokens           the tokens that this rank sent"""

    rows: torch.Tensor
    topk_idx: torch.Tensor
    topk_weights: torch.Tensor
    side: torch.Tensor
    rows_per_expert: torch.Tensor
    ticket: torch.Tensor
    tokens: int

    def split(self) -> List[torch.Tensor]:
        """The rows of each local expert: views of `rows`, without alignment rows and without those that nothing came for.
        For layouts by expert; ValueError in the others. Local. Waits until rows_per_expert is on the host, so not during a
        capture, and torch.compile(fullgraph=True) cannot trace it.

            made = torch.cat([expert(rows) for expert, rows in zip(experts, got.split())])

        has the order of `rows` if no other rows lie between the experts: in expert-major without expert_alignment and
        out_rows_max. Otherwise, copy the results into the views of another tensor, without gradients:
        got._replace(rows=made).split()."""
        if self.topk_idx.dim() != 1:
            raise ValueError("split: the layout has a row per token, expected expert-major or expert-major-padded")
        counts: List[int] = self.rows_per_expert.tolist()
        places = torch.nonzero(self.topk_idx >= 0).flatten()  # of rows that came; those of an expert are neighbours
        held = places.shape[0]
        if held == 0:
            return [self.rows[:0] for _ in counts]
        firsts = torch.tensor([0, *itertools.accumulate(counts)][:-1], device=places.device)
        starts: List[int] = places[firsts.clamp(max=held - 1)].tolist()  # any place for experts without rows
        return [self.rows[start : start + count] for start, count in zip(starts, counts)]


class Dispatcher:
    """Moves tensors along routes of one shape, with gradients, and inside torch.compile(fullgraph=True).

        moe = moecomm.torch.Dispatcher(comm, experts=64, topk=8, layout="expert-major")
        got = moe.dispatch(rows, topk_idx, topk_weights)     # differentiable in rows and topk_weights
        sums = moe.combine(experts(got.rows), got, weights="apply")

    experts, topk  as for Communicator.handle
    layout         "flat", "expert-major", "expert-major-padded" or "rank-major"
    mode           "auto", "ht" or "ll"
    in_flight      the dispatches of this object whose Dispatched may still be combined or differentiated. A later one
                   takes the handle of the oldest; using that one then raises InvalidUsage. Eight handles are made
                   at once, more when they are first needed, which must not be during a capture
    out_rows_max   out rows of every dispatch. None: as many as come; each dispatch then waits on the CPU for their
                   number. "worst":
                   the most that may come, nranks * tokens_max (times the experts of a token here, by expert). An
                   integer: that many; a step to which more come delivers nothing, and check() says so. The padded
                   layouts have a fixed number, and take None only
    index_type     dtype of topk_idx: "int64" or "int32"
    comm           a Communicator: tensors are on its device
    settings       the other keywords of moecomm.Handle: tokens_max, expert_alignment, duplicates, rows_budget, ...

    Every method is collective unless it says otherwise: all ranks call it in the same order, and all or none of them
    pass topk_weights, side and rows that require gradients. Backward passes are collective too. Steps are queued on
    torch's current stream, behind the communicator's earlier steps. Tensors are contiguous, on the communicator's
    device. Errors name the argument: TypeError, ValueError, and what the library raises.

    Rows that nothing came for are zero, with expert -1 and weight 0. Gradients of gradients are not supported and raise
    NotImplementedError, or RuntimeError in torch's own words."""

    def __init__(
        self,
        comm: Communicator,
        experts: int,
        topk: int,
        *,
        layout: LayoutName = "flat",
        mode: Mode = "auto",
        in_flight: int = 8,
        out_rows_max: Union[int, Literal["worst"], None] = None,
        index_type: IndexType = "int64",
        **settings: Unpack[RouteOptions],
    ):
        for name in settings:
            if name not in RouteOptions.__annotations__:
                raise no_keyword("Dispatcher", name, (*_KEYWORDS, *RouteOptions.__annotations__))
        self.comm, self.experts, self.topk = comm, integer(experts, "experts", 1), integer(topk, "topk", 1)
        self.layout, self.device = layout, device_of(comm)
        self._current = CurrentStream(self.device) if self.device.type == "cuda" else None
        self.by_expert = layout.startswith("expert-major")
        if index_type not in INDEX_DTYPES:
            raise ValueError(
                f"index_type is {index_type!r}, expected 'int32' or 'int64'{did_you_mean(index_type, INDEX_DTYPES)}"
            )
        self.index_dtype = INDEX_DTYPES[index_type]
        info = comm.info
        self.local_experts = experts // info.nranks + (1 if info.rank < experts % info.nranks else 0)
        ring: Dict[str, Any] = dict(layout=layout, mode=mode, index_type=index_type, **settings)
        self.ring = HandleRing(comm, self.experts, self.topk, in_flight, **ring)
        if not self.by_expert:  # by expert, dispatches fill tensors with the counts
            prepare(self.ring, self.device)
        handle = self.ring.next()[1]
        self.mode, self.tokens_max = handle.mode, handle.tokens_max
        self.capacity = self._fixed_rows(out_rows_max, info.nranks, settings.get("expert_alignment", 0))
        self.key = ops.register(self)

    def __repr__(self) -> str:
        kept = self.__dict__  # lacks what making the handles would have set, if that failed
        if "key" not in kept:
            return f"<{type(self).__name__} that has not been made>"
        sizes = f"experts {self.experts}, topk {self.topk}, tokens_max {self.tokens_max}"
        gone = ", destroyed" if self.comm.native.pointer is None or not self.ring.handles else ""
        return f"<{type(self).__name__} layout {self.layout}, mode {self.mode}, {sizes}{gone}>"

    def _fixed_rows(self, given: Any, nranks: int, alignment: int) -> Optional[int]:
        tokens = nranks * self.tokens_max
        if self.layout in ("rank-major", "expert-major-padded"):
            if given is not None:
                raise ValueError(f"out_rows_max is {given!r}, expected None: the layout {self.layout} has fixed rows")
            return tokens * (self.local_experts if self.by_expert else 1)
        if given is None:
            return None
        if given == "worst":
            padding = self.local_experts * max(alignment - 1, 0)
            return tokens * min(self.topk, self.local_experts) + padding if self.by_expert else tokens
        if isinstance(given, (str, float)):
            kind = ValueError if isinstance(given, str) else TypeError
            raise kind(f"out_rows_max is {given!r}, expected 'worst', an integer or None")
        return integer(given, "out_rows_max", 1, INT32_MAX)

    # ---- Dispatch and combine ----------------------------------------------------------------------------------------

    def dispatch(
        self,
        rows: torch.Tensor,
        topk_idx: torch.Tensor,
        topk_weights: Optional[torch.Tensor] = None,
        *,
        side: Optional[torch.Tensor] = None,
        cast: Optional[CastType] = None,
    ) -> Dispatched:
        """Routes, and sends each token to the ranks of its experts.

        rows          [tokens, hidden] of any dtype; a row is a multiple of 16 bytes
        topk_idx      [tokens, topk] of the index type: global expert, -1 = unused
        topk_weights  [tokens, topk] float32, or None for 1 everywhere
        side          [tokens, any] of any dtype, a multiple of 4 bytes, carried along without gradients; or None
        cast          the type of a moecomm.Cast: rows are cast on their way. Then they have no gradient, those of mxfp4
                      and nvfp4 are uint8 [n, hidden / 2], and `side` of the answer has the scales: float32 [n, words],
                      or int32 of four bytes each

        Differentiable in rows and topk_weights."""
        try:
            require_tensor(rows, "rows", ("tokens", "hidden"))
            require_tensor(topk_idx, "topk_idx", ("tokens", "topk"))
            if cast is not None and side is not None:
                raise ValueError("side is given, and so is cast, whose scales take its place: expected one of them")
            if cast is not None and cast not in CASTS:
                raise no_choice(cast, "cast", CASTS)
        except Exception as error:  # noqa: B902
            self.ring.next()
            self.take_part("dispatch", error, {})
            raise
        capacity = -1 if self.capacity is None else self.capacity
        shape = (self.key, capacity, self.by_expert, self.local_experts)
        found = ops.call("dispatch", rows, topk_idx, topk_weights, side, cast or "", *shape)
        out, ids, weights, out_side, counts, ticket = found
        return Dispatched(out, ids, weights, out_side, counts, ticket, rows.shape[0])

    def redispatch(self, rows: torch.Tensor, dispatched: Dispatched) -> torch.Tensor:
        """Sends other rows along the route of an earlier dispatch, without a new exchange of positions.

        rows  [tokens, hidden] of any dtype

        Returns [n, hidden], ordered as dispatched.rows. Differentiable in rows."""
        try:
            require_tensor(rows, "rows", ("tokens", "hidden"))
        except Exception as error:  # noqa: B902
            self.take_part("redispatch", error, dict(ticket=dispatched.ticket))
            raise
        found: torch.Tensor = ops.call("redispatch", rows, dispatched.ticket, self.key, dispatched.rows.shape[0])
        return found

    def combine(
        self,
        rows: torch.Tensor,
        dispatched: Dispatched,
        *,
        weights: Weights = "applied",
        bias: Optional[torch.Tensor] = None,
    ) -> torch.Tensor:
        """Brings the experts' rows back, and sums them for each token.

        rows        [n, hidden] bfloat16, float16 or float32, in the order of dispatched.rows
        dispatched  what dispatch returned, of one of the last `in_flight` dispatches
        weights     "applied": a plain sum. "apply": each row times its weight (expert-major layouts), in fp32;
                    differentiable in dispatched.topk_weights, and so in the weights that dispatch was given
        bias        [tokens, hidden] of the same dtype, added to the sum; or None

        Returns [tokens, hidden], the same bits on every run. Differentiable in rows and bias."""
        try:
            require_tensor(rows, "rows", ("out rows", "hidden"))
            if weights not in ("applied", "apply"):
                raise ValueError(f"weights is {weights!r}, expected 'applied' or 'apply'{did_you_mean(weights, WEIGHTS)}")
            if weights == "apply" and not self.by_expert:
                raise NotImplementedError(f"weights is 'apply' in the layout {self.layout}: {WHY_GRADS}")
            if rows.dtype not in SUMMED:
                raise TypeError(f"rows holds {rows.dtype}, expected bfloat16, float16 or float32")
        except Exception as error:  # noqa: B902
            self.take_part("combine", error, dict(ticket=dispatched.ticket, rows=rows))
            raise
        given = dispatched.topk_weights if weights == "apply" else None
        sums: torch.Tensor = ops.call("combine", rows, given, bias, dispatched.ticket, self.key, dispatched.tokens)
        return sums

    def check(self, dispatched: Dispatched) -> None:
        """Raises what the work noticed of the arguments of a route: an expert id out of range, an out_rows_max that was
        too small. Waits for the current stream. Local. `dispatched`: what dispatch() returned."""
        if self.device.type == "cuda":
            torch.cuda.current_stream(self.device).synchronize()
        status = self.handle_of(dispatched).status()
        if status is not None:
            raise status

    def handle_of(self, dispatched: Dispatched) -> Handle:
        """The moecomm.Handle that has the route of `dispatched`, for its other methods. Local. It belongs to this object.
        Raises InvalidUsage if a later dispatch has taken it."""
        return self.ring.use(int(dispatched.ticket.item()))

    def destroy(self) -> None:
        """Frees the handles, which otherwise live as long as the communicator. All work that uses them must have run.
        Idempotent."""
        self.ring.destroy()

    # ---- What the ops call -------------------------------------------------------------------------------------------

    def take_part(self, operator: str, error: Exception, given: Dict[str, Any]) -> None:
        """Handle.take_part() of an operator's next call. given: the operator's arguments, as far as they are known."""
        try:
            stream = self.stream()
            if operator != "dispatch":
                handle = self.ring.use(int(given["ticket"].item()))
                call = "dispatch" if operator == "redispatch" else "combine"
                if operator == "combine_grads":
                    given = {**given, "grads": Grads(given.get("weight_grads"), None)}
                return handle.take_part(call, error, stream, given)
            handle, calls = self.ring.latest()
        except Exception:  # noqa: B902  the communicator, the handles or the route are gone, on all ranks
            return None
        order = ("route", "dispatch") if self.capacity is None else ("route_dispatch",)
        if calls < len(order):
            handle.take_part(order[calls], error, stream)
        return None

    def stream(self) -> Any:
        """torch's current stream, behind the communicator's earlier steps; None on CPUs."""
        if self.comm.native.pointer is None:
            raise errors.InvalidUsage("the communicator has been destroyed")
        if self._current is None:
            return None
        stream = self._current.get()
        order_of(self.comm).enter(stream)
        return stream
