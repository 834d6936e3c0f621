"""The library's calls along a flat route, for tensors that a Buffer has checked: see own_calls.py."""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Tuple

import torch

from .. import errors
from ..handle import Handle
from ..own_calls import OwnBeginning, OwnCombine, OwnDispatch
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


class Sending:
    """A dispatch with a new route, on the stream with the address `queue`.

    side   the scales beside the rows, whole multiples of 16 bytes
    route  the addresses of ids and weights (0: none), and the tokens"""

    __slots__ = ("_ring", "_native", "_rows", "_side", "_route", "_sms", "queue", "_kind", "_addresses")

    def __init__(
        self,
        ring: HandleRing,
        native: Handle,
        rows: torch.Tensor,
        side: Optional[torch.Tensor],
        route: Tuple[int, int, int],
        sms: int,
        queue: int,
    ):
        self._ring, self._native, self._rows, self._side = ring, native, rows, side
        self._route, self._sms, self.queue = route, sms, queue
        self._kind = (_kind(rows), _kind(side), sms)
        self._addresses = rows.data_ptr(), 0 if side is None else side.data_ptr()

    def route_dispatch(self, out: Outputs) -> None:
        """Handle.route_dispatch()."""
        key, call = self._with_outputs(out, True)
        call.route_dispatch(self._native, *self._route, self._all_addresses(out), out.rows.shape[0], self.queue)
        self._ring.own_calls.keep(key, call)

    def begin(self) -> None:
        """Begins it without outputs."""
        calls, side, key = self._ring.own_calls, self._side, ("begin", self._kind)
        call = calls.pop(key, None)
        if call is None:
            payloads = () if side is None else (Payload(side, None, "array"),)
            call = OwnBeginning(self._native, self._rows.shape[0], self._rows, payloads=payloads, sms=self._sms)
        addresses = self._addresses if side is not None else self._addresses[:1]
        call.route_dispatch(self._native, *self._route, addresses, self.queue)
        calls.keep(key, call)

    def complete(self, out: Outputs) -> None:
        """Ends it with these outputs."""
        key, call = self._with_outputs(out, False)
        call.complete(self._native, self._all_addresses(out), out.rows.shape[0], self.queue)
        self._ring.own_calls.keep(key, call)

    def drop(self) -> None:
        """Ends it without outputs, if it has been begun. No other rank waits for that."""
        try:
            self._native.complete(self.queue)
        except errors.MoeError:
            return  # nothing has been begun, or it has met a fault

    def _with_outputs(self, out: Outputs, pads: bool) -> Tuple[Any, OwnDispatch]:
        key = ("dispatch", self._kind, out.ids is None, out.weights is None, pads)
        call = self._ring.own_calls.pop(key, None)
        if call is None:
            side = () if self._side is None else (Payload(self._side, out.side, "array"),)
            options: Dict[str, Any] = dict(payloads=side, describe=Describe(out.ids, out.weights))
            options.update(sms=self._sms, pad_indices=pads)
            call = OwnDispatch(self._native, self._rows.shape[0], self._rows, out.rows, **options)
        return key, call

    def _all_addresses(self, out: Outputs) -> List[int]:
        rows, side = self._addresses
        found = [rows, out.rows.data_ptr()]
        if out.side is not None:
            found += (side, out.side.data_ptr())
        if out.ids is not None:
            found.append(out.ids.data_ptr())
        if out.weights is not None:
            found.append(out.weights.data_ptr())
        return found


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
