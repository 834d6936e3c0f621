"""One rank's membership of a group: what handles and window memory need of a Communicator."""

from __future__ import annotations

import ctypes
from typing import Any, List, NamedTuple, Optional

from . import _native, errors
from ._library import library
from .checks import Place
from .lifetime import Native


class Info(NamedTuple):
    """The answer of moeCommGetInfo."""

    nranks: int
    rank: int
    backend: int
    device: int
    domain: int
    domain_count: int
    domain_rank: int
    domain_size: int
    timeout_ms: int
    bulk_copies: int
    window_bytes: int
    heap_bytes: int


class Limits(NamedTuple):
    """The answer of moeGetLimits."""

    ranks_max: int
    topk_max: int
    experts_max: int
    tokens_max: int
    ll_tokens_max: int
    row_alignment: int
    row_bytes_max: int
    side_bytes_max: int
    outstanding_max: int
    ll_sets: int


def values_of(struct: ctypes.Structure) -> List[Any]:
    return [getattr(struct, field[0]) for field in struct._fields_[1:]]


def limits_of(comm: Optional[int]) -> Limits:
    values = _native.moeLimits_t()
    errors.check(library(), library().moeGetLimits(comm, ctypes.byref(values)), comm)
    return Limits(*values_of(values))


class Membership:
    """The native communicator, where arrays must be, and what the library says of both."""

    native: Native
    place: Place  # of the arrays of this communicator's steps

    @property
    def info(self) -> Info:
        """Info: nranks, rank, backend, device, domain, ..."""
        info = _native.moeCommInfo_t()
        with self.native as pointer:
            errors.check(library(), library().moeCommGetInfo(pointer, ctypes.byref(info)), pointer)
        return Info(*values_of(info))

    @property
    def limits(self) -> Limits:
        """The library's limits as this communicator was built."""
        with self.native as pointer:
            return limits_of(pointer)
