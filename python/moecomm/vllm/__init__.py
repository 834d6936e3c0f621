"""moecomm as an all-to-all backend of vLLM. Needs vLLM, which is not imported before it is asked for.

    VLLM_PLUGINS=moecomm vllm serve MODEL --enable-expert-parallel --all2all-backend deepep_high_throughput

The plugin puts moecomm where vLLM takes its DeepEP classes from. docs/guide/vllm.md says what works, method by method,
and what raises."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple, Type

from ..interfaces import MissingInterface, is_chosen

__all__ = ["Classes", "MissingInterface", "build", "install", "plugin"]


class Classes(NamedTuple):
    """The adapter's classes, derived from vLLM's.

    HtManager, LlManager  all-to-all managers for the standard and the batched format
    Standard, Batched     prepare and finalize for these formats"""

    HtManager: Type[Any]
    LlManager: Type[Any]
    Standard: Type[Any]
    Batched: Type[Any]


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

    def derive(name: str, ours: Type[Any], base: Type[Any]) -> Type[Any]:
        return type(name, (ours, base), dict(engine=engine, __module__=__name__, __doc__=ours.__doc__))

    return Classes(
        derive("MoecommHTAll2AllManager", HtManager, engine.All2AllManager),
        derive("MoecommLLAll2AllManager", LlManager, engine.All2AllManager),
        derive("MoecommHTPrepareAndFinalize", Standard, engine.PrepareAndFinalize),
        derive("MoecommLLPrepareAndFinalize", Batched, engine.PrepareAndFinalize),
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


def plugin() -> None:
    """The entry point of the group vllm.general_plugins, which vLLM calls in each of its processes. It does install() if
    VLLM_PLUGINS names moecomm, and nothing otherwise."""
    if is_chosen("VLLM_PLUGINS"):
        install()
