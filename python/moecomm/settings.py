"""The keywords of Communicator as the library's configuration."""

from __future__ import annotations

import os
from typing import Any, Callable, Dict, Mapping, Tuple

from . import _native
from .lifetime import callback
from .options import CommunicatorOptions
from .values import ADDRESS_MAX, INT32_MAX, INT64_MAX, choice, did_you_mean, integer, without_zero

BACKENDS = {"auto": _native.moeBackendAuto, "host": _native.moeBackendHost, "cuda": _native.moeBackendCuda}
MODES = {"auto": _native.moeModeAuto, "ht": _native.moeModeHt, "ll": _native.moeModeLl}
TRANSPORTS = {
    _native.moeTransportSelf: "self",
    _native.moeTransportDirect: "direct",
    _native.moeTransportShm: "shm",
    _native.moeTransportCudaIpc: "cuda-ipc",
    _native.moeTransportFabric: "fabric",
    _native.moeTransportTcp: "tcp",
    _native.moeTransportVerbs: "verbs",
    _native.moeTransportIbgda: "ibgda",
}
REMOTE_TRANSPORTS = {
    "auto": 0,
    **{name: value for value, name in TRANSPORTS.items() if value >= _native.moeTransportTcp},
}
LOG_LEVELS = {name: number for number, name in enumerate(("none", "error", "warn", "info", "debug", "trace"))}

# keyword: (field, default, least, most)
NUMBERS: Dict[str, Tuple[str, int, int, int]] = {
    "device": ("device", -1, -1, INT32_MAX),
    "tokens_max": ("tokensMax", 0, 0, INT32_MAX),
    "ll_tokens_max": ("llTokensMax", 0, 0, INT32_MAX),
    "row_bytes_max": ("rowBytesMax", 0, 0, INT32_MAX),
    "side_bytes_max": ("sideBytesMax", 0, 0, INT32_MAX),
    "topk_max": ("topkMax", 0, 0, INT32_MAX),
    "experts_max": ("expertsMax", 0, 0, INT32_MAX),
    "timeout_ms": ("timeoutMs", 0, 0, INT32_MAX),
    "sms": ("sms", 0, 0, INT32_MAX),
    "staging_rows": ("stagingRows", 0, -1, INT64_MAX),
    "heap_bytes": ("heapBytes", 0, 0, INT64_MAX),
    "domain_size": ("domainSize", 0, 0, INT32_MAX),
    "ll_sets": ("llSets", 0, 0, INT32_MAX),
    "staging_areas": ("stagingAreas", 0, 0, INT32_MAX),
}

TEXTS = {"interface_name": "interfaceName", "dump_folder": "dumpFolder", "watch_folder": "watchFolder"}


def _function(function: Any, name: str) -> Callable[..., Any]:
    if not callable(function):
        raise TypeError(f"{name} is {function!r}, expected a callable")
    called: Callable[..., Any] = function
    return called


def _set_log(config: _native.moeConfig_t, log: Any, level: Any) -> None:
    if level is not None:
        config.logLevel = choice(LOG_LEVELS, level, "log_level")
    if log is not None:
        _function(log, "log")
    if level == "none":  # 0 in the struct means the default, so the lines are dropped here
        log, config.logLevel = (lambda level, line: None), _native.moeLogError
    if log is not None:
        log = callback(log)
        config.log = _native.moeLogFunction_t(lambda _, level, line: log(level, line.decode(errors="replace")))


def _set_allocator(config: _native.moeConfig_t, allocate: Any, free: Any) -> None:
    if (allocate is None) != (free is None):
        raise ValueError("allocate and free must be given together")
    if allocate is None:
        return
    allocate, free = callback(_function(allocate, "allocate")), callback(_function(free, "free"))

    def take(_: Any, size: int, kind: int) -> Any:
        memory = allocate(size, kind)
        if memory is None:
            return None
        config.blocks.add(integer(memory, "what allocate returned", 0, ADDRESS_MAX))
        return memory

    def give_back(_: Any, memory: int, size: int, kind: int) -> None:
        config.blocks.discard(memory)
        free(memory, size, kind)

    config.allocate = _native.moeAllocate_t(take)
    config.free = _native.moeFree_t(give_back)


def make_config(given: Mapping[str, Any]) -> _native.moeConfig_t:
    """Builds moeConfig_t from the keywords of Communicator. It keeps the callbacks alive, and must live until
    `blocks`, the memory that the caller's allocator has given, is empty."""
    settings = dict(given)
    config = _native.moeConfig_t()
    config.blocks = set()
    config.backend = choice(BACKENDS, settings.pop("backend", "auto"), "backend")
    config.modes = choice(MODES, settings.pop("modes", "auto"), "modes")
    config.transport = choice(REMOTE_TRANSPORTS, settings.pop("transport", "auto"), "transport")
    for keyword, (field, default, least, most) in NUMBERS.items():
        setattr(config, field, integer(settings.pop(keyword, default), keyword, least, most))
    for keyword, field in TEXTS.items():
        text = settings.pop(keyword, None)
        if text is not None:
            if not isinstance(text, str):
                raise TypeError(f"{keyword} is {text!r}, expected a str")
            setattr(config, field, without_zero(os.fsencode(text), text, keyword))
    _set_log(config, settings.pop("log", None), settings.pop("log_level", None))
    _set_allocator(config, settings.pop("allocate", None), settings.pop("free", None))
    if settings:
        unknown = sorted(settings)
        meant = (did_you_mean(name, CommunicatorOptions.__annotations__) for name in unknown)
        raise TypeError(f"unknown settings: {', '.join(unknown)}{''.join(meant)}")
    return config


def has_callbacks(config: _native.moeConfig_t) -> bool:
    """Whether native code calls Python."""
    return bool(config.log) or bool(config.allocate)
