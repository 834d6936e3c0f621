"""moecomm as an EP backend of CollectiveX, the benchmark of EP libraries in SemiAnalysisAI/InferenceX. The harness
imports this file from its own folder bench/; README.md says how.

Normal mode is HT with the flat layout, whose rows arrive in window memory. Low-latency mode is LL with the rank-major
layout, whose rows stay in the handle's slots. Both have a row for each token and rank, and each rank sums the results
of its experts before combine. Dispatch routes in every call, and casts the rows itself if the precision is fp8."""

from __future__ import annotations

import types

import torch
import torch.distributed as dist
from ep_backend import EPBackend

import moecomm
import moecomm.torch
from moecomm.torch.memory import tensor_at

BLOCK = 128  # elements of a scale


def cast(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """What moecomm.Cast("fp8") makes of bf16 rows: codes and scales, with the same bits. Both divisions are of two
    tensors, because torch multiplies by the reciprocal of a number."""
    blocks = rows.float().unflatten(1, (-1, BLOCK))
    largest = blocks.abs().amax(dim=2, keepdim=True).clamp(min=1e-4)
    top = torch.full_like(largest, 448)
    codes = (blocks * (top / largest)).clamp(-448, 448).flatten(1).to(torch.float8_e4m3fn)
    return codes, (largest / top).squeeze(2)


def cast_back(codes: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """bf16 rows of codes and scales."""
    return (codes.float().unflatten(1, (-1, BLOCK)) * scales.unsqueeze(2)).flatten(1).to(torch.bfloat16)


def pick(rows: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """The rows at `places`. torch has no index_select for fp8, so codes are picked as bytes."""
    return rows.view(torch.uint8).index_select(0, places).view(rows.dtype)


def window_bytes(count: int, hidden: int, fp8: bool) -> int:
    """What HT takes from the heap, in blocks aligned to 256 bytes: bf16 rows; with fp8 codes and scales too."""
    return count * (hidden * 3 + hidden // BLOCK * 4 if fp8 else hidden * 2) + 1024


class Arrays:
    """The rows of a rank, of as many tokens as can arrive.

    combine  [out rows, hidden] bf16, which combine reads
    rows     [out rows, hidden] bf16 from dispatch: in HT the same memory as `combine`; None with fp8
    codes    [out rows, hidden] fp8 from dispatch; None with bf16
    scales   [out rows, hidden / 128] float32 of the codes"""

    def __init__(self, combine: torch.Tensor, rows=None, codes=None, scales=None):
        self.combine, self.rows, self.codes, self.scales = combine, rows, codes, scales

    @classmethod
    def in_window(cls, comm: moecomm.Communicator, count: int, hidden: int, fp8: bool) -> Arrays:
        """In window memory."""

        def make(columns: int, dtype: torch.dtype) -> torch.Tensor:
            return moecomm.torch.window_tensor(comm, (count, columns), dtype).tensor

        combine = make(hidden, torch.bfloat16)
        if not fp8:
            return cls(combine, combine)
        return cls(combine, codes=make(hidden, torch.float8_e4m3fn), scales=make(hidden // BLOCK, torch.float32))

    def first(self, count: int) -> Arrays:
        """The first rows of these."""
        arrays = (self.combine, self.rows, self.codes, self.scales)
        return Arrays(*(None if array is None else array[:count] for array in arrays))

    @classmethod
    def in_slots(cls, moe: moecomm.Handle, count: int, hidden: int, fp8: bool, device: torch.device) -> Arrays:
        """In the slots of an LL handle. A row of fp8 has its codes, then the scales of whole tiles of 512 elements."""
        view = moe.view()
        combine = tensor_at(view.combine_rows, (count, hidden), torch.bfloat16, device, moe)
        if not fp8:
            return cls(combine, tensor_at(view.rows, (count, hidden), torch.bfloat16, device, moe))
        slots = tensor_at(view.rows, (count, hidden + -(-hidden // 512) * 16), torch.uint8, device, moe)
        scales = slots[:, hidden : hidden + hidden // BLOCK * 4].view(torch.float32)
        return cls(combine, codes=slots[:, :hidden].view(torch.float8_e4m3fn), scales=scales)

    def received(self, places: torch.Tensor) -> torch.Tensor:
        """The rows at `places` as bf16."""
        if self.codes is None:
            return self.rows.index_select(0, places)
        return cast_back(pick(self.codes, places), pick(self.scales, places))


class Rung:
    """A number of tokens per rank: its handle, its plan, and the arrays of its calls. dispatch() returns it as the
    harness's handle.

    combine_input  the harness sets and reads it: the rows of the next combine
    arrays    the rows
    ids, weights  [out rows, topk] experts, and weights, of the rows
    out       [tokens, hidden] bf16 sums
    places    the out rows that arrive, once counted"""

    def __init__(self, backend: MoecommBackend, tokens: int, problem: types.SimpleNamespace):
        args, count = backend.args, backend.world_size * tokens
        self.combine_input = self.places = None
        self.out = torch.empty(tokens, args.hidden, dtype=torch.bfloat16, device=backend.device)
        device = self.out.device
        self.moe = backend.comm.handle(args.experts, args.topk, tokens_max=tokens, **backend.handle_settings)
        if backend.arrays is not None:
            self.arrays = backend.arrays.first(count)
        else:
            self.arrays = Arrays.in_slots(self.moe, count, args.hidden, backend.fp8, device)
        self.ids = torch.empty(count, args.topk, dtype=torch.int32, device=device)
        self.weights = torch.empty(count, args.topk, dtype=torch.float32, device=device)
        self._plan(tokens, problem, in_slots=backend.arrays is None)

    def _plan(self, tokens: int, problem: types.SimpleNamespace, in_slots: bool) -> None:
        """Calls by a plan take addresses, which are the same in every call of a rung."""
        arrays = self.arrays
        out = None if in_slots else arrays.rows if arrays.codes is None else arrays.codes
        described = moecomm.Describe(out_topk_idx=self.ids, out_topk_weights=self.weights, ids="global")
        dispatch = {"rows": problem.dispatch_x, "out_rows": out, "describe": described}
        if in_slots:
            dispatch["out_rows_max"] = 0
        if arrays.codes is not None:
            dispatch["cast"] = moecomm.Cast("fp8", None if in_slots else arrays.scales)
        self.plan = self.moe.plan(tokens, dispatch=dispatch, combine={"rows": arrays.combine, "out": self.out})
        sent = (problem.topk_idx, problem.topk_weights, problem.dispatch_x)
        self._sent = (*(array.data_ptr() for array in sent), None if in_slots else out.data_ptr())
        self._out = self.out.data_ptr()

    def dispatch(self) -> Rung:
        self.plan.route_dispatch(*self._sent)
        return self

    def combine(self) -> torch.Tensor:
        self.plan.combine(self.combine_input.data_ptr(), self._out)
        return self.out

    # ---- Not timed ---------------------------------------------------------------------------------------------------

    def count(self) -> moecomm.handle_answers.Counts:
        """The counts of the latest route, which is the same in every call of a rung. Finds the out rows that arrive:
        those of rank-major are grouped by source rank, and a group's rows are its first ones."""
        counts, device = self.moe.counts(), self.out.device
        fault = self.moe.status()
        if fault is not None:
            raise fault
        sizes = [counts.rows] if self.moe.layout == "flat" else counts.rows_per_rank
        groups = [torch.arange(size, device=device) + rank * len(self.out) for rank, size in enumerate(sizes)]
        self.places = torch.cat(groups)
        return counts

    def inspect(self) -> types.SimpleNamespace:
        counts = self.count()
        experts = self.ids[self.places]
        return types.SimpleNamespace(
            payload=self.arrays.received(self.places),
            expert_ids=experts,
            weights=self.weights[self.places].masked_fill(experts < 0, 0),
            local_expert_counts=torch.tensor(counts.rows_per_expert, device=self.out.device),
        )


class MoecommBackend(EPBackend):
    """The harness's view of moecomm."""

    name = "moecomm"
    maturity = "candidate"
    SUPPORTED_MODES = ("normal", "low-latency")
    SUPPORTED_PRECISIONS = ("bf16", "fp8")

    def __init__(self, args, rank, world_size, local_rank, device):
        super().__init__(args, rank, world_size, local_rank, device)
        self.fp8, self.low_latency = self.precision == "fp8", self.mode == "low-latency"
        layout = "rank-major" if self.low_latency else "flat"
        self.handle_settings = dict(mode="ll" if self.low_latency else "ht", layout=layout)
        self.kernel_generation = "-".join(self.handle_settings.values())
        self.library_version = ".".join(map(str, moecomm.version()))
        # From combine on, slots belong to the library: each combine needs a dispatch. stage() stands for the experts,
        # which write their bf16 results where combine reads them. HT in bf16 combines the rows that arrived in place.
        self.requires_fresh_pair = self.low_latency
        self.stage_device_work = self.low_latency or self.fp8
        if self.fp8:
            self.dispatch_dtype, self.dispatch_value_bytes = "fp8-e4m3fn", 1
            self.dispatch_scale_bytes_per_copy = args.hidden // BLOCK * 4

    def _topk_idx_dtype(self):
        return torch.int32

    def create_buffer(self, spec):
        args, tokens = self.args, spec.max_tokens_per_rank
        sizes = dict(row_bytes_max=args.hidden * 2, experts_max=args.experts, topk_max=args.topk)
        self.arrays, self.rungs = None, []  # rungs keep the handles, which live as long as the communicator
        if self.low_latency:
            self.comm = moecomm.torch.communicator(modes="ll", ll_tokens_max=tokens, **sizes)
            return
        count = self.world_size * tokens
        heap = window_bytes(count, args.hidden, self.fp8)
        self.comm = moecomm.torch.communicator(modes="ht", tokens_max=tokens, staging_rows=-1, heap_bytes=heap, **sizes)
        self.arrays = Arrays.in_window(self.comm, count, args.hidden, self.fp8)

    def make_problem(self, T, idx, weights, x):
        problem = super().make_problem(T, idx, weights, x)
        problem.rung = Rung(self, T, problem)
        self.rungs.append(problem.rung)
        return problem

    def semantic_payload(self, x):
        return cast_back(*cast(x)) if self.fp8 else x

    def dispatch(self, problem):
        return problem.rung.dispatch()

    def stage(self, problem, handle):
        arrays = handle.arrays
        if self.stage_device_work:
            arrays.combine.index_copy_(0, handle.places, arrays.received(handle.places))
        handle.combine_input = arrays.combine

    def combine(self, problem, handle):
        return handle.combine()

    def recv_tokens(self, handle):
        return handle.count().rows

    def inspect_dispatch(self, problem, handle):
        return handle.inspect()

    def combine_transformed(self, problem, handle, transformed):
        handle.combine_input = handle.arrays.combine
        handle.combine_input.index_copy_(0, handle.places, transformed)
        return handle.combine()

    def finalize(self, rc):
        """The ranks leave together, and the communicator frees its handles."""
        dist.barrier()
        self.comm.destroy()
        return super().finalize(rc)
