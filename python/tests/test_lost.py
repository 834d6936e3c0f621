"""Communicator.recover() with losses_max: a group goes on without ranks that have died. Needs the library and numpy."""

import functools
import os
import tempfile
import threading
import unittest

from support import MISSING, moecomm, numpy, world
from support_lost import die_within, kill_stopped, others_than, stop_within, until_failure
from support_worlds import World

RANKS, VICTIM = 4, 1
EXPERTS, TOPK, TOKENS, HIDDEN = 2 * RANKS, 3, 5, 8
ROOM = RANKS * TOKENS * TOPK
LAYOUTS = ("flat", "expert-major", "expert-major-padded", "rank-major")
FAILURES = (moecomm.errors.RemoteError, moecomm.errors.Timeout, moecomm.errors.Aborted)
comm = None  # of this process


def begin(identity, ranks, rank):
    global comm
    comm = moecomm.Communicator(ranks, rank, identity, backend="host", timeout_ms=30000, log_level="none",
                                heap_bytes=1 << 20)
    return comm.destroy


def ids_of(rank, turn):
    """Different experts for each token."""
    return numpy.random.default_rng((rank, turn)).permuted(numpy.tile(numpy.arange(EXPERTS), (TOKENS, 1)), axis=1)[
        :, :TOPK
    ].astype(numpy.int32)


def rows_of(rank, turn):
    """Small integers, so that sums are exact."""
    return numpy.random.default_rng((rank, turn, 1)).integers(1, 100, (TOKENS, HIDDEN)).astype(numpy.float32)


def lives(expert):
    return expert // (EXPERTS // comm.nranks) not in comm.lost


def expected_sums(turn):
    """Each expert multiplies a row by its number and 1."""
    factors = numpy.array([[expert + 1 if lives(expert) else 0 for expert in ids] for ids in ids_of(comm.rank, turn)])
    return rows_of(comm.rank, turn) * factors.sum(axis=1, keepdims=True)


def expected_rows(expert, turn):
    """The rows that come for an expert, by source rank and token."""
    found = [numpy.zeros((0, HIDDEN), numpy.float32)]
    for source in range(comm.nranks):
        if source not in comm.lost:
            found.append(rows_of(source, turn)[(ids_of(source, turn) == expert).any(axis=1)])
    return numpy.concatenate(found)


class Step:
    """Steps of one expert-major handle, with arrays that stay."""

    def __init__(self, mode):
        self.handle = comm.handle(EXPERTS, TOPK, layout="expert-major", mode=mode, tokens_max=TOKENS)
        self.rows, self.sums = (numpy.zeros((TOKENS, HIDDEN), numpy.float32) for _ in range(2))
        self.arrived = numpy.zeros((ROOM, HIDDEN), numpy.float32)
        self.plan = self.handle.plan(
            TOKENS,
            dispatch=dict(rows=self.rows, out_rows=self.arrived),
            combine=dict(rows=self.arrived, out=self.sums),
        )

    def make(self, turn, at_once, calls=None):
        """One step, by the handle, whose calls are prepared ones after the first, or by the plan."""
        calls = calls or self.handle
        ids = ids_of(comm.rank, turn)
        self.rows[...] = rows_of(comm.rank, turn)
        if at_once:
            calls.route_dispatch(ids, None, self.rows, self.arrived)
        else:
            self.handle.route(ids)
            calls.dispatch(self.rows, self.arrived)
        counts, at = self.handle.counts(), 0
        for local, rows in enumerate(counts.rows_per_expert):
            expert, mine = counts.first_expert + local, self.arrived[at : at + rows]
            assert mine.tolist() == expected_rows(expert, turn).tolist(), (expert, turn)
            mine *= expert + 1
            at += rows
        assert [rows for rank, rows in enumerate(counts.rows_per_rank) if rank in comm.lost] == [0] * len(comm.lost)
        calls.combine(self.arrived, self.sums)
        assert self.sums.tolist() == expected_sums(turn).tolist(), turn

    def make_all(self, turns):
        for turn in turns:
            for calls in (self.handle, self.plan):
                self.make(turn, turn % 2 == 0, calls)


