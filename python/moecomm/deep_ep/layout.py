"""The layout of the rows that a dispatch will send, by plain torch: Buffer.get_dispatch_layout()."""

from __future__ import annotations

from typing import Optional, Tuple

import torch


BEFORE = 4  # places before those of experts, the last of them for ids below 0: so the counts are aligned to 16 bytes


class LayoutMaker:
    """Counts where tokens go, by operations that take the host little time: few of them, and none that waits.

    ranks        of the group
    domain_size  ranks of a domain"""

    def __init__(self, ranks: int, domain_size: int, device: torch.device):
        self._ranks, self._domain_size = ranks, domain_size
        self._numbers = torch.arange(ranks, device=device)
        self._one = torch.ones(1, dtype=torch.int32, device=device)
        if device.type == "cuda":
            torch.cuda.current_stream(device).synchronize()  # calls may come on other streams

    def make(
        self, topk_idx: torch.Tensor, experts: int
    ) -> Tuple[torch.Tensor, Optional[torch.Tensor], torch.Tensor, torch.Tensor]:
        """num_tokens_per_rank, num_tokens_per_rdma_rank (None in one domain), num_tokens_per_expert, is_token_in_rank.
        Ids out of range count nowhere: the route reports them."""
        ranks = torch.div(topk_idx, experts // self._ranks, rounding_mode="floor")  # -1 is no rank
        in_rank = (ranks.unsqueeze(2) == self._numbers).any(1)
        per_rank = in_rank.sum(0, dtype=torch.int32)
        return per_rank, self._per_domain(in_rank), self._per_expert(topk_idx, experts), in_rank

    def _per_expert(self, topk_idx: torch.Tensor, experts: int) -> torch.Tensor:
        places = (topk_idx + BEFORE).clamp_(BEFORE - 1, BEFORE + experts).long().view(-1)
        counts = self._one.new_zeros(BEFORE + experts + 1)
        return counts.scatter_add_(0, places, self._one.expand_as(places))[BEFORE:-1]

    def _per_domain(self, in_rank: torch.Tensor) -> Optional[torch.Tensor]:
        if self._domain_size >= self._ranks:
            return None
        by_domain = in_rank.view(in_rank.shape[0], self._ranks // self._domain_size, self._domain_size)
        return by_domain.any(2).sum(0, dtype=torch.int32)
