"""moecomm.torch on 4 ranks: bits and gradients against plain torch, traced operators, refusals. Needs torch."""

import gc
import unittest

from support_ranks import DEVICE, RANKS, TIMEOUT_MS, RanksTest, device, hears, refuses, torch

if torch is not None:
    import moecomm
    import moecomm.torch

TOKENS, HIDDEN, EXPERTS, TOPK = 6, 32, 8, 3
LAYOUTS = ("flat", "rank-major", "expert-major", "expert-major-padded")
SETTINGS = dict(tokens_max=16, ll_tokens_max=16, row_bytes_max=512, side_bytes_max=64, timeout_ms=TIMEOUT_MS)


def join(**settings):
    return moecomm.torch.communicator(device=device(), **{**SETTINGS, **settings})


def inputs(rank, tokens=TOKENS, dtype=None):
    """Rows, ids with some -1, and weights of a rank. Every rank can make those of the others."""
    random = torch.Generator().manual_seed(100 + rank)
    rows = torch.randn(tokens, HIDDEN, generator=random).to(dtype or torch.float32)
    ids = torch.rand(tokens, EXPERTS, generator=random).topk(TOPK)[1]
    ids[torch.rand(tokens, TOPK, generator=random) < 0.2] = -1
    weights = torch.rand(tokens, TOPK, generator=random)
    return rows.to(device()), ids.to(device()), weights.to(device())


def scale_of(experts):
    """The factor by which expert number `experts` multiplies its rows; 0 for -1."""
    return torch.where(experts >= 0, experts + 1.0, 0.0)


def expert_rows(comm, moe, got):
    """Stands for the experts: each row times the sum of factors of its experts, with its weights in flat layouts."""
    local = got.topk_idx.long()
    experts = torch.where(local >= 0, local + comm.rank * moe.local_experts, -1)
    factors = scale_of(experts)
    if not moe.by_expert:
        factors = (factors * got.topk_weights).sum(dim=1)
    return got.rows * factors.unsqueeze(1).to(got.rows.dtype)


def expected_rows(rank, layout, tokens):
    """Rows and weights that arrive at a rank in the layouts without gaps, by plain torch."""
    local = EXPERTS // RANKS
    sent = [inputs(source, tokens(source)) for source in range(RANKS)]
    groups = [range(rank * local, (rank + 1) * local)]
    if layout == "expert-major":
        groups = [(expert,) for expert in groups[0]]
    rows, weights = [], []
    for group in groups:
        for source_rows, ids, source_weights in sent:
            here = torch.stack([ids == expert for expert in group]).any(dim=0)
            chosen = here.any(dim=1)
            rows.append(source_rows[chosen])
            mine = torch.where(here, source_weights, 0.0)[chosen]
            weights.append(mine.sum(dim=1) if layout == "expert-major" else mine)
    return torch.cat(rows), torch.cat(weights)


def arrival(rank):
    with join() as comm:
        for layout in ("flat", "expert-major"):
            for mode in ("ht", "ll"):
                for fixed in (None, "worst"):
                    tokens = lambda source: 0 if source == 2 else TOKENS + source % 2  # noqa: E731
                    moe = moecomm.torch.Dispatcher(comm, EXPERTS, TOPK, layout=layout, mode=mode, out_rows_max=fixed)
                    rows, ids, weights = inputs(rank, tokens(rank))
                    got = moe.dispatch(rows, ids, weights)
                    moe.check(got)
                    due_rows, due_weights = expected_rows(rank, layout, tokens)
                    n = due_rows.shape[0]
                    assert got.rows.shape[0] == (moe.capacity or n)
                    assert torch.equal(got.rows[:n], due_rows) and torch.equal(got.topk_weights[:n], due_weights)
                    assert (got.rows[n:] == 0).all() and (got.topk_idx[n:] == -1).all()
                    assert (got.topk_weights[n:] == 0).all()
                    assert got.rows_per_expert.sum() == (got.topk_idx >= 0).sum()
                    again = moe.redispatch(2 * rows, got)
                    assert torch.equal(again, 2 * got.rows)
                    moe.destroy()


