"""moecomm as an all-to-all backend of vLLM. Needs vLLM, which is not imported before it is asked for.

    VLLM_PLUGINS=moecomm vllm serve MODEL --enable-expert-parallel --all2all-backend deepep_high_throughput

The plugin puts moecomm where vLLM takes its DeepEP classes from. docs/guide/vllm.md says what works, method by method,
and what raises."""

from __future__ import annotations

import functools
from typing import Any, Callable, NamedTuple, Type

from ..interfaces import MissingInterface, is_chosen

__all__ = [
    "Classes",
    "CpuClasses",
    "MissingInterface",
    "build",
    "build_cpu",
    "install",
    "install_cpu",
    "plugin",
]


class Classes(NamedTuple):
    """The adapter's classes, derived from vLLM's.

    HtManager, LlManager  all-to-all managers for the standard and the batched format
    Standard, Batched     prepare and finalize for these formats"""

    HtManager: Type[Any]
    LlManager: Type[Any]
    Standard: Type[Any]
    Batched: Type[Any]


class CpuClasses(NamedTuple):
    """The same for vLLM's CPU platform.

    Communicator  the device communicator, whose all-to-all manager is Classes.HtManager
    Standard      prepare and finalize for the standard format"""

    Communicator: Type[Any]
    Standard: Type[Any]


def _derive(name: str, ours: Type[Any], base: Type[Any], **attributes: Any) -> Type[Any]:
    return type(name, (ours, base), dict(attributes, __module__=__name__, __doc__=ours.__doc__))


@functools.lru_cache(maxsize=None)
def build() -> Classes:
    """Makes the classes, once. Raises MissingInterface if vLLM, or the part of it that they are written for, is not
    there."""
    from .engine import find_engine

    engine = find_engine()
    # These need torch, which comes with vLLM.
    from .batched import Batched
    from .manager import HtManager, LlManager
    from .standard import Standard

    return Classes(
        _derive("MoecommHTAll2AllManager", HtManager, engine.All2AllManager, engine=engine),
        _derive("MoecommLLAll2AllManager", LlManager, engine.All2AllManager, engine=engine),
        _derive("MoecommHTPrepareAndFinalize", Standard, engine.PrepareAndFinalize, engine=engine),
        _derive("MoecommLLPrepareAndFinalize", Batched, engine.PrepareAndFinalize, engine=engine),
    )


@functools.lru_cache(maxsize=None)
def build_cpu() -> CpuClasses:
    """Makes the classes for CPUs, once. Raises MissingInterface as build() does."""
    from .engine import find_cpu_places, find_engine

    engine, base = find_engine(), find_cpu_places().Communicator
    from .cpu import CpuCommunicator, CpuStandard

    manager = build().HtManager
    return CpuClasses(
        _derive("MoecommCpuCommunicator", CpuCommunicator, base, engine=engine, manager=manager),
        _derive("MoecommCpuPrepareAndFinalize", CpuStandard, engine.PrepareAndFinalize, engine=engine),
    )


def install() -> None:
    """Puts the classes where vLLM takes its DeepEP classes from, in this process: the backends deepep_high_throughput
    and deepep_low_latency are moecomm's from then on. vLLM's own checks of these names, such as those for CUDA graphs,
    hold. Idempotent. Raises MissingInterface, and changes nothing then."""
    from .engine import find_places

    places, classes = find_places(), build()
    from .batched import BLOCK

    places.managers.DeepEPHTAll2AllManager = classes.HtManager
    places.managers.DeepEPLLAll2AllManager = classes.LlManager
    # Without DeepEP these three names are not there.
    places.prepare_finalize.DeepEPHTPrepareAndFinalize = classes.Standard
    places.prepare_finalize.DeepEPLLPrepareAndFinalize = classes.Batched
    places.prepare_finalize.DEEPEP_QUANT_BLOCK_SHAPE = [BLOCK, BLOCK]


def install_cpu() -> Callable[[], None]:
    """The same for vLLM's CPU platform: the backend deepep_high_throughput, which vLLM replaces by
    allgather_reducescatter there, is moecomm's host backend from then on. Replaces the class CpuCommunicator and the
    name DeepEPHTPrepareAndFinalize. Call it in every process, before vLLM makes its process groups. Idempotent.

    Returns a function that puts back what was there before; objects that were made in between stay. Raises
    MissingInterface, and changes nothing then."""
    from .engine import find_cpu_places

    places, classes = find_cpu_places(), build_cpu()
    name = "DeepEPHTPrepareAndFinalize"
    found = vars(places.prepare_finalize).get(name)

    def undo() -> None:
        places.communicators.CpuCommunicator = classes.Communicator.__bases__[1]
        if found not in (None, classes.Standard):
            setattr(places.prepare_finalize, name, found)
        else:
            vars(places.prepare_finalize).pop(name, None)

    places.communicators.CpuCommunicator = classes.Communicator
    setattr(places.prepare_finalize, name, classes.Standard)
    return undo


def plugin() -> None:
    """The entry point of the group vllm.general_plugins, which vLLM calls in each of its processes. If VLLM_PLUGINS
    names moecomm, it does install_cpu() on vLLM's CPU platform and install() on others. Otherwise it does nothing."""
    if not is_chosen("VLLM_PLUGINS"):
        return
    from .engine import is_on_cpus

    if is_on_cpus():
        install_cpu()
    else:
        install()
