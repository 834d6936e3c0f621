"""moecomm.deep_ep on 4 ranks, high-throughput calls: what DeepEP's users rely on, against plain torch. Needs torch."""

import gc
import unittest

from support_ranks import DEVICE, RANKS, TIMEOUT_MS, RanksTest, device, refuses, torch

if torch is not None:
    import moecomm
    import moecomm.deep_ep as deep_ep

TOKENS, HIDDEN, EXPERTS, TOPK = 6, 256, 8, 3
LOCAL = EXPERTS // RANKS


def make(**settings):
    kind = torch.device(DEVICE).type
    deep_ep.configure(device=kind, timeout_ms=TIMEOUT_MS, tokens_max=64, in_flight=8, domain_size=0)
    deep_ep.configure(**settings)
    return deep_ep.Buffer(torch.distributed.group.WORLD, 1 << 20, explicitly_destroy=True)


def inputs(rank, tokens=TOKENS):
    """bfloat16 rows of small integers, ids with some -1, weights."""
    random = torch.Generator().manual_seed(7 + rank)
    x = torch.randint(-8, 8, (tokens, HIDDEN), generator=random).to(torch.bfloat16)
    ids = torch.rand(tokens, EXPERTS, generator=random).topk(TOPK)[1]
    ids[torch.rand(tokens, TOPK, generator=random) < 0.2] = -1
    weights = torch.rand(tokens, TOPK, generator=random)
    return x.to(device()), ids.to(device()), weights.to(device())


def arriving(rank, tokens):
    """Rows, local ids and weights that a rank gets, by plain torch."""
    rows, ids, weights = [], [], []
    for source in range(RANKS):
        x, source_ids, source_weights = inputs(source, tokens(source))
        here = (source_ids >= rank * LOCAL) & (source_ids < (rank + 1) * LOCAL)
        chosen = here.any(dim=1)
        rows.append(x[chosen])
        ids.append(torch.where(here, source_ids - rank * LOCAL, -1)[chosen])
        weights.append(torch.where(here, source_weights, 0.0)[chosen])
    return torch.cat(rows), torch.cat(ids), torch.cat(weights)


def ranks_of(ids):
    """[tokens, ranks]: whether a token goes there."""
    return torch.stack([((ids >= r * LOCAL) & (ids < (r + 1) * LOCAL)).any(dim=1) for r in range(RANKS)], dim=1)


def send(buffer, x, ids, weights, **options):
    per_rank, per_domain, per_expert, in_rank, _ = buffer.get_dispatch_layout(ids, EXPERTS)
    return buffer.dispatch(
        x,
        topk_idx=ids,
        topk_weights=weights,
        num_tokens_per_rank=per_rank,
        num_tokens_per_rdma_rank=per_domain,
        is_token_in_rank=in_rank,
        num_tokens_per_expert=per_expert,
        **options,
    )


def larger_batches(rank):
    """Batches may outgrow the first on any rank. What a rank refuses meanwhile holds nobody up."""
    buffer = make(tokens_max=8)
    for most in (6, 21, 3, 60, 0, 61, 80):
        tokens = lambda source: most if source == 2 else min(most, 4)  # noqa: E731, B023
        x, ids, weights = inputs(rank, tokens(rank))
        got = send(buffer, x, ids, weights)
        for found, due in zip(got[:3], arriving(rank, tokens)):
            assert torch.equal(found, due)
        copies = ranks_of(ids).sum(dim=1, keepdim=True)
        assert torch.equal(buffer.combine(got[0], got[4])[0], (x.float() * copies).to(x.dtype))
        if rank == 1:  # another reason, while rank 2 has too many tokens or not
            refuses(TypeError, "topk_weights holds", send, buffer, x, ids, weights.double())
        elif rank == 2:
            more = inputs(rank, 2 * most + 9)
            refuses(moecomm.MoeError, "", send, buffer, *more)
        else:
            refuses(moecomm.MoeError, "rank 1 has refused its arguments", send, buffer, x, ids, weights)
    assert len(buffer.routes._groups) == 4, len(buffer.routes._groups)
    buffer.destroy()