def gradients(rank, layout, mode, fixed, dtype):
    """Sums and gradients of rows and weights against plain torch; integers, so that every order has the same bits."""
    tokens = 0 if rank == 1 else TOKENS
    rows, ids, weights = inputs(rank, tokens)
    rows, weights = (rows * 4).round().to(dtype), (weights * 4).round()
    up = (torch.randn(tokens, HIDDEN, device=rows.device) * 2).round().to(dtype)
    bias = torch.ones_like(rows)
    rows.requires_grad_(), weights.requires_grad_(), bias.requires_grad_()
    with join() as comm:
        moe = moecomm.torch.Dispatcher(comm, EXPERTS, TOPK, layout=layout, mode=mode, out_rows_max=fixed)
        got = moe.dispatch(rows, ids, weights)
        applied = "apply" if moe.by_expert else "applied"
        sums = moe.combine(expert_rows(comm, moe, got), got, weights=applied, bias=bias)
        (sums * up).sum().backward()
        found = sums.detach(), rows.grad, weights.grad, bias.grad
        plain, plain_weights = rows.detach().float().requires_grad_(), weights.detach().requires_grad_()
        due = plain * (scale_of(ids) * plain_weights).sum(dim=1, keepdim=True)
        (due * up.float()).sum().backward()
        wanted = (due + 1).detach(), plain.grad, torch.where(ids >= 0, plain_weights.grad, 0.0), up
        for name, one, other in zip(("sums", "rows", "weights", "bias"), found, wanted):
            assert one is not None, name
            assert torch.equal(one.float(), other.float()), (name, layout, mode, fixed, one, other)


def all_gradients(rank):
    for layout in LAYOUTS:
        for mode in ("ht", "ll"):
            gradients(rank, layout, mode, None, torch.float32)
    gradients(rank, "expert-major", "ht", "worst", torch.float32)


def numeric_gradients(rank):
    """Differences of a loss over all ranks against the gradients, for weights and rows that are no integers."""
    rows, ids, weights = inputs(rank)
    with join() as comm:
        moe = moecomm.torch.Dispatcher(comm, EXPERTS, TOPK, layout="flat", in_flight=2)

        def loss(rows, weights):
            got = moe.dispatch(rows, ids, weights)
            local = torch.where(got.topk_idx >= 0, got.topk_idx + 1.0, 0.0)
            gates = (local * got.topk_weights**2).sum(dim=1, keepdim=True)
            return moe.combine(torch.tanh(got.rows) * gates, got).square().sum()

        rows.requires_grad_(), weights.requires_grad_()
        loss(rows, weights).backward()
        with torch.no_grad():
            for tensor, grad in ((rows, rows.grad), (weights, weights.grad)):
                step = torch.randn_like(tensor)
                step /= step.norm()
                least = 1e-2
                up = loss(*(t + least * step if t is tensor else t for t in (rows, weights)))
                down = loss(*(t - least * step if t is tensor else t for t in (rows, weights)))
                measured, due = ((up - down) / (2 * least)).item(), (grad * step).sum().item()
                assert abs(measured - due) < 0.02 * max(1.0, abs(due)), (measured, due)


def nothing_anywhere(rank):
    with join() as comm:
        for layout in LAYOUTS:
            moe = moecomm.torch.Dispatcher(comm, EXPERTS, TOPK, layout=layout)
            rows, ids, weights = inputs(rank)
            rows.requires_grad_(), weights.requires_grad_()
            got = moe.dispatch(rows, torch.full_like(ids, -1), weights)
            assert (got.rows_per_expert == 0).all() and (got.topk_idx == -1).all()
            moe.combine(got.rows, got).sum().backward()
            assert (rows.grad == 0).all() and (weights.grad == 0).all()


