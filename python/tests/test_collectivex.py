"""The backend of CollectiveX in perf/collectivex on 2 ranks, with a stand-in for the harness's base class. Needs
torch."""

import importlib.util
import pathlib
import types
import unittest

from stand_in import module
from support_ranks import RanksTest, device, torch

FILE = pathlib.Path(__file__).resolve().parents[2] / "perf/collectivex/ep_moecomm.py"
RANKS, EXPERTS, TOPK, HIDDEN, LADDER = 2, 8, 3, 640, (3, 7)
LOCAL = EXPERTS // RANKS


class EPBackend:
    def __init__(self, args, rank, world_size, local_rank, device):
        self.args, self.rank, self.world_size, self.device = args, rank, world_size, device
        self.mode, self.precision = args.mode, args.precision

    def make_problem(self, tokens, ids, weights, rows):
        return types.SimpleNamespace(dispatch_x=rows, topk_idx=ids.to(self._topk_idx_dtype()), topk_weights=weights)

    def finalize(self, rc):
        return rc


def backend_of(rank, mode, precision):
    module("ep_backend", EPBackend=EPBackend)
    spec = importlib.util.spec_from_file_location("ep_moecomm", FILE)
    adapter = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(adapter)
    args = types.SimpleNamespace(mode=mode, precision=precision, experts=EXPERTS, topk=TOPK, hidden=HIDDEN)
    return adapter.MoecommBackend(args, rank, RANKS, rank, device())


def inputs(tokens):
    """Ids, weights and rows of all ranks, which all ranks know."""
    random = torch.Generator().manual_seed(tokens)
    ids = torch.rand(RANKS * tokens, EXPERTS, generator=random).topk(TOPK)[1]
    weights = torch.rand(RANKS * tokens, TOPK, generator=random)
    rows = torch.randn(RANKS * tokens, HIDDEN, generator=random).to(torch.bfloat16)
    return [array.to(device()) for array in (ids, weights, rows)]


def require_equal(found, expected):
    torch.testing.assert_close(found, expected, rtol=0, atol=0, check_dtype=False)


def run_rung(backend, tokens):
    """The calls of the harness's oracle and of its timing."""
    ids, weights, rows = inputs(tokens)
    mine = slice(backend.rank * tokens, (backend.rank + 1) * tokens)
    problem = backend.make_problem(tokens, ids[mine], weights[mine], rows[mine].contiguous())
    wire = backend.semantic_payload(rows)
    here = ids // LOCAL == backend.rank
    came = here.any(dim=1)
    handle = backend.dispatch(problem)
    view = backend.inspect_dispatch(problem, handle)
    assert backend.recv_tokens(handle) == came.sum()
    require_equal(view.payload, wire[came])
    require_equal(view.expert_ids, torch.where(here, ids, -1)[came])
    require_equal(view.weights, (weights * here)[came])
    require_equal(view.local_expert_counts, torch.bincount(ids[here] - backend.rank * LOCAL, minlength=LOCAL))
    ranks_of = torch.stack([(ids // LOCAL == rank).any(dim=1) for rank in range(RANKS)]).sum(dim=0)
    sums = (wire * ranks_of.unsqueeze(1))[mine]
    require_equal(backend.combine_transformed(problem, handle, 2 * view.payload), 2 * sums)
    for _ in range(3):
        handle = backend.dispatch(problem)
        backend.stage(problem, handle)
        require_equal(backend.combine(problem, handle), sums)


def run_ladder(rank, mode, precision):
    backend = backend_of(rank, mode, precision)
    backend.create_buffer(types.SimpleNamespace(max_tokens_per_rank=max(LADDER)))
    for tokens in LADDER:
        run_rung(backend, tokens)
    assert backend.finalize(0) == 0


@unittest.skipUnless(FILE.exists(), "perf/collectivex is not here")
class CollectiveXTest(RanksTest):
    ranks = RANKS

    def test_normal_mode_in_bf16(self):
        self.run_ranks(run_ladder, "normal", "bf16")

    def test_normal_mode_in_fp8(self):
        self.run_ranks(run_ladder, "normal", "fp8")

    def test_low_latency_mode_in_bf16(self):
        self.run_ranks(run_ladder, "low-latency", "bf16")

    def test_low_latency_mode_in_fp8(self):
        self.run_ranks(run_ladder, "low-latency", "fp8")


if __name__ == "__main__":
    unittest.main()
