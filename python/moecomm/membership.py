"""One rank's membership of a group: what handles and window memory need of a Communicator."""

from __future__ import annotations

import ctypes
from typing import Any, List, NamedTuple, Optional

from . import _native, errors
from ._library import library
from .checks import Place
from .lifetime import Native


class Info(NamedTuple):
    """The values of a communicator that follow from its settings: the answer of moeCommGetInfo.

    nranks        ranks of the communicator
    rank          this one, 0..nranks - 1
    backend       a moeBackend value; Communicator.backend has its name
    device        CUDA ordinal; -1 with the host backend
    domain        index of this rank's domain, 0..domain_count - 1
    domain_count  domains of the communicator
    domain_rank   this rank's index in its domain
    domain_size   ranks of each domain
    timeout_ms    in force now
    bulk_copies   1 if the kernels use the GPU's bulk-copy engine
    window_bytes  of this rank's window, heap included
    heap_bytes    of these: for Communicator.window()
    failed        address of a uint32 in device memory: not 0 since a step of this rank has found that the communicator
                  has failed; 0 again after recover()"""

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
    failed: int


class Limits(NamedTuple):
    """How large things may be: the answer of moeGetLimits.

    ranks_max        ranks of a communicator
    topk_max         experts of a token
    experts_max      experts over all ranks
    tokens_max       HT: tokens of a rank and call
    ll_tokens_max    LL: tokens of a rank and call
    row_alignment    bytes; a row, its payloads together and every row pointer is a multiple of it
    row_bytes_max    bytes of a row
    side_bytes_max   bytes of a row's payloads together
    outstanding_max  HT dispatches that may await complete() at once, and apart from them as many HT combines
    ll_sets          LL operations that may await it at once"""

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
        """The values on this rank that follow from the settings."""
        info = _native.moeCommInfo_t()
        with self.native as pointer:
            errors.check(library(), library().moeCommGetInfo(pointer, ctypes.byref(info)), pointer)
        return Info(*values_of(info))

    @property
    def limits(self) -> Limits:
        """What this communicator was built for."""
        with self.native as pointer:
            return limits_of(pointer)
