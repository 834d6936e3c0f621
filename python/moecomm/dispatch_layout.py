"""The layout of a dispatch, counted from expert ids alone: which ranks and experts get a rank's tokens."""

from __future__ import annotations

import ctypes
from typing import Any, Tuple

from . import _native, errors
from ._library import library
from .arrays import Array, describe, stream_address
from .checks import Place, require_shape, take
from .handle import INDEX_TYPES
from .values import integer


def dispatch_layout(
    topk_idx: Any,
    *,
    experts: int,
    nranks: int,
    domain_size: int = 0,
    tokens_per_rank: Any = None,
    tokens_per_domain: Any = None,
    tokens_per_expert: Any = None,
    token_to_rank: Any = None,
    stream: Any = None,
) -> None:
    """Fills the given arrays about the tokens that a dispatch of `topk_idx` would send. It needs no communicator, and no
    other rank hears of it. A token counts once for a rank or domain.

    topk_idx           [tokens, topk] int32 or int64; what is no expert's id counts nowhere
    experts            over all ranks
    domain_size        ranks of a domain, a divisor of nranks; 0: nranks
    tokens_per_rank    [nranks] int32
    tokens_per_domain  [nranks / domain_size] int32
    tokens_per_expert  [experts] int32: entries that name the expert
    token_to_rank      [tokens, nranks] bool or uint8: 1 if the token goes to the rank
    stream             as in Handle.route

    Arrays on a GPU are filled in stream order, others when the call returns. Raises TypeError and ValueError that name
    the argument, InvalidArgument, Unsupported and CudaError."""
    found = describe(topk_idx, "topk_idx")
    place = Place("cuda", found.ordinal) if found.device == "cuda" else Place("cpu", None)
    ids = take(topk_idx, "topk_idx", place, tuple(INDEX_TYPES))
    if not found.is_array or len(ids.shape) != 2:
        raise ValueError(f"topk_idx has shape {ids.shape}, expected [tokens, topk]")
    tokens, topk = ids.shape
    experts, nranks = integer(experts, "experts", 1), integer(nranks, "nranks", 1)
    domain_size = integer(domain_size, "domain_size")
    if domain_size and nranks % domain_size:
        raise ValueError(f"domain_size is {domain_size}, expected 0 or a divisor of nranks, which is {nranks}")

    def address(array: Any, what: str, shape: Tuple[int, ...], axes: str, dtypes: Tuple[str, ...] = ("int32",)) -> int:
        there: Array = describe(array, what)
        if there.is_array and (there.device, there.ordinal) != (found.device, found.ordinal):
            raise ValueError(f"{what} is in memory of {there.device}, but topk_idx in memory of {found.device}")
        out = take(array, what, place, dtypes, True)
        require_shape(out, what, shape, axes)
        return out.address

    domains = nranks // domain_size if domain_size else 1
    layout = _native.moeDispatchLayout_t(
        backend=_native.moeBackendCuda if place.device == "cuda" else _native.moeBackendHost,
        device=-1 if place.ordinal is None else place.ordinal,
        indexType=INDEX_TYPES[str(ids.dtype)],
        topk=topk,
        experts=experts,
        nranks=nranks,
        domainSize=domain_size,
        tokensPerRank=address(tokens_per_rank, "tokens_per_rank", (nranks,), "[nranks]"),
        tokensPerDomain=address(tokens_per_domain, "tokens_per_domain", (domains,), "[domains]"),
        tokensPerExpert=address(tokens_per_expert, "tokens_per_expert", (experts,), "[experts]"),
        tokenToRank=address(token_to_rank, "token_to_rank", (tokens, nranks), "[tokens, nranks]", ("bool", "uint8")),
    )
    native = library()
    errors.check(
        native, native.moeGetDispatchLayout(ids.address, tokens, ctypes.byref(layout), stream_address(stream))
    )
