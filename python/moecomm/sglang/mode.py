"""The common part of both modes."""

from __future__ import annotations

import functools
import logging
from typing import Any, Dict

from ..deep_ep import Buffer
from .buffers import buffer_of


@functools.lru_cache(maxsize=None)
def _warn_of_int8() -> None:
    """Once per process."""
    logging.getLogger(__name__).warning("int8 rows are only for NPUs: rows travel as fp8")


class Mode:
    """A mode of one layer's dispatcher."""

    def __init__(self, engine: Any, mode: str, group: Any, num_experts: int, hidden_size: int, runner_backend: Any):
        self.engine, self.group = engine, group
        # get_deepep_output_dtype reads these two and quant_config.
        self.dispatch_mode = engine.DeepEPMode(mode)
        self.runner_backend = engine.runner_backend() if runner_backend is None else runner_backend
        self.num_experts, self.hidden_size = num_experts, hidden_size
        self.quant_config: Dict[str, Any] = {}

    def buffer(self) -> Buffer:
        """The Buffer of the group. Collective when first called in this process."""
        args = self.engine.bounds
        return buffer_of(self.group, args() if args is not None else None)

    def meet(self) -> None:
        """Waits for the other ranks while SGLang compiles DeepGEMM's kernels, which takes longer on one rank than on
        another: the waits of a call have a timeout. Done before each call, as SGLang does it."""
        stage = getattr(self.engine.envs, "SGLANG_IN_DEEPGEMM_PRECOMPILE_STAGE", None)
        if stage is not None and stage.get() and self.engine.get_parallel is not None:
            self.engine.get_parallel().tp_group.barrier()

    def wants(self, dtype: str) -> bool:
        """Whether rows travel as "bf16" or "fp8", by SGLang's rules for DeepEP, where int8 counts as fp8 on GPUs. Raises
        NotImplementedError for others, which moecomm.deep_ep does not cast to."""
        found = self.engine.output_dtype(self).value
        if found == "int8":
            _warn_of_int8()
            found = "fp8"
        if found not in ("bf16", "fp8"):
            why = ", since input_global_scale is set" if self.quant_config.get("input_global_scale") is not None else ""
            raise NotImplementedError(
                f"rows are to travel as {found}{why}, expected bf16 or fp8: pass --deepep-dispatcher-output-dtype bf16"
            )
        return bool(found == dtype)
