"""The functions that Dispatcher calls, with gradients: eager functions, and custom operators for tracing:
moecomm::dispatch, ::redispatch and ::combine, with their shapes. call() takes the operator if operators are traced or
watched, and otherwise the function itself, which takes a third of the time. An operator's arguments are tensors and
numbers, so `key` stands for the Dispatcher and a ticket for the route. The ticket is a tensor on the CPU: it makes
combine depend on its dispatch in a traced graph. A traced key may be a symbol, for which no Dispatcher can be looked
up: so all that decides shapes is an argument, and Dispatchers of one shape share a compiled graph. Annotations are no
strings here, because torch reads them."""

import functools
import inspect
import itertools
import weakref
from typing import Any, Callable, Dict, NamedTuple, Optional, Protocol, Tuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .. import errors
from ..casts import SCALE_TYPES, code_bytes, is_packed, scale_words
from ..handle import Handle
from ..own_calls import OwnCombine, OwnDispatch, bound_of, holds_all
from ..parts import Cast, Describe, Grads, Payload
from ..ring import HandleRing
from .memory import counts_of, kind_of, rows_per_expert


class Owner(Protocol):
    """The parts of a Dispatcher that operators need."""

    ring: HandleRing
    device: torch.device

    def stream(self) -> Any: ...

    def take_part(self, operator: str, error: Exception, given: Dict[str, Any]) -> None: ...


living: "weakref.WeakValueDictionary[int, Any]" = weakref.WeakValueDictionary()
_keys = itertools.count(1)
_C: Any = torch._C  # whose stubs lack some names
_CPU = torch.device("cpu")


def register(dispatcher: Owner) -> int:
    """Gives a Dispatcher the number by which operators find it."""
    key = next(_keys)
    living[key] = dispatcher
    return key


def _find(key: int) -> Owner:
    found: Optional[Owner] = living.get(key)
    if found is None:
        raise errors.InvalidUsage(f"the Dispatcher with key {key} is gone: keep it as long as its tensors are used")
    return found


