"""The parts of SGLang that the adapter needs."""

from __future__ import annotations

from types import SimpleNamespace

from ..interfaces import Wanted, find

ADAPTER, ENGINE = "moecomm.sglang", "sglang"
KNOWN = "SGLang 0.5.23, whose plugins replace classes and whose dispatchers take topk_output and combine_input"
_MOE = "sglang.srt.layers.moe"
_QUANTIZE = "sglang_per_token_group_quant_fp8"
_DEEPEP = f"{_MOE}.token_dispatcher.deepep"
DISPATCHER = f"{_DEEPEP}.DeepEPDispatcher"

WANTED = dict(
    BaseDispatcher=Wanted(f"{_MOE}.token_dispatcher.base", "BaseDispatcher"),
    NormalOutput=Wanted(_DEEPEP, "DeepEPNormalDispatchOutput"),
    LowLatencyOutput=Wanted(_DEEPEP, "DeepEPLLDispatchOutput"),
    DispatchHooks=Wanted(_DEEPEP, "DeepEPPDispatchHooks", optional=True),
    DeepEPMode=Wanted(f"{_MOE}.utils", "DeepEPMode"),
    output_dtype=Wanted(f"{_MOE}.utils", "get_deepep_output_dtype"),
    runner_backend=Wanted(f"{_MOE}.utils", "get_moe_runner_backend"),
    is_extend=Wanted("sglang.srt.layers.dp_attention", "get_is_extend_in_batch"),
    envs=Wanted("sglang.srt.environ", "envs"),
    deep_gemm=Wanted("sglang.srt.layers.deep_gemm_wrapper"),
    recorder=Wanted("sglang.srt.eplb.expert_distribution", "get_global_expert_distribution_recorder"),
    # These two have moved: the later place comes first.
    quantize=Wanted("sglang.kernels.ops.quantization.fp8_kernel", _QUANTIZE, optional=True),
    quantize_before=Wanted("sglang.srt.layers.quantization.fp8_kernel", _QUANTIZE, optional=True),
    bounds=Wanted("sglang.srt.runtime_context", "get_schedule", optional=True),
    get_parallel=Wanted("sglang.srt.runtime_context", "get_parallel", optional=True),
    bounds_before=Wanted("sglang.srt.server_args", "get_global_server_args", optional=True),
)
HOOKS = dict(
    HookRegistry=Wanted("sglang.srt.plugins.hook_registry", "HookRegistry"),
    HookType=Wanted("sglang.srt.plugins.hook_registry", "HookType"),
    replaced=Wanted(_DEEPEP, "DeepEPDispatcher"),
)


def require_engine() -> None:
    """Raises MissingInterface if there is no SGLang."""
    find(ADAPTER, ENGINE, KNOWN, {})


def find_engine() -> SimpleNamespace:
    """The classes and functions of WANTED. Raises MissingInterface."""
    engine = find(ADAPTER, ENGINE, KNOWN, WANTED)
    engine.quantize = engine.quantize or engine.quantize_before
    engine.bounds = engine.bounds or engine.bounds_before
    return engine


def find_hooks() -> SimpleNamespace:
    """The plugin framework. Raises MissingInterface."""
    return find(ADAPTER, ENGINE, KNOWN, HOOKS)
