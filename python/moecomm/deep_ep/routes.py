"""The communicators and handles of a Buffer. Making them is collective, so every decision here follows from values that
DeepEP asks to be the same on all ranks, or from an exchange."""

from __future__ import annotations

import functools
import socket
import time
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Tuple, TypeVar

import torch

from .. import errors
from ..comm import Communicator
from ..handle import Handle
from ..prepared import Forms
from ..ring import HandleRing
from ..torch.groups import Members, join, shared_id
from ..torch.memory import prepare
from ..values import integer
from .settings import current_settings, ll_sizes, where_to_set

OWN_SETTINGS = ("in_flight", "low_latency_in_flight", "device", "sum_weights")
AGREED = ("in_flight", "low_latency_in_flight", "sum_weights", "tokens_max", "domain_size")
TOKENS_MAX = 4096
STAYS_FAILED = (
    "This Buffer stays failed until all living ranks call recover(), with losses_max if some have died. A new Buffer, "
    "which all ranks that are left construct, gets a new communicator; handles of earlier dispatches are lost"
)
END_SECONDS = 60.0  # for destroy(); the library takes a second or two
RECOVER_MS_MAX = 86400000  # as the library's

Method = TypeVar("Method", bound=Callable[..., Any])


def agree(members: Members) -> Tuple[Dict[str, Any], int]:
    """The settings of a new Buffer, and the ranks of a domain. Collective. Raises on all ranks what is wrong on one:
    ValueError for a variable that cannot be read, InvalidUsage for settings that differ."""
    settings: Dict[str, Any] = {}
    failure = None
    try:
        settings = current_settings()
    except ValueError as error:
        failure = error
    mine = socket.gethostname(), str(failure or ""), {name: settings.get(name) for name in AGREED}
    hosts, failures, all_settings = zip(*members.all_gather(mine))
    if failure is not None:
        raise failure
    for rank, (sentence, others) in enumerate(zip(failures, all_settings)):
        if sentence:
            raise ValueError(f"rank {rank}: {sentence}")
        for name in AGREED:
            one, other = all_settings[0][name], others[name]
            if one != other:
                raise errors.InvalidUsage(
                    f"{name} is {one} on rank 0, but {other} on rank {rank}. Set it alike on all ranks by "
                    f"{where_to_set(name)}"
                )
    return settings, _domain_size(list(hosts), settings)


def _domain_size(hosts: List[str], settings: Dict[str, Any]) -> int:
    """The ranks of a domain, by the rules of moeConfig_t.domainSize."""
    if settings.get("domain_size"):
        return int(settings["domain_size"])
    size = hosts.count(hosts[0])
    blocks = [set(hosts[first : first + size]) for first in range(0, len(hosts), size)]
    return size if len(hosts) % size == 0 and all(len(block) == 1 for block in blocks) else 1


class Group:
    """A communicator, its sizes, and its rings by shape. A Buffer and the routes of its handles hold
    this object, so that the communicator ends with the last of them: a backward pass may come after the Buffer has been
    replaced. Its end is not collective. Ranks let go at different times, and a rank that has let go makes no call
    for which the others could wait."""

    def __init__(self, comm: Communicator, sizes: Dict[str, Any]):
        self.comm, self.sizes = comm, sizes
        self.rings: Dict[Tuple[Any, ...], HandleRing] = {}

    def __del__(self) -> None:
        comm = self.__dict__.get("comm")
        if comm is not None:
            comm.native.drop()  # before the rings go, whose handles end with it

    def fits(self, wanted: Dict[str, Any]) -> bool:
        if wanted["modes"] != self.sizes["modes"]:
            return False
        return all(value <= self.sizes[name] for name, value in wanted.items() if name != "modes")

    def has_failed(self) -> bool:
        return self.comm.native.pointer is not None and self.comm.async_error() is not None