def _takes_part(operator: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps an operator: a rank takes part in its call even if it raises before that. See Handle.take_part."""
    signature = inspect.signature(operator)

    @functools.wraps(operator)
    def wrapped(*arguments: Any, **keywords: Any) -> Any:
        try:
            return operator(*arguments, **keywords)
        except Exception as error:  # noqa: B902
            given = signature.bind(*arguments, **keywords).arguments
            owner = living.get(given["key"])
            if owner is not None:
                owner.take_part(operator.__name__, error, given)
            raise

    return wrapped


# ---- Dispatch --------------------------------------------------------------------------------------------------------


def _rows_of(rows: Tensor, cast: str, count: Any) -> Tensor:
    """Out rows of a dispatch. Bytes of two codes are uint8, which every version of torch has."""
    if not cast:
        return rows.new_empty((count, rows.shape[1]))
    dtype = torch.uint8 if is_packed(cast) else torch.float8_e4m3fn
    return rows.new_empty((count, code_bytes(cast, rows.shape[1])), dtype=dtype)


def _outputs(
    rows: Tensor, topk_idx: Tensor, side: Optional[Tensor], cast: str, by_expert: bool, count: Any
) -> Tuple[Tensor, ...]:
    """Rows, ids, weights and side of a dispatch with `count` out rows."""
    entries = (count,) if by_expert else (count, topk_idx.shape[1])
    hidden = rows.shape[1]
    if cast:
        dtype = torch.float32 if "float32" in SCALE_TYPES[cast] else torch.int32
        out_side = rows.new_empty((count, scale_words(cast, hidden)), dtype=dtype)
    else:
        out_side = rows.new_empty(0) if side is None else side.new_empty((count, side.shape[1]))
    return (
        _rows_of(rows, cast, count),
        rows.new_empty(entries, dtype=torch.int32 if by_expert else topk_idx.dtype),
        rows.new_empty(entries, dtype=torch.float32),
        out_side,
    )


@_takes_part
def dispatch(
    rows: Tensor,
    topk_idx: Tensor,
    topk_weights: Optional[Tensor],
    side: Optional[Tensor],
    cast: str,
    key: int,
    capacity: int,
    by_expert: bool,
    local_experts: int,
) -> Tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """capacity: out rows; -1: as many as come. by_expert, local_experts: those of the Dispatcher."""
    owner, count = _find(key), capacity
    ticket, handle = owner.ring.next()
    stream = owner.stream()
    if rows.shape[0] != topk_idx.shape[0]:
        raise ValueError(f"rows has shape {tuple(rows.shape)}, but topk_idx has {topk_idx.shape[0]} tokens")
    if capacity < 0:
        handle.route(topk_idx, topk_weights, stream=stream)
        owner.ring.commit()
        count = counts_of(handle, stream).layout_rows
    outputs = out, ids, weights, out_side = _outputs(rows, topk_idx, side, cast, by_expert, count)
    # By expert, a step that describes rows follows the dispatch in any case. It fills the counts too.
    counts = rows.new_empty(local_experts, dtype=torch.int32) if by_expert else None
    if capacity < 0:
        options = _dispatch_options(side, cast, counts, outputs)
        handle.dispatch(rows, out, stream=stream, **options)
    else:
        _route_dispatch(owner.ring, handle, stream, rows, topk_idx, topk_weights, side, cast, counts, outputs)
        owner.ring.commit()
    if counts is None:
        counts = rows_per_expert(handle, owner.device).clone()
    return out, ids, weights, out_side, counts, torch.full((1,), ticket, dtype=torch.int64, device=_CPU)


def _dispatch_options(
    side: Optional[Tensor], cast: str, counts: Optional[Tensor], outputs: Tuple[Tensor, ...]
) -> Dict[str, Any]:
    """Keywords of Handle.dispatch. counts: the rows per expert in layouts by expert, otherwise None."""
    _, ids, weights, out_side = outputs
    if counts is None:
        described = Describe(ids, weights)
    else:
        described = Describe(None, weights, out_row_experts=ids, out_rows_per_expert=counts)
    options: Dict[str, Any] = dict(pad_indices=True, pad_rows=True, describe=described)
    if cast:
        options["cast"] = Cast(cast, out_side)  # type: ignore[arg-type]
    elif side is not None:
        whole = side.shape[-1] * side.element_size() % 16 == 0
        options["payloads"] = (Payload(side, out_side, "array" if whole else "row-major"),)
    return options


def _route_dispatch(
    ring: HandleRing,
    handle: Handle,
    stream: Any,
    rows: Tensor,
    topk_idx: Tensor,
    topk_weights: Optional[Tensor],
    side: Optional[Tensor],
    cast: str,
    counts: Optional[Tensor],
    outputs: Tuple[Tensor, ...],
) -> None:
    """Handle.route_dispatch(). Arrays of a known kind are not checked again. A side has strides, which no kind has."""
    if side is not None or (topk_weights is not None and topk_weights.shape != topk_idx.shape):
        options = _dispatch_options(side, cast, counts, outputs)
        handle.route_dispatch(topk_idx, topk_weights, rows, outputs[0], stream=stream, **options)
        return
    out, ids, weights, scales = outputs
    room = out.shape[0]
    key = ("dispatch", kind_of(rows), kind_of(topk_idx), kind_of(topk_weights), cast, room, bound_of(handle))
    call = ring.own_calls.pop(key, None)
    if call is None:
        options = _dispatch_options(None, cast, counts, outputs)
        call = OwnDispatch.with_route(handle, topk_idx, topk_weights, rows, out, **options)
    route = topk_idx.data_ptr(), 0 if topk_weights is None else topk_weights.data_ptr(), rows.shape[0]
    addresses = [rows.data_ptr(), out.data_ptr()]
    # In the order of Describe's fields: weights are behind topk_idx and before row_experts.
    if counts is None:
        addresses += (ids.data_ptr(), weights.data_ptr())
    else:
        addresses += (weights.data_ptr(), ids.data_ptr(), counts.data_ptr())
    if cast:
        addresses.append(scales.data_ptr())
    call.route_dispatch(handle, *route, addresses, room, 0 if stream is None else stream.cuda_stream)
    ring.own_calls.keep(key, call)


def _dispatch_fake(
    rows: Tensor,
    topk_idx: Tensor,
    topk_weights: Optional[Tensor],
    side: Optional[Tensor],
    cast: str,
    key: int,
    capacity: int,
    by_expert: bool,
    local_experts: int,
) -> Tuple[Tensor, ...]:
    count: Any = torch.library.get_ctx().new_dynamic_size() if capacity < 0 else capacity
    counts = rows.new_empty(local_experts, dtype=torch.int32)
    ticket = torch.empty(1, dtype=torch.int64, device="cpu")
    return (*_outputs(rows, topk_idx, side, cast, by_expert, count), counts, ticket)


@_takes_part
def redispatch(rows: Tensor, ticket: Tensor, key: int, count: int) -> Tensor:
    """Other rows along an earlier route. count: out rows of that dispatch."""
    owner = _find(key)
    handle = owner.ring.use(int(ticket.item()))
    out = rows.new_empty((count, rows.shape[1]))
    handle.dispatch(rows, out, pad_rows=True, stream=owner.stream())
    return out


def _redispatch_fake(rows: Tensor, ticket: Tensor, key: int, count: int) -> Tensor:
    return rows.new_empty((count, rows.shape[1]))


# ---- Combine ---------------------------------------------------------------------------------------------------------


def _combine(
    owner: Owner,
    ticket: Tensor,
    rows: Tensor,
    tokens: int,
    weights: str = "applied",
    bias: Optional[Tensor] = None,
    grads: Tuple[Tensor, ...] = (),
) -> Tensor:
    """Handle.combine(). Arrays of a known kind are not checked again, if there are as many rows as the dispatch delivered
    at most. grads: those of Grads."""
    ring, stream = owner.ring, owner.stream()
    handle = ring.use(int(ticket.item()))
    out = rows.new_empty((tokens, rows.shape[1]))
    options: Dict[str, Any] = dict(weights=weights, bias0=bias, grads=Grads(*grads) if grads else None)
    fits = bias is None or bias.shape == out.shape
    if not fits or not holds_all(handle, tokens, min(one.shape[0] for one in (rows, *grads[:1]))):
        handle.combine(rows, out, stream=stream, **options)
        return out
    key = ("combine", kind_of(rows), kind_of(bias), weights, *map(kind_of, grads), bound_of(handle))
    call = ring.own_calls.pop(key, None)
    if call is None:
        call = OwnCombine(handle, tokens, rows, out, **options)
    addresses = [one.data_ptr() for one in (rows, out, bias, *grads) if one is not None]
    call.combine(handle, addresses, 0 if stream is None else stream.cuda_stream)
    ring.own_calls.keep(key, call)
    return out


@_takes_part
def combine(
    rows: Tensor, topk_weights: Optional[Tensor], bias: Optional[Tensor], ticket: Tensor, key: int, tokens: int
) -> Tensor:
    """topk_weights: the weights that dispatch brought, if they are to be applied. The library has them, and does not
    read these."""
    weights = "applied" if topk_weights is None else "apply"
    return _combine(_find(key), ticket, rows, tokens, weights, bias)


def _combine_fake(
    rows: Tensor, topk_weights: Optional[Tensor], bias: Optional[Tensor], ticket: Tensor, key: int, tokens: int
) -> Tensor:
    return rows.new_empty((tokens, rows.shape[1]))


@_takes_part
def combine_grads(
    rows: Tensor, weight_grads: Tensor, ticket: Tensor, key: int, tokens: int, topk: int
) -> Tuple[Tensor, Tensor]:
    """The backward pass of dispatch: gradients of rows and of topk_weights."""
    out_grads = rows.new_empty((tokens, topk), dtype=torch.float32)
    return _combine(_find(key), ticket, rows, tokens, grads=(weight_grads, out_grads)), out_grads


def _combine_grads_fake(
    rows: Tensor, weight_grads: Tensor, ticket: Tensor, key: int, tokens: int, topk: int
) -> Tuple[Tensor, Tensor]:
    return rows.new_empty((tokens, rows.shape[1])), rows.new_empty((tokens, topk), dtype=torch.float32)


# ---- Gradients -------------------------------------------------------------------------------------------------------


def _last_user(key: Any) -> Any:
    """The Dispatcher, which the caller may drop before the backward pass. A traced graph keeps none."""
    return living.get(key) if isinstance(key, int) else None


def _dispatch_context(ctx: Any, inputs: Tuple[Any, ...], output: Any) -> None:
    rows, topk_idx, topk_weights, _, cast, key, *_ = inputs
    ctx.key, ctx.tokens, ctx.topk, ctx.cast = key, rows.shape[0], topk_idx.shape[1], cast
    ctx.owner = _last_user(key)
    ctx.weighted = topk_weights is not None
    ctx.summed = rows.dtype in (torch.bfloat16, torch.float16, torch.float32)
    ctx.save_for_backward(output[5])
    ctx.mark_non_differentiable(output[1], output[3], output[4], output[5])


def _dispatch_backward(
    ctx: Any, rows: Tensor, ids: Any, weights: Tensor, side: Any, counts: Any, ticket: Any
) -> Tuple[Optional[Tensor], ...]:
    if ctx.cast:
        raise NotImplementedError(f"cast is {ctx.cast!r}: a dispatch that casts has no gradient; pass detached tensors")
    if not ctx.summed:
        raise NotImplementedError("rows of this dtype cannot be summed, so their dispatch has no gradient")
    (ticket,) = ctx.saved_tensors
    if ctx.weighted:
        grads = weights.contiguous()
        found = call("combine_grads", rows.contiguous(), grads, ticket, ctx.key, ctx.tokens, ctx.topk)
    else:
        found = call("combine", rows.contiguous(), None, None, ticket, ctx.key, ctx.tokens), None
    return found[0], None, found[1], None, None, None, None, None, None


def _redispatch_context(ctx: Any, inputs: Tuple[Any, ...], output: Any) -> None:
    rows, ticket, ctx.key, _ = inputs
    ctx.tokens, ctx.owner = rows.shape[0], _last_user(ctx.key)
    ctx.save_for_backward(ticket)


def _redispatch_backward(ctx: Any, rows: Tensor) -> Tuple[Optional[Tensor], ...]:
    (ticket,) = ctx.saved_tensors
    return call("combine", rows.contiguous(), None, None, ticket, ctx.key, ctx.tokens), None, None, None


def _combine_context(ctx: Any, inputs: Tuple[Any, ...], output: Any) -> None:
    rows, topk_weights, bias, ticket, ctx.key, _ = inputs
    ctx.count, ctx.biased, ctx.owner = rows.shape[0], bias is not None, _last_user(ctx.key)
    ctx.save_for_backward(ticket, *(() if topk_weights is None else (rows, topk_weights)))


def _combine_backward(ctx: Any, sums: Tensor) -> Tuple[Optional[Tensor], ...]:
    ticket, *applied = ctx.saved_tensors
    grads = call("redispatch", sums.contiguous(), ticket, ctx.key, ctx.count)
    weight_grads = None
    if applied:
        rows, weights = applied
        weight_grads = (rows.float() * grads.float()).sum(dim=1)  # those of rows that nothing came for are not read
        grads = (grads.float() * weights.unsqueeze(1)).to(grads.dtype)
    return grads, weight_grads, sums if ctx.biased else None, None, None, None


# ---- How they are called -----------------------------------------------------------------------------------------------


class _Callable(NamedTuple):
    now: Callable[..., Any]
    operator: Any  # the same for those who trace
    function: Any  # the same with gradients; None if it has none


def _function_of(now: Callable[..., Any], context: Callable[..., None], gradients: Callable[..., Any]) -> Any:
    def forward(*arguments: Any) -> Any:  # torch binds the arguments to the signature in each call: this one is short
        return now(*arguments)

    methods = dict(forward=forward, setup_context=context, backward=once_differentiable(gradients))
    members = {name: staticmethod(method) for name, method in methods.items()}
    return type(f"moecomm_{now.__name__}", (torch.autograd.Function,), members)


def _make(now: Callable[..., Any], fake: Callable[..., Any], context: Any = None, gradients: Any = None) -> _Callable:
    operator = torch.library.custom_op(f"moecomm::{now.__name__}", now, mutates_args=())
    operator.register_fake(fake)
    if gradients is None:
        return _Callable(now, operator, None)
    operator.register_autograd(gradients, setup_context=context)
    return _Callable(now, operator, _function_of(now, context, gradients))


_CALLS = {
    "dispatch": _make(dispatch, _dispatch_fake, _dispatch_context, _dispatch_backward),
    "redispatch": _make(redispatch, _redispatch_fake, _redispatch_context, _redispatch_backward),
    "combine": _make(combine, _combine_fake, _combine_context, _combine_backward),
    "combine_grads": _make(combine_grads, _combine_grads_fake),
}
_PLAIN = {Tensor, torch.nn.Parameter, type(None), int, str, bool}  # classes of arguments


def _is_watched(arguments: Tuple[Any, ...]) -> bool:
    """Whether somebody traces, or replaces what operators do: by a mode, or by tensors of their own class."""
    if torch.compiler.is_compiling() or _C._len_torch_dispatch_stack() or _C._functorch.peek_interpreter_stack():
        return True
    for value in arguments:
        if value.__class__ not in _PLAIN:
            return True
    return False


def call(name: str, *arguments: Any) -> Any:
    """Calls dispatch, redispatch, combine or combine_grads with its arguments, in order."""
    found = _CALLS[name]
    if _is_watched(arguments):
        return found.operator(*arguments)
    if found.function is not None and torch.is_grad_enabled():
        for value in arguments:
            if isinstance(value, Tensor) and value.requires_grad:
                return found.function.apply(*arguments)
    return found.now(*arguments)
