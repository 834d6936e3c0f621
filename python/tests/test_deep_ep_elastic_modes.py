"""moecomm.deep_ep.ElasticBuffer on 4 ranks and on 2: small batches, in low-latency mode, get the bits of high-throughput
mode. Needs torch."""

import unittest

from support_ranks import RANKS, TIMEOUT_MS, DEVICE, RanksTest, device, refuses, torch

if torch is not None:
    import moecomm
    import moecomm.deep_ep as deep_ep
    from moecomm.deep_ep import elastic

EXPERTS, TOPK, HIDDEN, NUM_MAX, ALIGNMENT = 16, 4, 128, 16, 4


def make(group, domain_size=0):
    settings = dict(timeout_ms=TIMEOUT_MS, tokens_max=64, in_flight=4, domain_size=domain_size)
    deep_ep.configure(device=torch.device(DEVICE).type, **settings)
    return deep_ep.ElasticBuffer(group, num_max_tokens_per_rank=NUM_MAX, explicitly_destroy=True)


def batch(rank, number):
    """Rows, ids and weights. Some ids are -1 or repeated, and one rank has no tokens."""
    random = torch.Generator().manual_seed(100 * number + rank)
    tokens = 0 if (rank + number) % 4 == 3 else NUM_MAX - rank
    x = torch.randn(tokens, HIDDEN, generator=random).to(torch.bfloat16)
    ids = torch.randint(0, EXPERTS, (tokens, TOPK), generator=random)
    ids[torch.rand(tokens, TOPK, generator=random) < 0.2] = -1
    weights = torch.rand(tokens, TOPK, generator=random)
    return x.to(device()), ids.to(device()), weights.to(device())


