"""The parts of vLLM that moecomm.vllm uses, written from its public documentation: abstract classes, helpers, the
places where it looks for DeepEP's classes, and a modular kernel whose expert e multiplies rows by e + 1."""

import abc
import dataclasses
import enum
import types

import torch
import torch.distributed as dist
from stand_in import block_quantise, decode, module

FUSED_MOE = "vllm.model_executor.layers.fused_moe"
COMMUNICATORS = "vllm.distributed.device_communicators"


class FusedMoEActivationFormat(enum.Enum):
    Standard = ("standard",)
    BatchedExperts = ("batched_experts",)


@dataclasses.dataclass
class ExpertTokensMetadata:
    expert_num_tokens: torch.Tensor
    expert_num_tokens_cpu: torch.Tensor
    psum_recv_per_rank: torch.Tensor = None
    rank_expert_offset: int = None

    @staticmethod
    def make_from_list(expert_num_tokens_list, device):
        on_cpu = torch.tensor(expert_num_tokens_list, dtype=torch.int32)
        return ExpertTokensMetadata(on_cpu.to(device), on_cpu)


class FusedMoEPrepareAndFinalizeModular(abc.ABC):
    """Abstract as vLLM's is, so that an adapter that lacks a method cannot be made."""

    def post_init_setup(self, fused_experts):
        pass

    activation_format = property(abc.abstractmethod(lambda self: None))
    topk_indices_dtype = abc.abstractmethod(lambda self: None)
    max_num_tokens_per_rank = abc.abstractmethod(lambda self: None)
    num_dispatchers = abc.abstractmethod(lambda self: None)
    output_is_reduced = abc.abstractmethod(lambda self: None)
    @abc.abstractmethod
    def prepare(
        self,
        a1,
        topk_weights,
        topk_ids,
        num_experts,
        expert_map,
        apply_router_weight_on_input,
        quant_config,
        defer_input_quant,
    ):
        pass

    @abc.abstractmethod
    def finalize(
        self, output, fused_expert_output, topk_weights, topk_ids, apply_router_weight_on_input, weight_and_reduce_impl
    ):
        pass

    def supports_async(self):
        return False


class TopKWeightAndReduceDelegate:
    def apply(self, output, fused_expert_output, topk_weights, topk_ids, apply_router_weight_on_input):
        raise RuntimeError("the delegate was asked")


class TopKWeightAndReduceContiguous:
    def apply(self, output, fused_expert_output, topk_weights, topk_ids, apply_router_weight_on_input):
        assert output is None and fused_expert_output.shape[:2] == topk_ids.shape
        rows = fused_expert_output.float()
        if not apply_router_weight_on_input:
            rows = rows * topk_weights.unsqueeze(2)
        return rows.sum(dim=1).to(fused_expert_output.dtype)


class TopKWeightAndReduceNoOP:
    """For experts that apply weights and sum."""

    def apply(self, output, fused_expert_output, topk_weights, topk_ids, apply_router_weight_on_input):
        assert output is None
        return fused_expert_output


def moe_kernel_quantize_input(A, A_scale, quant_dtype, per_act_token_quant, block_shape=None, is_scale_swizzled=True):
    if quant_dtype is None:
        return A, A_scale
    if quant_dtype == "mxfp8":
        assert not is_scale_swizzled, "the order of scales was not passed on"
        return block_quantise(A, 32)
    assert quant_dtype == torch.float8_e4m3fn, quant_dtype
    if block_shape is not None:
        return block_quantise(A, block_shape[1])
    if per_act_token_quant:
        return block_quantise(A, A.shape[-1])
    scale = torch.tensor([[0.25]]) if A_scale is None else A_scale.view(1, 1)
    return (A.float() / scale.to(A.device)).to(torch.float8_e4m3fn), scale.to(A.device)


def normalize_batched_scales_shape(scales, num_experts):
    return scales.expand(num_experts, 1, 1) if scales.numel() == 1 else scales.view(num_experts, -1, scales.shape[-1])


class All2AllManagerBase:
    def __init__(self, cpu_group, tcp_store_group=None):
        self.cpu_group, self.tcp_store_group = cpu_group, tcp_store_group
        self.rank, self.world_size = dist.get_rank(cpu_group), dist.get_world_size(cpu_group)
        self.dp_world_size = self.world_size

    def get_handle(self, kwargs):
        raise NotImplementedError

    def max_sms_used(self):
        return None  # all of them, perhaps


class CpuCommunicator:
    """It has a manager for the ranks of the experts, which is not ours."""

    def __init__(self, cpu_group, device=None, device_group=None, unique_name="", use_all2all=False):
        self.is_ep_communicator = unique_name.split(":")[0] == "ep"
        self.use_all2all = self.is_ep_communicator and use_all2all
        self.cpu_group, self.device_group = cpu_group, device_group
        self.all2all_manager = "AgRsAll2AllManager" if self.use_all2all else None


def ubatching(log):
    """vLLM's functions for two micro-batches. Each tells `log` its name; state.enabled and state.batch are settings."""
    state = types.SimpleNamespace(enabled=False, batch=0)

    def step(name):
        return lambda *_: log.append(name)

    names = ("yield_and_switch_from_compute_to_comm", "yield_and_switch_from_comm_to_compute", "switch_to_comm")
    names += ("switch_to_compute", "switch_to_compute_sync", "maybe_run_recv_hook")
    functions = {f"dbo_{name}": step(name) for name in names}
    return dict(
        state=state,
        dbo_enabled=lambda: state.enabled,
        dbo_current_ubatch_id=lambda: state.batch,
        dbo_get_previous_event=lambda capture: capture() if state.enabled else None,
        **functions,
    )


