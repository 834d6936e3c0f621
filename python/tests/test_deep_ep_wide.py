"""Cached dispatches and combines of moecomm.deep_ep on 4 ranks, whose rows are wider or of another dtype than those of
the dispatch that made their route. The results are those of plain torch. Needs torch."""

import unittest

from support_ranks import RANKS, RanksTest, device, hears, refuses, torch
from test_deep_ep import EXPERTS, HIDDEN, TOKENS, arriving, inputs, make, ranks_of, send

if torch is not None:
    import moecomm
    import test_deep_ep_elastic

WIDTHS = (2 * HIDDEN, 3 * HIDDEN + 16)


def widened(rows, hidden):
    """Other values in each column."""
    factors = torch.arange(hidden, device=rows.device) % 5 + 1
    return (rows.repeat(1, -(-hidden // HIDDEN))[:, :hidden] * factors).to(rows.dtype)


def wide_dispatches(rank):
    buffer = make()
    x, ids, weights = inputs(rank)
    rows, *_ = arriving(rank, lambda source: TOKENS)
    handle = send(buffer, x, ids, weights)[4]
    for hidden in WIDTHS:
        for dtype in (torch.float32, torch.uint8, torch.int64):
            got, *nothing = buffer.dispatch(widened(x, hidden).to(dtype), handle=handle)[:-1]
            assert torch.equal(got, widened(rows, hidden).to(dtype)) and nothing == [None] * 4
    assert len(buffer.routes._groups) == 1
    buffer.destroy()


def wide_scales(rank):
    """First bfloat16, then codes with scales: few scales, as many as a row has bytes, or more."""
    buffer = make()
    x, ids, weights = inputs(rank)
    rows, *_ = arriving(rank, lambda source: TOKENS)
    handle = send(buffer, x, ids, weights)[4]
    for hidden in (HIDDEN, *WIDTHS):
        for words in (3, 37, 150):
            codes, scales = (widened(x, hidden).to(torch.float8_e4m3fn), widened(x, words).float())
            (got, got_scales), *_ = buffer.dispatch((codes, scales.T.contiguous().T), handle=handle)
            assert torch.equal(got.float(), widened(rows, hidden).to(torch.float8_e4m3fn).float())
            assert torch.equal(got_scales, widened(rows, words).float()) and got_scales.is_contiguous()
    first = send(buffer, (x.to(torch.float8_e4m3fn), x[:, :2].float()), ids, weights)[4]  # and the other way round
    assert torch.equal(buffer.dispatch(widened(x, 2 * HIDDEN), handle=first)[0], widened(rows, 2 * HIDDEN))
    buffer.destroy()


def wide_combines(rank):
    x, ids, weights = inputs(rank)
    rows, *_ = arriving(rank, lambda source: TOKENS)
    copies = ranks_of(ids).sum(dim=1, keepdim=True)
    for sum_weights in (True, False):
        buffer = make(sum_weights=sum_weights)
        _, _, recv_weights, _, handle, _ = send(buffer, x, ids, weights)
        for hidden in (HIDDEN, *WIDTHS):
            for dtype in (torch.bfloat16, torch.float32):
                given, plain = widened(rows, hidden).to(dtype), widened(x, hidden).to(dtype)
                out = torch.empty_like(plain)
                bias = torch.arange(plain.numel(), device=x.device).view(plain.shape).remainder(7).to(dtype)
                sums, back, _ = buffer.combine(given, handle, recv_weights, bias=(bias, 2 * bias), out=out)
                assert sums is out and torch.equal(sums, (plain.float() * copies + 3 * bias.float()).to(dtype))
                assert torch.equal(back, torch.where(ids >= 0, weights, 0.0))
        assert len(buffer.routes._groups) == 1
        buffer.destroy()
    make(sum_weights=True).destroy()


def backward_pass(rank):
    """Gradients in fp32 along a route of bfloat16 rows, and the handle's end with them."""
    buffer = make(in_flight=2)
    x, ids, weights = inputs(rank)
    x.requires_grad_()
    received = [send(buffer, x, ids, weights) for _ in range(6)]
    copies = ranks_of(ids).sum(dim=1, keepdim=True)
    for recv_x, _, recv_weights, _, handle, _ in received:
        grads = buffer.dispatch(2 * x.detach().float(), handle=handle)[0]
        assert torch.equal(grads, 2 * recv_x.float())
        sums, back, _ = buffer.combine(grads, handle, recv_weights)
        assert torch.equal(sums, 2 * x.float() * copies)
        assert torch.equal(back, torch.where(ids >= 0, weights, 0.0))
    ring = received[0][4].route.ring
    assert all(use.awaits == ("over",) for use in ring._uses.values()) and len(ring.handles) == 6
    buffer.destroy()


def refusals(rank):
    """A rank that refuses a wide call, or all ranks that do, go on with the same Buffer."""
    buffer = make()
    x, ids, weights = inputs(rank)
    wide = widened(x, 3 * HIDDEN)
    due = arriving(rank, lambda source: TOKENS)[0]
    for _ in range(2):
        recv_x, _, _, _, handle, _ = send(buffer, x, ids, weights)
        if rank == 2:
            refuses(ValueError, "x has 5 tokens", buffer.dispatch, wide[:5], handle=handle)
        else:
            hears("rank 2 has refused its arguments", buffer.dispatch, wide, handle=handle)
        recv_x, _, _, _, handle, _ = send(buffer, x, ids, weights)
        grads = widened(due, 3 * HIDDEN)
        if rank == 1:
            refuses(TypeError, "x holds torch.float64", buffer.combine, grads.double(), handle)
        else:
            hears("rank 1 has refused its arguments", buffer.combine, grads, handle)
        recv_x, _, _, _, handle, _ = send(buffer, x, ids, weights)
        text = "at most 512 (config.rowBytesMax)"  # 774 bytes, which is no multiple of 16
        refuses(moecomm.InvalidArgument, text, buffer.dispatch, wide[:, :387].contiguous(), handle=handle)
    recv_x, _, _, _, handle, _ = send(buffer, x, ids, weights)
    assert torch.equal(recv_x, due) and torch.equal(buffer.dispatch(wide, handle=handle)[0], widened(due, 3 * HIDDEN))
    buffer.destroy()


def elastic(rank):
    """Expanded and not, with padding, and counters that count once."""
    x, ids, weights = inputs(rank)
    for do_expand in (False, True):
        buffer = test_deep_ep_elastic.make()
        options = dict(num_experts=EXPERTS, expert_alignment=4, do_expand=do_expand, do_zero_padding=True)
        recv, recv_ids, recv_weights, handle, _ = buffer.dispatch(x, ids, weights, **options)
        stats = torch.zeros(EXPERTS // RANKS, dtype=torch.int32, device=device())
        for hidden in WIDTHS:
            for dtype in (torch.bfloat16, torch.float32):
                given = widened(x, hidden).to(dtype)
                got, got_ids, *_ = buffer.dispatch(
                    given, handle=handle, cumulative_local_expert_recv_stats=stats, do_zero_padding=True
                )
                assert torch.equal(got, widened(recv, hidden).to(dtype))
                assert got_ids is None if do_expand else torch.equal(got_ids, recv_ids)
                used = ((ids >= 0) if do_expand else ranks_of(ids)).sum(dim=1, keepdim=True)
                sums, back, _ = buffer.combine(got, handle, recv_weights, bias=given)
                assert torch.equal(sums, (given.float() * (used + 1)).to(dtype))
                assert torch.equal(back, torch.where(ids >= 0, weights, 0.0))
        assert torch.equal(stats, 2 * len(WIDTHS) * handle.num_unaligned_recv_tokens_per_expert)
        (codes, scales), *_ = buffer.dispatch((given, widened(x, 200).float()), handle=handle, do_zero_padding=True)
        assert torch.equal(codes, got) and torch.equal(scales, widened(recv, 200).float())
        buffer.destroy()


class WideTest(RanksTest):
    def test_a_cached_dispatch_may_have_wider_rows(self):
        self.run_ranks(wide_dispatches)

    def test_a_cached_dispatch_may_have_more_scales(self):
        self.run_ranks(wide_scales)

    def test_a_combine_may_have_wider_rows(self):
        self.run_ranks(wide_combines)

    def test_a_backward_pass_may_be_in_fp32(self):
        self.run_ranks(backward_pass)

    def test_a_refused_wide_call_costs_no_rank_its_buffer(self):
        self.run_ranks(refusals)

    def test_elastic_buffers_take_wider_rows(self):
        self.run_ranks(elastic)


if __name__ == "__main__":
    unittest.main()
