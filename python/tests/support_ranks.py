"""Worlds of processes for the tests that need torch: RANKS processes with torch.distributed (gloo), which run functions
of a test module. MOECOMM_TEST_DEVICE=cuda puts their tensors on GPUs and uses the cuda backend; the ranks then share
the GPUs there are."""

import functools
import os
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from support import DEVICE, MISSING  # noqa: E402
from support_lost import others_than  # noqa: E402
from support_worlds import World, preload  # noqa: E402

try:
    import torch
except ImportError:
    torch = None
else:
    preload("numpy", "torch", "torch.distributed")
if not MISSING:
    import moecomm

RANKS = 4
TIMEOUT_MS = 30000
SKIP = MISSING or ("torch is not installed" if torch is None else None)
os.environ.setdefault("CUDA_MODULE_LOADING", "EAGER")  # before CUDA begins. TCP between domains: docs/reference/tuning.md
if SKIP is None and DEVICE != "cpu" and not torch.cuda.is_available():
    raise RuntimeError(f"MOECOMM_TEST_DEVICE is {DEVICE}, but torch has no GPU here")


def device():
    """The device of a rank's tensors."""
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
    """Calls the function on a rank while another rank refuses the call. On GPUs the rank may hear of it later, and its
    call goes through."""
    if DEVICE == "cpu":
        return refuses(moecomm.MoeError, text, function, *arguments, **keywords)
    try:
        function(*arguments, **keywords)
    except moecomm.MoeError as error:
        assert text in str(error), (text, str(error))


def _begin(meeting, ranks, rank):
    torch.set_num_threads(1)
    if DEVICE != "cpu":
        torch.cuda.set_device(rank % torch.cuda.device_count())
        torch.cuda.set_stream(torch.cuda.Stream())  # the same
    torch.distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=ranks)
    return torch.distributed.destroy_process_group


class _World(World):
    def __init__(self, ranks):
        self._folder = tempfile.TemporaryDirectory()
        super().__init__(ranks, functools.partial(_begin, os.path.join(self._folder.name, "meeting"), ranks))

    def close(self):
        super().close()
        self._folder.cleanup()


def _run(rank, function, *arguments):
    torch.manual_seed(rank)
    function(rank, *arguments)


@unittest.skipIf(SKIP, SKIP)
class RanksTest(unittest.TestCase):
    """A test case with one world of `ranks` processes. run_ranks(function) calls function(rank) on every rank; functions
    are global ones, so that the processes find them. After a failure the next test gets a new world.
    run_and_lose(function, victims) has a world of its own, in which these ranks die."""

    ranks = RANKS
    _world = None

    def run_ranks(self, function, *arguments):
        if RanksTest._world is None:
            RanksTest._world = _World(self.ranks)
        failures = RanksTest._world.run(_run, function, *arguments)
        if failures:
            RanksTest._world.close()
            RanksTest._world = None
            self.fail("\n".join(failures))

    def run_and_lose(self, function, *victims):
        """Calls function(rank, *victims)."""
        world = _World(self.ranks)
        try:
            self.assertEqual(others_than(world.run(_run, function, *victims), *victims), [])
        finally:
            for victim in victims:
                world.forget(victim)
            world.close()

    @classmethod
    def tearDownClass(cls):
        if RanksTest._world is not None:
            RanksTest._world.close()
            RanksTest._world = None
