"""The ways from Python to a step, each as a function that makes one step with the same arguments every time. bench.py
measures them, and python/tests/test_calls.py counts what they call.

A step is a route, a dispatch and a combine, as an engine's layer makes them, experts left out: the rows that arrived are
what is combined. `raw` paths are the binding, with arrays of numpy or torch, and `plan` paths its plans; `c` is what the
binding calls, with argument structs that are made once."""

from __future__ import annotations

import ctypes
import functools
import itertools
import pathlib
import sys
from typing import Any, Callable, Dict, List, NamedTuple, Optional

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))

import moecomm  # noqa: E402
from moecomm import _library, _native  # noqa: E402


WARM = 20  # steps after which every handle of a ring has been used


class Shape(NamedTuple):
    tokens: int
    hidden: int
    experts: int
    topk: int


class Path:
    """make: returns a function that makes one step. It is called if the path is measured, since some need much memory.
    captures: a step may run in a CUDA graph."""

    def __init__(self, name: str, make: Callable[[], Callable[[], Any]], captures: bool = True):
        self.name, self.captures, self._make = name, captures, make

    @functools.cached_property
    def step(self) -> Callable[[], Any]:
        return self._make()


def communicator(group_size: int, rank: int, identity: bytes, shape: Shape, **settings: Any) -> moecomm.Communicator:
    """One that is large enough for `shape` in both modes."""
    tokens = max(shape.tokens, 8)
    sizes = dict(row_bytes_max=2 * shape.hidden, experts_max=shape.experts, topk_max=shape.topk)
    return moecomm.Communicator(
        group_size, rank, identity, tokens_max=tokens, ll_tokens_max=min(tokens, 8192), **sizes, **settings
    )


class Queue:
    """Where steps are queued. A capture sets another stream."""

    stream: Optional[int] = None


def binding_paths(
    comm: moecomm.Communicator, shape: Shape, make: Callable[..., Any], ids: Any, rows: Any, queue: Queue
) -> List[Path]:
    """Without torch: `make(shape)` makes arrays like `rows` [tokens, hidden] on the device, ids are int32."""
    out = make((shape.tokens, shape.hidden))
    view = comm.handle(shape.experts, shape.topk, layout="rank-major", mode="ll", tokens_max=shape.tokens)
    padded = comm.handle(shape.experts, shape.topk, layout="expert-major-padded", mode="ll", tokens_max=shape.tokens)
    arrived = functools.cache(lambda: make((padded.local_experts, comm.nranks * shape.tokens, shape.hidden)))
    there = view.view().rows

    def leave() -> None:
        view.route_dispatch(ids, None, rows, None, out_rows_max=0, stream=queue.stream)
        view.combine(there, out, stream=queue.stream)

    def copies() -> Callable[[], None]:
        got = arrived()

        def copy() -> None:
            padded.route_dispatch(ids, None, rows, got, stream=queue.stream)
            padded.combine(got, out, weights="apply", stream=queue.stream)

        return copy

    return [
        Path("c LL rank-major", lambda: structs(view, ids, rows, there, out, queue)),
        Path("raw LL rank-major", lambda: leave),
        Path("raw LL padded", copies),
        *plan_paths(view, padded, ids, rows, arrived, out, queue),
    ]


def plan_paths(
    view: Any, padded: Any, ids: Any, rows: Any, arrived: Callable[[], Any], out: Any, queue: Queue
) -> List[Path]:
    """The same steps by plans."""
    there, tokens = view.view().rows, len(rows)

    def leave(ids: Any, sent: Any, sums: Any) -> Callable[[], None]:
        plan = view.plan(tokens, dispatch={"rows": rows, "out_rows": None, "out_rows_max": 0}, combine={"rows": there, "out": out})

        def step() -> None:
            plan.route_dispatch(ids, None, sent, None, stream=queue.stream)
            plan.combine(there, sums, stream=queue.stream)

        return step

    def copies() -> Callable[[], None]:
        got = arrived()
        combine = {"rows": got, "out": out, "weights": "apply"}
        plan = padded.plan(tokens, dispatch={"rows": rows, "out_rows": got}, combine=combine)

        def copy() -> None:
            plan.route_dispatch(ids, None, rows, got, stream=queue.stream)
            plan.combine(got, out, stream=queue.stream)

        return copy

    at = moecomm.arrays.address
    return [
        Path("plan LL rank-major", lambda: leave(ids, rows, out)),
        Path("plan LL rank-major, addresses", lambda: leave(at(ids), at(rows), at(out))),
        Path("plan LL padded", copies),
    ]


def structs(handle: Any, ids: Any, rows: Any, there: int, out: Any, queue: Queue) -> Callable[[], None]:
    """A step through the C interface by ctypes, nothing made and nothing checked."""
    at = lambda array: moecomm.arrays.address(array)  # noqa: E731
    tokens, hidden = rows.shape
    row_type = _native.moeRowBf16 if "bfloat16" in str(rows.dtype) else _native.moeRowFp32
    common = dict(rowType=row_type, hidden=hidden)
    dispatch = ctypes.byref(_native.moeDispatchArgs_t(rows=at(rows), **common))
    combine = ctypes.byref(_native.moeCombineArgs_t(rows=there, out=at(out), **common))
    pointer, address, library = handle.pointer, at(ids), _library.library()
    route_dispatch, sum_up = library.moeRouteDispatch, library.moeCombine

    def step() -> None:
        stream = queue.stream
        if route_dispatch(pointer, address, None, tokens, dispatch, stream) or sum_up(pointer, combine, stream):
            raise RuntimeError("a step has failed")

    return step


