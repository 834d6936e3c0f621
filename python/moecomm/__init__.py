"""moecomm: expert-parallel communication for Mixture-of-Experts models, a thin layer over libmoecomm.so (ctypes only).

    with moecomm.Communicator.from_env(backend="host") as comm, comm.handle(experts=16, topk=4) as handle:
        handle.route(topk_idx, topk_weights)            # [tokens, topk]
        out = handle.dispatch(rows)                     # [tokens, hidden] -> [layout rows, hidden]
        handle.combine(experts(out), result)            # [layout rows, hidden] -> [tokens, hidden]

The rules of include/moecomm.h hold: every rank makes the same calls in the same order."""

from ._version import VERSION as __version__
from ._library import library
from .comm import Communicator, Info, Limits, MemorySize, Peer
from .comm import error_string, limits, memory_size, unique_id, version
from .dispatch_layout import dispatch_layout
from .errors import (
    Aborted,
    CudaError,
    InProgress,
    InternalError,
    InvalidArgument,
    InvalidUsage,
    MoeError,
    RemoteError,
    SystemFailure,
    Timeout,
    Unsupported,
)
from .handle import Handle
from .handle_answers import Arrivals, Counts, DeviceCounts, HandleView, Statistics
from .parts import Cast, Describe, Grads, Payload, Ready
from .plan import Plan
from .window import WindowMemory

__all__ = [
    "Aborted",
    "Arrivals",
    "Cast",
    "Communicator",
    "Counts",
    "CudaError",
    "Describe",
    "DeviceCounts",
    "Grads",
    "Handle",
    "HandleView",
    "InProgress",
    "Info",
    "InternalError",
    "InvalidArgument",
    "InvalidUsage",
    "Limits",
    "MemorySize",
    "MoeError",
    "Payload",
    "Peer",
    "Plan",
    "Ready",
    "RemoteError",
    "Statistics",
    "SystemFailure",
    "Timeout",
    "Unsupported",
    "WindowMemory",
    "dispatch_layout",
    "error_string",
    "library",
    "limits",
    "memory_size",
    "unique_id",
    "version",
]