class Route(NamedTuple):
    """A route that later calls may use: a place in a ring of handles. It keeps the communicator alive."""

    group: Group
    ring: HandleRing
    ticket: int

    def handle(self) -> Handle:
        """Raises InvalidUsage if a later route has taken the handle."""
        return self.ring.use(self.ticket)

    def note(self, call: str) -> None:
        """Tells of a "dispatch" or "combine" along the route, which may end its backward pass."""
        self.ring.note(self.ticket, call)


class RouteMaker(NamedTuple):
    """Makes the routes of one shape."""

    group: Group
    ring: HandleRing

    @property
    def comm(self) -> Communicator:
        return self.ring.comm

    @property
    def tokens_max(self) -> int:
        """The most tokens of a rank."""
        return self.ring.handles[0].tokens_max

    def next(self, backward: bool = False) -> Tuple[Route, Handle]:
        """The next route and its handle, as HandleRing.next()."""
        ticket, native = self.ring.next(backward)
        return Route(self.group, self.ring, ticket), native

    def commit(self) -> None:
        """Must be called as soon as the handle has the route."""
        self.ring.commit()


def collective(method: Method) -> Method:
    """Decorates the methods of a Buffer that use communicators. It refuses them after destroy(), and says after a
    failure how to get a new communicator. Ranks notice a failure in different calls, so a later call cannot do that by
    itself."""

    @functools.wraps(method)
    def call(self: Any, *arguments: Any, **options: Any) -> Any:
        self.routes.require_open()
        try:
            return method(self, *arguments, **options)
        except errors.MoeError as error:
            self.routes.explain(error, groups_of((*arguments, *options.values())))
            raise

    return call  # type: ignore[return-value]


def groups_of(arguments: Iterable[Any]) -> List[Group]:
    """Those of the handles among the arguments of a call."""
    routes = (getattr(value, "route", None) for value in arguments)
    return [route.group for route in routes if isinstance(route, Route)]


