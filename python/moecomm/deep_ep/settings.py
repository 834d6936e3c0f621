"""Settings of Buffers beyond the constructor's arguments, and the objects that stand for tuning."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Callable, Dict, Literal, NamedTuple, Optional

from ..comm import limits, memory_size
from ..options import SizeOptions
from ..values import INT32_MAX, integer

if TYPE_CHECKING:
    from typing_extensions import Unpack


class ConfigureOptions(SizeOptions, total=False):
    """Keywords of configure()."""

    in_flight: Optional[int]
    low_latency_in_flight: Optional[int]
    sum_weights: Optional[bool]
    device: Optional[Literal["cpu", "cuda"]]


# Settings of Buffers that are made later: Communicator's keywords, and those of configure().
_settings: Dict[str, Any] = {}
DEFAULTS = dict(in_flight=8, low_latency_in_flight=4, device=None, sum_weights=True)


class _Variable(NamedTuple):
    """An environment variable. `read` gets its text, and raises ValueError with the accepted values."""

    name: str
    read: Callable[[str], Any]


def _whole(least: int, most: Callable[[], int], multiple: int = 1) -> Callable[[str], int]:
    def read(text: str) -> int:
        # Not int(text), which takes spaces, signs, underscores and the digits of other scripts.
        value = int(text) if text.isascii() and text.isdigit() else -1
        if not least <= value <= most() or value % multiple:
            raise ValueError(f"{'an even number' if multiple == 2 else 'a whole number'}, {least}..{most()}")
        return value

    return read


def _word(**values: Any) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        if text not in values:
            raise ValueError(" or ".join(values))
        return values[text]

    return read


# The variables of configure()'s keywords. The library reads those of Communicator's keywords itself. An empty variable
# is not set.
_VARIABLES = {
    "in_flight": _Variable("MOECOMM_DEEP_EP_IN_FLIGHT", _whole(1, lambda: INT32_MAX)),
    "low_latency_in_flight": _Variable("MOECOMM_DEEP_EP_LOW_LATENCY_IN_FLIGHT", _whole(2, lambda: INT32_MAX - 1, 2)),
    "sum_weights": _Variable("MOECOMM_DEEP_EP_SUM_WEIGHTS", _word(on=True, off=False)),
    "device": _Variable("MOECOMM_DEEP_EP_DEVICE", _word(cpu="cpu", cuda="cuda")),
    "tokens_max": _Variable("MOECOMM_TOKENS_MAX", _whole(1, lambda: limits().tokens_max)),
    "domain_size": _Variable("MOECOMM_DOMAIN_SIZE", _whole(0, lambda: limits().ranks_max)),
}


def where_to_set(name: str) -> str:
    """The places where users set the keyword `name` of configure()."""
    return f"moecomm.deep_ep.configure({name}=...) or {_VARIABLES[name].name}"


def _from_environment(name: str) -> Any:
    """None: the variable is not set. Raises ValueError that names the variable, its text and the accepted values."""
    variable = _VARIABLES[name]
    text = os.environ.get(variable.name)
    if not text:
        return None
    try:
        return variable.read(text)
    except ValueError as accepted:
        raise ValueError(f"{variable.name} is {text!r}, expected {accepted}") from None


def configure(**settings: Unpack[ConfigureOptions]) -> None:
    """Settings of the Buffers that this process makes from now on; alike on all ranks but for device.

    in_flight              later dispatches of a shape for which a handle without a backward pass is good: 8
    low_latency_in_flight  the same for low_latency_dispatch(), an even number: 4
    sum_weights            whether combine() of a Buffer sums topk_weights over the ranks of a token, as DeepEP does, which
                           takes a step of its own. False: see combine()
    device                 "cpu" or "cuda": None takes the current GPU if there is one
    settings               these, and keywords of moecomm.Communicator: tokens_max (of a rank in dispatch(): 4096, or more if the
                           first dispatch has more on some rank; larger batches get a larger communicator), timeout_ms,
                           domain_size, ...

    Environment variables apply to settings that are left out or None: MOECOMM_DEEP_EP_IN_FLIGHT,
    MOECOMM_DEEP_EP_LOW_LATENCY_IN_FLIGHT, MOECOMM_DEEP_EP_SUM_WEIGHTS (on, off), MOECOMM_DEEP_EP_DEVICE (cpu, cuda),
    and for Communicator's keywords MOECOMM_TOKENS_MAX, MOECOMM_TIMEOUT_MS, ... A Buffer reads them when it is made."""
    for name in ("in_flight", "low_latency_in_flight"):
        if settings.get(name) is not None:
            integer(settings.get(name), name, 1)
    low_latency = settings.get("low_latency_in_flight")
    if (low_latency or 0) % 2:
        raise ValueError(f"low_latency_in_flight is {low_latency}, expected an even number")
    for name in ("backend", "modes", "ll_tokens_max", "ll_sets", "topk_max"):
        if name in settings:
            raise TypeError(f"{name} is given, but it follows from the calls of a Buffer")
    _settings.update(settings)


