"""Checks of a placement: where the experts of a model are."""

from __future__ import annotations

import ctypes
from typing import Any, List, Optional, Sequence

from . import _native
from .values import integer


def _numbers(values: Optional[Sequence[int]], what: str) -> Optional[List[int]]:
    return None if values is None else [integer(value, f"{what}[{i}]") for i, value in enumerate(values)]


def _host_array(values: Optional[List[int]]) -> Any:
    return None if values is None else (ctypes.c_int32 * len(values))(*values)


def placement_of(
    logical: Optional[Sequence[int]], ranks: Optional[Sequence[int]], local_experts: Optional[Sequence[int]]
) -> Optional[_native.moePlacement_t]:
    """The struct that set_placement passes; it keeps its arrays. None without `logical`."""
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
