"""The handle of Buffer.dispatch()."""

from __future__ import annotations

from typing import NamedTuple, Optional, Tuple

import torch

from ..torch.memory import tensor_at
from ..values import integer
from .routes import Route

# The entries of DeepEP's tuple, in one domain and across domains.
ONE_DOMAIN = (
    "rank_prefix_matrix",
    "channel_prefix_matrix",
    "recv_channel_prefix_matrix",
    "recv_src_idx",
    "is_token_in_rank",
    "send_head",
)
SEVERAL_DOMAINS = (
    "is_token_in_rank",
    "rdma_channel_prefix_matrix",
    "gbl_channel_prefix_matrix",
    "recv_rdma_channel_prefix_matrix",
    "recv_rdma_rank_prefix_sum",
    "recv_gbl_channel_prefix_matrix",
    "recv_gbl_rank_prefix_sum",
    "recv_src_meta",
    "send_rdma_head",
    "send_nvl_head",
)
UNKNOWN = -1


class Place(NamedTuple):
    """Where a Buffer is."""

    rank: int
    ranks: int
    domain_size: int
    device: torch.device


class DispatchHandle:
    """The `handle` that dispatch() returns, for combine() and for cached dispatches. If the rows of the dispatch require
    gradients, it is good until its backward pass has made a cached dispatch and then a combine. Otherwise it is good
    until configure()'s in_flight later dispatches of the same shape have come. Dropping it earlier changes nothing.

    Of the entries of DeepEP's tuple it has those that say where each source's rows end:

    handle[0] in one domain       rank_prefix_matrix [ranks, ranks] int32: entry [i][j] counts the rows that rank j got
                                  from ranks 0..i. Column j of this rank is filled; the others are -1
    handle[-4] across domains     recv_gbl_rank_prefix_sum [ranks] int32: the rows that this rank got from ranks 0..i

    They are read on torch's current stream, behind the event of the dispatch. Other entries raise
    NotImplementedError."""

    __slots__ = ("route", "tokens", "rows", "topk", "place")

    def __init__(self, route: Route, tokens: int, rows: int, topk: Optional[int], place: Place):
        self.route, self.tokens, self.rows, self.place = route, tokens, rows, place
        self.topk = topk  # None: the dispatch had a mask of ranks and no ids

    def __len__(self) -> int:
        return len(self._entries())

    def __getitem__(self, index: int) -> torch.Tensor:
        name = self._entries()[integer(index, "index of a handle", -(2**31))]  # IndexError, as of a tuple
        if name == "recv_gbl_rank_prefix_sum":
            return self._ends().clone()
        if name == "rank_prefix_matrix":
            matrix = self._ends().new_full((self.place.ranks, self.place.ranks), UNKNOWN)
            matrix[:, self.place.rank] = self._ends()
            return matrix
        raise NotImplementedError(f"handle[{index}] is {name} of DeepEP: moecomm has no such array")

    def _entries(self) -> Tuple[str, ...]:
        return ONE_DOMAIN if self.place.domain_size >= self.place.ranks else SEVERAL_DOMAINS

    def _ends(self) -> torch.Tensor:
        """[ranks] int32 of the library: where the rows of each source end. The next route of its handle changes it."""
        address = self.route.handle().device_counts().rank_offsets
        return tensor_at(address, (self.place.ranks + 1,), torch.int32, self.place.device, None)[1:]


def require_handle(handle: object) -> DispatchHandle:
    if not isinstance(handle, DispatchHandle):
        raise TypeError(f"handle is a {type(handle).__name__}, expected what dispatch() returned")
    return handle
