"""Rows that are wider than their communicator takes. A cached dispatch or a combine uses the communicator of its route,
whose rows may have been narrower: then the columns travel in several calls. All ranks cut alike, since their rows have
the same width, and their communicators the same sizes."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence

import torch

from ..handle import Handle
from ..handle_refusals import took_part
from ..parts import Describe, Grads
from . import sending
from .events import Lane
from .routes import Route
from .settings import round_up

SUMMED = (torch.bfloat16, torch.float16, torch.float32)
ALIGNMENT = 16  # moeLimits_t.rowAlignment
Sizes = Dict[str, Any]  # of a communicator


class Array(NamedTuple):
    """Rows that are sent, and the output for the rows that arrive."""

    given: torch.Tensor
    out: torch.Tensor


class _Columns(NamedTuple):
    """Some columns of an Array: copies that travel, and where the result belongs."""

    columns: slice
    given: torch.Tensor
    got: torch.Tensor
    out: torch.Tensor


def row_bytes(rows: torch.Tensor) -> int:
    found: int = rows.shape[1] * rows.dtype.itemsize
    return found


def fits(rows: torch.Tensor, sizes: Sizes) -> bool:
    """Whether rows travel in one call. Also true for rows that the call refuses."""
    found = row_bytes(rows)
    return found <= sizes["row_bytes_max"] or found % ALIGNMENT != 0


def _spans(rows: torch.Tensor, sizes: Sizes) -> List[slice]:
    if fits(rows, sizes):
        return [slice(None)]
    hidden, step = rows.shape[1], sizes["row_bytes_max"] // rows.element_size()
    return [slice(first, min(first + step, hidden)) for first in range(0, hidden, step)]


def _cut(array: Array, sizes: Sizes) -> List[_Columns]:
    calls = []
    for columns in _spans(array.given, sizes):
        given = array.given[:, columns].contiguous()
        got = array.out.new_empty((array.out.shape[0], given.shape[1]))
        calls.append(_Columns(columns, given, got, array.out[:, columns]))
    return calls


def dispatch(
    native: Handle,
    sizes: Sizes,
    rows: Array,
    side: Optional[Array],
    beside: Sequence[Any],
    describe: Optional[Describe] = None,
    **options: Any,
) -> None:
    """Handle.dispatch of rows and side, on torch's current stream. `beside`: side as a payload."""
    apart = side is not None and row_bytes(side.given) > sizes["side_bytes_max"]
    if not apart and fits(rows.given, sizes):
        native.dispatch(rows.given, rows.out, payloads=beside, describe=describe, **options)
        return
    first: Dict[str, Any] = dict(payloads=() if apart else beside, describe=describe)
    calls = _cut(rows, sizes) + (_cut(side, sizes) if apart and side is not None else [])

    def call(one: _Columns) -> None:
        native.dispatch(one.given, one.got, **(first if one is calls[0] else {}), **options)

    _make(native, "dispatch", calls, call, options.get("stream"))


def combine(
    route: Route,
    native: Handle,
    lane: Lane,
    rows: Array,
    biases: Dict[str, Any],
    grads: Optional[Grads],
    sms: int,
    stream: Any,
) -> None:
    """Handle.combine of checked rows along a route of `native`. `lane`: the Lane of the stream."""
    sizes = route.group.sizes
    if fits(rows.given, sizes):
        sending.combine(route.ring, native, rows.given, rows.out, biases, grads, sms, stream)
    else:
        with lane.on(stream):
            _combine_columns(native, sizes, rows, biases, grads, sms=sms, stream=stream)


def _combine_columns(
    native: Handle,
    sizes: Sizes,
    rows: Array,
    biases: Dict[str, Any],
    grads: Optional[Grads],
    **options: Any,
) -> None:
    calls = _cut(rows, sizes)

    def call(one: _Columns) -> None:
        added: Dict[str, Any] = {
            name: None if bias is None else bias[:, one.columns].contiguous() for name, bias in biases.items()
        }
        native.combine(one.given, one.got, grads=grads if one is calls[0] else None, **added, **options)

    _make(native, "combine", calls, call, options.get("stream"))


def _make(native: Handle, name: str, calls: List[_Columns], call: Callable[[_Columns], None], stream: Any) -> None:
    for number, one in enumerate(calls):
        try:
            call(one)
        except Exception as error:  # noqa: B902
            _end(native, name, error, [other.given for other in calls[number + 1 :]], stream)
            raise
    for one in calls:
        one.out.copy_(one.got)


def _end(native: Handle, name: str, error: Exception, left: Sequence[torch.Tensor], stream: Any) -> None:
    """Takes part in the calls that are left, since other ranks make them unless they have heard of the refusal. They
    never hear of a refused low-latency combine."""
    heard = native.hears_at_once and not (name == "combine" and native.mode == "ll")
    if heard or not took_part(error):
        return
    for rows in left:
        native.take_part(name, RuntimeError(str(error)), stream, {"rows": rows})


def take_part(native: Handle, sizes: Sizes, name: str, error: Exception, stream: Any, given: Dict[str, Any]) -> None:
    """Handle.take_part in all calls of a dispatch or a combine, as far as x shows their number."""
    x = given.get("x")
    if name == "combine" and isinstance(x, torch.Tensor) and x.dtype not in SUMMED:
        x = x.to(torch.bfloat16)  # as the other ranks most likely have it
    arrays = [one for one in (x if isinstance(x, tuple) else (x,)) if isinstance(one, torch.Tensor) and one.dim() == 2]
    if len(arrays) == 2 and round_up(row_bytes(arrays[1]), ALIGNMENT) <= sizes["side_bytes_max"]:
        arrays.pop()
    parts: List[Any] = [one[:, columns].contiguous() for one in arrays for columns in _spans(one, sizes)] or [x]
    native.take_part(name, error, stream, {**given, "rows": parts[0]})
    _end(native, name, error, parts[1:], stream)
