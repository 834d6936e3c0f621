"""The all-to-all managers: what vLLM's device communicator owns, and asks for handles."""

from __future__ import annotations

from typing import Any, Dict, Optional

import torch

from ..deep_ep import Buffer
from ..deep_ep.settings import default_tokens_max
from ..values import integer

NO_MASKS = "the failure of a rank ends moecomm's communicator on all ranks, so none can be masked"


class Manager:
    """Common to both managers. build() derives them from this class and vLLM's All2AllManagerBase, which gives them
    rank, world_size, cpu_group, tcp_store_group and dp_world_size. All layers share one Buffer: it makes its memory
    by the shapes that they need."""

    engine: Any
    low_latency: bool
    rank: int
    world_size: int
    # vLLM asks managers that tolerate faults for masks of ranks.
    support_fault_tolerance = False

    def __init__(self, cpu_group: Any, tcp_store_group: Optional[Any] = None):
        """cpu_group        of all ranks of the experts
        tcp_store_group  the same ranks where torch knows no such group, as with elastic expert parallelism; it then
                         carries the unique id"""
        groups = (cpu_group,) if tcp_store_group is None else (cpu_group, tcp_store_group)
        super().__init__(*groups)
        if getattr(getattr(self._config(), "parallel_config", None), "enable_fault_tolerance", False):
            raise NotImplementedError(f"remove --enable-fault-tolerance: {NO_MASKS}")
        self._group = groups[-1]
        self._buffer: Optional[Buffer] = None

    def _config(self) -> Any:
        """vLLM's configuration; None where there is none, as in tests of its layers."""
        return self.engine.get_config() if self.engine.get_config is not None else None

    def _require_buffer(self) -> Buffer:
        if self._buffer is None:
            options = dict(low_latency_mode=self.low_latency, explicitly_destroy=True)
            self._buffer = Buffer(self._group, **options)
        return self._buffer

    def set_num_sms(self, num_sms: int) -> None:
        """Multiprocessors of later high-throughput calls. Odd values of num_sms are rounded down, except 1, which
        is rounded up. After steps with two micro-batches, vLLM passes all multiprocessors of the GPU. This leaves the
        choice to the library again."""
        num_sms = integer(num_sms, "num_sms", 1)
        if torch.cuda.is_available() and num_sms >= torch.cuda.get_device_properties("cuda").multi_processor_count:
            return Buffer.reset_num_sms()
        return Buffer.set_num_sms(max(2, num_sms - num_sms % 2))

    def dispatch(self, *_: Any, **__: Any) -> Any:
        """Raises NotImplementedError: tokens travel by the prepare and finalize classes."""
        raise NotImplementedError("dispatch: moecomm's managers only make handles. Use prepare of the modular kernel")

    dispatch_router_logits = dispatch

    def combine(self, *_: Any, **__: Any) -> Any:
        """Raises NotImplementedError: tokens travel by the prepare and finalize classes."""
        raise NotImplementedError("combine: moecomm's managers only make handles. Use finalize of the modular kernel")

    def query_active_mask(self) -> torch.Tensor:
        """Raises NotImplementedError, as query_fault and clean_buffers do: there are no masks of ranks."""
        raise NotImplementedError(f"query_active_mask: {NO_MASKS}")

    def query_fault(self) -> torch.Tensor:
        """Raises NotImplementedError: see query_active_mask()."""
        raise NotImplementedError(f"query_fault: {NO_MASKS}")

    def clean_buffers(self) -> None:
        """Raises NotImplementedError: see query_active_mask()."""
        raise NotImplementedError(f"clean_buffers: {NO_MASKS}")

    def destroy(self) -> None:
        """Frees the memory. All work must have run. Idempotent; a later get_handle() makes a new Buffer."""
        buffer, self._buffer = self._buffer, None
        if buffer is not None:
            buffer.routes.close()  # layers may keep handles, but no work will use them


class HtManager(Manager):
    """Handles for the standard format. Chosen by --all2all-backend deepep_high_throughput."""

    low_latency = False

    def get_handle(self, kwargs: Dict[str, Any]) -> Buffer:
        """The Buffer of all layers. `kwargs` is empty. The most tokens of a rank are vLLM's max_num_batched_tokens, unless
        MOECOMM_TOKENS_MAX or moecomm.deep_ep.configure() says otherwise. Collective when first called."""
        if kwargs:
            raise TypeError(f"get_handle: {', '.join(sorted(kwargs))} given, expected no arguments")
        if self._buffer is None:
            default_tokens_max(self._batched_tokens())
        return self._require_buffer()

    def _batched_tokens(self) -> int:
        """The most tokens that the scheduler gives a rank in a step; 0 without a configuration."""
        scheduler = getattr(self._config(), "scheduler_config", None)
        return int(getattr(scheduler, "max_num_batched_tokens", 0) or 0)


class LlManager(Manager):
    """Handles for the batched format. Chosen by --all2all-backend deepep_low_latency."""

    low_latency = True

    def max_sms_used(self) -> Optional[int]:
        """0: between its two halves a call holds no multiprocessor, so vLLM leaves them all to the other micro-batch."""
        return 0

    def get_handle(self, kwargs: Dict[str, Any]) -> Buffer:
        """The Buffer of all layers, with memory for those of this shape, so that a later capture finds it. Collective.

        kwargs  max_num_tokens_per_dp_rank, token_hidden_size, num_ep_ranks, num_global_experts, num_local_experts

        Raises ValueError if these do not fit the group."""
        return self._handle(**kwargs)

    def _handle(
        self,
        max_num_tokens_per_dp_rank: int,
        token_hidden_size: int,
        num_ep_ranks: int,
        num_global_experts: int,
        num_local_experts: int,
    ) -> Buffer:
        if num_ep_ranks != self.world_size:
            raise ValueError(f"num_ep_ranks is {num_ep_ranks}, but the group has {self.world_size} ranks")
        if num_local_experts * num_ep_ranks != num_global_experts:
            expected = f"num_global_experts / num_ep_ranks = {num_global_experts} / {num_ep_ranks}"
            raise ValueError(f"num_local_experts is {num_local_experts}, expected {expected}")
        buffer = self._require_buffer()
        buffer.clean_low_latency_buffer(max_num_tokens_per_dp_rank, token_hidden_size, num_global_experts)
        return buffer
