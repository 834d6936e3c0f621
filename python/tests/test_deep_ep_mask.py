"""Dispatches of moecomm.deep_ep by is_token_in_rank alone, with num_worst_tokens and on more ranks than a token of the
library has entries. Needs torch."""

import threading
import unittest

from support_ranks import DEVICE, RANKS, SKIP, RanksTest, hears, refuses, torch
from test_deep_ep import EXPERTS, HIDDEN, LOCAL, TOKENS, arriving, inputs, make, ranks_of, send

if torch is not None:
    import moecomm
    import moecomm.deep_ep as deep_ep
    from moecomm.deep_ep import high_throughput


def worst(rank):
    """Nothing waits, the list is empty, and the handle serves as any other."""
    buffer = make()
    x, ids, _ = inputs(rank)
    _, _, per_expert, in_rank, _ = buffer.get_dispatch_layout(ids, EXPERTS)
    rows, *_ = arriving(rank, lambda source: TOKENS)
    n, options = rows.shape[0], dict(num_tokens_per_expert=per_expert, num_worst_tokens=RANKS * 8)
    for _ in range(2):
        got, none, nothing, listed, handle, _ = buffer.dispatch(x, is_token_in_rank=in_rank, **options)
        assert got.shape[0] == RANKS * 8 and torch.equal(got[:n], rows)
        assert none is None and nothing is None and listed == []
        sums, _, _ = buffer.combine(got, handle)
        assert torch.equal(sums, (x.float() * in_rank.sum(dim=1, keepdim=True)).to(x.dtype))
        again, *_ = buffer.dispatch(2 * x, handle=handle)
        assert torch.equal(again[:n], 2 * rows)
    if rank == 1:
        refuses(ValueError, "is_token_in_rank has shape (5, 4)", buffer.dispatch, x, is_token_in_rank=in_rank[:5], **options)
    else:
        hears("rank 1 has refused its arguments", buffer.dispatch, x, is_token_in_rank=in_rank, **options)
    assert torch.equal(send(buffer, x, ids, None)[0], rows)
    buffer.destroy()


def refusals(rank):
    """Without num_worst_tokens the other ranks hear of a refusal too, also in the first call."""
    buffer = make()
    x, ids, _ = inputs(rank)
    _, _, per_expert, in_rank, _ = buffer.get_dispatch_layout(ids, EXPERTS)
    go = lambda x, mask, counts: buffer.dispatch(x, is_token_in_rank=mask, num_tokens_per_expert=counts)  # noqa: E731
    wrong = ((x, in_rank[:5], per_expert), (x, in_rank.int(), per_expert), (x, in_rank, None), (x[0], in_rank, per_expert))
    for number in range(5):
        for arguments in wrong[number : number + 1]:
            if rank == 1:
                refuses((TypeError, ValueError), "", go, *arguments)
            else:
                refuses(moecomm.InvalidUsage, "rank 1 has refused its arguments: ", go, x, in_rank, per_expert)
        if number % 2:
            got, _, _, _, handle, _ = go(x, in_rank, per_expert)
            assert torch.equal(got, arriving(rank, lambda source: TOKENS)[0])
            sums, _, _ = buffer.combine(got, handle)
            assert torch.equal(sums, (x.float() * in_rank.sum(dim=1, keepdim=True)).to(x.dtype))
    buffer.destroy()