def step_of_layout(layout, mode, turn):
    """Sums of living ranks' copies, where a row of flat and rank-major handles stands for all experts of its rank."""
    with comm.handle(EXPERTS, TOPK, layout=layout, mode=mode, tokens_max=TOKENS) as handle:
        handle.route(ids_of(comm.rank, turn))
        out = numpy.zeros((handle.counts().layout_rows, HIDDEN), numpy.float32)
        rows, sums = rows_of(comm.rank, turn), numpy.zeros((TOKENS, HIDDEN), numpy.float32)
        handle.dispatch(rows, out)
        handle.combine(out, sums)
        experts_of = [[expert for expert in ids if lives(expert)] for ids in ids_of(comm.rank, turn)]
        if not layout.startswith("expert-major"):
            experts_of = [{expert // (EXPERTS // comm.nranks) for expert in experts} for experts in experts_of]
        factors = numpy.array([[len(experts)] for experts in experts_of])
        assert sums.tolist() == (rows * factors).tolist(), (layout, mode)


def lose(rank, victim, seconds):
    """The victim dies in its steps, and the others go on."""
    steps = [Step(mode) for mode in ("ht", "ll")]
    for step in steps:
        step.make_all(range(2))
    if rank == victim:
        die_within(seconds)
    turn = iter(range(10**9))

    def all_modes():
        number = next(turn)
        for step in steps:
            step.make(number, number % 2 == 0, step.plan)

    until_failure(all_modes, FAILURES)
    lost = sorted([*comm.lost, victim])
    assert comm.recover(60000, losses_max=len(lost)) == lost and comm.lost == lost
    assert comm.async_error() is None
    for step in steps:
        try:
            step.plan.dispatch(step.rows, step.arrived)
        except moecomm.errors.InvalidUsage as error:
            assert "has voided the route of this handle" in str(error), error
        else:
            raise AssertionError("a void route was used")
        step.make_all(range(6))
    for layout in LAYOUTS:
        for mode in ("ht", "ll"):
            step_of_layout(layout, mode, 1)
    for step in steps:
        step.handle.destroy()


def evict(rank, victim, path):
    """The victim hangs. The others give it up before it is killed."""
    step = Step("ll")
    marks = numpy.asarray(comm.window((64,)))
    marks[...] = 7
    step.make_all(range(2))
    comm.set_timeout(1500)
    if rank == victim:
        stop_within(0.2, path)
    until_failure(lambda: step.make_all(range(2)), FAILURES)
    assert comm.recover(60000, losses_max=1, evicted=[victim]) == [victim]
    assert comm.memory_fresh and not marks.any()
    comm.set_timeout(30000)
    kill_stopped(path)
    step.make_all(range(4))


def recover_again(rank):
    """Nothing has failed, and the lost ranks stay lost."""
    lost = list(comm.lost)
    assert comm.recover(60000, losses_max=len(lost)) == lost
    Step("ll").make_all(range(2))


def refusals(rank, victim):
    """Recovery without losses fails, on all ranks, and the next one succeeds."""
    step = Step("ht")
    step.make_all(range(2))
    for wrong, kind in ((-1, moecomm.errors.InvalidArgument), (RANKS, moecomm.errors.InvalidArgument), ("a", TypeError)):
        try:
            comm.recover(60000, losses_max=wrong)
        except kind as error:
            assert (kind is TypeError or f"recovery.lossesMax is {wrong}, must be 0..{RANKS - 1}" in str(error)), error
        else:
            raise AssertionError(f"losses_max {wrong} was accepted")
        assert comm.async_error() is None
    for wrong, kind in (([RANKS], moecomm.errors.InvalidArgument), ([rank], moecomm.errors.InvalidArgument), (1, TypeError)):
        try:
            comm.recover(60000, losses_max=1, evicted=wrong)
        except kind as error:
            assert kind is TypeError or f"recovery.evicted[0] is {wrong[0]}" in str(error), error
        else:
            raise AssertionError(f"evicted {wrong} was accepted")
    step.make_all(range(2))
    if rank == victim:
        die_within(0)
    until_failure(lambda: step.make_all(range(2)), FAILURES)
    for _ in range(2):
        try:
            comm.recover(60000)
        except moecomm.errors.RemoteError as error:
            assert f"rank {victim}" in str(error), error
        else:
            raise AssertionError("recovered without losses")
        assert comm.lost == [] and comm.async_error() is not None
    assert comm.recover(60000, losses_max=1) == [victim]
    step.make_all(range(4))
    comm.suspend()


def wake_by_recovery(rank, victim):
    """When all ranks are asleep: a rank that recovers would end the suspend() of others."""
    assert comm.recover(60000, losses_max=1) == [victim] and comm.memory_fresh
    step = Step("ht")
    step.make_all(range(4))
    comm.suspend()
    comm.resume()
    step.make_all(range(4))


@unittest.skipIf(MISSING or numpy is None, MISSING or "numpy is missing")
class LostTest(unittest.TestCase):
    def setUp(self):
        self.world = World(RANKS, functools.partial(begin, moecomm.unique_id(), RANKS))
        self.addCleanup(self.world.close)

    def test_a_group_goes_on_without_ranks_that_are_killed(self):
        victims = [VICTIM, 0, 3]
        for victim in victims:
            with self.subTest(victim=victim):
                self.assertEqual(others_than(self.world.run(lose, victim, 0.2), victim), [])
                self.world.forget(victim)
                self.assertEqual(self.world.run(recover_again), [])

    def test_a_rank_that_hangs_is_evicted(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "stopped")
            self.assertEqual(others_than(self.world.run(evict, VICTIM, path), VICTIM), [])

    def test_losses_are_refused_where_nobody_accepts_them(self):
        self.assertEqual(others_than(self.world.run(refusals, VICTIM), VICTIM), [])
        self.world.forget(VICTIM)
        self.assertEqual(self.world.run(wake_by_recovery, VICTIM), [])


@unittest.skipIf(MISSING or numpy is None, MISSING or "numpy is missing")
class ThreadsTest(unittest.TestCase):
    def test_lost_ranks_that_were_threads_are_refused(self):
        met = threading.Barrier(2)

        def body(comm):
            met.wait()
            if comm.rank == 1:
                return  # leaves
            with self.assertRaisesRegex(moecomm.errors.Unsupported, "rank 1 was a thread of rank 0's process"):
                comm.recover(60000, losses_max=1)

        world(body)


if __name__ == "__main__":
    unittest.main()