def quant_config(dtype=None, block_shape=None, per_act_token_quant=False, a1_scale=None):
    return types.SimpleNamespace(
        quant_dtype=dtype,
        block_shape=block_shape,
        per_act_token_quant=per_act_token_quant,
        a1_scale=a1_scale,
        a1_gscale=None,
        is_block_quantized=block_shape is not None,
        is_scale_swizzled=dtype != "mxfp8",
    )


def maybe_make_prepare_finalize(all2all_utils, backend, manager, moe, use_fp8=False):
    """Makes the two classes as vLLM's function of this name does: by name, from the globals of its module."""
    if backend == "deepep_high_throughput":
        return all2all_utils.DeepEPHTPrepareAndFinalize(
            manager.get_handle({}),
            num_dispatchers=manager.world_size,
            dp_size=manager.dp_world_size,
            rank_expert_offset=manager.rank * moe.num_local_experts,
        )
    arguments = dict(
        max_num_tokens_per_dp_rank=moe.max_num_tokens,
        token_hidden_size=moe.hidden_dim,
        num_ep_ranks=manager.world_size,
        num_global_experts=moe.num_experts,
        num_local_experts=moe.num_local_experts,
    )
    return all2all_utils.DeepEPLLPrepareAndFinalize(
        manager.get_handle(arguments),
        max_tokens_per_rank=moe.max_num_tokens,
        num_dispatchers=manager.world_size,
        use_fp8_dispatch=use_fp8,
    )


def standard_experts(rows, scales, meta, ids, weights, expert_map, dtype):
    """[n, topk, hidden]: experts of other ranks add nothing."""
    local = expert_map[ids]
    factors = torch.where(local >= 0, ids + 1, 0)
    counts = torch.bincount(local[(local >= 0) & (weights != 0)], minlength=meta.expert_num_tokens.shape[0])
    assert meta.expert_num_tokens_cpu.tolist() == meta.expert_num_tokens.tolist() == counts.tolist()
    return (decode(rows, scales).unsqueeze(1) * factors.unsqueeze(2)).to(dtype)


def batched_experts(rows, scales, meta, first, dtype):
    """[local experts, places, hidden], with NaN behind each expert's rows."""
    out = torch.full(rows.shape, float("nan"), dtype=dtype, device=rows.device)
    for local, count in enumerate(meta.expert_num_tokens.tolist()):
        scale = None if scales is None else scales[local, : count if scales.shape[1] > 1 else 1]
        out[local, :count] = (decode(rows[local, :count], scale) * (first + local + 1)).to(dtype)
    return out


def cpu_experts(rows, ids, weights, first, local, on_input):
    """[rows, hidden], as vLLM's kernel for CPUs: it reads ids in memory order, as indices of this rank's weights."""
    assert ids.dtype == torch.int32 and ids.is_contiguous() and weights.dtype == torch.float32
    assert weights.shape == ids.shape == rows.shape[:1] + ids.shape[1:] and bool(((ids >= 0) & (ids < local)).all())
    factors = (ids + first + 1).float() if on_input else weights * (ids + first + 1)
    return (rows.float() * factors.sum(dim=1, keepdim=True)).to(rows.dtype)


def install():
    """Puts the stand-in into sys.modules, and returns the log of its micro-batch functions."""
    log = []
    config = types.SimpleNamespace(
        scheduler_config=types.SimpleNamespace(max_num_batched_tokens=48),
        parallel_config=types.SimpleNamespace(enable_fault_tolerance=False, all2all_backend="allgather_reducescatter"),
        compilation_config=types.SimpleNamespace(mode=0),
    )
    module("vllm.config", get_current_vllm_config_or_none=lambda: config)
    module("vllm.envs", VLLM_DEEPEPLL_NVFP4_DISPATCH=False)
    module(
        f"{FUSED_MOE}.modular_kernel",
        FusedMoEPrepareAndFinalizeModular=FusedMoEPrepareAndFinalizeModular,
        FusedMoEActivationFormat=FusedMoEActivationFormat,
        ExpertTokensMetadata=ExpertTokensMetadata,
    )
    module(
        f"{FUSED_MOE}.topk_weight_and_reduce",
        TopKWeightAndReduceDelegate=TopKWeightAndReduceDelegate,
        TopKWeightAndReduceContiguous=TopKWeightAndReduceContiguous,
        TopKWeightAndReduceNoOP=TopKWeightAndReduceNoOP,
    )
    helpers = dict(normalize_batched_scales_shape=normalize_batched_scales_shape)
    module(f"{FUSED_MOE}.utils", moe_kernel_quantize_input=moe_kernel_quantize_input, **helpers)
    module("vllm.v1.worker.ubatching", **ubatching(log))
    module(f"{COMMUNICATORS}.base_device_communicator", All2AllManagerBase=All2AllManagerBase)
    module(f"{COMMUNICATORS}.all2all", DeepEPHTAll2AllManager=None, DeepEPLLAll2AllManager=None)
    module(f"{FUSED_MOE}.all2all_utils", maybe_make_prepare_finalize=maybe_make_prepare_finalize)
    return log


def install_cpu():
    """The same on vLLM's CPU platform. Returns vLLM's configuration."""
    install()
    module("vllm.platforms", current_platform=types.SimpleNamespace(is_cpu=lambda: True))
    module(f"{COMMUNICATORS}.cpu_communicator", CpuCommunicator=CpuCommunicator)
    return module("vllm.config").get_current_vllm_config_or_none()
