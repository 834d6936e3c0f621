"""The keywords of collective calls and of their makers: names, types and defaults. The documentation of Handle and of
Communicator explains them.

Annotations reach a type checker through `**options: Unpack[DispatchOptions]`. At run time the options are the dictionary
that the caller wrote, without a default for each that was left out: calls in every decode step notice the difference."""

from __future__ import annotations

from typing import Any, Callable, Dict, Mapping, Optional, Sequence, TypedDict

from .names import (
    Backend,
    Cast,
    Duplicates,
    Ids,
    IndexType,
    LayoutName,
    LogLevel,
    Mode,
    OnFault,
    RowType,
    ScaleLayout,
    Transport,
    Weights,
    Wire,
)
from .payloads import Payload
from .values import no_keyword


class DispatchOptions(TypedDict, total=False):
    """Keywords of Handle.dispatch and Handle.route_dispatch, beside `stream`."""

    row_type: Optional[RowType]
    hidden: Optional[int]
    out_rows_max: Optional[int]
    side: Any
    side_bytes: Optional[int]
    out_side: Any
    payloads: Sequence[Payload]
    out_topk_idx: Any
    out_topk_weights: Any
    out_source_index: Any
    out_expert_offsets: Any
    out_layout_range: Any
    out_source_info: Any
    out_row_experts: Any
    cumulative_rows: Any
    cumulative_wait_ns: Any
    cast: Optional[Cast]
    exact: bool
    weights_on_input: bool
    out_scales: Any
    scale_layout: ScaleLayout
    out_scale_block_offsets: Any
    input_scale: Any
    global_scale: Any
    pad_indices: bool
    pad_rows: bool
    ids: Ids
    invalid_id: int
    send_only: bool
    sms: int


class CombineOptions(TypedDict, total=False):
    """Keywords of Handle.combine, beside `stream`."""

    row_type: Optional[RowType]
    hidden: Optional[int]
    weights: Weights
    wire: Wire
    topk_weights: Any
    bias0: Any
    bias1: Any
    weight_grads: Any
    out_weight_grads: Any
    cumulative_wait_ns: Any
    ready: Any
    ready_rows: int
    ready_value: int
    send_only: bool
    sms: int
    complete_sms: int


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
    **dict(payloads=(), scale_layout="row-major", ids="local", invalid_id=-1, sms=0),
    **dict.fromkeys(("exact", "weights_on_input", "pad_indices", "pad_rows", "send_only"), False),
}
COMBINE_DEFAULTS: Dict[str, Any] = {
    **dict.fromkeys(CombineOptions.__annotations__),
    **dict(weights="applied", wire="row", ready_rows=0, ready_value=1, send_only=False, sms=0, complete_sms=0),
}
# Options whose values are arrays or addresses.
ARRAYS = frozenset(
    name
    for name in (*DISPATCH_DEFAULTS, *COMBINE_DEFAULTS)
    if name.startswith(("out_", "cumulative_", "bias")) and name != "out_rows_max"
) | {"side", "input_scale", "global_scale", "topk_weights", "weight_grads", "ready"}


def complete(call: str, given: Mapping[str, Any], defaults: Mapping[str, Any]) -> Dict[str, Any]:
    """`given` with the defaults for the keywords that it lacks."""
    for name in given:
        if name not in defaults:
            raise no_keyword(call, name, defaults)
    return {**defaults, **given}
