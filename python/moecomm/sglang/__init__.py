"""moecomm as an all-to-all backend of SGLang. Needs SGLang, which is not imported before it is asked for.

    SGLANG_PLUGINS=moecomm python -m sglang.launch_server --model MODEL --tp 8 --ep 8 --moe-a2a-backend deepep

The plugin replaces SGLang's DeepEPDispatcher. docs/guide/sglang.md says what works, method by method, and what raises.
"""

from __future__ import annotations

import functools
import sys
from typing import Any, Dict, List, Type

from ..interfaces import MissingInterface, is_chosen

__all__ = [
    "MissingInterface",
    "build",
    "checkpoint_prepare",
    "checkpoint_restore",
    "destroy",
    "install",
    "plugin",
    "recover",
    "resume",
    "suspend",
]


@functools.lru_cache(maxsize=None)
def build() -> Type[Any]:
    """Makes the dispatcher's class, once, derived from SGLang's BaseDispatcher. Raises MissingInterface if SGLang, or
    the part of it that the class is written for, is not there."""
    from .engine import find_engine

    engine = find_engine()
    from .dispatcher import Dispatcher  # needs torch, which comes with SGLang

    attributes = dict(engine=engine, __module__=__name__, __doc__=Dispatcher.__doc__)
    return type("MoecommDispatcher", (Dispatcher, engine.BaseDispatcher), attributes)


def _serve_imports() -> None:
    """Parts of SGLang that are not replaced read numbers from DeepEP, such as its multiprocessors for two-batch overlap.
    If DeepEP has not been imported, those parts find moecomm.deep_ep under its name, which has these numbers."""
    from .engine import require_engine

    require_engine()
    from ..deep_ep import install as install_deep_ep  # needs torch, which comes with SGLang

    if "deep_ep" not in sys.modules:
        install_deep_ep()


def _register() -> Any:
    from .engine import DISPATCHER, find_hooks

    _serve_imports()
    hooks, dispatcher = find_hooks(), build()
    if hooks.replaced is not dispatcher:
        hooks.HookRegistry.register(DISPATCHER, dispatcher, hooks.HookType.REPLACE)
    return hooks.HookRegistry


def install() -> None:
    """Replaces DeepEPDispatcher in this process, for programs that use SGLang's layers without its plugins: the backend
    deepep is moecomm's from then on. Idempotent. Raises MissingInterface, and replaces nothing then."""
    _register().apply_hooks()


def destroy() -> None:
    """Frees the memory of all layers. All work must have run. Collective. Idempotent."""
    from .buffers import destroy as destroy_buffers

    destroy_buffers()


def suspend() -> None:
    """Gives the window memory of all layers back until resume(), for an engine that sleeps. Collective. Raises what
    Communicator.suspend raises; then nothing has changed."""
    from .buffers import suspend as suspend_buffers

    suspend_buffers()


def resume() -> None:
    """Takes fresh memory to the same addresses. Collective. After an exception of Communicator.resume it may be called
    again."""
    from .buffers import resume as resume_buffers

    resume_buffers()


def checkpoint_prepare() -> None:
    """Gives the window memory of all layers back and closes all connections, before processes are checkpointed with CRIU
    and cuda-checkpoint. Collective. Captured graphs stay. Idempotent. Raises what Buffer.checkpoint_prepare raises."""
    from .buffers import checkpoint_prepare as prepare_buffers

    prepare_buffers()


def checkpoint_restore() -> None:
    """Lets the ranks of all layers meet again, by SGLang's process groups, which must work again, and takes fresh memory
    to the same addresses. Collective. Idempotent. After an exception it may be called again."""
    from .buffers import checkpoint_restore as restore_buffers

    restore_buffers()


def recover(timeout_ms: int, losses_max: int = 0) -> Dict[Any, List[int]]:
    """Lets all layers go on after a failure: a rank came too late, or has died. Collective: all living ranks call it, and
    then repeat the step. Captured graphs stay. timeout_ms and losses_max are those of Buffer.recover, for each group.

    Returns the lost ranks of each process group. Raises what Communicator.recover raises. Then it may be called again, on
    all living ranks."""
    from .buffers import recover as recover_buffers

    return recover_buffers(timeout_ms, losses_max)


def plugin() -> None:
    """The entry point of the group sglang.srt.plugins, which SGLang calls in each of its processes before it applies the
    hooks of all plugins. It registers the replacement if SGLANG_PLUGINS names moecomm, and does nothing otherwise."""
    if is_chosen("SGLANG_PLUGINS"):
        _register()
