"""The token dispatcher: which mode serves a step, and that its four halves come in their order."""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional, Union

import torch

from .. import errors
from ..handle_refusals import took_part
from ..values import integer
from .low_latency import LowLatency
from .normal import Normal

STAGES = ("dispatch_a", "dispatch_b", "combine_a", "combine_b")


class Dispatcher:
    """Takes the place of SGLang's DeepEPDispatcher, with its arguments. build() derives it from this class and SGLang's
    BaseDispatcher. One object serves one layer and one batch at a time: with two-batch overlap SGLang makes two.

    group              of all ranks of the experts
    num_experts        a multiple of the ranks
    hidden_size        elements of a row
    deepep_mode        SGLang's DeepEPMode; AUTO takes normal for batches with prefill, low latency for others
    async_finish       normal mode: calls run on a communication stream
    return_recv_hook   low latency: the halves a only send, on the current stream
    runner_backend     the layer's MoeRunnerBackend of SGLang, which affects the type of rows; None: the server's
    router_topk, permute_fusion, num_local_experts, params_dtype  follow from the others, and are not used"""

    engine: Any
    expert_mask_gpu = None  # for AMD's experts

    def __init__(
        self,
        group: Any,
        router_topk: int,
        permute_fusion: bool = False,
        num_experts: Optional[int] = None,
        num_local_experts: Optional[int] = None,
        hidden_size: Optional[int] = None,
        params_dtype: Optional[torch.dtype] = None,
        deepep_mode: Any = None,
        async_finish: bool = False,
        return_recv_hook: bool = False,
        runner_backend: Any = None,
        **unknown: Any,
    ):
        if unknown:
            raise TypeError(
                f"{', '.join(sorted(unknown))} given: arguments of a later SGLang, which moecomm does not know"
            )
        super().__init__()
        self.deepep_mode = self.engine.DeepEPMode.AUTO if deepep_mode is None else deepep_mode
        self._waits_for: Any = 0
        self._between: Any = None
        self._mode: Any = None
        common: Dict[str, Any] = dict(
            engine=self.engine,
            group=group,
            num_experts=integer(num_experts, "num_experts", 1),
            hidden_size=integer(hidden_size, "hidden_size", 1),
            runner_backend=runner_backend,
        )
        self._modes: Dict[str, Union[Normal, LowLatency]] = {}
        if self.deepep_mode.enable_normal():
            self._modes["normal"] = Normal(async_finish, **common)
        if self.deepep_mode.enable_low_latency():
            self._modes["low_latency"] = LowLatency(return_recv_hook, **common)
        hooks = self.engine.DispatchHooks
        self._dispatch_hooks = hooks() if hooks is not None else None

    def dispatch(self, hidden_states: torch.Tensor, topk_output: Any) -> Any:
        """Both halves, and what register_deepep_dispatch_hook() has registered between them.

        hidden_states, topk_output  as for dispatch_a()"""
        self.dispatch_a(hidden_states, topk_output)
        if self._dispatch_hooks is not None:
            self._dispatch_hooks(self)
        return self.dispatch_b()

    def dispatch_a(self, hidden_states: torch.Tensor, topk_output: Any) -> None:
        """Begins to send tokens to their experts. Collective, as all halves are. Raises InvalidUsage out of turn.

        hidden_states  [tokens, hidden]
        topk_output    SGLang's: topk_ids [tokens, topk], global experts, -1 = unused, and topk_weights [tokens, topk]
                       float32"""
        self._require_turn("dispatch_a")
        mode = self._modes[self.deepep_mode.resolve(self.engine.is_extend()).value]
        self._mode = mode
        self._pass(self._run(mode.dispatch_a, hidden_states, topk_output))

    def dispatch_b(self) -> Any:
        """Receives. Returns SGLang's DeepEPNormalDispatchOutput or DeepEPLLDispatchOutput, as the mode has it."""
        self._require_turn("dispatch_b")
        output = self._run(self._mode.dispatch_b, self._between)
        self._pass(None)
        return output

    def combine(self, combine_input: Any) -> torch.Tensor:
        """Both halves. `combine_input`: as for combine_a()."""
        self.combine_a(combine_input)
        return self.combine_b()

    def combine_a(self, combine_input: Any) -> None:
        """Begins to bring the results back.

        combine_input  SGLang's: hidden_states, topk_ids and topk_weights"""
        self._require_turn("combine_a")
        hidden_states, topk_ids, topk_weights = combine_input
        self._pass(self._run(self._mode.combine_a, hidden_states, topk_ids, topk_weights))

    def combine_b(self) -> torch.Tensor:
        """Receives and sums. Returns [tokens, hidden]."""
        self._require_turn("combine_b")
        sums: torch.Tensor = self._run(self._mode.combine_b, self._between)
        self._pass(None)
        return sums

    def _require_turn(self, half: str) -> None:
        """Requires that the halves are called in their order."""
        due = STAGES[self._waits_for]
        if half != due:
            raise errors.InvalidUsage(f"{half} is called, but {due} is due")

    def _run(self, half: Callable[..., Any], *arguments: Any) -> Any:
        """Runs a half. If it raises, it may be repeated unless this rank took part in a call: then the step is over."""
        try:
            return half(*arguments)
        except Exception as error:  # noqa: B902
            if took_part(error):
                self._waits_for, self._between = 0, None
            raise

    def _pass(self, between: Any) -> None:
        self._between = between
        self._waits_for = (self._waits_for + 1) % len(STAGES)

    def set_quant_config(self, quant_config: Dict[str, Any]) -> None:
        """Sets quant_config, whose dispatcher_output_dtype is the dtype in which the experts want rows."""
        super().set_quant_config(quant_config)  # type: ignore[misc]
        for mode in self._modes.values():
            mode.quant_config = quant_config

    def set_overlap_args(self, combine_overlap_args: Any, meta_overlap_args: Any) -> None:
        """Raises NotImplementedError for all combine_overlap_args and meta_overlap_args: combine does not wait for
        blocks of a GEMM."""
        raise NotImplementedError("set_overlap_args: remove --enable-single-batch-overlap, which moecomm does not have")

    def clear_overlap_args(self) -> None:
        """Does nothing, because no arguments are set."""

    def register_deepep_dispatch_hook(self, hook: Any) -> Any:
        """Registers hook(dispatcher), to be called by dispatch() between its halves. Returns SGLang's handle."""
        if self._dispatch_hooks is None:
            raise NotImplementedError("register_deepep_dispatch_hook: this SGLang has no DeepEPPDispatchHooks")
        return self._dispatch_hooks.register_hook(hook)
