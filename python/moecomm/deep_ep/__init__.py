"""The module deep_ep for engines that were written for DeepEP, over moecomm. Needs torch.

    import moecomm.deep_ep as deep_ep          # in place of: import deep_ep

    moecomm.deep_ep.install()                  # or this first: `import deep_ep` then finds this module

docs/guide/deepep.md says method by method what works, what differs and what raises."""

from __future__ import annotations

import importlib.machinery
import sys
import types

import torch

from .buffer import Buffer
from .dispatch_handle import DispatchHandle
from .elastic import ElasticBuffer, EPHandle
from .events import EventHandle, EventOverlap
from .low_latency import LowLatencyHandle
from .settings import Config, configure

# The dtype of expert ids that DeepEP was built for. int32 is taken too.
topk_idx_t = torch.int64

__all__ = [
    "Buffer",
    "Config",
    "DispatchHandle",
    "EPHandle",
    "ElasticBuffer",
    "EventHandle",
    "EventOverlap",
    "LowLatencyHandle",
    "configure",
    "install",
    "topk_idx_t",
]

# The names that engines import from DeepEP's submodules.
_SUBMODULES = {
    "deep_ep.buffer": ("Buffer",),
    "deep_ep.utils": ("EventHandle", "EventOverlap"),
    "deep_ep_cpp": ("Config", "EventHandle", "topk_idx_t"),
}


def install() -> None:
    """Makes `import deep_ep`, deep_ep.buffer, deep_ep.utils and deep_ep_cpp find this module, in this process.
    Idempotent. Raises RuntimeError if another deep_ep has been imported, which some modules may hold already."""
    this = sys.modules[__name__]
    for name in ("deep_ep", *_SUBMODULES):
        other = sys.modules.get(name)
        if other is not None and other is not this and getattr(other, "__moecomm__", None) is None:
            origin = getattr(other, "__file__", None)
            raise RuntimeError(f"{name} has been imported from {origin}: call install() first")
    sys.modules["deep_ep"] = this
    for name, exports in _SUBMODULES.items():
        if name not in sys.modules:
            module = types.ModuleType(name, f"Stands for DeepEP's {name}: see moecomm.deep_ep.")
            module.__dict__.update({export: getattr(this, export) for export in exports}, __moecomm__=True)
            module.__spec__ = importlib.machinery.ModuleSpec(name, None)  # engines ask find_spec()
            sys.modules[name] = module
        if name.startswith("deep_ep.") and not hasattr(this, name.partition(".")[2]):
            setattr(this, name.partition(".")[2], sys.modules[name])