def traced(rank):
    rows, ids, weights = inputs(rank)
    with join() as comm:
        fixed = [("flat", "worst"), ("expert-major", "worst"), ("rank-major", None), ("expert-major-padded", None)]
        for layout, out_rows_max in (*fixed, ("expert-major", None)):  # the last one has as many rows as come
            moe = moecomm.torch.Dispatcher(comm, EXPERTS, TOPK, layout=layout, out_rows_max=out_rows_max)
            applied = "apply" if moe.by_expert else "applied"

            def layer(rows, weights):
                got = moe.dispatch(rows, ids, weights)  # noqa: B023
                return moe.combine(torch.tanh(got.rows), got, weights=applied)  # noqa: B023

            def run(function):
                a, b = rows.clone().requires_grad_(), weights.clone().requires_grad_()
                sums = function(a, b)
                sums.square().sum().backward()
                return sums.detach(), a.grad, b.grad

            plain = run(layer)
            for backend in ("eager", "aot_eager"):
                torch._dynamo.reset()
                for one, other in zip(plain, run(torch.compile(layer, fullgraph=True, backend=backend))):
                    assert torch.equal(one, other), (layout, backend)


def traced_with_symbols(rank):
    """Sizes, and the numbers that stand for Dispatchers, are symbols: with dynamic=True, and by themselves once a
    compiled function meets a second Dispatcher. A third one then needs no new graph."""
    with join() as comm:
        for layout, out_rows_max, dynamic in (("flat", "worst", True), ("expert-major", None, None)):
            options = dict(layout=layout, out_rows_max=out_rows_max)
            layers = [moecomm.torch.Dispatcher(comm, EXPERTS, TOPK, **options) for _ in range(3)]
            applied = "apply" if layers[0].by_expert else "applied"
            graphs = []

            def layer(moe, rows, ids, weights):
                got = moe.dispatch(rows, ids, weights)
                again = moe.redispatch(rows, got)
                return moe.combine(torch.tanh(got.rows) + again, got, weights=applied)  # noqa: B023

            def run(function, moe, tokens):
                rows, ids, weights = inputs(rank, tokens)
                rows.requires_grad_(), weights.requires_grad_()
                sums = function(moe, rows, ids, weights)
                sums.square().sum().backward()
                return sums.detach(), rows.grad, weights.grad

            def backend(graph, examples):
                graphs.append(graph)  # noqa: B023
                return torch._dynamo.lookup_backend("aot_eager")(graph, examples)

            torch._dynamo.reset()
            compiled = torch.compile(layer, fullgraph=True, backend=backend, dynamic=dynamic)
            before = 0
            for moe in layers:
                for tokens in (TOKENS, TOKENS + 1):
                    due, found = run(layer, moe, tokens), run(compiled, moe, tokens)
                    assert all(map(torch.equal, found, due)), (layout, dynamic, tokens)
                assert moe is not layers[2] or len(graphs) == before, (layout, dynamic, before, len(graphs))
                before = len(graphs)


def operators(rank):
    """torch's own checks of schema, fake implementation and gradient registration."""
    rows, ids, weights = inputs(rank)
    tests = ("test_schema", "test_autograd_registration", "test_faketensor")
    with join() as comm:
        moe = moecomm.torch.Dispatcher(comm, EXPERTS, TOPK, layout="expert-major", out_rows_max="worst")
        side = torch.zeros(TOKENS, 4, device=rows.device)
        ops = torch.ops.moecomm
        args = (rows, ids, weights, side, "", moe.key, moe.capacity, True, moe.local_experts)
        torch.library.opcheck(ops.dispatch, args, test_utils=tests)
        got = moe.dispatch(rows, ids, weights)
        torch.library.opcheck(ops.redispatch, (rows, got.ticket, moe.key, moe.capacity), test_utils=tests)
        args = (got.rows, got.topk_weights, rows, got.ticket, moe.key, TOKENS)
        torch.library.opcheck(ops.combine, args, test_utils=tests)
        args = (got.rows, got.topk_weights, got.ticket, moe.key, TOKENS, TOPK)
        torch.library.opcheck(ops.combine_grads, args, test_utils=tests)


