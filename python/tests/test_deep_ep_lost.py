"""Buffers of moecomm.deep_ep go on without ranks that have died. Needs torch."""

import os
import signal
import unittest

from support_lost import die_within, until_failure
from support_ranks import RANKS, SKIP, RanksTest, refuses, torch
from test_deep_ep import EXPERTS, LOCAL, TOKENS, arriving, inputs, make, ranks_of, send

if torch is not None:
    import moecomm
    import moecomm.deep_ep as deep_ep

NUM_MAX = 8
if SKIP is None:
    FAILURES = (moecomm.RemoteError, moecomm.Timeout, moecomm.Aborted)


class Run:
    """Steps of a Buffer with two communicators, against plain torch."""

    def __init__(self, rank, lost=()):
        make().destroy()  # configures
        deep_ep.configure(timeout_ms=60000)
        group = torch.distributed.group.WORLD
        self.buffer = deep_ep.Buffer(group, low_latency_mode=True, explicitly_destroy=True, enable_shrink=True)
        self.rank, self.lost, (self.x, self.ids, self.weights) = rank, list(lost), inputs(rank)

    def tokens(self, source):
        return 0 if source in self.lost else TOKENS

    def living(self):
        """The entries of this rank's tokens that name an expert of a living rank."""
        lost = torch.tensor(self.lost, dtype=self.ids.dtype, device=self.ids.device)
        return (self.ids >= 0) & ~torch.isin(torch.div(self.ids, LOCAL, rounding_mode="floor"), lost)

    def high_throughput(self):
        got = send(self.buffer, self.x, self.ids, self.weights)
        for found, due in zip(got[:3], arriving(self.rank, self.tokens)):
            assert torch.equal(found, due)
        copies = ranks_of(torch.where(self.living(), self.ids, -1)).sum(dim=1, keepdim=True)
        assert torch.equal(self.buffer.combine(got[0], got[4])[0], (self.x.float() * copies).to(self.x.dtype))
        again = self.buffer.dispatch(2 * self.x, handle=got[4])[0]
        assert torch.equal(again, 2 * got[0])
        return got

    def low_latency(self, hook=False):
        options = dict(use_fp8=False, return_recv_hook=hook)
        rows, counts, handle, _, receive = self.buffer.low_latency_dispatch(self.x, self.ids, NUM_MAX, EXPERTS, **options)
        if hook:
            receive()
        due_rows, due_ids, _ = arriving(self.rank, self.tokens)
        for expert in range(LOCAL):
            due = due_rows[(due_ids == expert).any(dim=1)]
            assert counts[expert] == due.shape[0] and torch.equal(rows[expert, : due.shape[0]], due)
        ones = torch.ones_like(self.weights)
        sums = self.buffer.low_latency_combine(rows, self.ids, ones, handle)[0]
        assert torch.equal(sums, (self.x.float() * self.living().sum(dim=1, keepdim=True)).to(self.x.dtype))

    def both(self):
        self.high_throughput()
        self.low_latency()
        self.low_latency(hook=True)

    def mask(self):
        found = torch.full((RANKS,), 7, dtype=torch.int32, device=self.x.device)
        self.buffer.low_latency_query_mask_buffer(found)
        return found.tolist()


def one_dies(rank, victim):
    run = Run(rank)
    for _ in range(3):
        run.both()
    assert run.buffer.enable_shrink and run.mask() == [0] * RANKS
    update = run.buffer.low_latency_update_mask_buffer
    refuses(NotImplementedError, f"rank {victim} is not lost: end its process", update, victim, True)
    refuses(ValueError, "rank_to_mask is 4, expected 0..3", update, RANKS, True)
    update(victim, False)
    if rank == victim:
        die_within(0.2)
    error = until_failure(run.both, FAILURES)
    assert "until all living ranks call recover(), with losses_max if some have died" in str(error), error
    refuses(moecomm.RemoteError, f"rank {victim}", run.buffer.recover, 60000)
    assert run.buffer.recover(60000, losses_max=1) == [victim]
    run.lost = [victim]
    for _ in range(3):
        run.both()
    assert run.mask() == [int(one == victim) for one in range(RANKS)]
    run.buffer.low_latency_clean_mask_buffer()
    update(victim, True)
    assert run.mask() == [int(one == victim) for one in range(RANKS)]
    refuses(NotImplementedError, f"rank {victim} is lost, and cannot come back", update, victim, False)
    without_the_group(run)
    run.both()
    run.buffer.destroy()


def without_the_group(run):
    """What needs the group's own backend, which is as dead as the rank, is refused. The rest works."""
    dispatch = run.buffer.dispatch
    _, _, per_expert, in_rank, _ = run.buffer.get_dispatch_layout(run.ids, EXPERTS)
    options = dict(is_token_in_rank=in_rank, num_tokens_per_expert=per_expert)
    refuses(moecomm.InvalidUsage, "exchanges numbers by the group", dispatch, run.x, **options)
    refuses(ValueError, "is_token_in_rank has shape", dispatch, run.x, **{**options, "is_token_in_rank": in_rank[:5]})
    rows = dispatch(run.x, num_worst_tokens=RANKS * NUM_MAX, **options)[0]
    due = arriving(run.rank, run.tokens)[0]
    assert torch.equal(rows[: due.shape[0]], due)
    wide = run.x.repeat(1, 4)
    refuses(moecomm.InvalidUsage, "make a new Buffer of the living ranks", send, run.buffer, wide, run.ids, run.weights)
    go = run.buffer.low_latency_dispatch
    refuses(moecomm.InvalidUsage, "a larger communicator is needed", go, wide, run.ids, NUM_MAX, EXPERTS)
    few = run.ids[:, :2].contiguous()
    assert send(run.buffer, run.x, few, None)[0].shape[1] == run.x.shape[1]  # another shape of the same communicator


def two_die(rank, first, second):
    """The second one dies when it has recovered one communicator of two."""
    run = Run(rank)
    run.both()
    if rank == second:
        comm = run.buffer.routes.communicators()[0]
        recover = comm.recover

        def recover_and_die(*arguments):
            recover(*arguments)
            os.kill(os.getpid(), signal.SIGKILL)

        comm.recover = recover_and_die
    if rank == first:
        die_within(0.1)
    until_failure(run.both, FAILURES)
    lost = run.buffer.recover(60000, losses_max=2)
    assert lost == sorted([first, second]), lost
    run.lost = lost
    for _ in range(3):
        run.both()
    assert run.mask() == [int(one in lost) for one in range(RANKS)]
    run.buffer.destroy()


class LostTest(RanksTest):
    def test_a_buffer_goes_on_without_a_rank(self):
        for victim in (0, 2):
            with self.subTest(victim=victim):
                self.run_and_lose(one_dies, victim)

    def test_a_rank_dies_between_two_recoveries(self):
        self.run_and_lose(two_die, 1, 3)


if __name__ == "__main__":
    unittest.main()
