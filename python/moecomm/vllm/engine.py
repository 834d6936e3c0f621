"""The parts of vLLM that the adapter needs."""

from __future__ import annotations

from types import SimpleNamespace

from ..interfaces import Wanted, find

ADAPTER, ENGINE = "moecomm.vllm", "vllm"
KNOWN = (
    "vLLM 0.17 and later, whose FusedMoEPrepareAndFinalizeModular has activation_format, prepare_async, finalize_async"
)
KNOWN_CPU = "vLLM 0.33, whose CpuCommunicator has an all-to-all manager"
_MOE = "vllm.model_executor.layers.fused_moe"
_COMMUNICATORS = "vllm.distributed.device_communicators"

WANTED = dict(
    PrepareAndFinalize=Wanted(f"{_MOE}.modular_kernel", "FusedMoEPrepareAndFinalizeModular"),
    ActivationFormat=Wanted(f"{_MOE}.modular_kernel", "FusedMoEActivationFormat"),
    ExpertTokensMetadata=Wanted(f"{_MOE}.modular_kernel", "ExpertTokensMetadata"),
    Delegate=Wanted(f"{_MOE}.topk_weight_and_reduce", "TopKWeightAndReduceDelegate"),
    Contiguous=Wanted(f"{_MOE}.topk_weight_and_reduce", "TopKWeightAndReduceContiguous"),
    quantize=Wanted(f"{_MOE}.utils", "moe_kernel_quantize_input"),
    normalize_batched_scales=Wanted(f"{_MOE}.utils", "normalize_batched_scales_shape"),
    ubatching=Wanted("vllm.v1.worker.ubatching"),
    All2AllManager=Wanted(f"{_COMMUNICATORS}.base_device_communicator", "All2AllManagerBase"),
    get_config=Wanted("vllm.config", "get_current_vllm_config_or_none", optional=True),
    envs=Wanted("vllm.envs", optional=True),
)

# Where vLLM takes its DeepEP classes from. maybe_make_prepare_finalize and the device communicators look them up by
# name in these modules, when a layer or a communicator is made.
PLACES = dict(
    managers=Wanted(f"{_COMMUNICATORS}.all2all"),
    prepare_finalize=Wanted(f"{_MOE}.all2all_utils"),
    HtManager=Wanted(f"{_COMMUNICATORS}.all2all", "DeepEPHTAll2AllManager"),
    LlManager=Wanted(f"{_COMMUNICATORS}.all2all", "DeepEPLLAll2AllManager"),
    maker=Wanted(f"{_MOE}.all2all_utils", "maybe_make_prepare_finalize"),
)

# The same on CPUs. The platform names the communicator's class by this path.
CPU_PLACES = dict(
    communicators=Wanted(f"{_COMMUNICATORS}.cpu_communicator"),
    Communicator=Wanted(f"{_COMMUNICATORS}.cpu_communicator", "CpuCommunicator"),
    prepare_finalize=PLACES["prepare_finalize"],
    maker=PLACES["maker"],
)
PLATFORM = dict(current=Wanted("vllm.platforms", "current_platform", optional=True))


def find_engine() -> SimpleNamespace:
    """The classes and functions of WANTED. Raises moecomm.interfaces.MissingInterface."""
    return find(ADAPTER, ENGINE, KNOWN, WANTED)


def find_places() -> SimpleNamespace:
    """The modules of PLACES. Raises moecomm.interfaces.MissingInterface."""
    return find(ADAPTER, ENGINE, KNOWN, PLACES)


def find_cpu_places() -> SimpleNamespace:
    """The modules of CPU_PLACES, and the class. Raises moecomm.interfaces.MissingInterface."""
    return find(ADAPTER, ENGINE, KNOWN_CPU, CPU_PLACES)


def is_on_cpus() -> bool:
    """Whether vLLM in this process runs on its CPU platform."""
    is_cpu = getattr(find(ADAPTER, ENGINE, KNOWN, PLATFORM).current, "is_cpu", None)
    return is_cpu is not None and bool(is_cpu())
