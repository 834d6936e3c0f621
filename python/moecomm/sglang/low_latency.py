"""Low-latency mode: rows padded for each local expert, by the low-latency calls."""

from __future__ import annotations

from typing import Any, Callable, NamedTuple, Optional

import torch

from ..deep_ep import EventOverlap
from ..deep_ep.low_latency import LowLatencyHandle, Received
from ..handle_refusals import alike
from .mode import Mode


class Sent(NamedTuple):
    """Between dispatch_a and dispatch_b."""

    received: Received
    ids: torch.Tensor
    weights: torch.Tensor
    counts: torch.Tensor
    expected: int
    arrive: Callable[[], None]


class Summing(NamedTuple):
    """Between combine_a and combine_b."""

    sums: torch.Tensor
    arrive: Callable[[], None]


def _arrival(event: EventOverlap, hook: Optional[Callable[[], None]]) -> Callable[[], None]:
    return event.current_stream_wait if hook is None else hook


class LowLatency(Mode):
    """The halves for decoding: dispatch_a and combine_a send, dispatch_b and combine_b receive. Nothing waits on the
    host, so a step may be captured once one of its shape has run."""

    def __init__(self, return_recv_hook: bool, **common: Any):
        super().__init__(mode="low_latency", **common)
        self.return_recv_hook = return_recv_hook
        self.tokens_max = int(self.engine.envs.SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK.get())
        self._handle: Optional[LowLatencyHandle] = None

    def _options(self) -> Any:
        hooked = self.return_recv_hook
        return dict(async_finish=not hooked, return_recv_hook=hooked)

    def dispatch_a(self, hidden_states: torch.Tensor, topk_output: Any) -> Sent:
        """Sends rows [tokens, hidden] bfloat16, cast to fp8 on their way if the experts want that."""
        tokens = hidden_states.shape[0]
        fp8, gemm, buffer = self.wants("fp8"), self.engine.deep_gemm, self.buffer()
        powers = bool(fp8 and gemm.ENABLE_JIT_DEEPGEMM and gemm.DEEPGEMM_BLACKWELL)
        ids = topk_output.topk_ids.to(torch.int64)
        self.meet()
        try:
            received, counts, self._handle, event, hook = buffer.low_latency_dispatch(
                hidden_states,
                ids,
                self.tokens_max,
                self.num_experts,
                use_fp8=fp8,
                round_scale=powers,
                use_ue8m0=powers,
                topk_weights=topk_output.topk_weights,
                **self._options(),
            )
        except ValueError as error:
            if tokens <= self.tokens_max:
                raise
            sentence = f"{tokens} tokens, but SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK is {self.tokens_max}"
            raise alike(ValueError(f"hidden_states has {sentence}"), error) from error
        # The mean of an expert's rows, for the shape of the GEMM.
        expected = (tokens * buffer.group_size * ids.shape[1] + self.num_experts) // self.num_experts
        return Sent(received, ids, topk_output.topk_weights, counts, expected, _arrival(event, hook))

    def dispatch_b(self, sent: Sent) -> Any:
        """Receives. Returns SGLang's output: rows [local experts, ranks * tokens_max, hidden], scales or None, this
        rank's own ids and weights [tokens, topk], the rows of each local expert on the device, and their mean."""
        sent.arrive()
        self.engine.recorder().on_deepep_dispatch_low_latency(sent.counts)
        rows, scales = sent.received if isinstance(sent.received, tuple) else (sent.received, None)
        return self.engine.LowLatencyOutput(rows, scales, sent.ids, sent.weights, sent.counts, sent.expected)

    def combine_a(self, hidden_states: torch.Tensor, topk_ids: torch.Tensor, topk_weights: torch.Tensor) -> Summing:
        """Sends the experts' rows [local experts, ranks * tokens_max, hidden] bfloat16. topk_ids and topk_weights
        [tokens, topk] are those of dispatch_b's output."""
        buffer = self.buffer()
        self.meet()
        sums, event, hook = buffer.low_latency_combine(
            hidden_states,
            topk_ids,
            topk_weights,
            self._handle,  # type: ignore[arg-type]
            **self._options(),
        )
        self._handle = None
        return Summing(sums, _arrival(event, hook))

    def combine_b(self, summing: Summing) -> torch.Tensor:
        """Receives the sums of each token's rows times their weights: [tokens, hidden] bfloat16."""
        summing.arrive()
        return summing.sums
