"""The two ways in which a combine brings weights back to the tokens. docs/decisions/0080 says why there are two."""

from __future__ import annotations

from typing import Any

import torch

from ..handle import Handle
from ..parts import Grads


def with_rows(weights: torch.Tensor, tokens: int, topk: int) -> Grads:
    """For weights that travel with the rows of Handle.combine as gradients do: each entry comes from the rank of its
    expert alone. `out_weight_grads` is the result, [tokens, topk], allocated on torch's current stream."""
    return Grads(weights, weights.new_empty((tokens, topk)))


def summed(native: Handle, weights: torch.Tensor, tokens: int, **options: Any) -> torch.Tensor:
    """weights [rows, topk] summed over the ranks of each token, by a combine of their own, on torch's current stream.

    options  of Handle.combine

    Returns [tokens, topk]."""
    topk = weights.shape[1]
    rows = torch.nn.functional.pad(weights, (0, -topk % 4))  # the library's rows are multiples of 16 bytes
    sums = rows.new_empty((tokens, rows.shape[1]))
    native.combine(rows, sums, **options)
    return sums[:, :topk].contiguous()