class Routes:
    """Makes communicators when a call first needs them: a group for dispatch(), and one for low_latency_dispatch().
    One that is too small for a later call stays for its handles, and gets a larger sibling."""

    def __init__(self, members: Members, device: torch.device, settings: Dict[str, Any], ll_domain_size: int = 0):
        self.members, self._device, self._ll_domain_size = members, device, ll_domain_size
        self._settings = {name: value for name, value in settings.items() if name not in OWN_SETTINGS}
        self._in_flight: int = settings["in_flight"]
        self._ll_in_flight: int = settings["low_latency_in_flight"]
        self._groups: List[Group] = []
        self._asleep: List[Group] = []  # the groups that suspend() has suspended and resume() has not resumed
        self._parted: List[Group] = []  # those of them that checkpoint_prepare() has disconnected
        self._tokens_seen = 0  # the most tokens of a rank that were too many for a communicator
        self._closed = False
        self.lost: List[int] = []  # ranks that the latest recover() has gone on without
        self.known: Forms[Any] = Forms()  # by the form of a call's arguments; a known form needs no check

    def _group(self, wanted: Dict[str, Any], more: Callable[[], Dict[str, int]] = dict) -> Group:
        """A communicator for `wanted`. `more`: further sizes for a new communicator."""
        self.require_open()
        found = next((group for group in self._groups if group.fits(wanted)), None)
        if found is None:
            self._require_all("a larger communicator is needed, as for more tokens or wider rows")
            sizes = dict(wanted)
            for source in (more(), self._settings):
                for name, value in source.items():
                    sizes[name] = max(value, sizes[name]) if name in sizes else value
            found = Group(join(self.members, self._device, **sizes), sizes)
            self._groups.append(found)
        return found

    def _require_all(self, what: str) -> None:
        if self.lost:
            ranks = f"rank{'s' * (len(self.lost) > 1)} {', '.join(map(str, self.lost))}"
            raise errors.InvalidUsage(
                f"{what}, which takes all ranks of the group, but {ranks} are lost: make a new Buffer of the living ranks"
            )

    def all_gather(self, value: Any) -> List[Any]:
        """The objects of all ranks, by the group's own backend. Raises InvalidUsage if some are lost."""
        self._require_all("this call exchanges numbers by the group")
        return self.members.all_gather(value)

    def _tokens_max(self, tokens: int) -> int:
        """The ranks agree on this number, although they may have different numbers of tokens."""
        configured = self._settings.get("tokens_max")
        first: int = configured if configured else max(TOKENS_MAX, *self.members.all_gather(tokens))
        return max(first, self._tokens_seen)

    def raise_tokens_max(self, tokens: int) -> None:
        """Lets later communicators for dispatch() take this many tokens of a rank, and a quarter more. All ranks call
        it with the same number."""
        self._tokens_seen = tokens + tokens // 4
        self.known.clear()

    def high_throughput(
        self, experts: int, topk: int, index_type: str, sizes: Dict[str, int], tokens: int, **shape: Any
    ) -> RouteMaker:
        """Routes of a shape of dispatch(). sizes: those of its rows. tokens: this rank's. shape: further keywords of
        the handles."""
        form = ("high throughput", experts, topk, index_type, *sizes.values(), *shape.values())
        found: Optional[RouteMaker] = self.known.get(form)
        if found is not None:
            return found
        wanted: Dict[str, Any] = dict(modes="ht", **sizes, experts_max=experts, topk_max=topk)
        if self._tokens_seen and "tokens_max" not in shape:
            wanted["tokens_max"] = self._tokens_seen
        more = lambda: dict(  # noqa: E731
            tokens_max=self._tokens_max(tokens), experts_max=max(experts, 1024), topk_max=max(topk, 8)
        )
        group = self._group(wanted, more)
        key = (experts, topk, index_type, *sorted(shape.items()))
        if key not in group.rings:
            options: Dict[str, Any] = dict(mode="ht", index_type=index_type, duplicates="merge", **shape)
            self._make_ring(group, key, self._in_flight, "in_flight", options)
        found = RouteMaker(group, group.rings[key])
        self.known.keep(form, found)
        return found

    def small_batches(
        self, experts: int, topk: int, index_type: str, sizes: Dict[str, int], tokens_max: int, **shape: Any
    ) -> RouteMaker:
        """As high_throughput(), in low-latency mode: dispatches are Handle.route_dispatch."""
        form = ("small batches", experts, topk, index_type, *sizes.values(), tokens_max, *shape.values())
        found: Optional[RouteMaker] = self.known.get(form)
        if found is not None:
            return found
        wanted = dict(modes="ll", **sizes, ll_tokens_max=tokens_max, experts_max=experts, topk_max=topk, ll_sets=2)
        group = self._group(wanted, lambda: dict(topk_max=max(topk, 8)))
        key = (experts, topk, index_type, tokens_max, *sorted(shape.items()))
        if key not in group.rings:
            options: Dict[str, Any] = dict(mode="ll", index_type=index_type, duplicates="merge", tokens_max=tokens_max)
            self._make_ring(group, key, self._in_flight, "in_flight", {**options, **shape})
        found = RouteMaker(group, group.rings[key])
        self.known.keep(form, found)
        return found

    def low_latency_group(self, tokens_max: int, hidden: int, experts: int, topk: int) -> Group:
        """The communicator of low_latency()."""
        alone = self._ll_domain_size
        return self._group(ll_sizes(tokens_max, hidden, experts, topk), lambda: dict(domain_size=alone) if alone else {})

    def low_latency(
        self, tokens_max: int, hidden: int, experts: int, topk: int, index_type: str, weighted: bool
    ) -> RouteMaker:
        """Routes of a shape of low_latency_dispatch(). weighted: they bring the weights, so that combine need not."""
        group = self.low_latency_group(tokens_max, hidden, experts, topk)
        key = (experts, topk, index_type, tokens_max, weighted)
        if key not in group.rings:
            options: Dict[str, Any] = dict(mode="ll", layout="expert-major-padded", tokens_max=tokens_max)
            options.update(index_type=index_type, combine_weights=not weighted, duplicates="merge")
            self._make_ring(group, key, self._ll_in_flight, "low_latency_in_flight", options)
        return RouteMaker(group, group.rings[key])

    def _make_ring(self, group: Group, key: Tuple[Any, ...], in_flight: int, bound: str, options: Any) -> None:
        options.update(bound=bound, where=where_to_set(bound))
        ring = HandleRing(group.comm, key[0], key[1], in_flight, **options)
        group.rings[key] = prepare(ring, self._device)

    def require_open(self) -> None:
        if self._closed:
            raise errors.InvalidUsage("the Buffer has been destroyed")

    def explain(self, error: errors.MoeError, others: List[Group]) -> None:
        """Adds to the sentence of a communicator's failure how to get a new one. `others`: groups of handles, perhaps
        of an earlier Buffer."""
        sentence = str(error)
        if any(group.has_failed() for group in (*self._groups, *others)) and STAYS_FAILED not in sentence:
            error.args = (f"{sentence}. {STAYS_FAILED}",)

    def suspend(self) -> None:
        """Suspends all communicators, or none. Collective: all ranks have made the same ones, in the same order."""
        self.require_open()
        if self._asleep:
            raise errors.InvalidUsage("the Buffer is suspended already")
        try:
            for group in self._groups:
                group.comm.suspend()
                self._asleep.append(group)
        except errors.MoeError:
            if not any(group.has_failed() for group in self._groups):
                self.resume()
            raise

    def resume(self) -> None:
        """Resumes those that are suspended. Collective. After a failure it goes on where it has stopped."""
        self.require_open()
        while self._asleep:
            self._asleep[-1].comm.resume()
            self._asleep.pop()

    def checkpoint_prepare(self) -> None:
        """Suspends and disconnects all communicators. Collective. A repeated call goes on where it has stopped."""
        self.require_open()
        if not self._asleep:
            self.suspend()
        for group in self._asleep[len(self._parted) :]:
            group.comm.disconnect()
            self._parted.append(group)

    def checkpoint_restore(self) -> None:
        """Lets the ranks of all communicators meet again, and resumes them. Collective; the group carries the ids. After a
        failure it goes on where it has stopped."""
        self.require_open()
        while self._parted:
            self._parted[-1].comm.reconnect(shared_id(self.members))
            self._parted.pop()
        self.resume()

    def communicators(self) -> List[Communicator]:
        return [group.comm for group in self._groups]

    def recover(self, timeout_ms: int, losses_max: int) -> List[int]:
        """Recovers all communicators, and returns the ranks that all of them go on without. Collective: all ranks have
        made the same communicators, in the same order."""
        self.require_open()
        end = time.monotonic() + integer(timeout_ms, "timeout_ms", 1, RECOVER_MS_MAX) / 1000
        while True:
            # A rank may die after the recovery of a communicator, which then has failed again. The later ones go on
            # without that rank, so all are recovered once more, until their answers agree. These are the same on all
            # living ranks, which therefore repeat alike.
            answers = []
            for group in self._groups:
                left = max(1, int(1000 * (end - time.monotonic())))
                answers.append(group.comm.recover(left, losses_max))
            self._asleep.clear()  # a recovery wakes
            if all(lost == answers[-1] for lost in answers):
                self.lost = answers[-1] if answers else self.lost
                return list(self.lost)

    def release(self) -> None:
        """Lets go of all communicators. Failed ones end at once, the others when no handle uses them any more. Waits
        for those that end now. Idempotent."""
        self._closed = True
        self.known.clear()
        self._asleep.clear()
        natives = []
        while self._groups:
            group = self._groups.pop()
            natives.append(group.comm.native)
            if group.has_failed():
                group.comm.destroy()
            del group
        for native in natives:
            if native.pointer is None:
                native.await_end(END_SECONDS)

    def close(self) -> None:
        """Destroys all communicators, and with them the handles, even those in use. Idempotent."""
        self._closed = True
        self.known.clear()
        self._asleep.clear()
        while self._groups:
            self._groups.pop().comm.destroy()
