"""The code of a Dispatcher's custom calls, which XLA executes: see dispatcher.py for their arguments and results. A
call finds its Dispatcher by a key, its rank by the device, and an earlier route by its ticket."""

from __future__ import annotations

import itertools
import threading
import weakref
from typing import Any, Dict, NamedTuple, Optional, Protocol

from .. import errors
from ..comm import Communicator
from ..handle import Handle
from ..parts import Describe, Grads
from ..ring import HandleRing
from .ffi import Array, Call, register
from .memory import CudaMemory, HostMemory, Memory


class Rank:
    """One communicator's part of a Dispatcher. Calls of a communicator run one at a time."""

    def __init__(self, comm: Communicator, lock: threading.Lock, ring: HandleRing):
        self.comm, self.lock, self.ring = comm, lock, ring
        self.on_gpu = comm.place.device == "cuda"
        self.memory: Memory = CudaMemory() if self.on_gpu else HostMemory()
        self.counts: Dict[int, int] = {}  # addresses of rows_per_expert, by id of the handle, which the ring keeps

    def rows_per_expert(self, handle: Handle) -> int:
        """The address of the handle's counts."""
        found = self.counts.get(id(handle))
        if found is None:
            found = self.counts[id(handle)] = handle.device_counts().rows_per_expert
        return found


class Owner(Protocol):
    """The parts of a Dispatcher that calls need."""

    by_expert: bool

    def rank_of(self, call: Call) -> Rank: ...


class _Step(NamedTuple):
    """The values with which a handler starts."""

    owner: Owner
    rank: Rank
    stream: int


living: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
_keys = itertools.count(1)


def key_of(dispatcher: Owner) -> int:
    """Gives a Dispatcher the number by which its calls find it."""
    key = next(_keys)
    living[key] = dispatcher
    return key


def _begin(call: Call) -> _Step:
    owner: Optional[Owner] = living.get(call.key)
    if owner is None:
        raise errors.InvalidUsage("the Dispatcher is gone: keep it as long as programs with its calls run")
    rank = owner.rank_of(call)
    return _Step(owner, rank, call.stream() if rank.on_gpu else 0)


def _format(rows: Array) -> Dict[str, Any]:
    """The format of rows that are passed by address."""
    return dict(row_type=rows.row_type, hidden=rows.shape[1])


def _earlier(step: _Step, ticket: Array) -> Handle:
    assert ticket.address is not None
    return step.rank.ring.use(step.rank.memory.load(ticket.address, step.stream))


def _dispatch(call: Call) -> None:
    """topk_idx, topk_weights, rows -> rows, topk_idx, topk_weights, rows_per_expert, ticket"""
    step = _begin(call)
    topk_idx, topk_weights, rows = call.arguments
    out, ids, weights, counts, ticket = call.results
    own_ids, row_experts = (None, ids.address) if step.owner.by_expert else (ids.address, None)
    describe = Describe(own_ids, weights.address, out_row_experts=row_experts)
    options: Dict[str, Any] = dict(tokens=rows.shape[0], out_rows_max=out.shape[0], **_format(rows))
    options.update(describe=describe, pad_indices=True, pad_rows=True, stream=step.stream)
    rank = step.rank
    with rank.lock:
        number, handle = rank.ring.next()
        handle.route_dispatch(topk_idx.address, topk_weights.address, rows.address, out.address, **options)
        rank.ring.commit()
        assert counts.address is not None and ticket.address is not None
        rank.memory.copy(counts.address, rank.rows_per_expert(handle), 4 * counts.shape[0], step.stream)
        rank.memory.store(ticket.address, number, step.stream)


def _redispatch(call: Call) -> None:
    """rows, ticket -> rows"""
    step = _begin(call)
    (rows, ticket), (out,) = call.arguments, call.results
    with step.rank.lock:
        _earlier(step, ticket).dispatch(
            *(rows.address, out.address), out_rows_max=out.shape[0], pad_rows=True, stream=step.stream, **_format(rows)
        )


def _combine_as(call: Call, **options: Any) -> None:
    step = _begin(call)
    rows, ticket, *more = call.arguments
    out, *out_grads = call.results
    if out_grads:
        options["grads"] = Grads(more[0].address, out_grads[0].address)
    with step.rank.lock:
        _earlier(step, ticket).combine(rows.address, out.address, stream=step.stream, **_format(rows), **options)


def _combine(call: Call) -> None:
    """rows, ticket -> sums"""
    _combine_as(call)


def _combine_weighted(call: Call) -> None:
    """The same; the library knows the weights of the route."""
    _combine_as(call, weights="apply")


def _combine_grads(call: Call) -> None:
    """rows, ticket, weight_grads -> sums, weight_grads. The backward pass of a dispatch."""
    _combine_as(call)


for _function in (_dispatch, _redispatch, _combine, _combine_weighted, _combine_grads):
    register(f"moecomm{_function.__name__}", _function)
