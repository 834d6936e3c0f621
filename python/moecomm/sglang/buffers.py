"""The Buffers of this process: one per process group, which all layers share."""

from __future__ import annotations

from typing import Any, Dict, List

from .. import errors
from ..deep_ep import Buffer
from ..deep_ep.settings import default_tokens_max

# Without a chunk size SGLang prefills up to max_prefill_tokens, and decoding tokens may join a chunk.
TOKENS_LEAST = 4096
_buffers: Dict[Any, Buffer] = {}


def tokens_of(bounds: Any) -> int:
    """The most tokens of a rank in normal mode, as SGLang's arguments bound them; 0 if they do not."""
    chunk = getattr(bounds, "chunked_prefill_size", None) or 0
    tokens = chunk if chunk > 0 else getattr(bounds, "max_prefill_tokens", None) or 0
    return max(tokens, TOKENS_LEAST) if tokens else 0


def buffer_of(group: Any, bounds: Any) -> Buffer:
    """The Buffer of a group. Collective when first called for it. The most tokens of a rank are
    SGLang's bound, unless MOECOMM_TOKENS_MAX or moecomm.deep_ep.configure() says otherwise."""
    found = _buffers.get(group)
    if found is None:
        default_tokens_max(tokens_of(bounds))
        found = _buffers[group] = Buffer(group, low_latency_mode=True, explicitly_destroy=True)
    return found


def suspend() -> None:
    """Suspends the Buffers of all groups, or none."""
    asleep = []
    try:
        for buffer in _buffers.values():
            buffer.suspend()
            asleep.append(buffer)
    except errors.MoeError:
        for buffer in asleep:
            buffer.resume()
        raise


def resume() -> None:
    """Resumes them. After a failure it may be called again: a Buffer that is awake stays so."""
    for buffer in _buffers.values():
        buffer.resume()


def checkpoint_prepare() -> None:
    """Suspends and disconnects the Buffers of all groups. A repeated call goes on where it has stopped."""
    for buffer in _buffers.values():
        buffer.checkpoint_prepare()


def checkpoint_restore() -> None:
    """Lets their ranks meet again, and resumes them. After a failure it may be called again."""
    for buffer in _buffers.values():
        buffer.checkpoint_restore()


def recover(timeout_ms: int, losses_max: int) -> Dict[Any, List[int]]:
    """Recovers the Buffers of all groups, in the order in which they were made, and returns the lost ranks of each."""
    return {group: buffer.recover(timeout_ms, losses_max) for group, buffer in _buffers.items()}


def destroy() -> None:
    """Frees the memory of all groups. All work must have run. Idempotent; a later dispatch makes a new Buffer."""
    while _buffers:
        _buffers.popitem()[1].routes.close()
