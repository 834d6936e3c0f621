"""Shared by tests of groups that lose ranks: a rank is killed in the middle of steps, and the others notice."""

import contextlib
import os
import signal
import threading
import time

from support import DEVICE

NOTICED = 120  # seconds within which a loss must be noticed


def die_within(seconds):
    """Kills this process while it goes on with its steps."""
    threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGKILL)).start()


def stop_within(seconds, path):
    """Stops this process while it goes on with its steps. `path` gets its number."""
    with open(path, "w", encoding="ascii") as file:
        file.write(str(os.getpid()))
    threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGSTOP)).start()


def kill_stopped(path):
    """Kills the process whose number `path` has, if no other rank has done it."""
    with open(path, encoding="ascii") as file, contextlib.suppress(ProcessLookupError):
        os.kill(int(file.read()), signal.SIGKILL)


def until_failure(step, errors):
    """Makes steps until one of them raises one of `errors`, which is returned."""
    end = time.monotonic() + NOTICED
    while time.monotonic() < end:
        try:
            step()
        except errors as error:
            return error
        except AssertionError:
            error = _next_failure(step, errors)
            if error is None:
                raise
            return error
    raise AssertionError(f"no step has failed within {NOTICED} s")


def _next_failure(step, errors):
    """The error of a step after one with wrong results. On a GPU a step that fails has not failed yet when its call
    returns, so its results are wrong and the next call raises."""
    if DEVICE == "cpu":
        return None
    try:
        step()
    except errors as error:
        return error
    except AssertionError:
        pass
    return None


def others_than(failures, *victims):
    """What World.run() has returned, without the deaths of the victims, which must all have died."""
    deaths = [f for victim in victims for f in failures if f.startswith(f"rank {victim}: died with status ")]
    assert len(deaths) == len(victims), (victims, failures)
    return [failure for failure in failures if failure not in deaths]
