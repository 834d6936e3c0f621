"""Outputs that dispatch makes where its caller passes none."""

from __future__ import annotations

import sys
from typing import Any, Optional, Tuple

from .casts import code_bytes, is_packed


class _LeftOut:
    """The default of an argument for which None means something else."""

    def __repr__(self) -> str:
        return "made like rows"


LEFT_OUT: Any = _LeftOut()


def _codes(rows: Any, count: int, cast: str) -> Tuple[Tuple[int, int], str]:
    """Shape and torch's dtype of the codes of a cast. numpy has bytes."""
    return (count, code_bytes(cast, rows.shape[-1])), "uint8" if is_packed(cast) else "float8_e4m3fn"


def require_template(rows: Any) -> None:
    """Checks that an output can be made like `rows`."""
    numpy = sys.modules.get("numpy")
    if not hasattr(rows, "new_empty") and not (numpy is not None and isinstance(rows, numpy.ndarray)):
        raise TypeError(
            f"out_rows is left out, but rows is {'None' if rows is None else f'a {type(rows).__name__}'}: expected a numpy "
            "array or a torch tensor as its model, or out_rows"
        )
    if len(rows.shape) != 2:
        raise ValueError(f"rows has shape {tuple(rows.shape)}, expected [tokens, hidden]")


def rows_like(rows: Any, count: int, cast: Optional[str]) -> Any:
    """An output of `count` rows: with the dtype and the place of `rows`, or for the codes of a cast."""
    if hasattr(rows, "new_empty"):
        if cast is None:
            return rows.new_empty((count, rows.shape[1]))
        shape, name = _codes(rows, count, cast)
        return rows.new_empty(shape, dtype=getattr(sys.modules["torch"], name))
    numpy: Any = sys.modules["numpy"]
    if cast is None:
        return numpy.empty((count, rows.shape[1]), rows.dtype)
    return numpy.empty(_codes(rows, count, cast)[0], numpy.uint8)