def results(rank, group, most, do_expand, synced, scaled, domain_size=0):
    """All that the calls of two steps return, with `most` as the limit of low-latency mode."""
    before, elastic.LOW_LATENCY_TOKENS = elastic.LOW_LATENCY_TOKENS, most
    try:
        buffer, found = make(group, domain_size), []
        stats = torch.zeros(EXPERTS // buffer.num_ranks, dtype=torch.int32, device=device())
        options = dict(num_experts=EXPERTS, expert_alignment=ALIGNMENT, do_expand=do_expand, do_cpu_sync=synced)
        options.update(cumulative_local_expert_recv_stats=stats, use_tma_aligned_col_major_sf=scaled)
        for number in range(3):
            x, ids, weights = batch(rank, number)
            if domain_size:  # so small that sums need no rounding; across domains there is more rounding
                x = x.round().clamp(-3, 3)
            if number == 2:
                weights = None
            given = (x, x[:, :7].float()) if scaled else x
            recv, recv_ids, recv_weights, handle, _ = buffer.dispatch(given, ids, weights, do_zero_padding=True, **options)
            assert handle.route.handle().mode == ("ll" if most else "ht")
            rows, scales = recv if scaled else (recv, None)
            again, again_ids, *_ = buffer.dispatch(x.float(), handle=handle, do_zero_padding=True)
            n = handle.num_unaligned_recv_tokens_per_expert.sum().item() if do_expand else int((recv_ids >= 0).any(1).sum())
            made = (rows.float() * (torch.arange(rows.shape[0], device=device()) % 7 + 1)[:, None]).to(rows.dtype)
            made[(rows == 0).all(dim=1)] = 0
            sums, back, _ = buffer.combine(made, handle, recv_weights, bias=(x, 2 * x))
            grads, *_ = buffer.combine(made.float(), handle)
            numbers = [handle.num_recv_tokens, handle.num_expanded_tokens, n, *handle.num_recv_tokens_per_expert_list]
            found += [rows, scales, recv_ids, recv_weights, again, again_ids, sums, back, grads, torch.tensor(numbers)]
            found += [handle.psum_num_recv_tokens_per_expert, handle.num_unaligned_recv_tokens_per_expert]
            place = handle.recv_src_metadata.clone()
            place[(rows == 0).all(dim=1)] = 0
            found.append(place)
            if scaled:
                assert scales.stride() == (1, -(-rows.shape[0] // 4) * 4) and scales.data_ptr() % 16 == 0
                assert torch.equal(scales, rows[:, :7].float())
        found.append(stats)
        assert len(buffer.routes._groups) == 1
        buffer.destroy()
        return found
    finally:
        elastic.LOW_LATENCY_TOKENS = before


def alike(rank, size):
    groups = [torch.distributed.new_group(list(range(first, first + size))) for first in range(0, RANKS, size)]
    group = groups[rank // size]
    for do_expand in (False, True):
        for synced in (True, False):
            for scaled in (False, True):
                one, other = (results(rank, group, most, do_expand, synced, scaled) for most in (0, 128))
                for number, (due, got) in enumerate(zip(one, other)):
                    assert (due is None) == (got is None), (number, do_expand, synced, scaled)
                    if due is not None:
                        assert due.dtype == got.dtype and torch.equal(due, got), (number, do_expand, synced, scaled)


def domains(rank):
    group = torch.distributed.group.WORLD
    for do_expand in (False, True):
        one, other = (results(rank, group, most, do_expand, do_expand, True, 2) for most in (0, 128))
        for number, (due, got) in enumerate(zip(one, other)):
            assert due is got is None or torch.equal(due, got), (number, do_expand)
    make(group).destroy()


if torch is not None:

    class Dispatch(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, ids, weights, buffer, options):
            rows, _, sent, ctx.handle, _ = buffer.dispatch(x, ids, weights, num_experts=EXPERTS, **options)
            ctx.buffer = buffer
            return rows, sent, ctx.handle

        @staticmethod
        def backward(ctx, rows, weights, _):
            rows, weights, _ = ctx.buffer.combine(rows.contiguous(), ctx.handle, weights.contiguous())
            return rows, None, weights, None, None

    class Combine(torch.autograd.Function):
        @staticmethod
        def forward(ctx, rows, buffer, handle):
            ctx.buffer, ctx.handle = buffer, handle
            return buffer.combine(rows, handle)[0]

        @staticmethod
        def backward(ctx, sums):
            return ctx.buffer.dispatch(sums.contiguous(), handle=ctx.handle)[0], None, None


def gradients(rank):
    """Six microbatches before the first backward pass, more than in_flight, in both modes."""
    for do_expand in (False, True):
        found = []
        for most in (0, 128):
            before, elastic.LOW_LATENCY_TOKENS = elastic.LOW_LATENCY_TOKENS, most
            buffer, batches = make(torch.distributed.group.WORLD), []
            for number in range(6):
                x, ids, weights = batch(rank, number)
                x.requires_grad_(), weights.requires_grad_()
                rows, sent, handle = Dispatch.apply(x, ids, weights, buffer, dict(do_expand=do_expand))
                scale = sent if do_expand else sent.sum(dim=1)
                batches.append((x, weights, Combine.apply(rows * scale[:, None].to(rows.dtype), buffer, handle)))
            for x, weights, sums in batches:
                (sums.float() ** 2).sum().backward()
                found.append((sums.detach(), x.grad, weights.grad))
            buffer.destroy()
            elastic.LOW_LATENCY_TOKENS = before
        for due, got in zip(found[:6], found[6:]):
            assert all(torch.equal(one, other) for one, other in zip(due, got))


def refused(rank):
    """A refusal of one rank costs the others nothing, in low-latency mode either."""
    buffer = make(torch.distributed.group.WORLD)
    x, ids, weights = batch(rank, 1)
    go = lambda x, ids: buffer.dispatch(x, ids, None, num_experts=EXPERTS)  # noqa: E731
    due = go(x, ids)[0]
    for _ in range(2):
        if rank == 1:
            refuses(TypeError, "topk_idx holds torch.float32", go, x, weights)
        else:
            refuses(moecomm.MoeError, "rank 1 has refused its arguments", go, x, ids)
        recv, _, _, handle, _ = go(x, ids)
        assert torch.equal(recv, due)
        for wide in (recv, recv.repeat(1, 5)):
            recv, _, _, handle, _ = go(x, ids)
            if rank == 0:
                refuses(TypeError, "x holds torch.float64", buffer.combine, wide.double(), handle)
            else:  # nobody else hears of it, as in every low-latency combine
                assert buffer.combine(wide, handle)[0].shape == (x.shape[0], wide.shape[1])
        _, _, _, handle, _ = go(x, ids)
        if rank == 2:
            many = torch.zeros(NUM_MAX + 1, HIDDEN, dtype=x.dtype, device=x.device)
            wrong = torch.zeros(NUM_MAX + 1, TOPK, dtype=ids.dtype, device=x.device)
            refuses(moecomm.InvalidArgument, str(NUM_MAX + 1), go, many, wrong)
        else:
            refuses(moecomm.MoeError, "rank 2", go, x, ids)
        wrong = ids.clone()
        wrong[:1] = EXPERTS
        refuses(moecomm.InvalidArgument, str(EXPERTS), go, x, wrong)
    assert torch.equal(go(x, ids)[0], due) and len(buffer.routes._groups) == 1
    buffer.destroy()


class ElasticModesTest(RanksTest):
    def test_small_batches_of_4_ranks_have_the_same_bits(self):
        self.run_ranks(alike, 4)

    def test_small_batches_of_2_ranks_have_the_same_bits(self):
        self.run_ranks(alike, 2)

    def test_small_batches_of_2_domains(self):
        self.run_ranks(domains)

    def test_gradients_of_six_microbatches(self):
        self.run_ranks(gradients)

    def test_refusals_cost_nobody_else(self):
        self.run_ranks(refused)


if __name__ == "__main__":
    unittest.main()
