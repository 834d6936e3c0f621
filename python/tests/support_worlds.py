"""Worlds: groups of processes that run functions of a test module, each with its rank. Their failures reach the test."""

import multiprocessing
import os
import traceback

RESULT_SECONDS = 240  # for one function, on machines with fewer cores than ranks

_CONTEXT = multiprocessing.get_context("forkserver")


def preload(*modules):
    """Lets the process whose forks the ranks are import these first, because that takes seconds."""
    _CONTEXT.set_forkserver_preload(list(modules))


def _serve(rank, begin, environment, pipe):
    """One rank: calls begin(rank), runs the functions that come through the pipe, and answers None or a traceback for
    each. Then it calls what begin() returned."""
    os.environ.clear()
    os.environ.update(environment)
    end = begin(rank)
    while True:
        try:
            function, arguments = pipe.recv()
        except EOFError:
            break
        try:
            function(rank, *arguments)
            pipe.send(None)
        except BaseException:  # noqa: B902
            pipe.send(traceback.format_exc())
    end()


class World:
    """`ranks` processes, which first call begin(rank), a function that can be pickled."""

    def __init__(self, ranks, begin):
        self._ranks = {}
        for rank in range(ranks):
            self.start(rank, begin)

    def start(self, rank, begin):
        """A process for a rank that has none, or whose process has died. Later functions run when begin(rank) is over."""
        if rank in self._ranks:
            self.forget(rank)
        ours, theirs = _CONTEXT.Pipe()
        process = _CONTEXT.Process(target=_serve, args=(rank, begin, dict(os.environ), theirs), daemon=True)
        process.start()
        theirs.close()
        self._ranks[rank] = process, ours

    def run(self, function, *arguments):
        """Calls function(rank, *arguments) on every rank. Returns the failures, a text each."""
        for _, pipe in self._ranks.values():
            pipe.send((function, arguments))
        failures = []
        for rank, (process, pipe) in self._ranks.items():
            if not pipe.poll(RESULT_SECONDS):
                failures.append(f"rank {rank} did not answer within {RESULT_SECONDS} s")
                continue
            try:
                failure = pipe.recv()
            except EOFError:
                process.join(30)
                failure = f"died with status {process.exitcode}"
            if failure is not None:
                failures.append(f"rank {rank}: {failure}")
        return failures

    def forget(self, rank):
        """Later functions run without this rank, which has died."""
        self._ranks.pop(rank)[1].close()

    def close(self):
        for _, pipe in self._ranks.values():
            pipe.close()
        for process, _ in self._ranks.values():
            process.join(30)
            if process.is_alive():
                process.kill()
                process.join()
