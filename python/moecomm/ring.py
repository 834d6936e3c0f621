"""Rings of handles, for routes that outlive the next route. torch/ and deep_ep/ use them; nothing here imports torch.

A route of a handle ends with the next route of that handle. Whoever keeps several routes alive, such as a training step
with microbatches in flight, needs a handle for each. All ranks must make and use the same handles in the same order, so
nothing may depend on when a rank's garbage collector runs: the handles are used in turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, List, Tuple

from . import errors
from .handle import Handle
from .values import integer

if TYPE_CHECKING:
    from .comm import Communicator


# Handles that a ring makes at once, since nothing may be made during a capture. More are made when they are first
# needed: a training step may keep hundreds of routes, but captures nothing.
AT_ONCE = 8


class HandleRing:
    """`in_flight` handles of one shape, used in turn. next() gives the next route a ticket, commit() makes it count.
    use(ticket) returns its handle as long as fewer than `in_flight` later routes count. `bound` is what users call
    in_flight, and `where` says where they set it, for the sentence about a route that is gone."""

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
        self._make: Callable[[], Handle] = lambda: comm.handle(experts, topk, **settings)
        self.handles: List[Handle] = [self._make() for _ in range(min(self.in_flight, AT_ONCE))]
        self._next = 0

    def next(self) -> Tuple[int, Handle]:
        """Ticket and handle of the next route. All ranks call it alike. Without commit() it returns the same again: a
        call that one rank refuses and repeats must not put its ring ahead of the others'."""
        if not self.handles:
            raise errors.InvalidUsage("the handles have been destroyed")
        place = self._next % self.in_flight
        if place == len(self.handles):
            self.handles.append(self._make())
        return self._next, self.handles[place]

    def commit(self) -> None:
        """Called once the handle of next() has the route."""
        self._next += 1

    def use(self, ticket: int) -> Handle:
        """The handle of an earlier route. Raises InvalidUsage if a later route has taken its handle."""
        ticket = integer(ticket, "ticket", 0, 2**63 - 1)
        if ticket >= self._next:
            raise errors.InvalidUsage(f"ticket {ticket} has not been given out: {self._next} routes have been made")
        later = self._next - 1 - ticket
        if later >= self.in_flight:
            raise errors.InvalidUsage(
                f"the route of ticket {ticket} is gone: {later} later routes have come, and {self._bound} is "
                f"{self.in_flight}. Raise {self._bound}{self._where}, alike on all ranks"
            )
        if not self.handles:
            raise errors.InvalidUsage("the handles have been destroyed")
        return self.handles[ticket % self.in_flight]

    def destroy(self) -> None:
        """Frees the handles. All work that uses them must have run. All ranks call it alike. Idempotent."""
        for handle in self.handles:
            handle.destroy()
        self.handles = []
