"""moecomm.deep_ep on 4 ranks, low-latency calls and the module itself. Needs torch."""

import pathlib
import subprocess
import sys
import time
import unittest

from support import MISSING
from support_ranks import DEVICE, RANKS, TIMEOUT_MS, RanksTest, device, refuses, torch

if torch is not None:
    import moecomm
    import moecomm.deep_ep as deep_ep

TESTS = str(pathlib.Path(__file__).resolve().parent)
TOKENS, NUM_MAX, HIDDEN, EXPERTS, TOPK = 6, 8, 640, 8, 3
LOCAL, LOW = EXPERTS // RANKS, 2**32 - 1


def make(**settings):
    kind = torch.device(DEVICE).type
    deep_ep.configure(device=kind, timeout_ms=TIMEOUT_MS, low_latency_in_flight=4)
    deep_ep.configure(**settings)
    size = deep_ep.Buffer.get_low_latency_rdma_size_hint(NUM_MAX, HIDDEN, RANKS, EXPERTS)
    assert size > NUM_MAX * HIDDEN * 2
    return deep_ep.Buffer(
        torch.distributed.group.WORLD, 0, size, low_latency_mode=True, num_qps_per_rank=LOCAL, explicitly_destroy=True
    )


def inputs(rank, tokens=TOKENS):
    """Rows of one number each that differs between tokens and ranks, ids with some -1, integral weights."""
    random = torch.Generator().manual_seed(50 + rank)
    x = (torch.arange(tokens).view(-1, 1) + 16.0 * (rank + 1)).repeat(1, HIDDEN).to(torch.bfloat16)
    ids = torch.rand(tokens, EXPERTS, generator=random).topk(TOPK)[1]
    ids[torch.rand(tokens, TOPK, generator=random) < 0.2] = -1
    weights = torch.randint(1, 5, (tokens, TOPK), generator=random).float()
    return x.to(device()), ids.to(device()), weights.to(device())


def due_of(expert, tokens):
    """Rows of an expert, their source tokens, and how many come from each rank."""
    rows, sources, counts = [], [], []
    for source in range(RANKS):
        x, ids, _ = inputs(source, tokens(source))
        chosen = (ids == expert).any(dim=1)
        rows.append(x[chosen])
        sources += chosen.nonzero().flatten().tolist()
        counts.append(int(chosen.sum()))
    return torch.cat(rows), sources, counts


def finish(event, hook, hooked):
    if hooked:
        assert event.event is None
        hook()
    else:
        assert hook is None
        event.current_stream_wait()


def check_received(rank, tokens, recv, counts, handle, exact):
    for local in range(LOCAL):
        rows, sources, per_rank = due_of(rank * LOCAL + local, tokens)
        n = len(sources)
        assert counts[local].item() == n
        assert handle[0][local, :n].tolist() == sources and handle[-5].dtype == torch.int32
        assert (handle[1][local] & LOW).tolist() == per_rank
        assert (handle[1][local] >> 32).tolist() == [sum(per_rank[:r]) for r in range(RANKS)]
        if exact:
            assert torch.equal(recv[local, :n].float(), rows.float())
        else:
            assert torch.allclose(recv[local, :n], rows.float(), rtol=0.07, atol=0)


