"""The parts of SGLang that moecomm.sglang uses, written from its public documentation: the dispatcher's base, output
types, modes, settings, and the registry of hooks with which plugins replace classes."""

import abc
import enum
import pkgutil
import sys
import types
from typing import Any, NamedTuple

from stand_in import block_quantise, module

MOE = "sglang.srt.layers.moe"
DEEPEP = f"{MOE}.token_dispatcher.deepep"


class BaseDispatcher(abc.ABC):
    def __init__(self):
        self.quant_config = None

    dispatch = abc.abstractmethod(lambda self, hidden_states, topk_output: None)
    combine = abc.abstractmethod(lambda self, combine_input: None)

    def set_quant_config(self, quant_config):
        self.quant_config = quant_config


class DeepEPNormalDispatchOutput(NamedTuple):
    hidden_states: Any
    hidden_states_scale: Any
    topk_ids: Any
    topk_weights: Any
    num_recv_tokens_per_expert: Any


class DeepEPLLDispatchOutput(NamedTuple):
    hidden_states: Any
    hidden_states_scale: Any
    topk_ids: Any
    topk_weights: Any
    masked_m: Any
    expected_m: int


class CombineInput(NamedTuple):
    """The input of combine in both modes; SGLang has one class for each."""

    hidden_states: Any
    topk_ids: Any
    topk_weights: Any


class DeepEPPDispatchHooks:
    def __init__(self):
        self.hooks = []

    def register_hook(self, hook_fun):
        self.hooks.append(hook_fun)
        return types.SimpleNamespace(remove=lambda: self.hooks.remove(hook_fun))

    def __call__(self, dispatcher):
        for hook in self.hooks:
            hook(dispatcher)


class DeepEPDispatcher(BaseDispatcher):
    """SGLang's own, which the plugin replaces."""


class DeepEPMode(enum.Enum):
    NORMAL = "normal"
    LOW_LATENCY = "low_latency"
    AUTO = "auto"

    def enable_normal(self):
        return self is not DeepEPMode.LOW_LATENCY

    def enable_low_latency(self):
        return self is not DeepEPMode.NORMAL

    def resolve(self, is_extend_in_batch):
        if self is not DeepEPMode.AUTO:
            return self
        return DeepEPMode.NORMAL if is_extend_in_batch else DeepEPMode.LOW_LATENCY


class DispatcherOutputDtype(enum.Enum):
    BF16 = "bf16"
    FP8 = "fp8"
    INT8 = "int8"
    NVFP4 = "nvfp4"
    MXFP4 = "mxfp4"
    MXFP8 = "mxfp8"


class HookType(enum.Enum):
    BEFORE = "before"
    AFTER = "after"
    AROUND = "around"
    REPLACE = "replace"


class HookRegistry:
    """Replaces classes where they are defined and in all modules that have imported them."""

    hooks = {}
    patched = set()

    @classmethod
    def register(cls, target, hook, hook_type=HookType.AFTER):
        assert hook_type is HookType.REPLACE
        cls.hooks.setdefault(target, []).append(hook)

    @classmethod
    def apply_hooks(cls):
        for target, hooks in cls.hooks.items():
            if target in cls.patched:
                continue
            cls.patched.add(target)
            place, name = target.rsplit(".", 1)
            old = getattr(pkgutil.resolve_name(place), name)
            for found in list(sys.modules.values()):
                if isinstance(found, types.ModuleType) and vars(found).get(name) is old:
                    setattr(found, name, hooks[-1])


class Recorder:
    """A recorder of the experts' load."""

    def __init__(self):
        self.recording, self.normal, self.low_latency = True, [], []

    def on_deepep_dispatch_normal(
        self, local_physical_count_of_layer, num_tokens_per_rank, num_tokens_per_rdma_rank, num_tokens_per_expert
    ):
        sent = num_tokens_per_rank, num_tokens_per_rdma_rank, num_tokens_per_expert
        self.normal.append((local_physical_count_of_layer, *sent))

    def on_deepep_dispatch_low_latency(self, local_physical_count_of_layer):
        self.low_latency.append(local_physical_count_of_layer)


