"""Normal mode: rows of all local experts in one array, by the high-throughput calls."""

from __future__ import annotations

from typing import Any, List, NamedTuple, Optional, Tuple, Union

import torch

from ..deep_ep import Buffer, EventOverlap
from ..deep_ep.dispatch_handle import DispatchHandle
from ..interfaces import MissingInterface
from .mode import Mode

ALIGNMENT = 128  # rows of a block of DeepGEMM, to which it wants the counts rounded up


class Sent(NamedTuple):
    """Between dispatch_a and dispatch_b."""

    rows: Union[torch.Tensor, Tuple[torch.Tensor, torch.Tensor]]
    ids: torch.Tensor
    weights: torch.Tensor
    event: Optional[EventOverlap]


class Summing(NamedTuple):
    """Between combine_a and combine_b."""

    rows: torch.Tensor
    event: Optional[EventOverlap]


class Normal(Mode):
    """The halves for prefill. dispatch_a quantises; dispatch_b sends, and the host waits for the number of rows, so
    that with two batches the other one's work is queued between them. combine_b sends the results."""

    def __init__(self, async_finish: bool, **common: Any):
        super().__init__(mode="normal", **common)
        self.async_finish = async_finish
        self._handle: Optional[DispatchHandle] = None

    def dispatch_a(self, hidden_states: torch.Tensor, topk_output: Any) -> Sent:
        """Quantises rows [tokens, hidden] if the experts want fp8: a scale for 128 elements."""
        rows: Any = hidden_states
        gemm = self.engine.deep_gemm
        if gemm.ENABLE_JIT_DEEPGEMM and self.wants("fp8"):
            powers = gemm.DEEPGEMM_SCALE_UE8M0
            if self.engine.quantize is None:
                raise MissingInterface(
                    "rows are to travel as fp8, but SGLang's sglang_per_token_group_quant_fp8 was not found"
                )
            layout = dict(column_major_scales=powers, scale_tma_aligned=powers, scale_ue8m0=powers)
            rows = self.engine.quantize(hidden_states, 128, **layout)
        ids = topk_output.topk_ids.to(torch.int64)
        event = Buffer.capture() if self.async_finish else None  # behind everything that dispatch_b reads
        return Sent(rows, ids, topk_output.topk_weights, event)

    def dispatch_b(self, sent: Sent) -> Any:
        """Sends. Returns SGLang's output: rows [n, hidden], scales or None, local ids [n, topk] with -1 for experts of
        other ranks, weights [n, topk], and the rows of each local expert as a list."""
        buffer = self.buffer()
        self.meet()
        received, ids, weights, counts, self._handle, event = buffer.dispatch(
            sent.rows,
            topk_idx=sent.ids,
            topk_weights=sent.weights,
            num_tokens_per_expert=torch.empty(self.num_experts, device="meta"),  # only its length is read
            expert_alignment=ALIGNMENT if self.engine.deep_gemm.ENABLE_JIT_DEEPGEMM else 1,
            previous_event=sent.event,
            async_finish=self.async_finish,
            allocate_on_comm_stream=self.async_finish,
        )
        event.current_stream_wait()
        self._record(buffer, sent.ids, counts)
        rows, scales = received if isinstance(received, tuple) else (received, None)
        return self.engine.NormalOutput(rows, scales, ids, weights, counts)

    def _record(self, buffer: Buffer, ids: torch.Tensor, counts: List[int]) -> None:
        """Tells SGLang's recorder of the experts' load. Counting the rows that this rank sends takes kernels, so
        it is done only for a recorder that records."""
        recorder = self.engine.recorder()
        per_rank = per_domain = per_expert = None
        if getattr(recorder, "recording", True):
            per_rank, per_domain, per_expert, _, _ = buffer.get_dispatch_layout(ids, self.num_experts)
        recorder.on_deepep_dispatch_normal(
            counts,
            num_tokens_per_rank=per_rank,
            num_tokens_per_rdma_rank=per_domain,
            num_tokens_per_expert=per_expert,
        )

    def combine_a(self, hidden_states: torch.Tensor, topk_ids: torch.Tensor, topk_weights: torch.Tensor) -> Summing:
        """hidden_states [n, hidden]: each row is the weighted sum of its local experts, as SGLang's runners make it."""
        return Summing(hidden_states, Buffer.capture() if self.async_finish else None)

    def combine_b(self, summing: Summing) -> torch.Tensor:
        """Sums the rows of each token over the ranks: [tokens, hidden]."""
        buffer = self.buffer()
        self.meet()
        sums, _, event = buffer.combine(
            summing.rows,
            self._handle,  # type: ignore[arg-type]
            previous_event=summing.event,
            async_finish=self.async_finish,
            allocate_on_comm_stream=self.async_finish,
        )
        event.current_stream_wait()
        self._handle = None
        return sums
