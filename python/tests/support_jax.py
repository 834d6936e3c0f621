"""Worlds of processes for the tests of moecomm.jax, which run functions of a test module on CPUs. JAX's settings must be
there before its backend starts, so each world has processes of its own."""

import multiprocessing
import os
import pathlib
import socket
import sys
import traceback
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from support import MISSING  # noqa: E402

try:
    import jax
except ImportError:
    jax = None

TIMEOUT_MS = 30000
RESULT_SECONDS = 240  # for one function, on machines with fewer cores than ranks
SKIP = MISSING or ("jax is not installed" if jax is None else None)


def _serve(rank, processes, devices, port, pipe):
    """One process: runs the functions that come through the pipe, and answers None or a traceback."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={devices}"
    if port is not None:
        jax.distributed.initialize(f"127.0.0.1:{port}", processes, rank)
    while True:
        try:
            function, arguments = pipe.recv()
        except EOFError:
            break
        try:
            function(rank, processes, *arguments)
            pipe.send(None)
        except BaseException:  # noqa: B902
            pipe.send(traceback.format_exc())
    if port is not None:
        jax.distributed.shutdown()


def _free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class World:
    """Processes with `devices` devices each. distributed: they have called jax.distributed.initialize()."""

    def __init__(self, processes, devices=1, distributed=False):
        context = multiprocessing.get_context("spawn")
        port = _free_port() if distributed else None
        self._processes = []
        for rank in range(processes):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(rank, processes, devices, port, theirs), daemon=True)
            process.start()
            theirs.close()
            self._processes.append((process, ours))

    def run(self, function, *arguments):
        """function(rank, processes, *arguments) in each process. The failures."""
        for _, pipe in self._processes:
            pipe.send((function, arguments))
        failures = []
        for rank, (process, pipe) in enumerate(self._processes):
            if not pipe.poll(RESULT_SECONDS):
                failures.append(f"process {rank} did not answer within {RESULT_SECONDS} s")
                continue
            try:
                failure = pipe.recv()
            except EOFError:
                failure = f"died with status {process.exitcode}"
            if failure is not None:
                failures.append(f"process {rank}: {failure}")
        return failures

    def close(self):
        for _, pipe in self._processes:
            pipe.close()
        for process, _ in self._processes:
            process.join(30)
            if process.is_alive():
                process.kill()
                process.join()


@unittest.skipIf(SKIP, SKIP)
class JaxTest(unittest.TestCase):
    """A test case whose world has the settings `world`. After a failure the next test gets a new world."""

    world = {}
    _now = None

    def run_world(self, function, *arguments):
        kind = type(self)
        if kind._now is None:
            kind._now = World(**kind.world)
        failures = kind._now.run(function, *arguments)
        if failures:
            self.tearDownClass()
            self.fail("\n".join(failures))

    @classmethod
    def tearDownClass(cls):
        if cls._now is not None:
            cls._now.close()
            cls._now = None
