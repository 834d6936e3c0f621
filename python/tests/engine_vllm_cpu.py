"""vLLM's own classes for CPUs from its wheel, with moecomm among them. Its communicator, its choice of experts, its
experts and its modular kernel are vLLM's code; the kernels behind the experts, which a wheel for GPUs lacks, are plain
torch."""

import enum
import importlib
import types

import engine_vllm
import torch
from engine_vllm import COMMUNICATORS, FUSED_MOE
from engine_wheels import misfits, undefined, unlike

LOADED = (
    f"{COMMUNICATORS}.cpu_communicator",
    f"{FUSED_MOE}.experts.cpu_moe",
    f"{FUSED_MOE}.oracle.base",
    f"{FUSED_MOE}.oracle.unquantized",
    f"{FUSED_MOE}.prepare_finalize.naive_dp_ep",
)
_communicators = {}  # by the group's name


Architecture = enum.Enum("Architecture", "X86 ARM POWERPC S390X RISCV")
# For vLLM's other kernels.
Activation = enum.Enum("Activation", "SILU_AND_MUL GELU_AND_MUL GELU_TANH_AND_MUL SWIGLU")
Algorithm = enum.Enum("Algorithm", "GPTQ AWQ")


class Platform(engine_vllm.Platform):
    device_name = "cpu"

    def get_cpu_architecture(self):
        return Architecture.X86


def _prepack(weight, isa):
    assert isa in ("amx", "vec")
    return weight


def _fused_moe(out, rows, w13, w2, w13_bias, w2_bias, weights, ids, act, isa, skip_weighted):
    """vLLM's kernel in torch. Like it, it takes ids in memory order for indices of this rank's experts."""
    assert rows.is_contiguous() and weights.is_contiguous() and ids.is_contiguous() and act == "silu"
    assert ids.dtype == torch.int32 and weights.dtype == torch.float32 and ids.shape == weights.shape
    assert bool(((ids >= 0) & (ids < w13.shape[0])).all()), "an index out of bounds"
    sums = torch.zeros(out.shape)
    for expert in range(w13.shape[0]):
        token, place = (ids == expert).nonzero(as_tuple=True)
        gate, up = (rows[token].float() @ w13[expert].float().T).chunk(2, dim=-1)
        made = (torch.nn.functional.silu(gate) * up) @ w2[expert].float().T
        sums.index_add_(0, token, made if skip_weighted else made * weights[token, place].unsqueeze(1))
    out.copy_(sums)


def _provided(settings):
    world = torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1
    group = types.SimpleNamespace(world_size=world)
    return {
        "vllm.platforms": dict(current_platform=Platform(), CpuArchEnum=Architecture),
        "vllm.platforms.interface": dict(CpuArchEnum=Architecture),
        "vllm.config": dict(get_current_vllm_config=lambda: settings),
        "vllm.distributed": dict(
            get_dp_group=lambda: group,
            get_pcp_group=lambda: types.SimpleNamespace(world_size=1),
            get_ep_group=lambda: types.SimpleNamespace(device_communicator=_communicators["ep:0"]),
        ),
        "vllm._custom_ops": dict(
            CPUActMethod=Activation,
            CPUQuantAlgo=Algorithm,
            cpu_fused_moe=_fused_moe,
            cpu_prepack_moe_weight=_prepack,
        ),
        "vllm.model_executor.utils": dict(
            replace_parameter=lambda layer, name, value: setattr(layer, name, torch.nn.Parameter(value, False))
        ),
        "vllm.model_executor.kernels.linear.zentorch_utils": dict(
            is_zentorch_moe_config_supported=lambda _: False, is_zentorch_moe_supported=lambda _: False
        ),
    }


def install():
    """Loads vLLM as on CPUs, without moecomm. Returns modules as engine_vllm.install() does, and .cpu, .oracle."""
    vllm = engine_vllm.install(LOADED, _provided)
    vllm.settings.parallel_config.all2all_backend = "deepep_high_throughput"
    vllm.settings.parallel_config.enable_expert_parallel = True
    vllm.settings.compilation_config = types.SimpleNamespace(mode=0)
    vllm.cpu = importlib.import_module(f"{COMMUNICATORS}.cpu_communicator")
    vllm.oracle = importlib.import_module(f"{FUSED_MOE}.oracle.unquantized")
    return vllm


def report(vllm):
    """The mismatches of our classes for CPUs, or the stand-in of test_vllm_cpu.py, with vLLM's: sentences."""
    import moecomm.vllm.engine
    import stand_in_vllm

    made = moecomm.vllm.build_cpu()
    base = made.Communicator.__bases__[1]
    found = misfits(made.Communicator.__init__, base.__init__)
    found += [f"Standard lacks {name}" for name in sorted(made.Standard.__abstractmethods__)]
    found += unlike(stand_in_vllm.CpuCommunicator, base)
    found += unlike(stand_in_vllm.TopKWeightAndReduceNoOP, vllm.reduce.TopKWeightAndReduceNoOP)
    looked_up = {**moecomm.vllm.engine.CPU_PLACES, **moecomm.vllm.engine.PLATFORM}.values()
    wanted = [(one.module, one.name) for one in looked_up if one.name != "current_platform"]  # made when it is asked for
    wanted += [(module, name) for module, names in _provided(None).items() for name in names if name != "current_platform"]
    return found + undefined("vllm", wanted)


def communicate(vllm, name="ep:0"):
    """vLLM's device communicator of all ranks, as its process groups make it."""
    world = torch.distributed.group.WORLD
    arguments = dict(cpu_group=world, device=torch.device("cpu"), device_group=world)
    _communicators[name] = vllm.cpu.CpuCommunicator(**arguments, unique_name=name, use_all2all=name == "ep:0")
    return _communicators[name]


def make_kernel(vllm, shape, tokens_max, dtype, weights):
    """The modular kernel that vLLM chooses, and the layer, whose weights its experts have prepared.

    shape    experts, topk, hidden, intermediate
    weights  of this rank's experts, as a checkpoint has them"""
    moe = engine_vllm.moe_config(vllm, "deepep_high_throughput", shape, tokens_max, dtype)
    backend, experts = vllm.oracle.select_unquantized_moe_backend(moe)
    assert backend == vllm.oracle.UnquantizedMoeBackend.CPU and experts.__module__ == f"{FUSED_MOE}.experts.cpu_moe"
    kernel = vllm.oracle.make_unquantized_moe_kernel(vllm.config.FusedMoEQuantConfig.make(), moe, backend, experts)
    layer = torch.nn.Module()
    layer.w13_weight, layer.w2_weight = (torch.nn.Parameter(one.to(dtype), False) for one in weights)
    kernel.fused_experts.process_weights_after_loading(layer)
    return kernel, layer
