"""Communicator.replace(): a new process takes the number of a rank that was killed. Needs the library and numpy, and
on a GPU torch."""

import functools
import os
import tempfile
import time
import unittest

from support import DEVICE, MISSING, moecomm, numpy
from support_lost import die_within, others_than, until_failure
from support_worlds import World

RANKS = 4
EXPERTS, TOPK, TOKENS, HIDDEN = 2 * RANKS, 3, 5, 8
ROOM = RANKS * TOKENS * TOPK
FAILURES = (moecomm.errors.RemoteError, moecomm.errors.Timeout, moecomm.errors.Aborted)
BACKEND = "host" if DEVICE == "cpu" else "cuda"
SETTINGS = dict(backend=BACKEND, timeout_ms=30000, log_level="none", heap_bytes=1 << 20)
comm = None  # of this process
steps = []


def placed(array):
    """The array where the steps run."""
    if DEVICE == "cpu":
        return array
    import torch

    return torch.from_numpy(array).to(DEVICE)


def begin(identity, ranks, rank):
    global comm
    if DEVICE != "cpu":
        import torch

        torch.cuda.set_device(rank % torch.cuda.device_count())
    comm = moecomm.Communicator(ranks, rank, identity, **SETTINGS)
    steps.extend(Step(mode) for mode in ("ht", "ll"))
    return comm.destroy


def begin_anew(path, rank):
    """Of a new process: takes the place of a rank that was lost. The survivors wait for its word."""
    while not os.path.exists(path):
        time.sleep(0.001)
    with open(path, "rb") as file:
        identity = file.read()
    for wrong, sentence in ((dict(topk_max=7), "topkMax"), (dict(heap_bytes=2 << 20), "config.heapBytes")):
        try:
            moecomm.Communicator(RANKS, rank, identity, **{**SETTINGS, **wrong})
        except moecomm.errors.InvalidUsage as error:
            assert sentence in str(error), error
        else:
            raise AssertionError(f"{wrong} was accepted")
    return begin(identity, RANKS, rank)


class Step:
    """Each expert multiplies a row by its number and 1. Rows are small integers, so that sums are exact."""

    def __init__(self, mode):
        self.handle = comm.handle(EXPERTS, TOPK, layout="expert-major", mode=mode, tokens_max=TOKENS)
        self.arrived = placed(numpy.zeros((ROOM, HIDDEN), numpy.float32))
        self.sums = placed(numpy.zeros((TOKENS, HIDDEN), numpy.float32))

    def make(self, turn):
        random = numpy.random.default_rng((comm.rank, turn))
        ids = random.permuted(numpy.tile(numpy.arange(EXPERTS), (TOKENS, 1)), axis=1)[:, :TOPK].astype(numpy.int32)
        rows = random.integers(1, 100, (TOKENS, HIDDEN)).astype(numpy.float32)
        given = placed(ids), placed(rows)
        self.handle.route(given[0])
        self.handle.dispatch(given[1], self.arrived)
        counts, at = self.handle.counts(), 0
        for local, count in enumerate(counts.rows_per_expert):
            self.arrived[at : at + count] *= counts.first_expert + local + 1
            at += count
        self.handle.combine(self.arrived, self.sums)
        lives = [expert // (EXPERTS // RANKS) not in comm.lost for expert in range(EXPERTS)]
        factors = numpy.array([[sum(expert + 1 for expert in token if lives[expert])] for token in ids])
        assert self.sums.tolist() == (rows * factors).tolist(), turn


def step_all(turns):
    for turn in turns:
        for step in steps:
            step.make(turn)


def lose(rank, victim, path):
    """The victim dies in its steps. The lowest survivor writes the identity for a new process."""
    step_all(range(2))
    if rank == victim:
        die_within(0.05)
    until_failure(lambda: step_all(range(1)), FAILURES)
    assert comm.recover(60000, losses_max=1) == [victim]
    step_all(range(2))
    if rank == min({0, 1} - {victim}):
        refuse_others(rank)
        with open(path + ".part", "wb") as file:
            file.write(comm.replace(victim))
        os.rename(path + ".part", path)


def refuse_others(rank):
    living = next(other for other in range(RANKS) if other != rank and other not in comm.lost)
    for wrong, kind, sentence in (
        (RANKS, moecomm.errors.InvalidArgument, f"rank is {RANKS}, must be 0..{RANKS - 1}"),
        (rank, moecomm.errors.InvalidArgument, f"rank is {rank}, this rank itself"),
        (living, moecomm.errors.InvalidUsage, f"rank {living} has neither died nor left"),
        ("a", TypeError, "rank"),
    ):
        try:
            comm.replace(wrong)
        except kind as error:
            assert sentence in str(error), error
        else:
            raise AssertionError(f"{wrong} was replaced")


def regain(rank):
    """Survivors recover until the new process has come, and the first steps of all ranks are right."""
    while comm.lost:
        comm.recover(60000, losses_max=1)
        time.sleep(0.002)
    assert comm.async_error() is None
    step_all(range(4))


@unittest.skipIf(MISSING or numpy is None, MISSING or "numpy is missing")
class ReplaceTest(unittest.TestCase):
    def test_new_processes_take_the_places_of_killed_ones(self):
        with tempfile.TemporaryDirectory() as folder:
            world = World(RANKS, functools.partial(begin, moecomm.unique_id(), RANKS))
            self.addCleanup(world.close)
            for turn, victim in enumerate((1, 0, 3)):
                with self.subTest(victim=victim):
                    path = os.path.join(folder, str(turn))
                    self.assertEqual(others_than(world.run(lose, victim, path), victim), [])
                    world.start(victim, functools.partial(begin_anew, path))
                    self.assertEqual(world.run(regain), [])


if __name__ == "__main__":
    unittest.main()
