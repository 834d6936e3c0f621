"""What a handle is told for its later routes."""

from __future__ import annotations

import ctypes
from typing import Any, List, Optional, Sequence

from . import _native
from .arrays import stream_address
from .layouts import Layout
from .values import integer


def _numbers(values: Optional[Sequence[int]], what: str) -> Optional[List[int]]:
    return None if values is None else [integer(value, f"{what}[{i}]") for i, value in enumerate(values)]


def _host_array(values: Optional[List[int]]) -> Any:
    return None if values is None else (ctypes.c_int32 * len(values))(*values)


def placement_of(
    logical: Optional[Sequence[int]], ranks: Optional[Sequence[int]], local_experts: Optional[Sequence[int]]
) -> Optional[_native.moePlacement_t]:
    """What set_placement passes; it keeps its arrays. None without `logical`."""
    experts = _numbers(logical, "logical")
    placed = {"ranks": _numbers(ranks, "ranks"), "local_experts": _numbers(local_experts, "local_experts")}
    for what, values in placed.items():
        if values is not None and experts is None:
            raise ValueError(f"{what} is given, but logical is None")
        if values is not None and experts is not None and len(values) != len(experts):
            raise ValueError(f"{what} has {len(values)} elements, but logical {len(experts)}")
    if experts is None:
        return None
    placement = _native.moePlacement_t(logicalExperts=max(experts, default=-1) + 1, physicalExperts=len(experts))
    placement.logical = _host_array(experts)
    placement.ranks, placement.localExperts = map(_host_array, placed.values())
    return placement


class HandleSettings:
    """The part of Handle that changes its later routes."""

    _layout: Layout
    _next_layout: Layout
    _tokens_max: int
    topk: int

    def _call(self, function: str, *arguments: Any) -> None:
        raise NotImplementedError

    def set_tokens_bound(self, tokens_bound: int) -> None:
        """Sets how many tokens a rank has at most in later routes, alike on all ranks; 0: tokens_max. Rank-major out rows
        are then [nranks, tokens_bound], those of expert-major-padded [local experts, nranks * tokens_bound], and
        out_source_index is rank * tokens_bound + token. Until the next route, that of the last one counts."""
        self._call("moeHandleSetTokensBound", integer(tokens_bound, "tokens_bound"))
        now = self._layout
        self._next_layout = Layout(
            now.name, now.nranks, tokens_bound or self._tokens_max, now.local_experts, self.topk, now.alignment
        )

    def set_placement(
        self,
        logical: Optional[Sequence[int]],
        ranks: Optional[Sequence[int]] = None,
        local_experts: Optional[Sequence[int]] = None,
        stream: Any = None,
    ) -> None:
        """Where the experts of a model are, for later routes, alike on all ranks: topk_idx then names logical experts,
        and a route takes one physical expert, a copy, of each. All else names physical ones. Sequences of ints on the
        host, such as numpy arrays; read by this call only.

        logical        [physical experts] the logical expert of each; all of 0..max. None: no placement
        ranks          [physical experts] its rank; None: physical experts are in the order of the handle's
        local_experts  [physical experts] its number there; with ranks
        stream         orders the change among routes; not while it is captured"""
        placement = placement_of(logical, ranks, local_experts)
        address = None if placement is None else ctypes.byref(placement)
        self._call("moeHandleSetPlacement", address, stream_address(stream))
