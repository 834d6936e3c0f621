"""Calls of users that have checked their tensors themselves: moecomm.deep_ep and moecomm.torch. Decision 0097 says why.

prepared.py finds the struct of a call by looking at all arrays. A user that has looked at them already keeps an OwnCall
and gives it addresses. Unlike a form of prepared.py, it serves any number of tokens and rows.

HandleRing.own_calls has those of a ring; low_latency.py keeps them with the form of its arguments. A call takes its
OwnCall out of there and puts it back when it has ended, so that another thread makes one of its own. After an error it
is not put back."""

from __future__ import annotations

from typing import Any, Mapping, Sequence, Tuple

from . import _native
from .arrays import address
from .handle import Handle
from .options import COMBINE_DEFAULTS, DISPATCH_DEFAULTS
from .prepared import Prepared, named_arrays, pointers


class OwnCall:
    """An argument struct. It is made from arrays that pass the checks of a handle, and serves all handles of its ring.

    The user vouches that later arrays have the dtypes, widths and devices of the first ones, that they are contiguous,
    and that they have room for the rows. `addresses` of a call are in the order of `arrays` and then of the arrays among
    `options`, without those that were None. The user takes part in a call that raises: Handle.take_part()."""

    __slots__ = ("_prepared",)
    _names: Tuple[str, str]

    def __init__(self, args: Any, tokens: int, arrays: Tuple[Any, ...], options: Mapping[str, Any]):
        given = (*arrays, *(array for _, array in named_arrays(options)))
        addresses = [address(array) for array in given if array is not None]
        self._prepared = Prepared(args, tokens, None)
        learned = self._prepared.learn(pointers(args, self._names, arrays, options), addresses)
        assert learned, "a struct has another pointer than its array"
        self._prepared.busy.release()

    def _take(self, addresses: Sequence[int]) -> Prepared:
        """The struct with these addresses, held for a call."""
        held = self._prepared.use(addresses, None)
        assert held, "two calls have the same struct"
        return self._prepared


class OwnDispatch(OwnCall):
    """A dispatch: see OwnCall. `capacity` of a call: the rows for which its outputs have room."""

    __slots__ = ()
    _names = ("rows", "out_rows")

    def __init__(self, handle: Handle, tokens: int, rows: Any, out_rows: Any, **options: Any):
        arrays = (rows, out_rows)
        args, _ = handle._check_dispatch(tokens, arrays, {**DISPATCH_DEFAULTS, **options})
        super().__init__(args, tokens, arrays, options)

    @classmethod
    def with_route(
        cls, handle: Handle, topk_idx: Any, topk_weights: Any, rows: Any, out_rows: Any, **options: Any
    ) -> OwnDispatch:
        """One for route_dispatch(), after a check of the route's arrays too."""
        _, _, tokens = handle._take_route(topk_idx, topk_weights, None)
        return cls(handle, tokens, rows, out_rows, **options)

    def route_dispatch(
        self,
        handle: Handle,
        ids: int,
        weights: int,
        tokens: int,
        addresses: Sequence[int],
        capacity: int,
        queue: int,
        kept: Tuple[Any, ...] = (),
    ) -> None:
        """Handle.route_dispatch() on the stream with the address `queue`. kept: the tensors, which a send-only call keeps
        until complete()."""
        prepared = self._take(addresses)
        prepared.args.outRowsMax = prepared.capacity = capacity
        _route_dispatch(handle, prepared, ids, weights, tokens, queue, kept)

    def complete(self, handle: Handle, addresses: Sequence[int], capacity: int, queue: int) -> None:
        """Gives the outputs to a dispatch that OwnBeginning has begun, and ends it."""
        prepared = self._take(addresses)
        prepared.args.outRowsMax = prepared.capacity = capacity
        pointer = handle._pointer or handle._require_alive()
        handle._native.call(handle._library.moeCompleteDispatch, pointer, prepared.reference, queue)
        handle._note_completed_dispatch(prepared)


class OwnBeginning(OwnCall):
    """The first part of a high-throughput dispatch, which needs no outputs: rows travel while the host waits for the
    counts of the route and makes them. OwnDispatch.complete() ends it, Handle.complete() drops the rows."""

    __slots__ = ()
    _names = ("rows", "out_rows")

    def __init__(self, handle: Handle, tokens: int, rows: Any, **options: Any):
        given = {**DISPATCH_DEFAULTS, **options, "out_rows_max": 0, "send_only": True}
        args, _ = handle._check_dispatch(tokens, (rows, None), given)
        args.flags |= _native.moeOutputsLater
        super().__init__(args, tokens, (rows, None), options)

    def route_dispatch(
        self, handle: Handle, ids: int, weights: int, tokens: int, addresses: Sequence[int], queue: int
    ) -> None:
        """Makes a route and begins a dispatch along it."""
        _route_dispatch(handle, self._take(addresses), ids, weights, tokens, queue, ())


def _route_dispatch(
    handle: Handle, prepared: Prepared, ids: int, weights: int, tokens: int, queue: int, kept: Tuple[Any, ...]
) -> None:
    pointer = handle._pointer or handle._require_alive()
    handle._native.call(handle._library.moeRouteDispatch, pointer, ids, weights, tokens, prepared.reference, queue)
    handle._note_route(tokens)
    handle._note_dispatch(prepared, kept, {})


class OwnCombine(OwnCall):
    """A combine: see OwnCall."""

    __slots__ = ()
    _names = ("rows", "out")

    def __init__(self, handle: Handle, tokens: int, rows: Any, out: Any, **options: Any):
        arrays = (rows, out)
        args, _ = handle._check_combine(tokens, arrays, {**COMBINE_DEFAULTS, **options})
        super().__init__(args, tokens, arrays, options)

    def combine(self, handle: Handle, addresses: Sequence[int], queue: int, kept: Tuple[Any, ...] = ()) -> None:
        """Handle.combine(). kept: the tensors, which a send-only call keeps until complete()."""
        prepared = self._take(addresses)
        pointer = handle._pointer or handle._require_alive()
        handle._native.call(handle._library.moeCombine, pointer, prepared.reference, queue)
        handle._note_combine(prepared, kept, {})


def bound_of(handle: Handle) -> int:
    """The most tokens of a rank in the next route, on which the checks of arrays depend."""
    return handle._next_layout.tokens_max


def holds_all(handle: Handle, tokens: int, rows: int) -> bool:
    """Whether arrays of so many rows have room for all that the latest dispatch along the route can have delivered, and
    the route has so many tokens, and the tokens bound of the next route. Otherwise Handle.combine() has to look."""
    capacity = handle._capacity
    unchanged = handle._tokens == tokens and handle._layout is handle._next_layout
    return unchanged and capacity is not None and rows >= capacity