def narrow_rows(rank):
    """Rows of fewer bytes than the weights that combine brings."""
    buffer = make()
    x, ids, weights = inputs(rank)
    x = x[:, :24].contiguous()
    ids, weights = ids.repeat(1, 8), weights.repeat(1, 8)
    ids[:, TOPK:] = -1
    got = send(buffer, x, ids, weights)
    sums, sent, _ = buffer.combine(got[0], got[4], topk_weights=got[2])
    assert torch.equal(sent, torch.where(ids >= 0, weights, 0.0))
    buffer.destroy()


def flags(rank):
    """The arguments that choose among DeepEP's transports and memories."""
    make().destroy()
    group = torch.distributed.group.WORLD
    deep_ep.Buffer(group, use_fabric=True, allow_mnnvl=True, explicitly_destroy=True).destroy()
    buffer = deep_ep.Buffer(group, 100, 64, True, allow_nvlink_for_low_latency_mode=False, explicitly_destroy=True)
    x, ids, weights = inputs(rank)
    rows, _, handle, _, _ = buffer.low_latency_dispatch(x, ids, 8, EXPERTS, use_fp8=False)
    assert handle.route.ring.comm.info.domain_size == 1
    sums, _, _ = buffer.low_latency_combine(rows, ids, weights, handle)
    due = (x.float() * torch.where(ids >= 0, weights, 0.0).sum(dim=1, keepdim=True)).to(x.dtype)
    assert torch.allclose(sums.float(), due.float(), rtol=0.02, atol=0.1)
    scratch = buffer.get_local_buffer_tensor(torch.int32, torch.Size([2, 3]), 40)
    scratch.zero_()
    assert scratch.shape == (2, 3) and scratch.device == x.device
    assert buffer.get_local_buffer_tensor(torch.float32, use_rdma_buffer=True).shape == (16,)
    assert buffer.get_local_buffer_tensor(torch.int32, torch.Size([2, 3]), 40).eq(0).all()
    local = buffer.get_local_buffer_tensor
    refuses(ValueError, "ends at byte 104, but num_nvl_bytes is 100", local, torch.float32, (26,))
    refuses(ValueError, "offset is 2, expected a multiple of 4 bytes", local, torch.float32, (1,), 2)
    buffer.destroy()


def layout(rank):
    buffer = make(domain_size=2)
    x, ids, _ = inputs(rank)
    per_rank, per_domain, per_expert, in_rank, event = buffer.get_dispatch_layout(ids, EXPERTS, async_finish=True)
    event.current_stream_wait()
    due = ranks_of(ids)
    assert torch.equal(in_rank, due) and torch.equal(per_rank, due.sum(dim=0).int())
    assert torch.equal(per_domain, due.view(-1, 2, 2).any(dim=2).sum(dim=0).int())
    assert per_expert.tolist() == [(ids == expert).sum().item() for expert in range(EXPERTS)]
    assert buffer.get_dispatch_layout(ids[:0], EXPERTS)[0].tolist() == [0] * RANKS
    for dtype in (torch.int32, torch.int64):
        strays = torch.tensor([[-(2**31), EXPERTS], [2**31 - 1, EXPERTS - 1]], dtype=dtype, device=ids.device)
        per_rank, _, per_expert, in_rank, _ = buffer.get_dispatch_layout(strays, EXPERTS)
        assert in_rank.tolist() == [[False] * RANKS, [False] * (RANKS - 1) + [True]]
        assert per_rank.tolist() == [0] * (RANKS - 1) + [1] and per_expert.tolist() == [0] * (EXPERTS - 1) + [1]
        assert per_expert.data_ptr() % 16 == 0 and per_expert.is_contiguous()
    refuses(ValueError, "num_experts is 6, expected a multiple of the 4 ranks", buffer.get_dispatch_layout, ids, 6)
    buffer.destroy()
    assert make().get_dispatch_layout(ids, EXPERTS)[1] is None  # one domain


