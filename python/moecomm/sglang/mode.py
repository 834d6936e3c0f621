"""What both modes have in common."""

from __future__ import annotations

from typing import Any, Dict

from ..deep_ep import Buffer
from .buffers import buffer_of


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

    def wants(self, dtype: str) -> bool:
        """Whether rows travel as "bf16" or "fp8", by SGLang's rules for DeepEP. Raises NotImplementedError for others,
        which moecomm does not cast to."""
        found = self.engine.output_dtype(self).value
        if found not in ("bf16", "fp8"):
            raise NotImplementedError(
                f"rows are to travel as {found}, expected bf16 or fp8: pass --deepep-dispatcher-output-dtype bf16"
            )
        return bool(found == dtype)
