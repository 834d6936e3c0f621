"""The all-to-all managers: what vLLM's device communicator owns, and asks for handles."""

from __future__ import annotations

from typing import Any, Dict, List, Optional

import torch

from ..deep_ep import Buffer
from ..deep_ep.settings import default_tokens_max
from ..torch.memory import tensor_at
from ..values import integer

NO_FAULT_TOLERANCE = "vLLM tolerates faults with --all2all-backend deepep_low_latency"


class Manager:
    """Common to both managers. build() derives them from this class and vLLM's All2AllManagerBase, which gives them
    rank, world_size, cpu_group, tcp_store_group and dp_world_size. All layers share one Buffer: it makes its memory
    by the shapes that they need."""

    engine: Any
    low_latency: bool
    rank: int
    world_size: int

    def __init__(self, cpu_group: Any, tcp_store_group: Optional[Any] = None):
        """cpu_group        of all ranks of the experts
        tcp_store_group  the same ranks where torch knows no such group, as with elastic expert parallelism; it then
                         carries the unique id"""
        groups = (cpu_group,) if tcp_store_group is None else (cpu_group, tcp_store_group)
        super().__init__(*groups)
        self._parallel = getattr(self._config(), "parallel_config", None)
        # Whether vLLM asks query_fault() after each step, and calls clean_buffers() before it repeats one.
        self.support_fault_tolerance = bool(getattr(self._parallel, "enable_fault_tolerance", False))
        if self.support_fault_tolerance and not self.low_latency:
            raise NotImplementedError(f"remove --enable-fault-tolerance: {NO_FAULT_TOLERANCE}")
        self._group = groups[-1]
        self._buffer: Optional[Buffer] = None
        self._failed: List[torch.Tensor] = []  # of each communicator of the Buffer: not 0 if it has failed

    def _config(self) -> Any:
        """vLLM's configuration; None where there is none, as in tests of its layers."""
        return self.engine.get_config() if self.engine.get_config is not None else None

    def _require_buffer(self) -> Buffer:
        if self._buffer is None:
            options = dict(low_latency_mode=self.low_latency, explicitly_destroy=True)
            self._buffer = Buffer(self._group, enable_shrink=self.support_fault_tolerance, **options)
        return self._buffer

    def _device(self) -> torch.device:
        """That of the Buffer, or where it will be."""
        if self._buffer is not None:
            return self._buffer.device
        return torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")

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
        """int32 [world_size]: 1 for ranks that the group goes on without, 0 for the others. A fault masks none by itself:
        it ends the step on all ranks, which then recover together."""
        mask = torch.zeros(self.world_size, dtype=torch.int32, device=self._device())
        if self._buffer is not None:
            self._buffer.low_latency_query_mask_buffer(mask)
        return mask

    def query_fault(self) -> torch.Tensor:
        """A scalar bool in device memory: whether a communicator has failed. In stream order behind the steps that are
        queued, replayed graphs included."""
        device = self._device()
        comms = self._buffer.routes.communicators() if self._buffer is not None else []
        if any(comm.async_error() is not None for comm in comms):
            return torch.ones((), dtype=torch.bool, device=device)
        for comm in comms[len(self._failed) :]:
            self._failed.append(tensor_at(comm.info.failed, (), torch.int32, device, comm))
        return torch.stack(self._failed).any() if self._failed else torch.zeros((), dtype=torch.bool, device=device)

    def clean_buffers(self) -> None:
        """Recovers the communicators, so that the step can be repeated. Collective: vLLM tells all workers to retry. Waits
        for the others as long as vLLM waits for an instruction (engine_recovery_timeout_sec). No further rank may be
        lost: vLLM repeats the step on all ranks that it has."""
        if self._buffer is None:
            return
        waits = getattr(getattr(self._parallel, "fault_tolerance_config", None), "engine_recovery_timeout_sec", 120)
        self._buffer.recover(int(waits) * 1000, losses_max=len(self._buffer.routes.lost))

    def checkpoint_prepare(self) -> None:
        """Gives the window memory back and closes all connections, before vLLM's processes are checkpointed. Collective.
        Captured graphs stay. Idempotent."""
        if self._buffer is not None:
            self._buffer.checkpoint_prepare()

    def checkpoint_restore(self) -> None:
        """Lets the ranks meet again by vLLM's group, which must work again, and takes fresh memory to the same addresses.
        Collective. Idempotent."""
        if self._buffer is not None:
            self._buffer.checkpoint_restore()

    def destroy(self) -> None:
        """Frees the memory. All work must have run. Idempotent; a later get_handle() makes a new Buffer."""
        buffer, self._buffer = self._buffer, None
        self._failed.clear()
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
