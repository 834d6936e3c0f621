"""Rings of handles, for routes that outlive the next route. torch/ and deep_ep/ use them; nothing here imports torch.

A route of a handle ends with the next route of that handle. Whoever keeps several routes alive, such as a training step
with microbatches in flight, needs a handle for each. All ranks must make and use the same handles in the same order, so
nothing may depend on when a rank's garbage collector runs. The order of collective calls decides: a route is over when
enough later ones have come, or, if its maker said that a backward pass will follow, when that pass has been made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Optional, Tuple

from . import errors
from .handle import Handle
from .prepared import Forms
from .values import integer

if TYPE_CHECKING:
    from .comm import Communicator


# Handles that a ring makes at once, since nothing may be made during a capture. More are made when they are first
# needed: a training step may keep hundreds of routes, but captures nothing.
AT_ONCE = 8
# Handles of a ring for routes whose backward pass has not come. Then the oldest route is given up: its maker was wrong.
HELD_MOST = 512


class _Use:
    """The latest route of a handle. `awaits` are the calls along it that a backward pass still makes."""

    __slots__ = ("ticket", "awaits")

    def __init__(self, ticket: int, awaits: Tuple[str, ...]):
        self.ticket, self.awaits = ticket, awaits


class HandleRing:
    """Handles of one shape. next() gives the next route a ticket, commit() makes it count. A route counts too if this
    rank took part in it and it raised: the other ranks may not have noticed. use(ticket) returns its handle as long as
    fewer than `in_flight` later routes count, or the backward pass that next() was told of has not been made. `bound` is
    what users call in_flight, and `where` says where they set it, for the sentence about a route that is gone."""

    def __init__(
        self,
        comm: Communicator,
        experts: int,
        topk: int,
        in_flight: int,
        *,
        bound: str = "in_flight",
        where: str = "",
        **settings: Any,
    ):
        self.comm = comm
        self.in_flight = integer(in_flight, bound, 1)
        self._bound, self._where = bound, f" by {where}" if where else ""
        self._settings: Dict[str, Any] = dict(experts=experts, topk=topk, **settings)
        self.handles: List[Handle] = []
        self._uses: Dict[int, _Use] = {}  # by place among the handles, the oldest route first
        self._places: Dict[int, int] = {}  # by ticket
        while len(self.handles) < min(self.in_flight, AT_ONCE):
            self._add()
        self._next = 0
        self.given_out = 0  # calls of next()
        self._void = 0  # routes before this ticket ended when the communicator recovered
        self.own_calls: Forms[Any] = Forms()  # OwnCalls of the ring's owner: see own_calls.py
        self._given: Optional[Tuple[int, bool, int]] = None  # by next() and not committed: place, backward, routes by then
        self._latest: Optional[Tuple[Handle, int]] = None  # by next(), with its calls by then
        comm.rings.add(self)

    def _add(self) -> int:
        handle = self.comm.handle(**self._settings)
        if self.handles:
            handle.share_calls(self.handles[0])
        self.handles.append(handle)
        return len(self.handles) - 1

    def _choose(self) -> int:
        """The place for the next route: one without a route, one whose route is over, a new one."""
        if len(self._uses) < len(self.handles):
            return len(self._uses)
        for place, use in self._uses.items():
            if use.awaits == ("over",) or (not use.awaits and self._next - use.ticket >= self.in_flight):
                return place
        if len(self.handles) < max(self.in_flight, HELD_MOST):
            return self._add()
        return next(iter(self._uses))

    def next(self, backward: bool = False) -> Tuple[int, Handle]:
        """Ticket and handle of the next route. All ranks call it alike. Without a route it returns the same again.
        backward: a backward pass will follow, a dispatch and then a combine along the route: see note()."""
        if self._given is not None:
            self._settle()
        if not self.handles:
            raise errors.InvalidUsage("the handles have been destroyed")
        place = self._choose()
        self.given_out += 1
        found = self.handles[place]
        self._given, self._latest = (place, backward, found.routes), (found, found.calls)
        return self._next, found

    def _settle(self) -> None:
        """Commits the route of the latest next(), if it was made, but raised."""
        if self._given is not None and self.handles[self._given[0]].routes != self._given[2]:
            self.commit()

    def latest(self) -> Tuple[Handle, int]:
        """The handle that next() gave last, and the number of collective calls in which this rank took part since
        then."""
        assert self._latest is not None
        return self._latest[0], self._latest[0].calls - self._latest[1]

    def commit(self) -> None:
        """Called once the handle of next() has the route."""
        assert self._given is not None
        place, backward, _ = self._given
        before = self._uses.pop(place, None)
        if before is not None:
            del self._places[before.ticket]
        self._uses[place] = _Use(self._next, ("dispatch", "combine") if backward else ())
        self._places[self._next] = place
        self._next += 1
        self._given = None

    def note(self, ticket: int, call: str) -> None:
        """Tells of a "dispatch" or "combine" along an earlier route."""
        place = self._places.get(ticket)
        awaits = self._uses[place].awaits if place is not None else ()
        if place is not None and awaits and awaits[0] == call:
            self._uses[place].awaits = awaits[1:] or ("over",)

    def use(self, ticket: int) -> Handle:
        """The handle of an earlier route. Raises InvalidUsage if a later route has taken its handle."""
        if self._given is not None:
            self._settle()
        if ticket.__class__ is not int or ticket < 0:
            ticket = integer(ticket, "ticket", 0, 2**63 - 1)
        if ticket >= self._next:
            raise errors.InvalidUsage(f"ticket {ticket} has not been given out: {self._next} routes have been made")
        if ticket < self._void:
            raise errors.InvalidUsage(f"the route of ticket {ticket} is gone: the communicator has recovered since")
        place = self._places.get(ticket)
        later = self._next - 1 - ticket
        if place is None or (not self._uses[place].awaits and later >= self.in_flight):
            raise errors.InvalidUsage(
                f"the route of ticket {ticket} is gone: {later} later routes have come, and {self._bound} is "
                f"{self.in_flight}. Raise {self._bound}{self._where}, alike on all ranks"
            )
        if not self.handles:
            raise errors.InvalidUsage("the handles have been destroyed")
        return self.handles[place]

    def restart(self) -> None:
        """The communicator has recovered: no route lives, and the next one takes the first handle, alike on all ranks,
        though these may have made different routes before."""
        self._uses.clear()
        self._places.clear()
        self._given = None
        self._void = self._next

    def destroy(self) -> None:
        """Frees the handles. All work that uses them must have run. All ranks call it alike. Idempotent."""
        for handle in self.handles:
            handle.destroy()
        self.handles = []
