"""The library's calls along a flat route, for tensors that a Buffer has checked: see own_calls.py."""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Tuple

import torch

from ..handle import Handle
from ..own_calls import OwnCombine, OwnDispatch
from ..parts import Describe, Grads, Payload
from ..ring import HandleRing


class Outputs(NamedTuple):
    """The tensors of a dispatch for the rows that arrive, their scales, expert ids and weights."""

    rows: torch.Tensor
    side: Optional[torch.Tensor]
    ids: Optional[torch.Tensor]
    weights: Optional[torch.Tensor]


def _kind(tensor: Optional[torch.Tensor]) -> Any:
    """The properties of a tensor that its struct depends on."""
    return None if tensor is None else (tensor.dtype, tensor.shape[1])


def _addresses(*tensors: Optional[torch.Tensor]) -> List[int]:
    return [tensor.data_ptr() for tensor in tensors if tensor is not None]


def dispatch(
    ring: HandleRing,
    native: Handle,
    rows: torch.Tensor,
    side: Optional[torch.Tensor],
    out: Outputs,
    sms: int,
    queue: int,
    route: Optional[Tuple[int, int, int]] = None,
) -> None:
    """Handle.dispatch() on the stream with the address `queue`; with a route Handle.route_dispatch().

    side   the scales beside the rows, whole multiples of 16 bytes
    route  the addresses of ids and weights (0: none), and the tokens"""
    routes = route is not None
    key = ("dispatch", _kind(rows), _kind(side), out.ids is None, out.weights is None, sms, routes)
    call = ring.own_calls.pop(key, None)
    if call is None:
        options: Dict[str, Any] = dict(payloads=() if side is None else (Payload(side, out.side, "array"),))
        options.update(describe=Describe(out.ids, out.weights), sms=sms, pad_indices=routes)
        call = OwnDispatch(native, rows.shape[0], rows, out.rows, **options)
    addresses, room = _addresses(rows, out.rows, side, out.side, out.ids, out.weights), out.rows.shape[0]
    if route is None:
        call.dispatch(native, addresses, room, queue)
    else:
        call.route_dispatch(native, *route, addresses, room, queue)
    ring.own_calls.keep(key, call)


def combine(
    ring: HandleRing,
    native: Handle,
    x: torch.Tensor,
    out: torch.Tensor,
    biases: Dict[str, Any],
    grads: Optional[Grads],
    sms: int,
    stream: Any,
) -> None:
    """Handle.combine()."""
    added, more = biases.values(), () if grads is None else grads
    key = ("combine", _kind(x), sms, *(bias is None for bias in added), grads is None)
    call = ring.own_calls.pop(key, None)
    try:
        if call is None:
            call = OwnCombine(native, out.shape[0], x, out, **biases, grads=grads, sms=sms)
        call.combine(native, _addresses(x, out, *added, *more), 0 if stream is None else stream.cuda_stream)
    except Exception as error:  # noqa: B902
        native.take_part("combine", error, stream, {"rows": x, "out": out, **biases, "grads": grads})
        raise
    ring.own_calls.keep(key, call)
