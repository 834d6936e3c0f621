"""The common part of the standard and the batched class."""

from __future__ import annotations

from typing import Any, Dict, Optional, Tuple

import torch

from .. import errors
from ..deep_ep import Buffer

# What prepare returns: rows, scales, ExpertTokensMetadata, ids, weights.
Prepared = Tuple[torch.Tensor, Optional[torch.Tensor], Any, Optional[torch.Tensor], Optional[torch.Tensor]]


def round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def keep_for_stream(tensor: torch.Tensor) -> None:
    """The tensor's memory is not handed out again before the work that is queued on the current stream has run."""
    if tensor.is_cuda:
        tensor.record_stream(torch.cuda.current_stream(tensor.device))


def weigh_input(a1: torch.Tensor, topk_weights: torch.Tensor, applies: bool) -> torch.Tensor:
    """The rows that travel if the router's weights are applied to the input, which needs one expert per token."""
    if not applies:
        return a1
    if topk_weights.shape[1] != 1:
        raise NotImplementedError(
            f"apply_router_weight_on_input is True, but tokens have {topk_weights.shape[1]} experts: expected top-1"
        )
    return a1 * topk_weights.to(a1.dtype)


def finish(begun: Any) -> Any:
    """Calls what an asynchronous method returned: a receiver, or a hook and a receiver. Returns what was received."""
    hook, receive = begun if isinstance(begun, tuple) else (None, begun)
    if hook is not None:
        hook()
    return receive()


class PrepareAndFinalize:
    """The base of both classes. build() derives them from these and from vLLM's abstract class. One object serves one
    layer, and remembers the route of each micro-batch between prepare and finalize.

    buffer           of a manager's get_handle()
    num_dispatchers  ranks that send tokens"""

    engine: Any

    def __init__(self, buffer: Buffer, num_dispatchers: int):
        super().__init__()
        self.buffer = buffer
        self._num_dispatchers = num_dispatchers
        self._handles: Dict[int, Any] = {}  # by micro-batch

    def num_dispatchers(self) -> int:
        """Ranks that send tokens."""
        return self._num_dispatchers

    def output_is_reduced(self) -> bool:
        """True: finalize sums over all ranks."""
        return True

    def topk_indices_dtype(self) -> torch.dtype:
        """The dtype of the ids that the router makes: int64. int32 is accepted too."""
        return torch.int64

    def supports_async(self) -> bool:
        """True: the class has prepare_async and finalize_async."""
        return True

    def prepare(self, *arguments: Any, **keywords: Any) -> Prepared:
        """Calls prepare_async() with these arguments, then everything callable that it returns. Returns the receiver's
        result."""
        prepared: Prepared = finish(self.prepare_async(*arguments, **keywords))
        return prepared

    def finalize(self, *arguments: Any, **keywords: Any) -> None:
        """Calls finalize_async() with these arguments, then everything callable that it returns."""
        finish(self.finalize_async(*arguments, **keywords))

    def prepare_async(self, *_: Any, **__: Any) -> Any:
        """Quantises and sends: see the derived classes."""
        raise NotImplementedError

    def finalize_async(self, *_: Any, **__: Any) -> Any:
        """Sends the results back and sums them: see the derived classes."""
        raise NotImplementedError

    def _keep(self, handle: Any) -> None:
        self._handles[self.engine.ubatching.dbo_current_ubatch_id()] = handle

    def _kept(self) -> Any:
        batch = self.engine.ubatching.dbo_current_ubatch_id()
        handle = self._handles.get(batch)
        if handle is None:
            raise errors.InvalidUsage(f"finalize: prepare has not been called for micro-batch {batch}")
        return handle

    def _used_here(self, *tensors: Optional[torch.Tensor]) -> None:
        """With two micro-batches, tensors of the compute stream are read on the communication stream, and the reverse."""
        if self.engine.ubatching.dbo_enabled():
            for tensor in tensors:
                if tensor is not None:
                    keep_for_stream(tensor)

    def _quantize(
        self, rows: torch.Tensor, scale: Optional[torch.Tensor], dtype: Any, config: Any, per_token: bool
    ) -> Tuple[torch.Tensor, Optional[torch.Tensor]]:
        """vLLM's quantisation, which chooses the kernel. The order of scales matters to nvfp4 and mxfp8 alone."""
        options: Dict[str, Any] = dict(quant_dtype=dtype, per_act_token_quant=per_token, block_shape=config.block_shape)
        if dtype in ("nvfp4", "mxfp8") and hasattr(config, "is_scale_swizzled"):
            options["is_scale_swizzled"] = config.is_scale_swizzled
        if dtype == "mxfp8" and getattr(config, "mx_alignment", 0):
            options["mx_alignment"] = config.mx_alignment
        quantized: Tuple[torch.Tensor, Optional[torch.Tensor]] = self.engine.quantize(rows, scale, **options)
        return quantized
