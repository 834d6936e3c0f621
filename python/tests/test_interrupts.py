"""Ctrl-C while the main thread waits for other ranks."""

import os
import pathlib
import signal
import subprocess
import sys
import time
import unittest

from support import MISSING, numpy

PACKAGE = str(pathlib.Path(__file__).resolve().parents[1])
SECONDS = 3.0  # without the start of Python: the signal is sent when the wait has begun

BEGIN = """
import signal, sys, threading, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have started this with SIGINT ignored
import moecomm
SETTINGS = dict(backend="host", timeout_ms=60000, log_level="none", tokens_max=4, ll_tokens_max=4, row_bytes_max=256)
identity = moecomm.unique_id()

def wait(call):
    print("waiting", flush=True)
    begin = time.monotonic()
    try:
        call()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        return
    print("not interrupted", flush=True)
"""

JOIN = """
wait(lambda: moecomm.Communicator(2, 0, identity, **SETTINGS))
"""

# The other rank is a thread that takes part in no call.
PEER = """
made = threading.Event()
over = threading.Event()

def peer():
    with moecomm.Communicator(2, 1, identity, **SETTINGS) as other:
        with other.handle(2, 1, mode=sys.argv[1]):
            made.set()
            over.wait()

thread = threading.Thread(target=peer, daemon=True)
thread.start()
comm = moecomm.Communicator(2, 0, identity, **SETTINGS)
made.wait()
handle = comm.handle(2, 1, mode=sys.argv[1])
"""

# Another thread's calls do not show that the main thread's call goes on.
ROUTE = PEER + """
import numpy

def look():
    while not over.is_set():
        comm.info
        time.sleep(0.01)

looking = threading.Thread(target=look)
looking.start()
wait(lambda: handle.route(numpy.zeros((1, 1), numpy.int32)))
print(type(comm.async_error()).__name__, flush=True)
over.set()
thread.join()
looking.join()
comm.destroy()
"""

# The program handles Ctrl-C itself, and the call ends with its timeout.
OWN = PEER + """
import numpy
heard = []
comm.set_timeout(1500)
signal.signal(signal.SIGINT, lambda *_: heard.append(1))
print("waiting", flush=True)
try:
    handle.route(numpy.zeros((1, 1), numpy.int32))
except moecomm.Timeout:
    print(f"timeout, heard {len(heard)}", flush=True)
over.set()
"""

# Calls that end by themselves leave the communicator as it is.
SHORT = """
with moecomm.Communicator(1, 0, identity, **SETTINGS) as comm:
    print("waiting", flush=True)
    try:
        while True:
            comm.info
            time.sleep(0.002)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    time.sleep(0.6)
    print(comm.async_error(), flush=True)
"""


@unittest.skipIf(MISSING, MISSING)
class InterruptTest(unittest.TestCase):
    def interrupted(self, program, *arguments):
        """The lines that the program prints after a SIGINT in its wait, and the seconds until the first line."""
        path = os.pathsep.join([PACKAGE, os.environ.get("PYTHONPATH", "")])
        command = [sys.executable, "-c", BEGIN + program, *arguments]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path}
        ) as child:
            try:
                self.assertEqual(child.stdout.readline(), "waiting\n")
                time.sleep(0.3)  # it is inside the call
                begin = time.monotonic()
                child.send_signal(signal.SIGINT)
                first = child.stdout.readline()
                seconds = time.monotonic() - begin
                rest = child.stdout.read()
            finally:
                child.kill()
        return (first + rest).split("\n")[:-1], seconds

    def test_joining_ends_at_once(self):
        lines, seconds = self.interrupted(JOIN)
        self.assertEqual(lines, ["interrupted"])
        self.assertLess(seconds, SECONDS)

    @unittest.skipIf(numpy is None, "numpy is not installed")
    def test_a_collective_call_ends_within_a_second_and_the_communicator_is_aborted(self):
        for mode in ("ht", "ll"):
            lines, seconds = self.interrupted(ROUTE, mode)
            self.assertEqual(lines, ["interrupted", "Aborted"])
            self.assertLess(seconds, SECONDS)

    @unittest.skipIf(numpy is None, "numpy is not installed")
    def test_a_handler_of_the_program_keeps_its_say(self):
        lines, _ = self.interrupted(OWN, "ht")
        self.assertEqual(lines, ["timeout, heard 1"])

    def test_short_calls_leave_the_communicator_good(self):
        lines, seconds = self.interrupted(SHORT)
        self.assertEqual(lines, ["interrupted", "None"])
        self.assertLess(seconds, SECONDS)


if __name__ == "__main__":
    unittest.main()
