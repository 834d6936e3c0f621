"""The batched activation format: rows padded for each local expert, by the low-latency calls."""

from __future__ import annotations

from typing import Any, Callable, Dict, NamedTuple, Optional, Tuple

import torch

from ..deep_ep import Buffer
from ..deep_ep.checks import is_same
from ..deep_ep.low_latency import LowLatencyHandle
from ..handle_refusals import alike
from ..values import integer
from .common import PrepareAndFinalize, Prepared, round_up, weigh_input

BLOCK = 128  # elements of a scale
Hook = Callable[[], None]


class _Sent(NamedTuple):
    """The data of prepare that finalize needs: the tensors that vLLM passed, and those that the Buffer got for them."""

    handle: LowLatencyHandle
    topk_ids: torch.Tensor
    topk_weights: torch.Tensor
    physical: torch.Tensor
    weights: torch.Tensor


class Batched(PrepareAndFinalize):
    """Takes the place of vLLM's DeepEPLLPrepareAndFinalize.

    buffer               of LlManager.get_handle()
    max_tokens_per_rank  the most tokens of a rank
    num_dispatchers      ranks
    use_fp8_dispatch     rows are cast to float8_e4m3fn on their way, a scale for 128 elements
    global_to_physical   [experts]: the expert whose weights serve an id, where they are not placed in blocks; or None
    physical_to_global, local_expert_global_ids  kept as attributes"""

    @staticmethod
    def maybe_roundup_layer_hidden_size(hidden_size: int) -> int:
        """hidden_size, rounded up to a multiple of 128, as rows that may be cast must be."""
        return round_up(hidden_size, BLOCK)

    def __init__(
        self,
        buffer: Buffer,
        max_tokens_per_rank: int,
        num_dispatchers: int,
        use_fp8_dispatch: bool = False,
        global_to_physical: Optional[torch.Tensor] = None,
        physical_to_global: Optional[torch.Tensor] = None,
        local_expert_global_ids: Optional[torch.Tensor] = None,
    ):
        super().__init__(buffer, num_dispatchers)
        self.max_tokens_per_rank = integer(max_tokens_per_rank, "max_tokens_per_rank", 1)
        self.use_fp8_dispatch = use_fp8_dispatch
        self.use_ue8m0_dispatch = False
        tables = (global_to_physical, physical_to_global, local_expert_global_ids)
        dtype = self.topk_indices_dtype()
        tables = tuple(None if table is None else table.to(dtype) for table in tables)  # type: ignore[assignment]
        self.global_to_physical, self.physical_to_global, self.local_expert_global_ids = tables

    def post_init_setup(self, fused_experts: Any) -> None:
        """Asks the experts, fused_experts, whether they take scales as packed powers of two. vLLM calls it once they are known."""
        packed = getattr(fused_experts, "supports_packed_ue8m0_act_scales", None)
        self.use_ue8m0_dispatch = bool(self.use_fp8_dispatch and packed is not None and packed())

    @property
    def activation_format(self) -> Any:
        """BatchedExperts: [local experts, ranks * max_tokens_per_rank, hidden] with counts."""
        return self.engine.ActivationFormat.BatchedExperts

    def max_num_tokens_per_rank(self) -> Optional[int]:
        """The most tokens of a rank."""
        return self.max_tokens_per_rank

    def persistent_tensors(self) -> Dict[str, torch.Tensor]:
        """The tables of placements, under their names, for vLLM versions that ask which tensors an object holds."""
        names = ("global_to_physical", "physical_to_global", "local_expert_global_ids")
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}

    # ---- Prepare -----------------------------------------------------------------------------------------------------

    def prepare_async(
        self,
        a1: torch.Tensor,
        topk_weights: torch.Tensor,
        topk_ids: torch.Tensor,
        num_experts: int,
        expert_map: Optional[torch.Tensor],
        apply_router_weight_on_input: bool,
        quant_config: Any,
        defer_input_quant: bool = False,
    ) -> Tuple[Hook, Callable[[], Prepared]]:
        """Sends. Collective. Nothing waits on the host, so it may be captured once a call of the shape has been made.

        a1            [tokens, hidden] bfloat16, tokens at most max_tokens_per_rank
        topk_weights  [tokens, topk] float32; they travel with the rows, so that finalize need not bring them
        topk_ids      [tokens, topk] int64 or int32: global expert, -1 = unused
        num_experts   a multiple of the ranks
        expert_map    not read
        apply_router_weight_on_input  multiplies rows by weights before they travel; top-1 only
        defer_input_quant  False: anything else raises NotImplementedError
        quant_config  block_shape must be 128 wide with use_fp8_dispatch; otherwise rows are quantised after the hook

        Returns the hook, which receives, and the receiver, which returns rows [local experts, ranks *
        max_tokens_per_rank, hidden]; scales or None; ExpertTokensMetadata with expert_num_tokens [local experts] int32
        on the device; None; None. Rows behind an expert's count are not written.

        Raises NotImplementedError for defer_input_quant, for static scales per token, and for nvfp4 with
        VLLM_DEEPEPLL_NVFP4_DISPATCH, with which experts want rows that were cast to nvfp4 on their way."""
        self._require(a1, quant_config, defer_input_quant)
        a1 = weigh_input(a1, topk_weights, apply_router_weight_on_input)
        most, physical = self.max_tokens_per_rank, self._physical(topk_ids)
        weights = torch.ones_like(topk_weights) if apply_router_weight_on_input else topk_weights
        try:
            received, counts, handle, _, hook = self.buffer.low_latency_dispatch(
                a1,
                physical,
                most,
                num_experts,
                use_fp8=self.use_fp8_dispatch,
                round_scale=self.use_ue8m0_dispatch,
                use_ue8m0=self.use_ue8m0_dispatch,
                return_recv_hook=True,
                topk_weights=weights,
            )
        except ValueError as error:  # in vLLM's words
            if a1.shape[0] <= most:
                raise
            raise alike(ValueError(f"a1 has {a1.shape[0]} tokens, but max_tokens_per_rank is {most}"), error) from error
        self._keep(_Sent(handle, topk_ids, topk_weights, physical, weights))

        def receive() -> Prepared:
            codes, scales = received if isinstance(received, tuple) else self._quantize_batched(received, quant_config)
            meta = self.engine.ExpertTokensMetadata(expert_num_tokens=counts, expert_num_tokens_cpu=None)
            return codes, scales, meta, None, None

        assert hook is not None
        return hook, receive

    def _require(self, a1: torch.Tensor, config: Any, deferred: bool) -> None:
        if deferred:
            raise NotImplementedError("defer_input_quant is True: choose experts that take quantised rows")
        if self.use_fp8_dispatch and (config.block_shape is None or config.block_shape[1] != BLOCK):
            raise NotImplementedError(f"use_fp8_dispatch is True, but block_shape is {config.block_shape}")
        if config.quant_dtype == "nvfp4" and getattr(self.engine.envs, "VLLM_DEEPEPLL_NVFP4_DISPATCH", False):
            raise NotImplementedError("VLLM_DEEPEPLL_NVFP4_DISPATCH is 1: unset it, and experts quantise for themselves")
        scale = config.a1_scale
        if scale is not None and scale.numel() != 1:
            raise NotImplementedError(f"a1_scale has {scale.numel()} elements: static scales must be per tensor")

    def _physical(self, ids: torch.Tensor) -> torch.Tensor:
        if self.global_to_physical is None:
            return ids
        return torch.where(ids < 0, ids, self.global_to_physical[ids.clamp(min=0)].to(ids.dtype))

    def _quantize_batched(self, rows: torch.Tensor, config: Any) -> Tuple[torch.Tensor, Optional[torch.Tensor]]:
        """vLLM quantises two axes. Its nvfp4 experts quantise for themselves."""
        dtype = None if config.quant_dtype == "nvfp4" else config.quant_dtype
        if dtype is None:
            return rows, None
        experts, places, hidden = rows.shape
        flat = rows.view(-1, hidden)
        codes, scales = self._quantize(flat, config.a1_scale, dtype, config, config.per_act_token_quant)
        return codes.view(experts, places, -1), self.engine.normalize_batched_scales(scales, experts)

    # ---- Finalize ----------------------------------------------------------------------------------------------------

    def finalize_async(
        self,
        output: torch.Tensor,
        fused_expert_output: torch.Tensor,
        topk_weights: torch.Tensor,
        topk_ids: torch.Tensor,
        apply_router_weight_on_input: bool,
        weight_and_reduce_impl: Any,
    ) -> Tuple[Hook, Hook]:
        """Sends the experts' rows back and sums them, times their weights, in fp32 and in a fixed order. Collective.

        output                  [tokens, hidden] bfloat16, written in place
        fused_expert_output     [local experts, ranks * max_tokens_per_rank, hidden] bfloat16
        topk_weights, topk_ids  [tokens, topk] of this rank's own tokens
        apply_router_weight_on_input  the weights have been applied: they count as 1
        weight_and_reduce_impl  vLLM's delegate: combine does it

        Returns the hook, which receives, and a receiver that does nothing more."""
        if not isinstance(weight_and_reduce_impl, self.engine.Delegate):
            name = type(weight_and_reduce_impl).__name__
            raise TypeError(f"weight_and_reduce_impl is a {name}, expected TopKWeightAndReduceDelegate")
        sent = self._kept()
        ids = sent.physical if is_same(topk_ids, sent.topk_ids) else self._physical(topk_ids)
        if is_same(topk_weights, sent.topk_weights):
            weights = sent.weights
        else:
            weights = torch.ones_like(topk_weights) if apply_router_weight_on_input else topk_weights
        self.engine.ubatching.dbo_maybe_run_recv_hook()
        _, _, hook = self.buffer.low_latency_combine(
            fused_expert_output, ids, weights, sent.handle, return_recv_hook=True, out=output
        )
        assert hook is not None
        return hook, lambda: None
