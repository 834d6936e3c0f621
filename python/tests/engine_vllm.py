"""vLLM's own classes from its wheel, on CPUs, with moecomm in DeepEP's place. Loads some of vLLM's modules, and puts
stand-ins in the place of the rest. The modular kernel and the micro-batches are vLLM's code; experts and quantisation
are plain torch."""

import contextlib
import importlib
import logging
import sys
import threading
import types

import torch
from engine_wheels import class_misfits, load, undefined, unlike
from stand_in import block_quantise, decode

FUSED_MOE = "vllm.model_executor.layers.fused_moe"
COMMUNICATORS = "vllm.distributed.device_communicators"
QUANTISATION = "vllm.model_executor.layers.quantization.utils"
UBATCHING = "vllm.v1.worker.ubatching"
LOADED = (
    "vllm.envs",
    "vllm.scalar_type",
    "vllm.utils.math_utils",
    f"{QUANTISATION}.quant_utils",
    f"{QUANTISATION}.ocp_mx_utils",
    f"{FUSED_MOE}.activation",
    f"{FUSED_MOE}.config",
    f"{FUSED_MOE}.moe_output",
    f"{FUSED_MOE}.modular_kernel",
    f"{FUSED_MOE}.topk_weight_and_reduce",
    f"{FUSED_MOE}.utils",
    f"{FUSED_MOE}.all2all_utils",
    f"{FUSED_MOE}.prepare_finalize.deepep_ht",
    f"{FUSED_MOE}.prepare_finalize.deepep_ll",
    UBATCHING,
    f"{COMMUNICATORS}.base_device_communicator",
    f"{COMMUNICATORS}.all2all",
)
TOKENS_MAX = 48


class Platform:
    """A CPU, for which vLLM's kernel allocates without its workspace."""

    simple_compile_backend = "eager"

    def __getattr__(self, name):
        if name.startswith("is_"):
            return lambda: name == "is_cpu"
        raise AttributeError(name)

    def fp8_dtype(self):
        return torch.float8_e4m3fn


class _Logger(logging.LoggerAdapter):
    debug_once = info_once = warning_once = lambda self, *_, **__: None


class Stream:
    """Stands for a stream of a CPU: all work has been done."""

    def __init__(self, name):
        self.name = name

    def wait_event(self, _):
        pass


class _Event:
    def record(self, _):
        pass


_streams = threading.local()


def current_stream():
    return getattr(_streams, "current", None)


def _set_stream(stream):
    _streams.current = stream


def _fp8(rows, scale, use_per_token_if_dynamic):
    if use_per_token_if_dynamic:
        return block_quantise(rows, rows.shape[-1])
    scale = torch.tensor([0.25]) if scale is None else scale
    return (rows.float() / scale).to(torch.float8_e4m3fn), scale


def _group(size):
    return types.SimpleNamespace(rank_in_group=torch.distributed.get_rank(), world_size=size)


def _provided(settings):
    size = torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1
    scheduler = types.SimpleNamespace(DEFAULT_MAX_NUM_BATCHED_TOKENS_FOR_BATCHED_DP=256)
    off = types.SimpleNamespace(is_fused_moe_enabled=lambda: False, is_fusion_moe_shared_experts_enabled=lambda: False)
    import triton

    return {
        "vllm.platforms": dict(current_platform=Platform()),
        "vllm.logger": dict(init_logger=lambda name: _Logger(logging.getLogger(name), {})),
        "vllm.config": dict(SchedulerConfig=scheduler, get_current_vllm_config_or_none=lambda: settings),
        "vllm.config.kernel": dict(MoEBackend=str),
        "vllm.utils.import_utils": dict(get_triton_kernels_version=lambda: None),
        "vllm.utils.torch_utils": dict(PIN_MEMORY=False, current_stream=current_stream),
        "vllm.triton_utils": dict(triton=triton, tl=importlib.import_module("triton.language")),
        "vllm.forward_context": dict(_forward_context=None),
        "vllm._aiter_ops": dict(rocm_aiter_ops=off),
        "vllm._custom_ops": dict(
            moe_sum=lambda rows, out: out.copy_(rows.float().sum(dim=1)),
            scaled_fp8_quant=_fp8,
        ),
        f"{QUANTISATION}.fp8_utils": dict(
            per_token_group_quant_fp8=lambda rows, block, column_major_scales: block_quantise(rows, block)
        ),
        "vllm.distributed.parallel_state": dict(
            get_dp_group=lambda: _group(size),
            get_tp_group=lambda: _group(1),
            in_the_same_node_as=lambda group, source_rank: [True] * group.size(),
        ),
    }


