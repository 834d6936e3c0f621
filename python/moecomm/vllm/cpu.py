"""vLLM's CPU platform, by the host backend. install_cpu() puts these classes in the place of vLLM's.

On CPUs vLLM has one all-to-all manager, and experts of the standard format alone. They differ from those of GPUs: they
read ids of their own experts only, do not look at expert_map, and apply weights and sum for themselves."""

from __future__ import annotations

from typing import Any, Optional, Tuple, Type

import torch

from ..deep_ep import configure
from .standard import Standard

HIGH_THROUGHPUT, LOW_LATENCY = "deepep_high_throughput", "deepep_low_latency"


class CpuCommunicator:
    """Takes the place of vLLM's CpuCommunicator, from which build_cpu() derives it. With --all2all-backend
    deepep_high_throughput the communicator of the experts owns moecomm's manager; all other communicators are vLLM's.

    cpu_group     the ranks
    device        passed on
    device_group  passed on
    unique_name   "ep:0" and the like for the ranks of the experts
    use_all2all   whether vLLM's settings need a manager"""

    engine: Any
    manager: Type[Any]  # HtManager, derived from vLLM's
    is_ep_communicator: bool

    def __init__(
        self,
        cpu_group: Any,
        device: Optional[torch.device] = None,
        device_group: Optional[Any] = None,
        unique_name: str = "",
        use_all2all: bool = False,
    ):
        ours = use_all2all and self._is_chosen()
        arguments: Tuple[Any, ...] = (cpu_group, device, device_group, unique_name, use_all2all and not ours)
        super().__init__(*arguments)
        if ours and self.is_ep_communicator:
            configure(device="cpu")  # also where torch sees a GPU
            self.use_all2all = True
            self.all2all_manager = self.manager(cpu_group)

    def _is_chosen(self) -> bool:
        """Raises NotImplementedError for settings with which a layer could not run."""
        config = self.engine.get_config() if self.engine.get_config is not None else None
        backend = getattr(getattr(config, "parallel_config", None), "all2all_backend", None)
        if backend == LOW_LATENCY:
            raise NotImplementedError(
                f"--all2all-backend is {LOW_LATENCY}, but vLLM has no experts of the batched format for CPUs: "
                f"use {HIGH_THROUGHPUT}"
            )
        if backend != HIGH_THROUGHPUT:
            return False
        if getattr(getattr(config, "compilation_config", None), "mode", None):
            raise NotImplementedError("add --enforce-eager: on CPUs vLLM compiles layers whole, with moecomm's calls")
        return True


class CpuStandard(Standard):
    """Takes the place of vLLM's DeepEPHTPrepareAndFinalize on CPUs. The arguments are those of Standard.

    An arrived row is passed to the experts once for each of its experts here, with one id and one weight. They compute
    nothing for entries of other ranks, and rows travel once per rank. vLLM runs no micro-batches on CPUs."""

    _row_of_entry: torch.Tensor

    def post_init_setup(self, fused_experts: Any) -> None:
        """Does not pass expert_map to the experts, fused_experts, because their ids are local. vLLM calls this method
        once the experts are known. Experts of vLLM 0.33 do not read expert_map, but later ones may."""
        apply = fused_experts.apply

        def apply_to_local(*arguments: Any, **keywords: Any) -> Any:
            return apply(*arguments, **{**keywords, "expert_map": None})

        fused_experts.apply = apply_to_local

    def topk_indices_dtype(self) -> torch.dtype:
        """int32, the dtype of vLLM's router and experts for CPUs. int64 is accepted too."""
        return torch.int32

    def _require(self, quant_config: Any, defer_input_quant: bool) -> None:
        if quant_config.quant_dtype is not None and not defer_input_quant:
            raise NotImplementedError(
                f"quant_dtype is {quant_config.quant_dtype} and defer_input_quant False: choose experts that quantise "
                "for themselves, as vLLM's for CPUs do"
            )

    def _for_experts(
        self, rows: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, num_experts: int
    ) -> Tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        self._row_of_entry, place = (ids >= 0).nonzero(as_tuple=True)
        entry = (self._row_of_entry, place)
        return rows[self._row_of_entry], ids[entry].int().unsqueeze(1), weights[entry].unsqueeze(1)

    def _reduce(self, rows: torch.Tensor, received: int, reduce: Any, **given: Any) -> torch.Tensor:
        if isinstance(reduce, self.engine.Delegate):
            name = type(reduce).__name__
            raise TypeError(f"weight_and_reduce_impl is a {name}, expected that of experts that apply weights")
        rows = reduce.apply(output=None, fused_expert_output=rows, **given)
        sums = rows.new_zeros((received, rows.shape[-1]), dtype=torch.float32)
        return sums.index_add_(0, self._row_of_entry, rows.float()).to(rows.dtype)