def few_entries(rank):
    """Tests the case of more ranks than a token has entries, with a limit of two entries."""
    before, high_throughput.TOPK_LIMIT = high_throughput.TOPK_LIMIT, 2
    try:
        buffer = make()
        x, ids, _ = inputs(rank)
        ids[:, 2] = -1
        in_rank = ranks_of(ids)
        per_expert = buffer.get_dispatch_layout(ids, EXPERTS)[2]
        everyone = [None] * RANKS
        torch.distributed.all_gather_object(everyone, (x.cpu(), ids.cpu()))
        due = torch.cat([given[ranks_of(chosen)[:, rank]] for given, chosen in everyone]).to(x.device)
        counts = [sum((chosen == rank * LOCAL + one).sum().item() for _, chosen in everyone) for one in range(LOCAL)]
        many = in_rank.clone()
        many[3] = torch.tensor([True, True, False, True], device=x.device)
        for most in (0, RANKS * 8):
            options = dict(num_tokens_per_expert=per_expert, num_worst_tokens=most)
            got, _, _, listed, handle, _ = buffer.dispatch(x, is_token_in_rank=in_rank, **options)
            assert torch.equal(got[: due.shape[0]], due) and listed == ([] if most else counts)
            sums, _, _ = buffer.combine(got, handle)
            assert torch.equal(sums, (x.float() * in_rank.sum(dim=1, keepdim=True)).to(x.dtype))
            text = "is_token_in_rank sends a token of rank 1 to 3 ranks, expected at most 2"
            mask = many if rank == 1 else in_rank
            if most == 0 or (rank == 1 and DEVICE == "cpu"):
                refuses(ValueError, text, buffer.dispatch, x, is_token_in_rank=mask, **options)
            else:  # GPUs find it in the route
                hears("rank 1", buffer.dispatch, x, is_token_in_rank=mask, **options)
            assert torch.equal(buffer.dispatch(x, is_token_in_rank=in_rank, **options)[0][: due.shape[0]], due)
        buffer.destroy()
    finally:
        high_throughput.TOPK_LIMIT = before


class ThreadGroup:
    """Ranks that are threads, as vLLM's StatelessProcessGroup looks."""

    def __init__(self, rank, boxes, barrier):
        self.rank, self.world_size, self._boxes, self._barrier = rank, len(boxes), boxes, barrier

    def all_gather_obj(self, value):
        self._boxes[self.rank] = value
        self._barrier.wait(120)
        found = list(self._boxes)
        self._barrier.wait(120)
        return found

    def broadcast_obj(self, value, src):
        return self.all_gather_obj(value)[src]


class MaskTest(RanksTest):
    def test_a_mask_with_a_fixed_number_of_rows(self):
        self.run_ranks(worst)

    def test_refusals_reach_all_ranks(self):
        self.run_ranks(refusals)

    def test_tokens_have_fewer_entries_than_there_are_ranks(self):
        self.run_ranks(few_entries)


@unittest.skipIf(SKIP, SKIP)
class ManyRanksTest(unittest.TestCase):
    def test_entries_of_a_mask_of_160_ranks(self):
        mask = torch.zeros(3, 160, dtype=torch.bool)
        chosen = [3, 41, 159]
        mask[0, chosen] = True
        mask[1, :33] = True
        ids = high_throughput.ids_of_mask(mask, 32)
        self.assertEqual(ids[0].tolist(), chosen + [-1] * 29)
        self.assertEqual(ids[1].tolist(), [*range(31), 160])  # which the route refuses
        self.assertEqual(ids[2].tolist(), [-1] * 32)

    def test_34_ranks(self):
        ranks, tokens, failures = 34, 2, []
        boxes, barrier = [None] * ranks, threading.Barrier(ranks)
        deep_ep.configure(device="cpu", timeout_ms=60000, tokens_max=4, in_flight=1, domain_size=0)

        def mask_of(rank):
            return torch.tensor([[(rank * token + to) % 9 == 4 for to in range(ranks)] for token in range(tokens)])

        def run(rank):
            try:
                buffer = deep_ep.Buffer(ThreadGroup(rank, boxes, barrier), explicitly_destroy=True)
                x = torch.full((tokens, 16), rank + 1.0)
                x[1] = -x[1]
                due = [(source + 1.0) * (1 - 2 * t) for source in range(ranks) for t in range(tokens) if mask_of(source)[t, rank]]
                options = dict(is_token_in_rank=mask_of(rank), num_tokens_per_expert=torch.zeros(ranks))
                for most in (0, ranks * tokens):
                    got, _, _, _, handle, _ = buffer.dispatch(x, num_worst_tokens=most, **options)
                    assert got[: len(due), 5].tolist() == due
                    sums, _, _ = buffer.combine(got, handle)
                    assert torch.equal(sums, x * mask_of(rank).sum(dim=1, keepdim=True))
                barrier.wait(120)
                buffer.destroy()
            except BaseException as failure:  # noqa: B902
                failures.append(failure)
                barrier.abort()

        threads = [threading.Thread(target=run, args=(rank,)) for rank in range(ranks)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])


if __name__ == "__main__":
    unittest.main()