def install(more_loaded=(), more_provided=lambda settings: {}):
    """Loads vLLM and lets moecomm take its place in it. Returns modules: .kernel, .all2all, .utils and so on, the
    .version, and .settings, vLLM's configuration.

    more_loaded    names of further modules of vLLM
    more_provided  gets vLLM's configuration; {module: {name: value}} beyond those of _provided()"""
    import moecomm.deep_ep
    import moecomm.vllm

    moecomm.deep_ep.install()  # vLLM's own DeepEP classes, with which ours are compared, import it
    parallel = types.SimpleNamespace(enable_fault_tolerance=False)
    settings = types.SimpleNamespace(
        scheduler_config=types.SimpleNamespace(max_num_batched_tokens=TOKENS_MAX), parallel_config=parallel
    )
    provided = _provided(settings)
    for name, values in more_provided(settings).items():
        provided[name] = {**provided.get(name, {}), **values}
    version = load("vllm", LOADED + tuple(more_loaded), provided)
    names = dict(
        activation=f"{FUSED_MOE}.activation",
        config=f"{FUSED_MOE}.config",
        kernel=f"{FUSED_MOE}.modular_kernel",
        reduce=f"{FUSED_MOE}.topk_weight_and_reduce",
        quantise=f"{FUSED_MOE}.utils",
        utils=f"{FUSED_MOE}.all2all_utils",
        ht=f"{FUSED_MOE}.prepare_finalize.deepep_ht",
        ll=f"{FUSED_MOE}.prepare_finalize.deepep_ll",
        ubatching=UBATCHING,
        base=f"{COMMUNICATORS}.base_device_communicator",
        all2all=f"{COMMUNICATORS}.all2all",
    )
    found = types.SimpleNamespace(**{key: importlib.import_module(name) for key, name in names.items()})
    found.version = version
    found.settings = sys.modules["vllm.config"].get_current_vllm_config_or_none()
    found.deep_ep = {
        "HtManager": found.all2all.DeepEPHTAll2AllManager,
        "LlManager": found.all2all.DeepEPLLAll2AllManager,
        "Standard": found.ht.DeepEPHTPrepareAndFinalize,
        "Batched": found.ll.DeepEPLLPrepareAndFinalize,
    }
    moecomm.vllm.install()
    return found


# ---- What fits -------------------------------------------------------------------------------------------------------


def report(vllm):
    """The mismatches of our classes, or the stand-in of test_vllm.py, with vLLM's: {kind of finding: sentences}."""
    import moecomm.vllm.engine
    import stand_in_vllm

    found = {}
    for name, ours in moecomm.vllm.build()._asdict().items():
        for kind, sentences in class_misfits(name, ours, vllm.deep_ep[name], "vllm.").items():
            found.setdefault(kind, []).extend(sentences)
    pairs = dict(
        FusedMoEActivationFormat=vllm.kernel,
        ExpertTokensMetadata=vllm.kernel,
        FusedMoEPrepareAndFinalizeModular=vllm.kernel,
        TopKWeightAndReduceDelegate=vllm.reduce,
        TopKWeightAndReduceContiguous=vllm.reduce,
        moe_kernel_quantize_input=vllm.quantise,
        normalize_batched_scales_shape=vllm.quantise,
        All2AllManagerBase=vllm.base,
    )
    stands = [line for name, module in pairs.items() for line in unlike(getattr(stand_in_vllm, name), getattr(module, name))]
    switches = [name for name in stand_in_vllm.ubatching([]) if name.startswith("dbo_")]
    stands += [f"{UBATCHING} has no {name}" for name in switches if not hasattr(vllm.ubatching, name)]
    looked_up = {**moecomm.vllm.engine.WANTED, **moecomm.vllm.engine.PLACES}.values()
    found["name"] = undefined("vllm", [(one.module, one.name) for one in looked_up])
    found["stand-in"] = stands + undefined("vllm", [
        (module, name) for module, names in _provided(None).items() for name in names
    ])  # fmt: skip
    return {kind: sentences for kind, sentences in found.items() if sentences}


# ---- Driving it ------------------------------------------------------------------------------------------------------


