"""Dispatch and combine for JAX programs: see Dispatcher."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Literal, Optional, Tuple, Union

import jax
import jax.numpy as jnp
import numpy

from ..combine_arguments import WEIGHTS
from ..comm import Communicator
from ..options import RouteOptions
from ..ring import HandleRing
from ..values import INT32_MAX, did_you_mean, integer, no_keyword
from . import calls
from .calls import Rank
from .ffi import ROW_TYPES, Call
from .groups import Communicators, as_communicators, on_each

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ..names import LayoutName, Mode, Weights

_untyped: Any = jax  # some functions lack annotations
_KEYWORDS = ("layout", "mode", "in_flight", "out_rows_max")  # of Dispatcher, beside RouteOptions


@dataclasses.dataclass(frozen=True)
class Dispatched:
    """The result of a dispatch, a pytree. `n` below is the fixed number of out rows.

    rows             [n, hidden] of the dtype of the rows sent; zero where nothing came
    topk_idx         flat, rank-major: [n, topk] local expert or -1. Others: [n], the local expert of each row or -1
    topk_weights     float32; flat, rank-major: [n, topk], 0 where topk_idx is -1. Others: [n]
    rows_per_expert  [local experts] int32, without alignment rows
    ticket           [2] int32, for Dispatcher.combine
    tokens           the tokens that this rank sent; static"""

    rows: jax.Array
    topk_idx: jax.Array
    topk_weights: jax.Array
    rows_per_expert: jax.Array
    ticket: jax.Array
    tokens: int


jax.tree_util.register_dataclass(
    Dispatched,
    data_fields=["rows", "topk_idx", "topk_weights", "rows_per_expert", "ticket"],
    meta_fields=["tokens"],
)


class Dispatcher:
    """Moves rows along routes of one shape, with gradients, in programs that jax.jit or jax.shard_map compile.

        moe = moecomm.jax.Dispatcher(comms, experts=64, topk=8, layout="expert-major-padded")
        got = moe.dispatch(rows, topk_idx, topk_weights)
        sums = moe.combine(experts(got.rows), got, weights="apply")

    comm           a Communicator, or Communicators of several devices of this process
    experts, topk  as for Communicator.handle; experts is a multiple of the ranks
    layout         "flat", "expert-major", "expert-major-padded" or "rank-major"
    mode           "auto", "ht" or "ll"
    in_flight      dispatches whose Dispatched may still be combined or differentiated: at least the layers that one
                   program runs before their backward passes. Using an older one raises InvalidUsage
    out_rows_max   out rows of flat and expert-major. "worst": the most that may come, nranks * tokens_max (by expert:
                   times the experts of a token here). An integer: that many; a step to which more come raises. The padded
                   layouts have a fixed number, and take "worst" only
    settings       the other keywords of moecomm.Handle: tokens_max, expert_alignment, duplicates, rows_budget, ...

    Making and destroying a Dispatcher is collective. All ranks run the same calls in the same order, backward passes
    included. XLA drops calls whose results a program does not use, and runs calls that do not depend on each other in
    the order that it chose when it compiled the program: so all ranks run the same program. Keep a Dispatcher as long as
    programs with its calls run. Errors that show when a program runs are jax.errors.JaxRuntimeError with the library's
    sentence. vmap, forward-mode and gradients of gradients raise."""

    def __init__(
        self,
        comm: Union[Communicator, Communicators],
        experts: int,
        topk: int,
        *,
        layout: LayoutName = "flat",
        mode: Mode = "auto",
        in_flight: int = 8,
        out_rows_max: Union[int, Literal["worst"]] = "worst",
        **settings: Unpack[RouteOptions],
    ):
        for name in settings:
            if name not in RouteOptions.__annotations__:
                raise no_keyword("Dispatcher", name, (*_KEYWORDS, *RouteOptions.__annotations__))
        self.comms = as_communicators(comm)
        self.experts, self.topk = integer(experts, "experts", 1), integer(topk, "topk", 1)
        self.layout, self.by_expert = layout, layout.startswith("expert-major")
        nranks = self.comms.nranks
        if experts % nranks != 0:
            raise ValueError(f"experts is {experts}, expected a multiple of the {nranks} ranks")
        self.local_experts = experts // nranks

        def make(one: Communicator) -> Rank:
            ring = HandleRing(one, self.experts, self.topk, in_flight, layout=layout, mode=mode, **settings)
            return Rank(one, self.comms.lock_of(one), ring)

        own = list(self.comms.by_device.values())
        self._ranks = dict(zip(map(id, own), on_each(make, own)))
        handle = self._ranks[id(own[0])].ring.handles[0]
        self.mode, self.tokens_max = handle.mode, handle.tokens_max
        self.capacity = self._fixed_rows(out_rows_max, nranks, settings.get("expert_alignment", 0))
        self.key = calls.key_of(self)
        self._dispatch = jax.custom_vjp(lambda *given: self._dispatch_forward(*given)[0])
        self._dispatch.defvjp(self._dispatch_forward, self._dispatch_backward)
        self._combine = jax.custom_vjp(lambda *given: self._combine_forward(*given)[0], nondiff_argnums=(3,))
        self._combine.defvjp(self._combine_forward, self._combine_backward)
        self._combine_weighted = jax.custom_vjp(lambda *given: self._weighted_forward(*given)[0], nondiff_argnums=(3,))
        self._combine_weighted.defvjp(self._weighted_forward, self._weighted_backward)

    def _fixed_rows(self, given: Any, nranks: int, alignment: int) -> int:
        tokens = nranks * self.tokens_max
        if self.layout in ("rank-major", "expert-major-padded"):
            if given != "worst":
                raise ValueError(f"out_rows_max is {given!r}, expected 'worst': the layout {self.layout} has fixed rows")
            return tokens * (self.local_experts if self.by_expert else 1)
        if given == "worst":
            padding = self.local_experts * max(alignment - 1, 0)
            return tokens * min(self.topk, self.local_experts) + padding if self.by_expert else tokens
        return integer(given, "out_rows_max", 1, INT32_MAX)

    def rank_of(self, call: Call) -> Rank:
        """For the library's calls: the rank that executes one."""
        return self._ranks[id(self.comms.of(call.ordinal))]

    def _call(self, name: str, results: Any, *arguments: Any) -> Any:
        found = _untyped.ffi.ffi_call(f"moecomm_{name}", results)(*arguments, key=numpy.int64(self.key))
        # On GPUs, XLA merges a call with the store of a result to a slice, such as a scan's, and calls it a second time
        # for its other results. It does not look through a barrier.
        return _varying(_untyped.lax.optimization_barrier(found), arguments[0])

    # ---- Dispatch and combine ----------------------------------------------------------------------------------------

    def dispatch(self, rows: jax.Array, topk_idx: jax.Array, topk_weights: Optional[jax.Array] = None) -> Dispatched:
        """Routes, and sends each token to the ranks of its experts. Collective.

        rows          [tokens, hidden] bfloat16, float16 or float32; a row is a multiple of 16 bytes. At least one token
        topk_idx      [tokens, topk] integers: global expert, -1 = unused
        topk_weights  [tokens, topk] float32, or None for 1 everywhere

        Differentiable in rows and topk_weights."""
        _require(rows, "rows", ("tokens", "hidden"))
        _require(topk_idx, "topk_idx", ("tokens", "topk"))
        if topk_idx.shape != (rows.shape[0], self.topk):
            raise ValueError(f"topk_idx has shape {topk_idx.shape}, expected {(rows.shape[0], self.topk)}")
        if rows.shape[0] > self.tokens_max:
            raise ValueError(f"rows has {rows.shape[0]} tokens, expected at most tokens_max, {self.tokens_max}")
        if rows.shape[0] == 0:
            raise ValueError("rows has no tokens, and XLA drops calls without results: expected one with ids -1 at least")
        _require_rows(rows)
        weights = jnp.ones_like(topk_idx, jnp.float32) if topk_weights is None else topk_weights
        if weights.shape != topk_idx.shape or weights.dtype != jnp.float32:
            raise ValueError(f"topk_weights is {weights.dtype}{weights.shape}, expected float32{topk_idx.shape}")
        out, ids, out_weights, counts, ticket = self._dispatch(rows, topk_idx.astype(jnp.int32), weights)
        return Dispatched(out, ids, out_weights, counts, ticket, rows.shape[0])

    def combine(self, rows: jax.Array, dispatched: Dispatched, *, weights: Weights = "applied") -> jax.Array:
        """Brings the experts' rows back, and sums them for each token. Collective.

        rows        [n, hidden] bfloat16, float16 or float32, in the order of dispatched.rows
        dispatched  what dispatch returned, of one of the last `in_flight` dispatches
        weights     "applied": a plain sum. "apply": each row times its weight (expert-major layouts), in fp32;
                    differentiable in dispatched.topk_weights, and so in the weights that dispatch was given

        Returns [tokens, hidden], the same bits on every run. Differentiable in rows."""
        _require(rows, "rows", ("out rows", "hidden"))
        if rows.shape[0] != self.capacity:
            raise ValueError(f"rows has shape {rows.shape}, expected {self.capacity} out rows")
        if weights not in WEIGHTS:
            raise ValueError(f"weights is {weights!r}, expected 'applied' or 'apply'{did_you_mean(weights, WEIGHTS)}")
        _require_rows(rows)
        if weights == "applied":
            found: jax.Array = self._combine(rows, dispatched.topk_weights, dispatched.ticket, dispatched.tokens)
            return found
        if not self.by_expert:
            raise NotImplementedError(f"weights is 'apply' in the layout {self.layout}, where a row has several experts")
        found = self._combine_weighted(rows, dispatched.topk_weights, dispatched.ticket, dispatched.tokens)
        return found

    def check(self) -> None:
        """Raises what the work noticed of the arguments of a route, such as an expert id out of range, if a handle has not
        been used since. Programs must have run: jax.block_until_ready(). On CPUs they raise it by themselves. Local."""
        for rank in self._ranks.values():
            for handle in rank.ring.handles:
                status = handle.status()
                if status is not None:
                    raise status

    def destroy(self) -> None:
        """Frees the handles. Programs with calls of this Dispatcher must have run. Collective. Idempotent."""
        on_each(lambda rank: rank.ring.destroy(), self._ranks.values())

    # ---- Gradients ---------------------------------------------------------------------------------------------------

    def _dispatch_forward(self, rows: Any, topk_idx: Any, topk_weights: Any) -> Tuple[Any, Any]:
        entries = (self.capacity,) if self.by_expert else (self.capacity, self.topk)
        results = (
            _result(rows, (self.capacity, rows.shape[1])),
            _result(rows, entries, jnp.int32),
            _result(rows, entries, jnp.float32),
            _result(rows, (self.local_experts,), jnp.int32),
            _result(rows, (2,), jnp.int32),
        )
        found = self._call("dispatch", results, topk_idx, topk_weights, rows)
        return tuple(found), (topk_idx, found[4])

    def _dispatch_backward(self, kept: Any, grads: Any) -> Tuple[Any, None, Any]:
        topk_idx, ticket = kept
        rows, _, weights, *_ = grads
        results = (
            _result(rows, (topk_idx.shape[0], rows.shape[1])),
            _result(rows, topk_idx.shape, jnp.float32),
        )
        found = self._call("combine_grads", results, rows, ticket, weights)
        return found[0], None, found[1]

    def _sums(self, call: str, rows: Any, ticket: Any, tokens: int) -> Any:
        return self._call(call, _result(rows, (tokens, rows.shape[1])), rows, ticket)

    def _sent_again(self, sums: Any, ticket: Any) -> Any:
        """Gradients of the sums, at the rows that were summed."""
        return self._call("redispatch", _result(sums, (self.capacity, sums.shape[1])), sums, ticket)

    def _combine_forward(self, rows: Any, weights: Any, ticket: Any, tokens: int) -> Tuple[Any, Any]:
        return self._sums("combine", rows, ticket, tokens), (weights, ticket)

    def _combine_backward(self, tokens: int, kept: Any, sums: Any) -> Tuple[Any, Any, None]:
        weights, ticket = kept
        return self._sent_again(sums, ticket), jnp.zeros_like(weights), None

    def _weighted_forward(self, rows: Any, weights: Any, ticket: Any, tokens: int) -> Tuple[Any, Any]:
        return self._sums("combine_weighted", rows, ticket, tokens), (rows, weights, ticket)

    def _weighted_backward(self, tokens: int, kept: Any, sums: Any) -> Tuple[Any, Any, None]:
        rows, weights, ticket = kept
        grads = self._sent_again(sums, ticket).astype(jnp.float32)
        # The gradient of a weight is not read if nothing came for its row.
        return (grads * weights[:, None]).astype(rows.dtype), (grads * rows.astype(jnp.float32)).sum(axis=1), None


