"""Checks of a Buffer's arguments."""

from __future__ import annotations

from typing import Any, Optional, Sequence

import torch

from ..torch.memory import form_of

INDEX_TYPES = {torch.int64: "int64", torch.int32: "int32"}


def require(
    value: Any,
    name: str,
    axes: str,
    shape: Sequence[Optional[int]],
    dtypes: Sequence[torch.dtype] = (),
    device: Optional[torch.device] = None,
    contiguous: bool = True,
) -> torch.Tensor:
    """Requires a tensor of this shape (None: any extent), and returns it. `axes` describes the shape in words."""
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"{name} is a {type(value).__name__}, expected a tensor {axes}")
    if dtypes and value.dtype not in dtypes:
        raise TypeError(f"{name} holds {value.dtype}, expected {' or '.join(str(dtype) for dtype in dtypes)}")
    found = value.shape
    fits = len(found) == len(shape)
    for due, extent in zip(shape, found):
        if due is not None and due != extent:
            fits = False
    if not fits:
        expected = ", ".join("any" if extent is None else str(extent) for extent in shape)
        raise ValueError(f"{name} has shape {tuple(found)}, expected {axes} = [{expected}]")
    if device is not None and value.device != device:
        raise ValueError(f"{name} is on {value.device}, expected {device}, where the Buffer is")
    if contiguous and not value.is_contiguous():
        raise ValueError(f"{name} is not contiguous: shape {tuple(value.shape)}, strides {value.stride()}")
    return value


def is_same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors are one, or the same view of the same memory."""
    if one is other:
        return True
    return bool(
        form_of(one) == form_of(other) and one.stride() == other.stride() and one.data_ptr() == other.data_ptr()
    )


def require_divisible(experts: int, ranks: int) -> int:
    """Experts of one rank."""
    if experts < 1 or experts % ranks != 0:
        raise ValueError(f"num_experts is {experts}, expected a multiple of the {ranks} ranks")
    return experts // ranks
