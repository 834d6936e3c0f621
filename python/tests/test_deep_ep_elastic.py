"""moecomm.deep_ep.ElasticBuffer on 4 ranks, against plain torch. Needs torch."""

import unittest

from support_ranks import DEVICE, RANKS, TIMEOUT_MS, RanksTest, device, refuses, torch

if torch is not None:
    import moecomm
    import moecomm.deep_ep as deep_ep
    from test_deep_ep import EXPERTS, HIDDEN, LOCAL, TOKENS, arriving, inputs, ranks_of

NUM_MAX, ALIGNMENT = 8, 4


def make(timeout_ms=TIMEOUT_MS):
    settings = dict(timeout_ms=timeout_ms, tokens_max=64, in_flight=4, domain_size=0)
    deep_ep.configure(device=torch.device(DEVICE).type, **settings)
    return deep_ep.ElasticBuffer(
        torch.distributed.group.WORLD, num_max_tokens_per_rank=NUM_MAX, hidden=HIDDEN, explicitly_destroy=True
    )


def tokens_of(source):
    return 0 if source == 3 else TOKENS


def by_rank(rank):
    buffer = make()
    x, ids, weights = inputs(rank, tokens_of(rank))
    rows, local_ids, local_weights = arriving(rank, tokens_of)
    assert buffer.get_physical_domain_size() == buffer.get_logical_domain_size() == (1, RANKS)
    sizes = [deep_ep.ElasticBuffer.get_buffer_size_hint(buffer.group, tokens, HIDDEN) for tokens in (64, 128)]
    assert 2 * HIDDEN * RANKS * 64 < sizes[0] < sizes[1]
    assert buffer.get_theoretical_num_sms(EXPERTS, 3) == buffer.get_theoretical_num_qps(0) == 0
    stats = torch.zeros(LOCAL, dtype=torch.int32, device=x.device)
    counts = [(local_ids == expert).sum().item() for expert in range(LOCAL)]
    padded = [-(-count // ALIGNMENT) * ALIGNMENT for count in counts]
    n, copies = rows.shape[0], ranks_of(ids).sum(dim=1, keepdim=True)
    for step, synced in enumerate((True, False)):
        given = dict(num_experts=EXPERTS, expert_alignment=ALIGNMENT, do_cpu_sync=synced)
        recv, recv_ids, recv_weights, handle, event = buffer.dispatch(
            x,
            ids,
            weights,
            cumulative_local_expert_recv_stats=stats,
            previous_event=buffer.capture(),
            async_with_compute_stream=True,
            allocate_on_comm_stream=True,
            **given,
        )
        event.current_stream_wait()
        assert recv.shape[0] == (n if synced else RANKS * NUM_MAX)
        assert torch.equal(recv[:n], rows) and torch.equal(recv_ids[:n], local_ids) and (recv_ids[n:] == -1).all()
        assert torch.equal(recv_weights[:n], local_weights)
        assert handle.num_recv_tokens_per_expert_list == (padded if synced else [])
        assert handle.num_unaligned_recv_tokens_per_expert.tolist() == counts
        assert handle.psum_num_recv_tokens_per_expert.tolist() == [sum(padded[: i + 1]) for i in range(LOCAL)]
        assert stats.tolist() == [(step + 1) * count for count in counts]
        given = torch.where(recv_ids >= 0, recv_weights, 0.5)  # beside -1 nobody reads it, whatever sum_weights says
        sums, back, _ = buffer.combine(recv, handle, given, bias=x)
        assert torch.equal(sums, (x.float() * (copies + 1)).to(x.dtype))
        assert torch.equal(back, torch.where(ids >= 0, weights, 0.0))
        again, again_ids, none, same, _ = buffer.dispatch(2 * x, handle=handle)
        assert torch.equal(again[:n], 2 * rows) and torch.equal(again_ids, recv_ids) and none is None and same is handle
    buffer.destroy()


def repeated_experts(rank):
    """A token names expert 5 twice: both entries have the gradient of its one row, in both layouts."""
    buffer = make()
    x, ids, weights = inputs(rank)
    ids[:] = torch.tensor([5, 2, 5])
    for do_expand in (False, True):
        recv, recv_ids, _, handle, _ = buffer.dispatch(x, ids, weights, num_experts=EXPERTS, do_expand=do_expand)
        if do_expand:
            grads = recv.new_full(recv.shape[:1], {1: 3.0, 2: 6.0}.get(rank, 0.0), dtype=torch.float32)
        else:
            grads = torch.where(recv_ids >= 0, recv_ids + LOCAL * rank + 1.0, 0.0)
        assert buffer.combine(recv, handle, grads)[1].tolist() == [[6.0, 3.0, 6.0]] * TOKENS
    buffer.destroy()


def expanded(rank):
    buffer = make()
    x, ids, weights = inputs(rank, tokens_of(rank))
    for synced in (True, False):
        given = dict(num_experts=EXPERTS, expert_alignment=ALIGNMENT, do_cpu_sync=synced, do_expand=True)
        recv, recv_ids, recv_weights, handle, _ = buffer.dispatch(x, ids, weights, do_zero_padding=True, **given)
        assert recv_ids is None and recv_weights.shape == recv.shape[:1]
        begin = 0
        for local in range(LOCAL):
            due, sources = [], []
            for source in range(RANKS):
                source_x, source_ids, _ = inputs(source, tokens_of(source))
                chosen = (source_ids == rank * LOCAL + local).any(dim=1)
                due.append(source_x[chosen])
                sources += [source * NUM_MAX + token for token in chosen.nonzero().flatten().tolist()]
            due, end = torch.cat(due), begin + len(sources)
            assert handle.psum_num_recv_tokens_per_expert[local].item() == end
            assert torch.equal(recv[begin:end], due) and handle.recv_src_metadata[begin:end].tolist() == sources
            begin = -(-end // ALIGNMENT) * ALIGNMENT
            assert (recv[end:begin] == 0).all() and (recv_weights[end:begin] == 0).all()
        assert recv.shape[0] == begin if synced else recv.shape[0] >= begin
        assert (recv[begin:] == 0).all()
        used = (ids >= 0).sum(dim=1, keepdim=True)
        sums, back, _ = buffer.combine(recv, handle, recv_weights)
        assert torch.equal(sums, (x.float() * used).to(x.dtype))
        assert torch.equal(back, torch.where(ids >= 0, weights, 0.0))
    buffer.destroy()


def refusals(rank):
    buffer = make()
    x, ids, weights = inputs(rank)
    go = lambda **given: buffer.dispatch(x, ids, weights, **{"num_experts": EXPERTS, **given})  # noqa: E731
    refuses(ValueError, "num_experts is None", go, num_experts=None)
    refuses(ValueError, "num_experts is 6, expected a multiple", go, num_experts=6)
    refuses(NotImplementedError, "there is no epilogue", go, previous_event_before_epilogue=buffer.capture())
    refuses(TypeError, "topk_idx is a NoneType", buffer.dispatch, x, num_experts=EXPERTS)
    recv, _, recv_weights, handle, _ = go()  # the ranks are still in step
    refuses(ValueError, "handle is given, and so is topk_idx", go, handle=handle)
    text = "topk_weights is given with a handle"
    refuses(NotImplementedError, text, buffer.dispatch, x, None, weights, handle=handle)
    refuses(ValueError, "x has 5 tokens", buffer.dispatch, x[:5], handle=handle)
    refuses(NotImplementedError, "do_expand becomes True", setattr, handle, "do_expand", True)
    refuses(TypeError, "handle is a int", buffer.combine, recv, 3)
    refuses(ValueError, "topk_weights has shape", buffer.combine, recv, handle, recv_weights[1:])
    for name in ("engram_write", "pp_send", "all_gather", "barrier"):
        refuses(NotImplementedError, f"{name}: moecomm has no", getattr, buffer, name)
    refuses(AttributeError, "no attribute other", getattr, buffer, "other")
    refuses(NotImplementedError, "num_cpu_bytes is 5", deep_ep.ElasticBuffer, buffer.group, num_cpu_bytes=5)
    recv, _, _, handle, _ = go()  # a refused call ends its step
    assert buffer.combine(recv, handle)[0].device == device()
    buffer.destroy()


def recovered(rank):
    """One rank comes too late. The same buffer goes on with all ranks, after it has slept, too."""
    torch.distributed.barrier()  # the first use of a GPU takes seconds
    buffer = make(timeout_ms=1500 if DEVICE == "cpu" else 6000)
    x, ids, weights = inputs(rank, TOKENS)

    def step():
        recv, _, _, handle, _ = buffer.dispatch(x, ids, weights, num_experts=EXPERTS)
        return buffer.combine(recv, handle)[0], recv, handle

    sums, recv, handle = step()
    for _ in range(2):
        torch.distributed.barrier()
        if rank > 0:
            refuses((moecomm.Timeout, moecomm.RemoteError, moecomm.Aborted), "until all living ranks call recover", step)
        torch.distributed.barrier()
        assert buffer.recover(20000) == []
        assert torch.equal(step()[0], sums)
        refuses(moecomm.InvalidUsage, "the communicator has recovered since", buffer.combine, recv, handle)
        buffer.suspend()
        refuses(moecomm.InvalidUsage, "the communicator is suspended", step)
        buffer.resume()
        assert torch.equal(step()[0], sums)
    buffer.destroy()


class ElasticBufferTest(RanksTest):
    def test_a_failed_buffer_recovers(self):
        self.run_ranks(recovered)

    def test_one_row_per_rank(self):
        self.run_ranks(by_rank)

    def test_gradients_of_an_expert_that_a_token_names_twice(self):
        self.run_ranks(repeated_experts)

    def test_one_row_per_expert(self):
        self.run_ranks(expanded)

    def test_refusals_name_argument_and_value(self):
        self.run_ranks(refusals)


if __name__ == "__main__":
    unittest.main()
