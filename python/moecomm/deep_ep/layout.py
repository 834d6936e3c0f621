"""The layout of the rows that a dispatch will send: Buffer.get_dispatch_layout()."""

from __future__ import annotations

import ctypes
from typing import Optional, Tuple

import torch

from .. import _native, errors, handle
from .._library import library
from .checks import INDEX_TYPES
from .settings import round_up

ALIGNED = 4  # counts: each array begins at a multiple of 16 bytes
INDEX_VALUES = {dtype: handle.INDEX_TYPES[name] for dtype, name in INDEX_TYPES.items()}


class LayoutMaker:
    """Counts where tokens go, by one call of the library.

    ranks        of the group
    domain_size  ranks of a domain"""

    def __init__(self, ranks: int, domain_size: int, device: torch.device):
        self._ranks = ranks
        self._domains = ranks // domain_size if domain_size < ranks else 0  # 0: not asked for
        on_gpu = device.type == "cuda"
        self._template = _native.moeDispatchLayout_t(
            backend=_native.moeBackendCuda if on_gpu else _native.moeBackendHost,
            device=device.index if on_gpu and device.index is not None else -1,
            nranks=ranks,
            domainSize=min(domain_size, ranks),
        )

    def make(
        self, topk_idx: torch.Tensor, experts: int, queue: int
    ) -> Tuple[torch.Tensor, Optional[torch.Tensor], torch.Tensor, torch.Tensor]:
        """num_tokens_per_rank, num_tokens_per_rdma_rank (None in one domain), num_tokens_per_expert, is_token_in_rank,
        on the stream with the address `queue`. Ids out of range count nowhere: the route reports them."""
        tokens, topk = topk_idx.shape
        ranks, domains = self._ranks, self._domains
        first_rank = round_up(experts, ALIGNED)
        first_domain = first_rank + round_up(ranks, ALIGNED)
        counts = topk_idx.new_empty(first_domain + domains, dtype=torch.int32)
        in_rank = topk_idx.new_empty((tokens, ranks), dtype=torch.bool)
        at = counts.data_ptr()
        args = _native.moeDispatchLayout_t.from_buffer_copy(self._template)
        args.indexType = INDEX_VALUES[topk_idx.dtype]
        args.topk, args.experts = topk, experts
        args.tokensPerExpert, args.tokensPerRank = at, at + 4 * first_rank
        args.tokensPerDomain = at + 4 * first_domain if domains else None
        args.tokenToRank = in_rank.data_ptr()
        native = library()
        errors.check(
            native, native.moeGetDispatchLayout(topk_idx.data_ptr(), tokens, ctypes.byref(args), queue)
        )
        per_domain = counts[first_domain:] if domains else None
        return counts[first_rank : first_rank + ranks], per_domain, counts[:experts], in_rank
