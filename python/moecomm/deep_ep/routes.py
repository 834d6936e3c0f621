"""The communicators and handles of a Buffer. Making them is collective, so every decision here follows from values that
DeepEP asks to be the same on all ranks, or from an exchange."""

from __future__ import annotations

import os
import socket
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

import torch

from .. import errors
from ..comm import Communicator
from ..handle import Handle
from ..ring import HandleRing
from ..torch.groups import Members, join
from ..torch.memory import prepare
from .settings import ll_sizes

OWN_SETTINGS = ("in_flight", "low_latency_in_flight", "device", "sum_weights")
TOKENS_MAX = 4096


def domain_size_of(members: Members, settings: Dict[str, Any]) -> int:
    """Ranks of a domain, as moeConfig_t.domainSize explains."""
    hosts = members.all_gather(socket.gethostname())
    chosen = settings.get("domain_size") or int(os.environ.get("MOECOMM_DOMAIN_SIZE") or 0)
    if chosen:
        return chosen
    size = hosts.count(hosts[0])
    blocks = [set(hosts[first : first + size]) for first in range(0, len(hosts), size)]
    return size if len(hosts) % size == 0 and all(len(block) == 1 for block in blocks) else 1


class Route(NamedTuple):
    """A route that later calls may use: a place in a ring of handles."""

    ring: HandleRing
    ticket: int

    def handle(self) -> Handle:
        """Raises InvalidUsage if a later route has taken the handle."""
        return self.ring.use(self.ticket)


class _Group(NamedTuple):
    """A communicator, what it is large enough for, and its rings by shape."""

    comm: Communicator
    sizes: Dict[str, Any]
    rings: Dict[Tuple[Any, ...], HandleRing]

    def fits(self, wanted: Dict[str, Any]) -> bool:
        if wanted["modes"] != self.sizes["modes"]:
            return False
        return all(value <= self.sizes[name] for name, value in wanted.items() if name != "modes")


class Routes:
    """Makes communicators when a call first needs them: a group for dispatch(), and one for low_latency_dispatch().
    One that is too small for a later call stays for its handles, and gets a larger sibling."""

    def __init__(self, members: Members, device: torch.device, settings: Dict[str, Any]):
        self.members, self._device = members, device
        self._settings = {name: value for name, value in settings.items() if name not in OWN_SETTINGS}
        self._in_flight: int = settings["in_flight"]
        self._ll_in_flight: int = settings["low_latency_in_flight"]
        self._groups: List[_Group] = []
        self._closed = False

    def _group(self, wanted: Dict[str, Any], more: Callable[[], Dict[str, int]] = dict) -> _Group:
        """A communicator for `wanted`. `more` has the sizes that a new one is to have beyond that."""
        if self._closed:
            raise errors.InvalidUsage("the Buffer has been destroyed")
        found = next((group for group in self._groups if group.fits(wanted)), None)
        if found is None:
            sizes = dict(wanted)
            for source in (more(), self._settings):
                for name, value in source.items():
                    sizes[name] = max(value, sizes[name]) if name in sizes else value
            found = _Group(join(self.members, self._device, **sizes), sizes, {})
            self._groups.append(found)
        return found

    def _tokens_max(self, tokens: int) -> int:
        """Agreed on by all ranks, who may have different numbers of tokens."""
        configured = self._settings.get("tokens_max")
        return configured if configured else max(TOKENS_MAX, *self.members.all_gather(tokens))

    def high_throughput(
        self, experts: int, topk: int, index_type: str, sizes: Dict[str, int], tokens: int, **shape: Any
    ) -> HandleRing:
        """The ring of a shape of dispatch(). sizes: those of its rows. tokens: this rank's. shape: further keywords of
        the handles."""
        wanted: Dict[str, Any] = dict(modes="ht", **sizes, experts_max=experts, topk_max=topk)
        more = lambda: dict(  # noqa: E731
            tokens_max=self._tokens_max(tokens), experts_max=max(experts, 1024), topk_max=max(topk, 8)
        )
        group = self._group(wanted, more)
        key = (experts, topk, index_type, *sorted(shape.items()))
        if key not in group.rings:
            options: Dict[str, Any] = dict(mode="ht", index_type=index_type, duplicates="merge", **shape)
            ring = HandleRing(group.comm, experts, topk, self._in_flight, **options)
            group.rings[key] = prepare(ring, self._device)
        return group.rings[key]

    def low_latency_group(self, tokens_max: int, hidden: int, experts: int, topk: int) -> _Group:
        """The communicator of low_latency()."""
        return self._group(ll_sizes(tokens_max, hidden, experts, topk))

    def low_latency(self, tokens_max: int, hidden: int, experts: int, topk: int, index_type: str) -> HandleRing:
        """The ring of a shape of low_latency_dispatch()."""
        group = self.low_latency_group(tokens_max, hidden, experts, topk)
        key = (experts, topk, index_type, tokens_max)
        if key not in group.rings:
            options: Dict[str, Any] = dict(mode="ll", layout="expert-major-padded", tokens_max=tokens_max)
            options.update(index_type=index_type, combine_weights=True, duplicates="merge")
            ring = HandleRing(group.comm, experts, topk, self._ll_in_flight, **options)
            group.rings[key] = prepare(ring, self._device)
        return group.rings[key]

    def close(self) -> None:
        """Destroys all communicators, and with them the handles. Idempotent."""
        self._closed = True
        while self._groups:
            self._groups.pop().comm.destroy()

    def drop(self) -> None:
        """close() for the garbage collector, which must not wait long."""
        self._closed = True
        while self._groups:
            self._groups.pop().comm.native.drop()
