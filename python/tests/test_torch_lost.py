"""A Dispatcher of moecomm.torch goes on without a rank that has died, with gradients. Needs torch."""

import unittest

from support_lost import die_within, until_failure
from support_ranks import RANKS, RanksTest, refuses, torch
from test_torch import EXPERTS, TOPK, expert_rows, inputs, join, scale_of

if torch is not None:
    import moecomm
    import moecomm.torch

LOCAL = EXPERTS // RANKS
CASES = [(layout, mode, most) for layout in ("flat", "expert-major") for mode in ("ht", "ll") for most in (None, "worst")]


def living(comm, ids):
    """The ids, with -1 in place of experts of lost ranks."""
    lost = torch.tensor(comm.lost, dtype=torch.int64, device=ids.device)
    return torch.where(torch.isin(torch.div(ids, LOCAL, rounding_mode="floor"), lost), -1, ids)


def step(comm, moe):
    """A layer and its backward pass: sums and gradients are those of the experts that live."""
    rows, ids, weights = inputs(comm.rank)
    rows.requires_grad_(), weights.requires_grad_()
    got = moe.dispatch(rows, ids, weights)
    sums = moe.combine(expert_rows(comm, moe, got), got, weights="apply" if moe.by_expert else "applied")
    sums.sum().backward()
    factors = scale_of(living(comm, ids))
    due = rows.detach() * (factors * weights.detach()).sum(dim=1, keepdim=True)
    torch.testing.assert_close(sums.detach(), due)
    torch.testing.assert_close(rows.grad, (factors * weights.detach()).sum(dim=1, keepdim=True).expand_as(rows))
    torch.testing.assert_close(weights.grad, factors * rows.detach().sum(dim=1, keepdim=True), rtol=1e-4, atol=1e-4)
    return got


def lost(rank, victim):
    with join() as comm:
        all_of_them = [
            moecomm.torch.Dispatcher(comm, EXPERTS, TOPK, layout=layout, mode=mode, out_rows_max=most)
            for layout, mode, most in CASES
        ]
        steps = lambda: [step(comm, moe) for moe in all_of_them]  # noqa: E731
        before = steps()
        if rank == victim:
            die_within(0.1)
        until_failure(steps, (moecomm.RemoteError, moecomm.Timeout, moecomm.Aborted))
        assert comm.recover(60000, losses_max=1) == [victim]
        for moe, got in zip(all_of_them, before):
            refuses(moecomm.InvalidUsage, "the communicator has recovered since", moe.combine, got.rows, got)
        for _ in range(3):
            steps()


class LostTest(RanksTest):
    def test_a_dispatcher_goes_on_without_a_rank(self):
        self.run_and_lose(lost, RANKS - 1)


if __name__ == "__main__":
    unittest.main()
