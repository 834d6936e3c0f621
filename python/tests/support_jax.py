"""Worlds of processes for the tests of moecomm.jax, which run functions of a test module on CPUs, or on GPUs with
MOECOMM_TEST_DEVICE=cuda. JAX's settings must be there before its backend starts, so each world has processes of its own.
"""

import functools
import glob
import os
import pathlib
import socket
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from support import DEVICE, MISSING  # noqa: E402
from support_worlds import World  # noqa: E402

try:
    import jax
except ImportError:
    jax = None

TIMEOUT_MS = 30000
SKIP = MISSING or ("jax is not installed" if jax is None else None)
ON_GPUS = DEVICE == "cuda"
GPUS = len(glob.glob("/dev/nvidia[0-9]*")) if ON_GPUS else 0
# Where a rank keeps its rows. On GPUs each process of several sees one GPU.
PLACE = dict(backend="cuda", device=0) if ON_GPUS else dict(backend="host")


def _begin(processes, devices, port, rank):
    os.environ["JAX_PLATFORMS"] = "cuda" if ON_GPUS else "cpu"
    if ON_GPUS:
        os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
        os.environ["JAX_DEFAULT_MATMUL_PRECISION"] = "highest"  # both models choose the same experts
        if processes > 1:
            os.environ["CUDA_VISIBLE_DEVICES"] = str(rank % GPUS)
    else:
        os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={devices}"
    if port is None:
        return lambda: None
    jax.distributed.initialize(f"127.0.0.1:{port}", processes, rank)
    return jax.distributed.shutdown


def _run(rank, function, processes, *arguments):
    function(rank, processes, *arguments)


def _free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def _world(processes, devices=1, distributed=False):
    """Processes with `devices` devices each. distributed: they have called jax.distributed.initialize()."""
    port = _free_port() if distributed else None
    return World(processes, functools.partial(_begin, processes, devices, port))


@unittest.skipIf(SKIP, SKIP)
class JaxTest(unittest.TestCase):
    """A test case whose world has the settings `world`. After a failure the next test gets a new world."""

    world = {}
    _now = None

    def run_world(self, function, *arguments):
        kind = type(self)
        if kind._now is None:
            kind._now = _world(**kind.world)
        failures = kind._now.run(_run, function, kind.world["processes"], *arguments)
        if failures:
            self.tearDownClass()
            self.fail("\n".join(failures))

    @classmethod
    def tearDownClass(cls):
        if cls._now is not None:
            cls._now.close()
            cls._now = None
