"""SGLang's own classes from its wheel, on CPUs, with moecomm in DeepEP's place. Loads some of SGLang's modules, and
puts stand-ins in the place of the rest. Dispatchers for two batches, output types and rules for the types of rows are
SGLang's code."""

import importlib
import os
import types

from engine_wheels import class_misfits, load, undefined, unlike
from stand_in import block_quantise

MOE = "sglang.srt.layers.moe"
DISPATCHERS = f"{MOE}.token_dispatcher"
OVERLAP = "sglang.srt.batch_overlap.two_batch_overlap"
HOOKS = "sglang.srt.plugins.hook_registry"
LOADED = (
    "sglang.srt.environ",
    f"{MOE}.utils",
    DISPATCHERS,
    f"{DISPATCHERS}.base",
    f"{DISPATCHERS}.deepep",
    OVERLAP,
    HOOKS,
)


def _quantise(x, group_size, column_major_scales, scale_tma_aligned, scale_ue8m0):
    return block_quantise(x, group_size)


def _provided(settings):
    no = {name: lambda *_: False for name in ("is_cuda", "is_npu", "is_hip", "get_bool_env_var")}
    moe = types.SimpleNamespace(deepep_dispatcher_output_dtype="auto", runner_backend=None)
    recorder = types.SimpleNamespace(
        recording=False, on_deepep_dispatch_normal=lambda *_, **__: None, on_deepep_dispatch_low_latency=lambda _: None
    )
    schedule = types.SimpleNamespace(chunked_prefill_size=64, max_prefill_tokens=64)

    def barrier():
        settings.barriers += 1

    parallel = types.SimpleNamespace(tp_group=types.SimpleNamespace(barrier=barrier))
    settings.__dict__.update(extend=True, two_batches=False, barriers=0, moe=moe)
    backend = lambda: importlib.import_module(f"{MOE}.utils").MoeA2ABackend.DEEPEP  # noqa: E731
    return {
        "sglang.srt.utils": no,
        "sglang.srt.runtime_context": dict(
            get_server_args=lambda: settings,
            get_exec=lambda: settings,
            get_flags=lambda: settings,
            get_schedule=lambda: schedule,
            get_parallel=lambda: parallel,
        ),
        "sglang.srt.layers.dp_attention": dict(get_is_extend_in_batch=lambda: settings.extend),
        "sglang.srt.layers.deep_gemm_wrapper": dict(
            ENABLE_JIT_DEEPGEMM=True, DEEPGEMM_BLACKWELL=False, DEEPGEMM_SCALE_UE8M0=False
        ),
        "sglang.srt.eplb.expert_distribution": dict(get_global_expert_distribution_recorder=lambda: recorder),
        "sglang.kernels.ops.quantization.fp8_kernel": dict(sglang_per_token_group_quant_fp8=_quantise),
        MOE: dict(get_moe_a2a_backend=backend, is_tbo_enabled=lambda: settings.two_batches),
    }


_settings = types.SimpleNamespace()


def install(tokens_max=8):
    """Loads SGLang and lets moecomm's plugin act in it. Returns modules: .dispatchers, .utils and so on, the .version,
    SGLang's own .replaced dispatcher, and .settings: extend, two_batches, barriers, moe."""
    import moecomm.deep_ep
    import moecomm.sglang

    os.environ["SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK"] = str(tokens_max)
    moecomm.deep_ep.install()
    provided = _provided(_settings)
    names = dict(utils=f"{MOE}.utils", base=f"{DISPATCHERS}.base", deepep=f"{DISPATCHERS}.deepep", overlap=OVERLAP)
    version = load("sglang", LOADED, provided)
    found = types.SimpleNamespace(**{key: importlib.import_module(name) for key, name in names.items()})
    found.hooks = importlib.import_module(HOOKS)
    found.environ = importlib.import_module("sglang.srt.environ")
    found.version, found.settings = version, _settings
    if not hasattr(_settings, "replaced"):
        _settings.replaced = found.deepep.DeepEPDispatcher
        moecomm.sglang.install()
    return found


def report(sglang):
    """The mismatches of our class, or the stand-in of test_sglang.py, with SGLang's: {kind of finding: sentences}."""
    import moecomm.sglang.engine
    import stand_in_sglang

    found = class_misfits("Dispatcher", moecomm.sglang.build(), sglang.settings.replaced, "sglang.")
    pairs = dict(
        BaseDispatcher=sglang.base,
        DeepEPNormalDispatchOutput=sglang.deepep,
        DeepEPLLDispatchOutput=sglang.deepep,
        DeepEPPDispatchHooks=sglang.deepep,
        DeepEPMode=sglang.utils,
        DispatcherOutputDtype=sglang.utils,
        HookType=sglang.hooks,
        HookRegistry=sglang.hooks,
    )
    stands = [line for name, module in pairs.items() for line in unlike(getattr(stand_in_sglang, name), getattr(module, name))]
    for real in (sglang.deepep.DeepEPNormalCombineInput, sglang.deepep.DeepEPLLCombineInput):
        stands += unlike(stand_in_sglang.CombineInput, real)
    looked_up = {**moecomm.sglang.engine.WANTED, **moecomm.sglang.engine.HOOKS}
    # Where a name has moved, the earlier place is gone.
    found["name"] = undefined(
        "sglang", [(one.module, one.name) for key, one in looked_up.items() if not key.endswith("_before")]
    )
    found["stand-in"] = stands + undefined("sglang", [
        (module, name) for module, names in _provided(types.SimpleNamespace()).items() for name in names
    ])  # fmt: skip
    return {kind: sentences for kind, sentences in found.items() if sentences}


def make(sglang, mode="AUTO", group=None, **sizes):
    """The dispatcher of a layer, as SGLang's layers make it."""
    return sglang.overlap.MaybeTboDeepEPDispatcher(
        runner_backend=None,
        group=group,
        permute_fusion=True,
        params_dtype=None,
        deepep_mode=sglang.utils.DeepEPMode[mode],
        async_finish=True,
        return_recv_hook=True,
        **sizes,
    )