def default_tokens_max(tokens: int) -> None:
    """configure(tokens_max=tokens) for an engine whose users cannot call it, unless tokens_max is configured or in the
    environment. tokens: the bound that follows from the engine's own settings; 0: they have none."""
    if tokens and not current_settings().get("tokens_max"):
        configure(tokens_max=tokens)


def current_settings() -> Dict[str, Any]:
    """The settings in force: those of configure(), then the environment, then the defaults. Raises ValueError for an
    invalid variable."""
    found = {**DEFAULTS, **_settings}
    for name in _VARIABLES:
        configured = _settings.get(name)
        # For Communicator's keywords, 0 means not set.
        if configured is None or (name not in DEFAULTS and configured == 0):
            value = _from_environment(name)
            if value is not None:
                found[name] = value
            elif name in DEFAULTS:
                found[name] = DEFAULTS[name]
    return found


class Config:
    """DeepEP's tuning parameters. `num_sms` limits the multiprocessors of the call that gets this object. The others
    describe DeepEP's buffers, which do not exist here: they are kept and not used. These are
    num_max_nvl_chunked_send_tokens, num_max_nvl_chunked_recv_tokens, num_max_rdma_chunked_send_tokens and
    num_max_rdma_chunked_recv_tokens."""

    def __init__(
        self,
        num_sms: int = 20,
        num_max_nvl_chunked_send_tokens: int = 6,
        num_max_nvl_chunked_recv_tokens: int = 256,
        num_max_rdma_chunked_send_tokens: int = 6,
        num_max_rdma_chunked_recv_tokens: int = 256,
    ):
        self.num_sms = integer(num_sms, "num_sms")
        self.num_max_nvl_chunked_send_tokens = num_max_nvl_chunked_send_tokens
        self.num_max_nvl_chunked_recv_tokens = num_max_nvl_chunked_recv_tokens
        self.num_max_rdma_chunked_send_tokens = num_max_rdma_chunked_send_tokens
        self.num_max_rdma_chunked_recv_tokens = num_max_rdma_chunked_recv_tokens

    def get_nvl_buffer_size_hint(self, hidden_bytes: int, num_ranks: int) -> int:
        """Bytes that a Buffer of num_ranks ranks will allocate on each for dispatch() with rows of hidden_bytes."""
        given = {name: value for name, value in current_settings().items() if name in ("tokens_max", "staging_rows")}
        return memory_size(num_ranks, modes="ht", **ht_sizes(hidden_bytes), **given).window_bytes

    def get_rdma_buffer_size_hint(self, hidden_bytes: int, num_ranks: int) -> int:
        """0, whatever hidden_bytes and num_ranks are: the memory is one window, and get_nvl_buffer_size_hint() has all
        of it."""
        integer(hidden_bytes, "hidden_bytes", 1)
        integer(num_ranks, "num_ranks", 1)
        return 0


def round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def ht_sizes(row_bytes: int, side_bytes: int = 0, topk: int = 0) -> Dict[str, Any]:
    """Communicator's sizes for rows of 2-byte elements. Quantised rows bring a scale of 4 bytes per 128 elements."""
    row_bytes = max(row_bytes, 4 * topk)  # combine brings weights as rows of their own
    scales = round_up(-(-row_bytes // 256) * 4, 16)
    return dict(row_bytes_max=round_up(row_bytes, 16), side_bytes_max=max(scales, side_bytes))


def ll_sizes(tokens: int, hidden: int, experts: int, topk: int) -> Dict[str, Any]:
    """Communicator's sizes for low_latency_dispatch()."""
    return dict(
        modes="ll",
        ll_tokens_max=integer(tokens, "num_max_dispatch_tokens_per_rank", 1),
        row_bytes_max=round_up(2 * integer(hidden, "hidden", 1), 16),
        experts_max=integer(experts, "num_experts", 1),
        topk_max=max(topk, 8),
        ll_sets=2,
    )


def low_latency_size_hint(tokens: int, hidden: int, num_ranks: int, experts: int) -> int:
    """Bytes that a Buffer will allocate on each rank for low_latency_dispatch()."""
    return memory_size(num_ranks, **ll_sizes(tokens, hidden, experts, 8)).window_bytes