def experts_of(vllm, batched):
    """A class of vLLM's experts, of one format, that multiplies by the weights in plain torch."""
    kernel, formats = vllm.kernel, vllm.kernel.FusedMoEActivationFormat
    always = staticmethod(lambda *_: True)

    def expert(rows, w1, w2):
        gate, up = (rows @ w1.float().T).chunk(2, dim=-1)
        return (torch.nn.functional.silu(gate) * up) @ w2.float().T

    class Experts(kernel.FusedMoEExpertsModular):
        _supports_current_device = _supports_no_act_and_mul = _supports_quant_scheme = always
        _supports_activation = _supports_parallel_config = always

        @staticmethod
        def activation_format():
            return formats.BatchedExperts if batched else formats.Standard

        def workspace_shapes(self, M, N, K, topk, global_num_experts, local_num_experts, *_):
            return (0,), (0,), (local_num_experts, M, K) if batched else (M, topk, K)

        def finalize_weight_and_reduce_impl(self):
            return vllm.reduce.TopKWeightAndReduceDelegate()

        def apply(self, output, hidden_states, w1, w2, topk_ids, expert_map, a1q_scale, expert_tokens_meta, **_):
            counts, scales = expert_tokens_meta.expert_num_tokens.tolist(), a1q_scale
            output.fill_(float("nan") if batched else 0)
            for local, count in enumerate(counts):
                if batched:
                    scale = None if scales is None else scales[local, : count if scales.shape[1] > 1 else 1]
                    rows = decode(hidden_states[local, :count], scale)
                    output[local, :count] = expert(rows, w1[local], w2[local]).to(output.dtype)
                else:
                    mine = expert_map[topk_ids] == local
                    assert int(mine.sum()) == count, "expert_num_tokens"
                    made = expert(decode(hidden_states, scales), w1[local], w2[local]).to(output.dtype)
                    output[mine] = made.unsqueeze(1).expand(output.shape)[mine]

    return Experts


def moe_config(vllm, backend, shape, tokens_max, dtype=torch.bfloat16):
    """vLLM's configuration of a layer. shape: experts, topk, hidden, intermediate."""
    experts, topk, hidden, intermediate = shape
    rank, size = torch.distributed.get_rank(), torch.distributed.get_world_size()
    both = dict(tp_size=1, pcp_size=1, tp_rank=0, pcp_rank=0, sp_size=1, enable_eplb=False)
    ranks = dict(dp_size=size, ep_size=size, dp_rank=rank, ep_rank=rank)
    parallel = vllm.config.FusedMoEParallelConfig(use_ep=True, all2all_backend=backend, **both, **ranks)
    return vllm.config.FusedMoEConfig(
        num_experts=experts,
        experts_per_token=topk,
        hidden_dim=hidden,
        intermediate_size=intermediate,
        num_local_experts=experts // size,
        num_logical_experts=experts,
        activation=vllm.activation.MoEActivation.SILU,
        device="cpu",
        routing_method=vllm.config.RoutingMethodType.Renormalize,
        moe_parallel_config=parallel,
        in_dtype=dtype,
        max_num_tokens=tokens_max,
    )


def make_kernel(vllm, backend, shape, quantised, tokens_max):
    """vLLM's manager and modular kernel of a backend, as its layers make them.

    shape      as for moe_config()
    quantised  keywords of vLLM's FusedMoEQuantConfig.make()"""
    moe, size = moe_config(vllm, backend, shape, tokens_max), torch.distributed.get_world_size()
    quant = vllm.config.FusedMoEQuantConfig.make(**quantised)
    low = backend == "deepep_low_latency"
    manager = (vllm.all2all.DeepEPLLAll2AllManager if low else vllm.all2all.DeepEPHTAll2AllManager)(
        torch.distributed.group.WORLD
    )
    chosen = vllm.utils.maybe_make_prepare_finalize(moe, quant, all2all_manager=manager)
    bounds = dict(max_num_tokens=tokens_max, num_dispatchers=size) if low else {}
    return manager, vllm.kernel.FusedMoEKernel(chosen, experts_of(vllm, low)(moe, quant, **bounds))


@contextlib.contextmanager
def _streams_of_cpus():
    old = torch.cuda.set_stream, torch.cuda.stream
    torch.cuda.set_stream, torch.cuda.stream = _set_stream, lambda _: contextlib.nullcontext()
    try:
        yield
    finally:
        torch.cuda.set_stream, torch.cuda.stream = old


def in_two_batches(vllm, works):
    """Runs each of two functions as a micro-batch of vLLM: on a thread of its own, of which one goes on at a time.
    Returns what they return."""
    compute, communication = Stream("compute"), Stream("communication")
    results, failures = {}, []
    signals = [threading.Event() for _ in works]
    ready = threading.Barrier(len(works) + 1)
    vllm.ubatching._CURRENT_CONTEXTS[:] = [None] * len(works)
    contexts = [
        vllm.ubatching.UBatchContext(
            id=index,
            compute_stream=compute,
            comm_stream=communication,
            forward_context=object(),
            ready_barrier=ready,
            cpu_wait_event=signals[index],
            cpu_signal_event=signals[(index + 1) % len(works)],
            gpu_comm_done_event=_Event(),
            gpu_compute_done_event=_Event(),
        )
        for index in range(len(works))
    ]

    def run(context, work):
        try:
            with context:
                results[context.id] = work()
        except BaseException as failure:  # noqa: B902
            failures.append(failure)

    with _streams_of_cpus():
        threads = [threading.Thread(target=run, args=pair, daemon=True) for pair in zip(contexts, works)]
        for thread in threads:
            thread.start()
        ready.wait()
        signals[0].set()
        for thread in threads:
            thread.join(120)
    if failures:
        raise failures[0]
    return [results[index] for index in range(len(works))]