def decode(recv):
    """Codes and scales as float32."""
    codes, scales = recv
    assert codes.dtype == torch.float8_e4m3fn and scales.stride(1) == 1, scales.stride()
    if scales.dtype == torch.int32:
        assert scales.shape[2] == -(-HIDDEN // 512)
        exponents = scales.contiguous().view(torch.uint8)[..., : HIDDEN // 128]
        scales = torch.exp2(exponents.float() - 127)
    assert scales.shape[2] == HIDDEN // 128
    return (codes.float().unflatten(2, (-1, 128)) * scales.unsqueeze(3)).flatten(2)


def all_modes(rank):
    tokens = lambda source: 0 if source == 1 else TOKENS  # noqa: E731
    buffer = make()
    buffer.clean_low_latency_buffer(NUM_MAX, HIDDEN, EXPERTS)
    x, ids, weights = inputs(rank, tokens(rank))
    stats = torch.zeros(LOCAL, dtype=torch.int32, device=x.device)
    waits = torch.zeros(RANKS, dtype=torch.int64, device=x.device)
    all_waits = torch.zeros(RANKS, RANKS, dtype=torch.int64, device=x.device)
    sums_due = (x.float() * torch.where(ids >= 0, weights, 0.0).sum(dim=1, keepdim=True)).to(x.dtype)
    modes = (dict(use_fp8=False), dict(), dict(round_scale=True), dict(round_scale=True, use_ue8m0=True))
    steps = 0
    for hooked in (False, True):
        for mode in modes:
            options = dict(async_finish=not hooked, return_recv_hook=hooked)
            time.sleep(0.01 * (steps % RANKS == rank))  # each rank is late once, and the others wait for it
            received, counts, handle, event, hook = buffer.low_latency_dispatch(
                x,
                ids,
                NUM_MAX,
                EXPERTS,
                cumulative_local_expert_recv_stats=stats,
                dispatch_wait_recv_cost_stats=waits,
                **mode,
                **options,
            )
            finish(event, hook, hooked)
            steps += 1
            exact = mode == dict(use_fp8=False)
            recv = received if exact else decode(received)
            assert recv.shape == (LOCAL, RANKS * NUM_MAX, HIDDEN) and handle[2:] == (NUM_MAX, HIDDEN, EXPERTS)
            by_unpacking, *_ = handle
            assert torch.equal(by_unpacking, handle[0])
            check_received(rank, tokens, recv, counts, handle, exact)
            assert stats.tolist() == [steps * count for count in counts.tolist()]
            y = recv.to(torch.bfloat16)
            buffer.get_next_low_latency_combine_buffer(handle)[:, :, :] = y
            for zero_copy in (False, True):
                out = torch.empty_like(x)
                given = torch.full_like(y, 99) if zero_copy else y
                options.update(zero_copy=zero_copy, out=out, combine_wait_recv_cost_stats=all_waits)
                sums, event, hook = buffer.low_latency_combine(given, ids, weights, handle, **options)
                finish(event, hook, hooked)
                assert sums.data_ptr() == out.data_ptr()
                if exact:
                    assert torch.equal(sums, sums_due)
                else:
                    assert torch.allclose(sums.float(), sums_due.float(), rtol=0.09, atol=0)
    assert (waits >= 0).all() and waits.sum() > 0
    assert all_waits[rank].sum() > 0 and all_waits.sum() == all_waits[rank].sum()
    buffer.destroy()


def two_batches(rank):
    """Two micro-batches with hooks, each half of one beside the other's; and a handle that is too old."""
    buffer = make()
    x, ids, weights = inputs(rank)
    options = dict(use_fp8=False, return_recv_hook=True)
    go = lambda rows: buffer.low_latency_dispatch(rows, ids, NUM_MAX, EXPERTS, **options)  # noqa: E731
    total = torch.where(ids >= 0, weights, 0.0).sum(dim=1, keepdim=True)
    handles = []
    for _ in range(3):
        first, _, first_handle, _, first_hook = go(x)
        second, _, second_handle, _, second_hook = go(2 * x)
        first_hook()
        a, _, a_hook = buffer.low_latency_combine(first, ids, weights, first_handle, return_recv_hook=True)
        second_hook()
        b, _, b_hook = buffer.low_latency_combine(second, ids, weights, second_handle, return_recv_hook=True)
        a_hook()
        b_hook()
        assert torch.equal(a, (x.float() * total).to(x.dtype)) and torch.equal(b, (2 * x.float() * total).to(x.dtype))
        handles.append(first_handle)
    try:
        buffer.low_latency_combine(first, ids, weights, handles[0])
        raise AssertionError("the first route was still there")
    except moecomm.InvalidUsage as error:
        assert "5 later routes have come, and low_latency_in_flight is 4" in str(error), error
    buffer.destroy()


def weights_beside_the_rows(rank):
    """Combine does not send weights again that dispatch has sent, if they are the same tensors. It sends others."""
    buffer = make()
    x, ids, weights = inputs(rank)
    x -= 16.0 * (rank + 1)  # so that all sums are exact

    def go(given, hooked):
        options = dict(return_recv_hook=hooked)
        recv, _, handle, event, hook = buffer.low_latency_dispatch(
            x, ids, NUM_MAX, EXPERTS, use_fp8=False, topk_weights=given, **options
        )
        finish(event, hook, hooked)
        return recv, handle, options

    def check(recv, handle, options, ids, weights):
        sums, event, hook = buffer.low_latency_combine(recv, ids, weights, handle, **options)
        finish(event, hook, options["return_recv_hook"])
        due = torch.where(ids >= 0, weights, 0.0).sum(dim=1, keepdim=True)
        assert torch.equal(sums, (x.float() * due).to(x.dtype))

    for hooked in (False, True):
        check(*go(weights, hooked), ids, weights)
        check(*go(None, hooked), ids, 2 * weights)
        sent, fewer = go(None, hooked), ids.clone()  # entries that the experts leave out
        fewer[::2, 0] = -1
        check(*sent, fewer, weights)
        mine = ids.clone()
        ids[1::2, 1] = -1
        check(*sent, ids, weights)
        ids.copy_(mine)
        sent = go(weights, hooked)
        refuses(ValueError, "topk_weights is not that of the dispatch", check, *sent, ids, weights.clone())
        check(*go(weights, hooked), ids, weights)
        sent = go(weights, hooked)
        weights += 1
        refuses(ValueError, "topk_weights is not that of the dispatch", check, *sent, ids, weights)
        refuses(ValueError, "topk_idx is not that of the dispatch", check, *go(weights, hooked), mine, weights)
    recv, handle, options = go(weights, True)
    members = torch.distributed.group.WORLD
    torch.distributed.barrier(members)
    if rank != 0:
        time.sleep(1)
    begin = time.monotonic()
    _, _, hook = buffer.low_latency_combine(recv, ids, weights, handle, **options)
    took = time.monotonic() - begin
    assert rank != 0 or took < 0.5, f"the half before the hook has waited for the other ranks, for {took} s"
    hook()
    refuses(TypeError, "topk_weights holds torch.float64", go, weights.double(), False)
    refuses(ValueError, "topk_weights has shape (6, 2)", go, weights[:, :2].contiguous(), False)
    buffer.destroy()


def logfmt(rank):
    """Rows lose digits on their way: as many as LogFMT-10 costs, and fewer than fp8 would cost."""
    buffer = make()
    _, ids, weights = inputs(rank)
    x = torch.randn(TOKENS, HIDDEN, generator=torch.Generator().manual_seed(rank)).to(torch.bfloat16).to(device())
    due = x.float() * torch.where(ids >= 0, weights, 0.0).sum(dim=1, keepdim=True)
    for hooked in (False, True):
        recv, _, handle, event, hook = buffer.low_latency_dispatch(x, ids, NUM_MAX, EXPERTS, use_fp8=False)
        finish(event, hook, False)
        errors = []
        for use_logfmt in (False, True):
            options = dict(use_logfmt=use_logfmt, return_recv_hook=hooked)
            sums, event, hook = buffer.low_latency_combine(recv, ids, weights, handle, **options)
            finish(event, hook, hooked)
            errors.append(((sums.float() - due).norm() / due.norm()).item())
        assert errors[0] < 0.003 < errors[1] < 0.008, errors
    buffer.destroy()


def refusals(rank):
    buffer = make()
    x, ids, weights = inputs(rank)
    go = lambda *a, **k: buffer.low_latency_dispatch(*a, NUM_MAX, EXPERTS, **k)  # noqa: E731
    refuses(TypeError, "x holds torch.float32", go, x.float(), ids)
    refuses(ValueError, "topk_idx has shape (5, 3)", go, x, ids[:5])
    refuses(ValueError, "use_ue8m0 is True, but round_scale is False", go, x, ids, use_ue8m0=True)
    refuses(ValueError, "round_scale is True, but use_fp8 is False", go, x, ids, use_fp8=False, round_scale=True)
    refuses(ValueError, "x has rows of 64 elements", go, x[:, :64].contiguous(), ids)
    refuses(ValueError, "expected one of them", go, x, ids, async_finish=True, return_recv_hook=True)
    stats = torch.zeros(LOCAL, device=x.device)
    refuses(TypeError, "cumulative_local_expert_recv_stats holds", go, x, ids, cumulative_local_expert_recv_stats=stats)
    name = "dispatch_wait_recv_cost_stats"
    refuses(ValueError, f"{name} has shape (3,)", go, x, ids, **{name: ids[0]})
    refuses(ValueError, "num_experts is 7", buffer.low_latency_dispatch, x, ids, NUM_MAX, 7)
    y, _, handle, _, _ = go(x, ids, use_fp8=False)  # the ranks are still in step
    combine = buffer.low_latency_combine
    refuses(ValueError, "zero_copy is True, but get_next", combine, y, ids, weights, handle, zero_copy=True)
    refuses(ValueError, "x has shape", combine, y[:, 1:].contiguous(), ids, weights, handle)
    refuses(TypeError, "topk_weights holds", combine, y, ids, weights.double(), handle)
    refuses(TypeError, "out holds", combine, y, ids, weights, handle, out=x.float())
    refuses(TypeError, "handle is a tuple", combine, y, ids, weights, tuple(handle))
    y, _, handle, _, _ = go(x, ids, use_fp8=False)  # a refused combine ends its step
    assert combine(y, ids, weights, handle)[0].shape == x.shape
    mask = torch.ones(RANKS, dtype=torch.int32, device=x.device)
    buffer.low_latency_query_mask_buffer(mask)
    assert (mask == 0).all()
    buffer.destroy()


def one_refuses(rank):
    """All ranks hear at once that rank 1 has refused a call, and the next step is right."""
    buffer = make()
    x, ids, weights = inputs(rank)
    go = lambda x, ids: buffer.low_latency_dispatch(x, ids, NUM_MAX, EXPERTS, use_fp8=False)  # noqa: E731
    go(x, ids)
    for wrong in ((x.float(), ids), (x, ids[:5]), (x.repeat(NUM_MAX, 1), ids.repeat(NUM_MAX, 1))):
        if rank == 1:
            refuses((TypeError, ValueError), "", go, *wrong)
        elif DEVICE == "cpu":
            refuses(moecomm.MoeError, "rank 1 has refused its arguments", go, x, ids)
        else:
            go(x, ids)
        y, _, handle, _, _ = go(x, ids)
        if rank == 1:
            refuses(TypeError, "topk_weights holds", buffer.low_latency_combine, y, ids, weights.double(), handle)
        else:
            buffer.low_latency_combine(y, ids, weights, handle)
        y, _, handle, _, _ = go(x, ids)
        assert buffer.low_latency_combine(y, ids, weights, handle)[0].shape == x.shape
    refuses(ValueError, "multiple of 128 with use_logfmt", odd_width, buffer, x, ids, weights)
    buffer.destroy()


def odd_width(buffer, x, ids, weights):
    x = x[:, :64].contiguous()
    y, _, handle, _, _ = buffer.low_latency_dispatch(x, ids, NUM_MAX, EXPERTS, use_fp8=False)
    buffer.low_latency_combine(y, ids, weights, handle, use_logfmt=True)


def captured(rank):
    """A decode step in a CUDA graph, replayed with other ids."""
    buffer = make()
    x, ids, weights = inputs(rank)
    x -= 16.0 * (rank + 1)  # so that all sums are exact

    def step():
        options = dict(use_fp8=False, return_recv_hook=True)
        recv, _, handle, _, hook = buffer.low_latency_dispatch(x, ids, NUM_MAX, EXPERTS, **options)
        hook()
        sums, _, hook = buffer.low_latency_combine(recv, ids, weights, handle, return_recv_hook=True)
        hook()
        return sums

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        sums = step()
    for seed in (3, 4):
        random = torch.Generator().manual_seed(seed + 10 * rank)
        ids.copy_(torch.rand(TOKENS, EXPERTS, generator=random).topk(TOPK)[1])
        torch.cuda.synchronize()
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(sums, (x.float() * weights.sum(dim=1, keepdim=True)).to(x.dtype))
    del graph
    buffer.destroy()


class DeepEpLowLatencyTest(RanksTest):
    def test_formats_counts_statistics_and_hooks(self):
        self.run_ranks(all_modes)

    def test_two_micro_batches(self):
        self.run_ranks(two_batches)

    def test_weights_may_travel_with_the_rows(self):
        self.run_ranks(weights_beside_the_rows)

    def test_rows_may_travel_as_logfmt(self):
        self.run_ranks(logfmt)

    def test_refusals_name_argument_and_value(self):
        self.run_ranks(refusals)

    def test_what_one_rank_refuses_holds_nobody_up(self):
        self.run_ranks(one_refuses)

    @unittest.skipIf(DEVICE == "cpu", "CUDA graphs need MOECOMM_TEST_DEVICE=cuda")
    def test_a_step_in_a_graph(self):
        self.run_ranks(captured)


class ModuleTest(unittest.TestCase):
    def python(self, code):
        return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=200)

    @unittest.skipIf(torch is None, "torch is not installed")
    @unittest.skipIf(MISSING, MISSING)
    def test_install_serves_the_imports_of_engines(self):
        path = f"import sys; sys.path.insert(0, {TESTS!r}); import support\n"  # which finds the package
        code = """
import moecomm.deep_ep
moecomm.deep_ep.install(); moecomm.deep_ep.install()
import deep_ep
from deep_ep import Buffer, Config, topk_idx_t
from deep_ep.buffer import Buffer as same
from deep_ep.utils import EventHandle, EventOverlap
from deep_ep_cpp import Config as also
assert same is Buffer is moecomm.deep_ep.Buffer and also is Config and deep_ep.utils.EventOverlap is EventOverlap
config = Buffer.get_dispatch_config(8)
assert config.num_sms == 20 and config.get_nvl_buffer_size_hint(14336, 8) > 1 << 20
assert config.get_rdma_buffer_size_hint(14336, 8) == 0
Buffer.set_num_sms(24)
assert Buffer.get_combine_config(8).num_sms == 24
try:
    Buffer.set_num_sms(3)
    raise AssertionError
except ValueError as error:
    assert "new_num_sms is 3" in str(error)
with Buffer.capture() as event:
    called = []
    event.register_hook_after_wait(lambda: called.append(1))
assert called == [1]
"""
        done = self.python(path + code)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        other = "import types; sys.modules['deep_ep'] = types.ModuleType('deep_ep')\n" + code
        done = self.python(path + other)
        self.assertIn("deep_ep has been imported from None: call install() first", done.stderr)

    @unittest.skipIf(torch is None, "torch is not installed")
    @unittest.skipIf(MISSING, MISSING)
    def test_a_folder_on_pythonpath_serves_them_too(self):
        package = pathlib.Path(moecomm.__file__).parent
        code = f"""
import sys; sys.path[:0] = [{str(package / "deep_ep/shim")!r}, {str(package.parent)!r}]
import importlib.util
assert importlib.util.find_spec("deep_ep") is not None
from deep_ep.utils import EventOverlap
import deep_ep, moecomm.deep_ep
assert deep_ep is moecomm.deep_ep and deep_ep.EventOverlap is EventOverlap
assert importlib.util.find_spec("deep_ep") and importlib.util.find_spec("deep_ep_cpp")
"""
        done = self.python(code)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_moecomm_alone_imports_no_torch(self):
        code = "import support, moecomm, moecomm.ring; assert 'torch' not in sys.modules"
        done = self.python(f"import sys; sys.path.insert(0, {TESTS!r}); {code}")
        self.assertEqual((done.returncode, done.stderr), (0, ""))


if __name__ == "__main__":
    unittest.main()