def runner(chosen=None):
    """SGLang's MoeRunnerBackend, of which `chosen` is one that quantises for itself."""
    kinds = ("is_flashinfer_cutedsl", "is_cutlass", "is_humming")
    return types.SimpleNamespace(**{kind: lambda kind=kind: kind == f"is_{chosen}" for kind in kinds})


def quantise(x, group_size, *, column_major_scales=False, scale_tma_aligned=False, scale_ue8m0=False):
    assert (column_major_scales, scale_tma_aligned, scale_ue8m0) == (False, False, False)
    return block_quantise(x, group_size)


def install():
    """Puts the stand-in into sys.modules. Returns settings: extend, dtype, tokens_max, the recorder, and so on."""
    found = types.SimpleNamespace(extend=True, dtype=DispatcherOutputDtype.BF16, tokens_max=8, recorder=Recorder())
    found.compiles, found.barriers = False, 0
    found.gemm = dict(ENABLE_JIT_DEEPGEMM=True, DEEPGEMM_BLACKWELL=False, DEEPGEMM_SCALE_UE8M0=False)
    found.args = types.SimpleNamespace(chunked_prefill_size=64, max_prefill_tokens=16384)
    HookRegistry.hooks.clear()
    HookRegistry.patched.clear()

    def output_dtype(mode):
        if mode.quant_config.get("input_global_scale") is not None:
            return DispatcherOutputDtype.NVFP4
        wanted = mode.quant_config.get(f"{mode.dispatch_mode.value}_dispatcher_output_dtype")
        wanted = wanted or mode.quant_config.get("dispatcher_output_dtype")
        backend = mode.runner_backend
        if wanted is None and (backend.is_flashinfer_cutedsl() or backend.is_cutlass() or backend.is_humming()):
            return DispatcherOutputDtype.BF16
        return found.dtype if wanted is None else DispatcherOutputDtype(wanted)

    def barrier():
        found.barriers += 1

    tokens = types.SimpleNamespace(get=lambda: found.tokens_max)
    module(f"{MOE}.token_dispatcher.base", BaseDispatcher=BaseDispatcher)
    module(
        DEEPEP,
        DeepEPDispatcher=DeepEPDispatcher,
        DeepEPNormalDispatchOutput=DeepEPNormalDispatchOutput,
        DeepEPLLDispatchOutput=DeepEPLLDispatchOutput,
        DeepEPPDispatchHooks=DeepEPPDispatchHooks,
    )
    module("sglang.srt.batch_overlap.two_batch_overlap", DeepEPDispatcher=DeepEPDispatcher)
    helpers = dict(get_deepep_output_dtype=output_dtype, get_moe_runner_backend=runner)
    module(f"{MOE}.utils", DeepEPMode=DeepEPMode, **helpers)
    module("sglang.srt.layers.dp_attention", get_is_extend_in_batch=lambda: found.extend)
    compiles = types.SimpleNamespace(get=lambda: found.compiles)
    envs = types.SimpleNamespace(
        SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK=tokens, SGLANG_IN_DEEPGEMM_PRECOMPILE_STAGE=compiles
    )
    module("sglang.srt.environ", envs=envs)
    module("sglang.srt.layers.deep_gemm_wrapper", **found.gemm)
    name = "get_global_expert_distribution_recorder"
    module("sglang.srt.eplb.expert_distribution", **{name: lambda: found.recorder})
    module("sglang.kernels.ops.quantization.fp8_kernel", sglang_per_token_group_quant_fp8=quantise)
    parallel = types.SimpleNamespace(tp_group=types.SimpleNamespace(barrier=barrier))
    module("sglang.srt.runtime_context", get_schedule=lambda: found.args, get_parallel=lambda: parallel)
    module("sglang.srt.plugins.hook_registry", HookRegistry=HookRegistry, HookType=HookType)
    return found
