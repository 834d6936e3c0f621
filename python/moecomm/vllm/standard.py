"""The standard activation format: rows of all local experts in one array, by the high-throughput calls."""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional, Tuple

import torch

from ..deep_ep import Buffer
from ..deep_ep.dispatch_handle import DispatchHandle
from .common import PrepareAndFinalize, Prepared, round_up, weigh_input


class Standard(PrepareAndFinalize):
    """Takes the place of vLLM's DeepEPHTPrepareAndFinalize.

    buffer              of HtManager.get_handle()
    num_dispatchers     ranks
    dp_size             not used: all ranks of the group send their own tokens
    rank_expert_offset  the first expert of this rank"""

    @staticmethod
    def maybe_roundup_layer_hidden_size(hidden_size: int, dtype: torch.dtype) -> int:
        """hidden_size, rounded up so that rows of dtype are multiples of 16 bytes."""
        return round_up(hidden_size * dtype.itemsize, 16) // int(dtype.itemsize)

    def __init__(self, buffer: Buffer, num_dispatchers: int, dp_size: int, rank_expert_offset: int):
        super().__init__(buffer, num_dispatchers)
        self.dp_size = dp_size
        self.rank_expert_offset = rank_expert_offset

    @property
    def activation_format(self) -> Any:
        """Standard: [rows, hidden] with ids and weights."""
        return self.engine.ActivationFormat.Standard

    def max_num_tokens_per_rank(self) -> Optional[int]:
        """None: the standard format has no bound."""
        return None

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
    ) -> Callable[[], Prepared]:
        """Quantises and sends. Collective. The host waits for the number of rows that come.

        a1            [tokens, hidden]
        topk_weights  [tokens, topk] float32
        topk_ids      [tokens, topk] int64 or int32: global expert, -1 = unused
        num_experts   a multiple of the ranks
        expert_map    not read: experts belong to ranks in blocks
        apply_router_weight_on_input  multiplies rows by weights before they travel; top-1 only
        quant_config  block and per-token quantisation happen before rows travel, all others afterwards
        defer_input_quant  rows travel and arrive as they are

        Returns the receiver, to be called once. It returns rows [n, hidden]; scales or None; ExpertTokensMetadata;
        ids [n, topk], global, where entries of other ranks name an expert that is not here; and weights [n, topk],
        which are 0 for such entries."""
        self._require(quant_config, defer_input_quant)
        a1 = weigh_input(a1, topk_weights, apply_router_weight_on_input)
        early = quant_config.is_block_quantized or quant_config.per_act_token_quant
        rows: Any = a1
        if early and not defer_input_quant:
            per_token = quant_config.per_act_token_quant
            codes, scales = self._quantize(a1, quant_config.a1_scale, quant_config.quant_dtype, quant_config, per_token)
            rows = codes if scales is None else (codes, scales.view(1, 1) if scales.numel() == 1 else scales)
        dbo = self.engine.ubatching
        # The event must not cover the other micro-batch's work, which is queued during the yield.
        event = dbo.dbo_get_previous_event(self.buffer.capture)
        dbo.dbo_yield_and_switch_from_compute_to_comm()
        self._used_here(*(rows if isinstance(rows, tuple) else (rows,)), topk_ids, topk_weights)
        received, ids, weights, counts, handle, arrived = self.buffer.dispatch(
            rows,
            topk_idx=topk_ids,
            topk_weights=topk_weights,
            num_tokens_per_expert=torch.empty(num_experts, device="meta"),  # only its length is read
            previous_event=event,
            async_finish=not dbo.dbo_enabled(),
        )
        self._keep(handle)
        dbo.dbo_switch_to_compute_sync()
        late = not early and not defer_input_quant

        def receive() -> Prepared:
            arrived.current_stream_wait()
            codes, scales = received if isinstance(received, tuple) else (received, None)
            self._used_here(codes, scales, ids, weights)
            if late and codes.numel() != 0:
                scale = quant_config.a1_gscale if quant_config.quant_dtype == "nvfp4" else quant_config.a1_scale
                codes, scales = self._quantize(codes, scale, quant_config.quant_dtype, quant_config, False)
            meta = self.engine.ExpertTokensMetadata.make_from_list(counts, device=codes.device)
            codes, ids_for, weights_for = self._for_experts(codes, ids, weights, num_experts)
            return codes, scales, meta, ids_for, weights_for

        return receive

    def _require(self, quant_config: Any, defer_input_quant: bool) -> None:
        """Raises NotImplementedError for what a derived class does not do."""

    def _for_experts(
        self, rows: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, num_experts: int
    ) -> Tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The rows, ids and weights for the experts. The ids that arrived are local or -1, but vLLM's kernels need an
        expert in every entry. expert_map turns those of other ranks into -1."""
        elsewhere = num_experts - 1 if self.rank_expert_offset == 0 else 0
        return rows, torch.where(ids < 0, elsewhere, ids + self.rank_expert_offset), weights

    # ---- Finalize ----------------------------------------------------------------------------------------------------

    def finalize_async(
        self,
        output: torch.Tensor,
        fused_expert_output: torch.Tensor,
        topk_weights: torch.Tensor,
        topk_ids: torch.Tensor,
        apply_router_weight_on_input: bool,
        weight_and_reduce_impl: Any,
    ) -> Callable[[], None]:
        """Reduces each arrived row's experts to one row, and sums the rows of each token over the ranks. Collective.

        output                  [tokens, hidden], written in place; it may be fused_expert_output
        fused_expert_output     [n, topk, hidden], or what weight_and_reduce_impl takes, in bfloat16, float16 or float32
        topk_weights, topk_ids  [n, topk] of prepare
        apply_router_weight_on_input  the weights have been applied
        weight_and_reduce_impl  applies the weights and sums; the delegate stands for vLLM's contiguous one

        Returns the receiver. When it has returned, output is valid."""
        handle = self._kept()
        rows = fused_expert_output
        if rows.numel() != 0:
            given: Dict[str, Any] = dict(topk_weights=topk_weights, topk_ids=topk_ids)
            given["apply_router_weight_on_input"] = apply_router_weight_on_input
            rows = self._reduce(rows, handle.rows, weight_and_reduce_impl, **given)
        return self._combine(output, rows, handle)

    def _reduce(self, rows: torch.Tensor, received: int, reduce: Any, **given: Any) -> torch.Tensor:
        """Reduces the experts' results to one row for each of the `received` rows."""
        if isinstance(reduce, self.engine.Delegate):
            reduce = self.engine.Contiguous()
        reduced: torch.Tensor = reduce.apply(output=None, fused_expert_output=rows, **given)
        return reduced

    def _combine(self, output: torch.Tensor, rows: torch.Tensor, handle: DispatchHandle) -> Callable[[], None]:
        dbo = self.engine.ubatching
        event = dbo.dbo_get_previous_event(self.buffer.capture)
        dbo.dbo_yield_and_switch_from_compute_to_comm()
        self._used_here(rows)
        # vLLM lets experts that sum write to the output if it has their shape. Sums cannot replace their own input.
        in_place = output.is_contiguous() and output.dtype == rows.dtype and output.data_ptr() != rows.data_ptr()
        sums, _, summed = self.buffer.combine(
            rows,
            handle,
            previous_event=event,
            async_finish=not dbo.dbo_enabled(),
            out=output if in_place else None,
        )
        dbo.dbo_switch_to_compute()

        def receive() -> None:
            summed.current_stream_wait()
            dbo.dbo_switch_to_comm()
            if not in_place:
                output.copy_(sums, non_blocking=True)
            dbo.dbo_yield_and_switch_from_comm_to_compute()

        return receive
