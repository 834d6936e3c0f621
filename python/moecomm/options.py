"""The keywords of collective calls and of their makers: names, types and defaults. The documentation of Handle and of
Communicator explains them.

Annotations reach a type checker through `**options: Unpack[DispatchOptions]`. At run time the options are the dictionary
that the caller wrote, without a default for each that was left out: calls in every decode step notice the difference."""

from __future__ import annotations

from typing import Any, Callable, Dict, Mapping, Optional, Sequence, TypedDict

from .names import Backend, Duplicates, IndexType, LayoutName, LogLevel, Mode, OnFault, RowType, Transport, Weights, Wire
from .parts import Cast, Describe, Grads, Payload, Ready
from .values import no_keyword


class DispatchParts(TypedDict, total=False):
    """Keywords of a dispatch that have arrays."""

    cast: Optional[Cast]
    describe: Optional[Describe]
    payloads: Sequence[Payload]


class DispatchOptions(DispatchParts, total=False):
    """Keywords of Handle.dispatch and Handle.route_dispatch, beside `stream`."""

    row_type: Optional[RowType]
    hidden: Optional[int]
    out_rows_max: Optional[int]
    pad_indices: bool
    pad_rows: bool
    send_only: bool
    sms: int


class CombineParts(TypedDict, total=False):
    """Keywords of a combine that are arrays or have some."""

    topk_weights: Any
    bias0: Any
    bias1: Any
    grads: Optional[Grads]
    ready: Optional[Ready]
    cumulative_wait_ns: Any


class CombineOptions(CombineParts, total=False):
    """Keywords of Handle.combine, beside `stream`."""

    weights: Weights
    wire: Wire
    row_type: Optional[RowType]
    hidden: Optional[int]
    send_only: bool
    sms: int


class _DispatchArrays(TypedDict):
    rows: Any
    out_rows: Any


class DispatchPlan(_DispatchArrays, DispatchOptions):
    """A dispatch for Handle.plan: arrays like those of its calls, and keywords."""


class _CombineArrays(TypedDict):
    rows: Any
    out: Any


class CombinePlan(_CombineArrays, CombineOptions):
    """A combine for Handle.plan: arrays like those of its calls, and keywords."""


class RouteOptions(TypedDict, total=False):
    """Keywords of Communicator.handle that moecomm.torch.Dispatcher passes on."""

    tokens_max: int
    expert_alignment: int
    arrivals: bool
    duplicates: Duplicates
    statistics: bool
    combine_weights: bool
    rows_budget: int
    expert_counts: bool
    local_only: bool
    on_fault: OnFault


class HandleOptions(RouteOptions, total=False):
    """Keywords of Communicator.handle."""

    layout: LayoutName
    mode: Mode
    index_type: IndexType


class SizeOptions(TypedDict, total=False):
    """Keywords of Communicator that moecomm.deep_ep.configure() takes too."""

    tokens_max: int
    row_bytes_max: int
    side_bytes_max: int
    experts_max: int
    timeout_ms: int
    sms: int
    staging_rows: int
    heap_bytes: int
    domain_size: int
    staging_areas: int
    transport: Transport
    interface_name: Optional[str]
    dump_folder: Optional[str]
    watch_folder: Optional[str]
    log_level: Optional[LogLevel]
    log: Optional[Callable[[int, str], Any]]
    allocate: Optional[Callable[[int, int], Optional[int]]]
    free: Optional[Callable[[int, int, int], Any]]


class GroupOptions(SizeOptions, total=False):
    """Keywords of Communicator that moecomm.torch.communicator() takes too."""

    modes: Mode
    ll_tokens_max: int
    topk_max: int
    ll_sets: int


class CommunicatorOptions(GroupOptions, total=False):
    """Keywords of Communicator and of memory_size."""

    backend: Backend
    device: int


DISPATCH_DEFAULTS: Dict[str, Any] = {
    **dict.fromkeys(DispatchOptions.__annotations__),
    **dict(payloads=(), pad_indices=False, pad_rows=False, send_only=False, sms=0),
}
COMBINE_DEFAULTS: Dict[str, Any] = {
    **dict.fromkeys(CombineOptions.__annotations__),
    **dict(weights="applied", wire="row", send_only=False, sms=0),
}
# Options whose values are arrays or addresses.
ARRAYS = frozenset(("topk_weights", "bias0", "bias1", "cumulative_wait_ns"))


def complete(call: str, given: Mapping[str, Any], defaults: Mapping[str, Any]) -> Dict[str, Any]:
    """`given` with the defaults for the keywords that it lacks."""
    for name in given:
        if name not in defaults:
            raise no_keyword(call, name, defaults)
    return {**defaults, **given}