def _result(like: Any, shape: Tuple[int, ...], dtype: Any = None) -> Any:
    return _untyped.ShapeDtypeStruct(shape, dtype or like.dtype)


def _varying(results: Any, like: Any) -> Any:
    """Tells shard_map that results differ between the devices over which `like` differs. jax has had two names for both."""
    known = jax.typeof(like) if hasattr(jax, "typeof") else None
    axes = getattr(known, "vma", None) or getattr(getattr(known, "manual_axis_type", None), "varying", None)
    if not axes:
        return results
    if hasattr(jax.lax, "pcast"):
        return jax.tree.map(lambda one: _untyped.lax.pcast(one, tuple(axes), to="varying"), results)
    return jax.tree.map(lambda one: _untyped.lax.pvary(one, tuple(axes)), results)


def _require(value: Any, name: str, axes: Tuple[str, ...]) -> None:
    if not isinstance(value, (jax.Array, numpy.ndarray)):
        raise TypeError(f"{name} is a {type(value).__name__}, expected an array [{', '.join(axes)}]")
    if value.ndim != len(axes):
        raise ValueError(f"{name} has shape {value.shape}, expected [{', '.join(axes)}]")


def _require_rows(rows: Any) -> None:
    if rows.dtype.name not in ROW_TYPES.values():
        raise TypeError(f"rows holds {rows.dtype.name}, expected {', '.join(ROW_TYPES.values())}")
    if rows.shape[1] * rows.dtype.itemsize % 16 != 0 or rows.shape[1] == 0:
        raise ValueError(f"rows has {rows.shape[1]} elements of {rows.dtype.name}, expected a multiple of 16 bytes")