def dispatch_and_combine(rank):
    tokens = lambda source: 0 if source == 2 else TOKENS + source % 2  # noqa: E731
    buffer = make()
    x, ids, weights = inputs(rank, tokens(rank))
    rows, local_ids, local_weights = arriving(rank, tokens)
    counts = [(local_ids == expert).sum().item() for expert in range(LOCAL)]
    copies = ranks_of(ids).sum(dim=1, keepdim=True)
    for asynchronous in (False, True):
        for worst in (0, RANKS * 8):
            options = lambda: dict(  # noqa: E731; called behind what makes the arguments
                previous_event=buffer.capture() if asynchronous else None,  # noqa: B023
                async_finish=asynchronous,  # noqa: B023
                allocate_on_comm_stream=asynchronous,  # noqa: B023
            )
            recv_x, recv_ids, recv_weights, listed, handle, event = send(
                buffer, x, ids, weights, num_worst_tokens=worst, expert_alignment=4, **options()
            )
            event.current_stream_wait()
            n = rows.shape[0]
            assert recv_x.shape[0] == recv_ids.shape[0] == recv_weights.shape[0] == (worst or n)
            assert torch.equal(recv_x[:n], rows) and torch.equal(recv_ids[:n], local_ids)
            assert torch.equal(recv_weights[:n], local_weights) and (recv_ids[n:] == -1).all()
            assert listed == ([] if worst else [-(-count // 4) * 4 for count in counts])
            assert recv_ids.dtype == torch.int64 and recv_weights.dtype == torch.float32
            bias = torch.ones_like(x)
            for biases, due in ((None, 0), (bias, 1), ((bias, 2 * bias), 3)):
                sums, back, event = buffer.combine(recv_x, handle, recv_weights, bias=biases, **options())
                event.current_stream_wait()
                assert torch.equal(sums, (x.float() * copies + due).to(x.dtype))
                assert torch.equal(back, torch.where(ids >= 0, weights, 0.0))
            given = torch.empty_like(x)
            sums, back, _ = buffer.combine(recv_x, handle, out=given)
            assert back is None and sums is given and torch.equal(sums, (x.float() * copies).to(x.dtype))
            again, *nothing, event = buffer.dispatch(2 * x, handle=handle, **options())
            with event:
                pass
            assert nothing == [None] * 4 and torch.equal(again[:n], 2 * rows)
            refuses(TypeError, "out holds torch.float32", buffer.combine, recv_x, handle, out=given.float())
    buffer.destroy()
    buffer.destroy()
    refuses(moecomm.InvalidUsage, "the Buffer has been destroyed", send, buffer, x, ids, weights)


def quantised(rank):
    """Rows of one-byte codes with scales that are column-major, and once a number of them that needs padding."""
    buffer = make()
    _, ids, weights = inputs(rank)
    for words in (4, 7):
        codes = torch.arange(TOKENS * 128, device=ids.device).view(TOKENS, 128).add(rank).to(torch.uint8)
        scales = torch.rand(words, TOKENS, device=ids.device).T
        (recv, recv_scales), _, _, _, handle, _ = send(buffer, (codes.view(torch.float8_e4m3fn), scales), ids, weights)
        assert recv.dtype == torch.float8_e4m3fn and recv_scales.shape == (recv.shape[0], words)
        assert recv_scales.is_contiguous()
        everyone = [None] * RANKS
        torch.distributed.all_gather_object(everyone, (codes.cpu(), scales.cpu(), ids.cpu()))
        due_codes = torch.cat([c[ranks_of(i)[:, rank]] for c, _, i in everyone])
        due_scales = torch.cat([s[ranks_of(i)[:, rank]] for _, s, i in everyone])
        assert torch.equal(recv.view(torch.uint8).cpu(), due_codes)
        assert torch.equal(recv_scales.cpu(), due_scales)
        (again, again_scales), *_ = buffer.dispatch((codes.view(torch.float8_e4m3fn), scales), handle=handle)
        assert torch.equal(again_scales, recv_scales) and torch.equal(again.view(torch.uint8), recv.view(torch.uint8))
    buffer.destroy()


def by_mask(rank):
    buffer = make()
    x, ids, _ = inputs(rank)
    _, _, per_expert, in_rank, _ = buffer.get_dispatch_layout(ids, EXPERTS)
    recv_x, recv_ids, recv_weights, listed, handle, _ = buffer.dispatch(
        x, is_token_in_rank=in_rank, num_tokens_per_expert=per_expert
    )
    rows, local_ids, _ = arriving(rank, lambda source: TOKENS)
    assert recv_ids is None and recv_weights is None and torch.equal(recv_x, rows)
    assert listed == [(local_ids == expert).sum().item() for expert in range(LOCAL)]
    sums, _, _ = buffer.combine(recv_x, handle)
    assert torch.equal(sums, (x.float() * in_rank.sum(dim=1, keepdim=True)).to(x.dtype))
    weights = torch.zeros(rows.shape[0], TOPK, device=x.device)
    refuses(ValueError, "had no topk_idx", buffer.combine, recv_x, handle, weights)
    buffer.destroy()


def weights_of_all_ranks(rank):
    """DeepEP sums what a token's ranks give for each entry, also beside expert -1."""
    for sum_weights in (True, False):
        buffer = make(sum_weights=sum_weights)
        x, ids, weights = inputs(rank)
        recv_x, recv_ids, recv_weights, _, handle, _ = send(buffer, x, ids, weights)
        given = torch.where(recv_ids >= 0, recv_weights, 0.5)
        _, back, event = buffer.combine(recv_x, handle, given, async_finish=True, previous_event=buffer.capture())
        event.current_stream_wait()
        other_ranks = ranks_of(ids).sum(dim=1, keepdim=True) - (ids >= 0).int()
        due = torch.where(ids >= 0, weights, 0.0)
        assert torch.allclose(back, due + 0.5 * other_ranks if sum_weights else due, rtol=0, atol=1e-6)
        assert back.is_contiguous() and back.shape == (TOKENS, TOPK)
        buffer.destroy()
    deep_ep.configure(sum_weights=True)


def repeated_experts(rank):
    """A token names expert 5 twice. Its later entry is unused on arrival, so the sum brings it no gradient. If the
    gradients travel beside the rows, it gets that of the first entry, to which its weight was added."""
    for sum_weights in (True, False):
        buffer = make(sum_weights=sum_weights)
        x, ids, weights = inputs(rank)
        ids[:] = torch.tensor([5, 2, 5])
        recv_x, recv_ids, recv_weights, _, handle, _ = send(buffer, x, ids, weights)
        grads = torch.where(recv_ids >= 0, recv_ids + LOCAL * rank + 1.0, 0.0)
        sums, back, _ = buffer.combine(recv_x, handle, grads)
        assert torch.equal(sums, 2 * x) and back.tolist() == [[6.0, 3.0, 0.0 if sum_weights else 6.0]] * TOKENS
        merged = buffer.combine(recv_x, handle, recv_weights)[1][:, 0]
        assert torch.equal(merged, weights[:, 0] + weights[:, 2])
        buffer.destroy()
    deep_ep.configure(sum_weights=True)


def entries_of_handles(rank):
    x, ids, weights = inputs(rank)
    everyone = [None] * RANKS
    torch.distributed.all_gather_object(everyone, ranks_of(ids).sum(dim=0).tolist())
    ends = [sum(sent[rank] for sent in everyone[: source + 1]) for source in range(RANKS)]
    buffer = make()
    for worst in (0, RANKS * 8):
        handle = send(buffer, x, ids, weights, num_worst_tokens=worst)[4]
        assert len(handle) == 6 and handle[0].dtype == torch.int32 and handle[0].shape == (RANKS, RANKS)
        assert handle[0][:, rank].tolist() == ends and handle[-6][:, rank - 1].tolist() == [-1] * RANKS
    refuses(NotImplementedError, "handle[5] is send_head of DeepEP", lambda: handle[5])
    refuses(IndexError, "out of range", lambda: handle[6])
    refuses(TypeError, "index of a handle is 'x'", lambda: handle["x"])
    for _ in range(8):
        send(buffer, x, ids, weights)
    refuses(moecomm.InvalidUsage, "8 later routes have come", lambda: handle[0])
    buffer.destroy()
    buffer = make(domain_size=2)
    handle = send(buffer, x, ids, weights)[4]
    assert len(handle) == 10 and handle[-4].tolist() == handle[6].tolist() == ends
    refuses(NotImplementedError, "handle[0] is is_token_in_rank of DeepEP", lambda: handle[0])
    buffer.destroy()


def no_expert_anywhere(rank):
    buffer = make()
    x, ids, weights = inputs(rank)
    recv_x, _, recv_weights, listed, handle, _ = send(buffer, x, torch.full_like(ids, -1), weights)
    assert recv_x.shape == (0, HIDDEN) and listed == [0] * LOCAL
    sums, back, _ = buffer.combine(recv_x, handle, recv_weights)
    assert (sums == 0).all() and (back == 0).all()
    none = torch.empty(0, TOPK, HIDDEN, dtype=x.dtype, device=x.device)
    assert (buffer.combine(none, handle)[0] == 0).all()
    x, ids, weights = inputs(rank)
    ids[:] = 5  # an idle rank's dummy batch
    recv_x, recv_ids, recv_weights, *_ = send(buffer, x, ids, weights)
    assert recv_x.shape[0] == (RANKS * TOKENS if rank == 5 // LOCAL else 0)
    assert recv_ids[:, 0].eq(5 % LOCAL).all() and recv_ids[:, 1:].eq(-1).all()
    buffer.destroy()


class _Dispatch(torch.autograd.Function if torch is not None else object):
    """Wraps a Buffer as training frameworks do: the gradient of a dispatch is a combine."""

    @staticmethod
    def forward(ctx, buffer, x, ids, weights):
        recv_x, recv_ids, recv_weights, _, handle, event = send(buffer, x, ids, weights, async_finish=True)
        event.current_stream_wait()
        ctx.buffer, ctx.handle = buffer, handle
        return recv_x, recv_ids, recv_weights, handle

    @staticmethod
    def backward(ctx, grad_x, _, grad_weights, __):
        grad_x, grad_weights, event = ctx.buffer.combine(
            grad_x.contiguous(), ctx.handle, topk_weights=grad_weights.float(), async_finish=True
        )
        event.current_stream_wait()
        return None, grad_x, None, grad_weights


class _Combine(torch.autograd.Function if torch is not None else object):
    @staticmethod
    def forward(ctx, buffer, x, handle):
        sums, _, event = buffer.combine(x, handle, async_finish=True)
        event.current_stream_wait()
        ctx.buffer, ctx.handle = buffer, handle
        return sums

    @staticmethod
    def backward(ctx, grad):
        grad_x, *_, event = ctx.buffer.dispatch(grad.contiguous(), handle=ctx.handle, async_finish=True)
        event.current_stream_wait()
        return None, grad_x, None


def microbatches(rank):
    """Five forward passes of a training step before the first backward pass, as in a pipeline. Ranks drop unneeded
    objects at different times. At the end, a handle is too old."""
    buffer, batches = make(in_flight=5), []
    for number in range(5):
        x, ids, weights = inputs(rank + 10 * number)
        x.requires_grad_(), weights.requires_grad_()
        recv_x, recv_ids, recv_weights, handle = _Dispatch.apply(buffer, x, ids, weights)
        factors = torch.where(recv_ids >= 0, recv_ids + LOCAL * rank + 1.0, 0.0) * recv_weights
        experts = recv_x * factors.sum(dim=1, keepdim=True).to(x.dtype)
        batches.append([x, ids, weights, _Combine.apply(buffer, experts, handle), handle])
        if rank % 2:
            gc.collect()
    for number in (0, 3, 1, 4, 2):
        x, ids, weights, sums, _ = batches[number]
        sums.float().sum().backward()
        plain, plain_weights = (t.detach().float().requires_grad_() for t in (x, weights))
        due = plain * (torch.where(ids >= 0, ids + 1.0, 0.0) * plain_weights).sum(dim=1, keepdim=True)
        due.sum().backward()
        scale = due.detach().abs().max() + 1
        assert (sums.detach().float() - due.detach()).abs().max() < 0.02 * scale
        assert (x.grad.float() - plain.grad).abs().max() < 0.02 * plain.grad.abs().max() + 1e-3
        wanted = torch.where(ids >= 0, plain_weights.grad, 0.0)
        assert torch.allclose(weights.grad, wanted, rtol=0.02, atol=1.0)
        if rank == number % RANKS:
            batches[number][:4] = [None] * 4  # one rank lets go earlier than the others
            gc.collect()
    oldest = batches[0][4]
    send(buffer, *(t.detach() for t in inputs(rank)))
    old = torch.zeros(oldest.rows, HIDDEN, dtype=torch.bfloat16, device=device())
    refuses(moecomm.InvalidUsage, "5 later routes have come, and in_flight is 5", buffer.combine, old, oldest)
    buffer.destroy()


def growing(rank):
    """Later calls have longer rows, more entries and other experts. Earlier handles stay good."""
    buffer = make()
    x, ids, weights = inputs(rank)
    first = send(buffer, x, ids, weights)
    wide = x.repeat(1, 4)
    second = send(buffer, wide, ids.repeat(1, 3), weights.repeat(1, 3))
    assert second[0].shape[1] == 4 * HIDDEN and second[1].shape[1] == 3 * TOPK
    copies = ranks_of(ids).sum(dim=1, keepdim=True)
    assert torch.equal(buffer.combine(first[0], first[4])[0], (x.float() * copies).to(x.dtype))
    assert torch.equal(buffer.combine(second[0], second[4])[0], (wide.float() * copies).to(x.dtype))
    assert send(buffer, x, ids.int(), weights)[1].dtype == torch.int32
    buffer.destroy()


def refusals(rank):
    buffer = make()
    x, ids, weights = inputs(rank)
    per_expert = buffer.get_dispatch_layout(ids, EXPERTS)[2]
    due = {"num_tokens_per_expert": per_expert, "topk_idx": ids}
    go = lambda x, **given: buffer.dispatch(x, **{**due, **given})  # noqa: E731
    refuses(ValueError, "x is not contiguous", go, x.T.contiguous().T)
    refuses(ValueError, "x has shape (256,), expected [tokens, hidden]", go, x[0])
    refuses(ValueError, "x is a tuple of 3", go, (x, x, x))
    refuses(TypeError, "topk_idx holds torch.float32", go, x, topk_idx=weights)
    refuses(ValueError, "topk_idx has shape (5, 3)", go, x, topk_idx=ids[:5])
    refuses(TypeError, "topk_weights holds torch.float64", go, x, topk_weights=weights.double())
    refuses(ValueError, "num_tokens_per_expert is None", go, x, num_tokens_per_expert=None)
    refuses(TypeError, "is_token_in_rank is a NoneType", go, x, topk_idx=None)
    refuses(ValueError, "topk_weights is given, but topk_idx is None", go, x, topk_idx=None, topk_weights=weights)
    refuses(ValueError, "expert_alignment is 0", go, x, expert_alignment=0)
    recv_x, _, _, _, handle, _ = send(buffer, x, ids, weights)  # the ranks are still in step
    refuses(ValueError, "handle is given, and so are", go, x, handle=handle)
    refuses(ValueError, "x has 5 tokens", buffer.dispatch, x[:5], handle=handle)
    refuses(TypeError, "handle is a tuple", buffer.combine, recv_x, (1, 2))
    refuses(TypeError, "x holds torch.int64", buffer.combine, recv_x.long(), handle)
    refuses(ValueError, "x has shape", buffer.combine, recv_x[:-1], handle)
    refuses(TypeError, "bias holds torch.float32", buffer.combine, recv_x, handle, bias=x.float())
    refuses(moecomm.InvalidUsage, "but enable_shrink is False", buffer.low_latency_update_mask_buffer, 1, True)
    refuses(ValueError, "group and comm are None", deep_ep.Buffer, None)
    refuses(TypeError, "backend is given", deep_ep.configure, backend="host")
    wrong = ids.clone()
    wrong[0, 0] = EXPERTS if rank == 3 else wrong[0, 0]
    refuses(moecomm.InvalidArgument, "rank 3", go, x, topk_idx=wrong)  # on all ranks
    assert torch.equal(send(buffer, x, ids, weights)[0], recv_x)
    if DEVICE == "cpu":
        many = torch.zeros(65, HIDDEN, dtype=torch.bfloat16)
        ids65 = torch.full((65, TOPK), -1)  # more than tokens_max, where nothing waits and so nothing can grow
        refuses(moecomm.InvalidArgument, "65", go, many, topk_idx=ids65, num_worst_tokens=8)
    buffer.destroy()
    kept = deep_ep.Buffer(torch.distributed.group.WORLD)
    refuses(moecomm.InvalidUsage, "explicitly_destroy is False", kept.destroy)


def structs(rank):
    """Dispatches and combines of all batch sizes use the same three structs: a dispatch has two. A call that raises does
    not put its struct back, and the next call makes another."""
    buffer = make()
    x, ids, weights = inputs(rank)
    for tokens in (TOKENS, TOKENS - 1, 0, TOKENS):
        got = send(buffer, x[:tokens], ids[:tokens], weights[:tokens])
        buffer.combine(got[0], got[4])
    kept = got[4].route.ring.own_calls
    assert len(kept) == 3, list(kept)
    wrong = ids.clone()
    wrong[0, 0] = EXPERTS
    if DEVICE == "cpu":
        refuses(moecomm.InvalidArgument, "topkIdx", send, buffer, x, wrong, weights, num_worst_tokens=RANKS * TOKENS)
    again = send(buffer, x, ids, weights)
    assert torch.equal(again[0], got[0]) and len(kept) == 3, list(kept)
    buffer.destroy()


class DeepEpTest(RanksTest):
    def test_calls_of_all_batch_sizes_share_structs(self):
        self.run_ranks(structs)

    def test_later_batches_may_be_larger(self):
        self.run_ranks(larger_batches)

    def test_rows_may_be_narrower_than_their_weights(self):
        self.run_ranks(narrow_rows)

    def test_flags_are_served_or_refused(self):
        self.run_ranks(flags)

    def test_layout_of_a_dispatch(self):
        self.run_ranks(layout)

    def test_dispatch_and_combine_have_the_bits_of_plain_torch(self):
        self.run_ranks(dispatch_and_combine)

    def test_quantised_rows_bring_their_scales(self):
        self.run_ranks(quantised)

    def test_a_mask_of_ranks_in_place_of_ids(self):
        self.run_ranks(by_mask)

    def test_weights_are_summed_over_the_ranks_of_a_token(self):
        self.run_ranks(weights_of_all_ranks)

    def test_gradients_of_an_expert_that_a_token_names_twice(self):
        self.run_ranks(repeated_experts)

    def test_handles_tell_where_the_rows_of_each_source_end(self):
        self.run_ranks(entries_of_handles)

    def test_no_expert_anywhere_and_dummy_batches(self):
        self.run_ranks(no_expert_anywhere)

    def test_five_microbatches_in_flight(self):
        self.run_ranks(microbatches)

    def test_later_calls_may_be_larger(self):
        self.run_ranks(growing)

    def test_refusals_name_argument_and_value(self):
        self.run_ranks(refusals)


if __name__ == "__main__":
    unittest.main()