def in_flight(rank):
    """Five microbatches before the first backward; the backward passes go in another order. A sixth dispatch ends the
    first route."""
    with join() as comm:
        moe = moecomm.torch.Dispatcher(comm, EXPERTS, TOPK, in_flight=5)
        batches = []
        for number in range(5):
            rows, ids, weights = inputs(rank + 10 * number)
            rows.requires_grad_()
            got = moe.dispatch(rows, ids, weights)
            batches.append((rows, ids, got, moe.combine(3 * got.rows, got)))
        if rank % 2:
            gc.collect()  # the handles must not depend on it
        for number in (3, 0, 4, 1, 2):
            rows, ids, _, sums = batches[number]
            ranks = torch.stack([(ids // (EXPERTS // RANKS) == other).any(dim=1) for other in range(RANKS)]).sum(dim=0)
            assert torch.allclose(sums, 3 * ranks.unsqueeze(1) * rows)
            sums.sum().backward()
            assert torch.equal(rows.grad, (3.0 * ranks).unsqueeze(1).expand_as(rows))
        many = moecomm.torch.Dispatcher(comm, EXPERTS, TOPK, in_flight=10)
        kept = []
        for _ in range(23):  # twice around, and handles that are made late
            rows, ids, weights = inputs(rank)
            kept.append((rows, many.dispatch(rows, ids, weights)))
            assert len(many.ring.handles) == min(10, max(8, len(kept)))
        for rows, got in kept[-10:]:
            assert torch.equal(many.combine(got.rows, got), many.combine(kept[-1][1].rows, kept[-1][1]))
        moe.dispatch(*inputs(rank))
        try:
            moe.combine(batches[0][2].rows, batches[0][2])
            raise AssertionError("the first route was still there")
        except moecomm.InvalidUsage as error:
            assert "5 later routes have come, and in_flight is 5" in str(error), error


def dropped(rank):
    """The backward pass is the last user of a Dispatcher."""
    with join() as comm:
        moe = moecomm.torch.Dispatcher(comm, EXPERTS, TOPK)
        rows, ids, weights = inputs(rank)
        rows.requires_grad_()
        got = moe.dispatch(rows, ids, weights)
        again = moe.redispatch(rows, got)
        loss = moe.combine(got.rows, got).sum() + again.sum()
        del moe
        gc.collect()
        loss.backward()
        ranks = torch.stack([(ids // (EXPERTS // RANKS) == other).any(dim=1) for other in range(RANKS)]).sum(dim=0)
        assert torch.equal(rows.grad, (2.0 * ranks).unsqueeze(1).expand_as(rows))


def splits(rank):
    """The rows of each expert are those that plain torch sends it, and gradients flow through the views."""
    rows, ids, weights = inputs(rank)
    ids[ids == 5] = -1  # an expert without rows
    sent = [inputs(source)[:2] for source in range(RANKS)]
    with join() as comm:
        for layout in ("expert-major", "expert-major-padded"):
            for options in (dict(mode="ht"), dict(mode="ll"), dict(expert_alignment=8)):
                if layout == "expert-major-padded" and "mode" not in options:
                    continue
                rows.grad = None
                rows.requires_grad_()
                moe = moecomm.torch.Dispatcher(comm, EXPERTS, TOPK, layout=layout, **options)
                got = moe.dispatch(rows, ids, weights)
                parts = got.split()
                assert len(parts) == moe.local_experts
                for local, part in enumerate(parts):
                    expert = rank * moe.local_experts + local
                    due = [other[(named == expert).any(dim=1)] for other, named in sent if expert != 5]
                    assert torch.equal(part, torch.cat(due) if due else got.rows[:0]), (layout, options, expert)
                    assert part._base is got.rows or part._base is got.rows._base or not part.numel()
                results = [part * (rank * moe.local_experts + local + 1) for local, part in enumerate(parts)]
                sum(result.sum() for result in results).backward()
                due = scale_of(ids).sum(dim=1, keepdim=True).expand_as(rows)
                assert torch.equal(rows.grad, due), (layout, options)
                rows.requires_grad_(False)
                made = torch.zeros_like(got.rows)
                for result, out in zip(results, got._replace(rows=made).split()):
                    out.copy_(result.detach())
                if layout == "expert-major" and "expert_alignment" not in options:
                    assert torch.equal(made, torch.cat(results))
                sums = moe.combine(made, got)
                assert torch.allclose(sums, rows * due), (layout, options)
                none = moe.dispatch(rows, torch.full_like(ids, -1), weights)
                assert [tuple(part.shape) for part in none.split()] == [(0, HIDDEN)] * moe.local_experts
                moe.destroy()
        moe = moecomm.torch.Dispatcher(comm, EXPERTS, TOPK, layout="rank-major")
        refuses(ValueError, "expected expert-major or expert-major-padded", moe.dispatch(rows, ids, weights).split)
        small = moecomm.torch.Dispatcher(comm, EXPERTS, TOPK, layout="expert-major", out_rows_max=1, on_fault="status")
        lost = small.dispatch(rows, ids, weights)
        assert not lost.rows_per_expert.any()  # so a grouped GEMM reads no row that was not delivered
        assert [tuple(part.shape) for part in lost.split()] == [(0, HIDDEN)] * small.local_experts


def casts_and_side(rank):
    rows, ids, weights = inputs(rank)
    rows = rows.repeat(1, 4).to(torch.bfloat16)  # 128 elements
    with join() as comm:
        moe = moecomm.torch.Dispatcher(comm, EXPERTS, TOPK, layout="expert-major", mode="ll")
        got = moe.dispatch(rows, ids, weights)
        cast = moe.dispatch(rows, ids, weights, cast="fp8")
        assert cast.rows.dtype == torch.float8_e4m3fn and cast.side.shape == (cast.rows.shape[0], 1)
        assert torch.allclose(cast.rows.float() * cast.side, got.rows.float(), rtol=0.07, atol=0.02)
        side = torch.arange(TOKENS, device=rows.device, dtype=torch.int32).unsqueeze(1).repeat(1, 4) + 100 * rank
        both = moe.dispatch(rows[:, :64].contiguous().view(torch.uint8), ids, weights, side=side)
        assert torch.equal(both.rows.view(torch.bfloat16), got.rows[:, :64])
        handle = moe.handle_of(both)
        sources = torch.empty(both.rows.shape[0], dtype=torch.int32, device=rows.device)
        described = moecomm.Describe(out_source_index=sources)
        handle.dispatch(rows, torch.empty_like(got.rows), describe=described, stream=moe.stream())
        token = 100 * (sources // moe.tokens_max) + sources % moe.tokens_max
        assert torch.equal(both.side, token.unsqueeze(1).repeat(1, 4).to(torch.int32))


def windows(rank):
    with join(heap_bytes=1 << 20) as comm:
        window = moecomm.torch.window_tensor(comm, (RANKS * 16, HIDDEN), torch.bfloat16)
        rows, ids, _ = inputs(rank, dtype=torch.bfloat16)
        moe = moecomm.torch.Dispatcher(comm, EXPERTS, TOPK)
        got = moe.dispatch(rows, ids)
        n = got.rows.shape[0]
        moe.handle_of(got).dispatch(rows, window.tensor, stream=moe.stream())
        assert window.tensor.device == device() and torch.equal(window.tensor[:n], got.rows)
        window.free()
        window.free()
        try:
            moecomm.torch.window_tensor(comm, (1 << 20,), torch.float32)
            raise AssertionError("the heap has no such block")
        except moecomm.InvalidArgument as error:
            assert "4194304" in str(error), error


def refusals(rank):
    rows, ids, weights = inputs(rank)
    with join() as comm:
        moe = moecomm.torch.Dispatcher(comm, EXPERTS, TOPK)
        refuses(TypeError, "topk_idx holds int32, expected int64", moe.dispatch, rows, ids.int(), weights)
        refuses(TypeError, "topk_weights holds float64", moe.dispatch, rows, ids, weights.double())
        refuses(ValueError, "rows is not contiguous", moe.dispatch, rows.repeat(1, 2)[:, ::2], ids)
        refuses(ValueError, "topk_idx has shape", moe.dispatch, rows, ids[:, :2].contiguous())
        refuses(ValueError, "rows has shape (5, 32)", moe.dispatch, rows[:5], ids)
        refuses(ValueError, "rows has shape (32,), expected [tokens, hidden]", moe.dispatch, rows[0], ids)
        refuses(TypeError, "rows is a list", moe.dispatch, [1], ids)
        refuses(ValueError, "cast is 'fp4'", moe.dispatch, rows, ids, cast="fp4")
        refuses(ValueError, "did you mean 'mxfp8'?", moe.dispatch, rows, ids, cast="mx-fp8")
        refuses(ValueError, "side is given, and so is cast", moe.dispatch, rows, ids, side=rows, cast="fp8")
        got = moe.dispatch(rows, ids, weights)  # the refused calls have left the ranks in step
        refuses(ValueError, "rows has shape", moe.combine, got.rows[:-1], got)
        refuses(TypeError, "expected bfloat16, float16 or float32", moe.combine, got.rows.double(), got)
        refuses(NotImplementedError, "only layouts with a row per expert", moe.combine, got.rows, got, weights="apply")
        refuses(ValueError, "weights is 'yes'", moe.combine, got.rows, got, weights="yes")
        got = moe.dispatch(rows, ids, weights)  # a refused call ends its step
        assert moe.combine(got.rows, got).shape == rows.shape
        make = moecomm.torch.Dispatcher
        described = f"<Dispatcher layout flat, mode {moe.mode}, experts {EXPERTS}, topk {TOPK}, tokens_max {moe.tokens_max}"
        assert repr(moe) == described + ">", moe
        assert repr(make.__new__(make)) == "<Dispatcher that has not been made>"
        refuses(ValueError, "index_type is 'int16'", make, comm, EXPERTS, TOPK, index_type="int16")
        refuses(TypeError, "Dispatcher() has no keyword 'inflight'; did you mean 'in_flight'?", make, comm, EXPERTS, TOPK, inflight=2)
        refuses(TypeError, "did you mean 'tokens_max'?", make, comm, EXPERTS, TOPK, token_max=2)
        refuses(ValueError, "did you mean 'expert-major'?", make, comm, EXPERTS, TOPK, layout="expert_major")
        refuses(ValueError, "fixed rows", make, comm, EXPERTS, TOPK, layout="rank-major", out_rows_max=5)
        refuses(ValueError, "out_rows_max is 'all', expected 'worst', an integer or None", make, comm, EXPERTS, TOPK, out_rows_max="all")
        small = make(comm, EXPERTS, TOPK, out_rows_max=1)
        wrong = ids.clone()
        wrong[0, 0] = EXPERTS if rank == 3 else wrong[0, 0]
        refuses(moecomm.InvalidArgument, "rank 3", moe.dispatch, rows, wrong, weights)  # on all ranks
        again = moe.dispatch(rows, ids, weights)
        assert torch.equal(again.rows, got.rows)
        if DEVICE == "cpu":
            refuses(moecomm.InvalidArgument, "holds 1 rows but", small.dispatch, rows, ids, weights)
            small = make(comm, EXPERTS, TOPK, out_rows_max=1, on_fault="status")
        lost = small.dispatch(rows, ids, weights)
        refuses(moecomm.InvalidArgument, "holds 1 rows but", small.check, lost)
        moe.destroy()
        assert repr(moe) == described + ", destroyed>", moe
    refuses(TypeError, "group is a str", moecomm.torch.communicator, "world")
    refuses(TypeError, "backend is given", moecomm.torch.communicator, backend="host")
    refuses(ValueError, "device is meta", moecomm.torch.communicator, device="meta")


def known_kinds(rank):
    """All batch sizes use the same two structs, and tensors of other kinds are refused after them as before them."""
    with join() as comm:
        moe = moecomm.torch.Dispatcher(comm, EXPERTS, TOPK, layout="expert-major", out_rows_max="worst")
        rows, ids, weights = inputs(rank)
        for tokens in (TOKENS, TOKENS - 1, 0, TOKENS):
            got = moe.dispatch(rows[:tokens], ids[:tokens], weights[:tokens])
            sums = moe.combine(got.rows, got, weights="apply")
        kept = moe.ring.own_calls
        assert len(kept) == 2, list(kept)
        refuses(TypeError, "topk_weights holds float64", moe.dispatch, rows, ids, weights.double())
        refuses(ValueError, "topk_weights has shape", moe.dispatch, rows, ids, weights[1:])
        refuses(ValueError, "topk_idx has shape", moe.dispatch, rows, ids[:, :2].contiguous(), weights)
        refuses(ValueError, "rows is not contiguous", moe.dispatch, rows.repeat(1, 2)[:, ::2], ids, weights)
        got = moe.dispatch(rows, ids, weights)
        refuses(ValueError, "rows has shape", moe.combine, got.rows[:1], got, weights="apply")
        got = moe.dispatch(rows, ids, weights)
        refuses(ValueError, "bias0 has shape", moe.combine, got.rows, got, bias=rows[1:])
        got = moe.dispatch(rows, ids, weights)
        assert torch.equal(moe.combine(got.rows, got, weights="apply"), sums) and len(kept) == 2, list(kept)


def one_refuses(rank):
    """All ranks hear at once that rank 1 has refused a call, and their rings stay in step."""
    rows, ids, weights = inputs(rank)

    def one(call, wrong, right):
        """The arguments of one rank are wrong."""
        if rank == 1:
            refuses((TypeError, ValueError), "", call, *wrong)
        else:
            hears("rank 1 has refused its arguments", call, *right)

    with join(timeout_ms=60000) as comm:
        for options in (dict(), dict(out_rows_max="worst"), dict(mode="ht", layout="expert-major"), dict(mode="ht")):
            moe = moecomm.torch.Dispatcher(comm, EXPERTS, TOPK, in_flight=2, **options)
            expected = moe.dispatch(rows, ids, weights).rows
            for wrong in ((rows.tolist(), ids), (rows[:5], ids), (rows, ids.int()), (rows, ids, weights.double())):
                one(moe.dispatch, wrong, (rows, ids, weights))
                assert torch.equal(moe.dispatch(rows, ids, weights).rows, expected)
            if moe.mode == "ht":
                for wrong in (expected.double(), expected[:1]):
                    got = moe.dispatch(rows, ids, weights)
                    one(moe.combine, (wrong, got), (got.rows, got))
            got = moe.dispatch(rows, ids, weights)
            one(moe.redispatch, (rows[0], got), (rows, got))
            got = moe.dispatch(rows, ids, weights)
            assert torch.equal(got.rows, expected)
            moe.combine(got.rows, got)


def counts_tell(rank):
    """Counts raise the fault of a route if no call has raised it, as on GPUs. The step then ends."""
    from moecomm.handle_refusals import took_part
    from moecomm.torch.memory import counts_of

    rows, ids, weights = inputs(rank)
    with join() as comm, comm.handle(EXPERTS, TOPK, mode="ht", index_type="int64", on_fault="status") as handle:
        stream = None if DEVICE == "cpu" else torch.cuda.current_stream()
        try:
            handle.route(ids.float() if rank == 1 else ids, weights, stream=stream)
            counts_of(handle, stream)
        except (TypeError, moecomm.MoeError) as error:
            assert took_part(error), error
        else:
            raise AssertionError("nothing was raised")
        handle.route(ids, weights, stream=stream)
        assert counts_of(handle, stream).rows > 0


class TorchTest(RanksTest):
    def test_counts_tell_what_was_wrong_with_a_route(self):
        self.run_ranks(counts_tell)

    def test_rows_and_weights_arrive_as_in_plain_torch(self):
        self.run_ranks(arrival)

    def test_sums_and_gradients_have_the_bits_of_plain_torch(self):
        self.run_ranks(all_gradients)

    def test_gradients_are_those_of_differences(self):
        self.run_ranks(numeric_gradients)

    def test_no_expert_anywhere(self):
        self.run_ranks(nothing_anywhere)

    def test_compiled_layers_do_the_same(self):
        self.run_ranks(traced)

    def test_compiled_layers_take_symbols_for_sizes_and_dispatchers(self):
        self.run_ranks(traced_with_symbols)

    def test_operators_pass_torch_s_checks(self):
        self.run_ranks(operators)

    def test_five_microbatches_in_flight(self):
        self.run_ranks(in_flight)

    def test_the_backward_pass_keeps_its_dispatcher(self):
        self.run_ranks(dropped)

    def test_casts_and_side_payloads(self):
        self.run_ranks(casts_and_side)

    def test_splits(self):
        self.run_ranks(splits)

    def test_window_tensors(self):
        self.run_ranks(windows)

    def test_batches_share_structs(self):
        self.run_ranks(known_kinds)

    def test_refusals_name_argument_and_value(self):
        self.run_ranks(refusals)

    def test_what_one_rank_refuses_holds_nobody_up(self):
        self.run_ranks(one_refuses)


if __name__ == "__main__":
    unittest.main()