def deep_ep_paths(buffer: Any, shape: Shape, ids: Any, rows: Any, weights: Any) -> List[Path]:
    """moecomm.deep_ep. ids are int64, rows bfloat16."""
    most, experts = max(shape.tokens, 1), shape.experts

    def low_latency(hooks: bool = False, **options: Any) -> Callable[[], None]:
        arrived = rows.new_empty((experts // buffer.group_size, buffer.group_size * most, shape.hidden))
        options["return_recv_hook"] = hooks

        def step() -> None:
            got, _, handle, _, receive = buffer.low_latency_dispatch(rows, ids, most, experts, **options)
            if hooks:
                receive()
            made = arrived if isinstance(got, tuple) else got
            _, _, receive = buffer.low_latency_combine(made, ids, weights, handle, return_recv_hook=hooks)
            if hooks:
                receive()

        return step

    def high_throughput(least: int) -> Callable[[], None]:
        sizes = range(most, max(least, 1) - 1, -1)
        batches = itertools.cycle([(rows[:size], ids[:size], weights[:size]) for size in sizes])

        def step() -> None:
            x, topk_idx, topk_weights = next(batches)
            per_rank, _, per_expert, mask, _ = buffer.get_dispatch_layout(topk_idx, experts)
            got = buffer.dispatch(
                x,
                topk_idx=topk_idx,
                topk_weights=topk_weights,
                num_tokens_per_rank=per_rank,
                is_token_in_rank=mask,
                num_tokens_per_expert=per_expert,
            )
            buffer.combine(got[0], got[4])

        return step

    return [
        Path("deep_ep LL bf16", lambda: low_latency(use_fp8=False)),
        Path("deep_ep LL fp8", lambda: low_latency(use_fp8=True)),
        Path("deep_ep LL bf16, weights at dispatch", lambda: low_latency(use_fp8=False, topk_weights=weights)),
        Path("deep_ep LL fp8, weights at dispatch", lambda: low_latency(use_fp8=True, topk_weights=weights)),
        Path(
            "deep_ep LL bf16, hooks, weights at dispatch",
            lambda: low_latency(hooks=True, use_fp8=False, topk_weights=weights),
        ),
        Path("deep_ep LL fp8, hooks", lambda: low_latency(hooks=True, use_fp8=True)),
        Path("deep_ep HT", lambda: high_throughput(most), captures=False),
        Path("deep_ep HT, half to all of these tokens", lambda: high_throughput(most // 2), captures=False),
    ]


def dispatcher_paths(comm: moecomm.Communicator, shape: Shape, ids: Any, rows: Any, weights: Any) -> List[Path]:
    """moecomm.torch.Dispatcher. ids are int64."""
    import torch

    import moecomm.torch as moe

    dispatcher = moe.Dispatcher(comm, shape.experts, shape.topk, layout="expert-major", out_rows_max="worst")

    def forward() -> None:
        got = dispatcher.dispatch(rows, ids, weights)
        dispatcher.combine(got.rows, got, weights="apply")

    def inference() -> None:
        with torch.no_grad():
            forward()

    leaf = rows.detach().clone().requires_grad_()
    ones = torch.ones_like(rows)

    def training() -> None:
        got = dispatcher.dispatch(leaf, ids, weights)
        dispatcher.combine(got.rows, got, weights="apply").backward(ones)
        leaf.grad = None

    return [
        Path("Dispatcher forward", lambda: inference),
        Path("Dispatcher forward and backward", lambda: training, captures=False),
    ]


def count_calls(step: Callable[[], Any]) -> int:
    """Calls of Python and C functions that a step makes from Python, after it has run once."""
    for _ in range(WARM):
        step()
    counted = 0

    def profile(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal counted
        counted += event in ("call", "c_call")

    sys.setprofile(profile)
    try:
        step()
    finally:
        sys.setprofile(None)
    return counted - 1  # setprofile itself


def count_runtime(step: Callable[[], Any]) -> Dict[str, int]:
    """Kernels, copies and calls of the CUDA runtime that a step makes, by name, and `allocations` of torch."""
    import torch

    step()
    torch.cuda.synchronize()
    before = torch.cuda.memory_stats().get("allocation.all.allocated", 0)
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        step()
        torch.cuda.synchronize()
    found: Dict[str, int] = {"allocations": torch.cuda.memory_stats().get("allocation.all.allocated", 0) - before}
    for event in profile.events():
        on_device = event.device_type == torch.autograd.DeviceType.CUDA
        if on_device or event.name.startswith(("cuda", "cuLaunch")):
            name = f"device: {event.name[:60]}" if on_device else event.name
            found[name] = found.get(name, 0) + 1
    return found
