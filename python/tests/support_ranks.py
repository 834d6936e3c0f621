"""Worlds of processes for the tests that need torch: RANKS processes with torch.distributed (gloo), which run functions
of a test module. MOECOMM_TEST_DEVICE=cuda puts their tensors on GPUs and uses the cuda backend; the ranks then share
the GPUs there are."""

import multiprocessing
import os
import pathlib
import sys
import tempfile
import traceback
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from support import MISSING  # noqa: E402

try:
    import torch
except ImportError:
    torch = None
if not MISSING:
    import moecomm

RANKS = 4
DEVICE = os.environ.get("MOECOMM_TEST_DEVICE", "cpu")
TIMEOUT_MS = 30000
RESULT_SECONDS = 240  # for one function, on machines with fewer cores than ranks
SKIP = MISSING or ("torch is not installed" if torch is None else None)
if SKIP is None and DEVICE != "cpu" and not torch.cuda.is_available():
    raise RuntimeError(f"MOECOMM_TEST_DEVICE is {DEVICE}, but torch has no GPU here")


def device():
    """Where a rank's tensors are."""
    return torch.device("cpu") if DEVICE == "cpu" else torch.device("cuda", torch.cuda.current_device())


def refuses(expected, text, function, *arguments, **keywords):
    """Calls the function, which must raise `expected` with this text."""
    try:
        function(*arguments, **keywords)
    except expected as error:
        assert text in str(error), (text, str(error))
        return
    raise AssertionError(f"expected {expected}: {text}")


def hears(text, function, *arguments, **keywords):
    """Calls the function on a rank that hears of what another rank refuses. On GPUs it may hear later, so that the call
    goes through."""
    if DEVICE == "cpu":
        return refuses(moecomm.MoeError, text, function, *arguments, **keywords)
    try:
        function(*arguments, **keywords)
    except moecomm.MoeError as error:
        assert text in str(error), (text, str(error))


def _serve(rank, ranks, meeting, pipe):
    """One rank: runs the functions that come through the pipe, and answers None or a traceback."""
    torch.set_num_threads(1)
    os.environ.setdefault("CUDA_MODULE_LOADING", "EAGER")  # TCP between domains: docs/reference/tuning.md
    if DEVICE != "cpu":
        torch.cuda.set_device(rank % torch.cuda.device_count())
        torch.cuda.set_stream(torch.cuda.Stream())  # the same
    torch.distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=ranks)
    while True:
        try:
            function, arguments = pipe.recv()
        except EOFError:
            break
        try:
            torch.manual_seed(rank)
            function(rank, *arguments)
            pipe.send(None)
        except BaseException:  # noqa: B902
            pipe.send(traceback.format_exc())
    torch.distributed.destroy_process_group()


class _World:
    def __init__(self, ranks):
        context = multiprocessing.get_context("spawn")
        self._folder = tempfile.TemporaryDirectory()
        meeting = os.path.join(self._folder.name, "meeting")
        self._ranks = []
        for rank in range(ranks):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(rank, ranks, meeting, theirs), daemon=True)
            process.start()
            theirs.close()
            self._ranks.append((process, ours))

    def run(self, function, *arguments):
        for _, pipe in self._ranks:
            pipe.send((function, arguments))
        failures = []
        for rank, (process, pipe) in enumerate(self._ranks):
            if not pipe.poll(RESULT_SECONDS):
                failures.append(f"rank {rank} did not answer within {RESULT_SECONDS} s")
                continue
            try:
                failure = pipe.recv()
            except EOFError:
                failure = f"died with status {process.exitcode}"
            if failure is not None:
                failures.append(f"rank {rank}: {failure}")
        return failures

    def close(self):
        for _, pipe in self._ranks:
            pipe.close()
        for process, _ in self._ranks:
            process.join(30)
            if process.is_alive():
                process.kill()
                process.join()
        self._folder.cleanup()


@unittest.skipIf(SKIP, SKIP)
class RanksTest(unittest.TestCase):
    """A test case with one world of `ranks` processes. run_ranks(function) calls function(rank) on every rank; functions
    are global ones, so that the processes find them. After a failure the next test gets a new world."""

    ranks = RANKS
    _world = None

    def run_ranks(self, function, *arguments):
        if RanksTest._world is None:
            RanksTest._world = _World(self.ranks)
        failures = RanksTest._world.run(function, *arguments)
        if failures:
            RanksTest._world.close()
            RanksTest._world = None
            self.fail("\n".join(failures))

    @classmethod
    def tearDownClass(cls):
        if RanksTest._world is not None:
            RanksTest._world.close()
            RanksTest._world = None
