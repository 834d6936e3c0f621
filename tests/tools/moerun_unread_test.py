#!/usr/bin/env python3
"""moerun while its output is not read. It still reacts, loses nothing that is read late, and reports what is lost.

Usage: moerun_unread_test.py PATH_OF_MOERUN
"""
import os
import select
import signal
import subprocess
import sys
import time
import unittest
from pathlib import Path

MOERUN = sys.argv.pop(1) if len(sys.argv) > 1 else "moerun"
PATIENCE = 60  # seconds; allows for a busy machine
# Writes without end, so it exceeds what pipes and buffers hold.
TALK = "while :; do echo 0123456789012345678901234567890123456789012345678901234567890123456789; done"


def start(*arguments, **streams):
    return subprocess.Popen([MOERUN, *arguments], **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams})


def wait_until(what, condition):
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, f"waited in vain: {what}"
        time.sleep(0.02)


def wait_until_full(pipe):
    """Returns once the pipe accepts no more bytes."""
    end = os.open(f"/proc/self/fd/{pipe.fileno()}", os.O_WRONLY | os.O_NONBLOCK)
    try:
        wait_until("the pipe is full", lambda: not select.select([], [end], [], 0)[1])
    finally:
        os.close(end)


class Unread(unittest.TestCase):
    def ended(self, job):
        try:
            return job.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            job.kill()
            self.fail("moerun did not end: it waits for its reader")
        finally:
            for pipe in (job.stdout, job.stderr):
                if pipe:
                    pipe.close()

    def test_the_timeout_ends_a_job_that_nobody_reads(self):
        self.assertEqual(self.ended(start("-n", "2", "--timeout", "1", "sh", "-c", TALK)), 124)

    def test_the_timeout_ends_a_job_whose_errors_nobody_reads(self):
        self.assertEqual(self.ended(start("-n", "2", "--timeout", "1", "sh", "-c", f"({TALK}) >&2")), 124)

    def test_signals_end_a_job_that_nobody_reads(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            with self.subTest(number):
                job = start("-n", "2", "sh", "-c", TALK)
                wait_until_full(job.stdout)
                job.send_signal(number)
                self.assertEqual(self.ended(job), 128 + number)

    def test_a_signal_ends_the_wait_for_the_reader_of_a_job_that_is_done(self):
        job = start("-n", "1", "sh", "-c", "seq 80000")  # 0.8 MB: less than moerun keeps

        def only_the_watcher_is_left():
            return len(Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()) == 1
        wait_until_full(job.stdout)  # a full pipe shows that the rank has started
        wait_until("the rank has ended", only_the_watcher_is_left)
        self.assertIsNone(job.poll())
        job.send_signal(signal.SIGTERM)
        said = job.stderr.read().decode()
        self.assertEqual(self.ended(job), 143)
        self.assertRegex(said, r"^moerun: standard output: nobody reads it; [1-9]\d* bytes are lost\n$")

    def test_a_failing_rank_is_reported_while_nobody_reads_the_output(self):
        job = start("-n", "2", "--grace", "0.1", "sh", "-c",
                    f'if [ $MOECOMM_RANK = 1 ]; then exit 7; fi; {TALK}')
        said = job.stderr.readline().decode()
        self.assertRegex(said, r"moerun: rank 1 \(process \d+ on .*\) ended with status 7")
        job.terminate()
        self.assertEqual(self.ended(job), 7)

    def test_what_is_read_late_is_complete(self):
        job = start("-n", "2", "sh", "-c", "seq 400000")  # 2.7 MB from each rank
        wait_until_full(job.stdout)
        out, err = job.communicate(timeout=PATIENCE)
        self.assertEqual((job.returncode, err), (0, b""))
        for rank in (0, 1):
            lines = [line.split(b" ")[1] for line in out.splitlines() if line.startswith(b"[%d]" % rank)]
            self.assertEqual(lines, [b"%d" % i for i in range(1, 400001)])

    def test_ranks_are_held_back_instead_of_filling_the_memory(self):
        job = start("-n", "2", "sh", "-c", TALK)
        wait_until_full(job.stdout)
        with open(f"/proc/{job.pid}/task/{job.pid}/children") as children:
            pids = [int(word) for word in children.read().split()]

        def work():  # clock ticks of moerun, its watcher and its ranks
            return [sum(map(int, Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13]))
                    for pid in (job.pid, *pids)]
        before = []

        def stands_still():
            before.append(work())
            return len(before) > 10 and before[-1] == before[-10]
        wait_until("moerun and its ranks stand still", stands_still)
        with open(f"/proc/{job.pid}/status") as status:
            peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
        self.assertLess(peak, 256 << 10)  # KiB; sanitizers need much memory
        job.terminate()
        self.ended(job)

    def test_lost_output_is_said_and_is_no_success(self):
        with open("/dev/full", "w") as full:
            job = start("-n", "1", "echo", "hello", stdout=full)
            said = job.stderr.read().decode()
            self.assertEqual(self.ended(job), 1)
        self.assertEqual(said, "moerun: standard output: No space left on device; its output is lost\n")

    def test_lost_help_is_no_success(self):
        with open("/dev/full", "w") as full:
            lost = subprocess.run([MOERUN, "--help"], stdout=full, stderr=subprocess.PIPE, timeout=PATIENCE, check=False)
        self.assertEqual((lost.returncode, lost.stderr), (
            1, b"moerun: standard output: No space left on device; its output is lost\n"))

    def test_a_reader_that_leaves_is_said_and_the_work_goes_on(self):
        job = start("-n", "1", "sh", "-c", "for i in $(seq 30000); do echo line; done; echo done >&2")
        job.stdout.close()
        job.stdout = None
        said = job.stderr.read().decode()
        self.assertEqual(self.ended(job), 1)
        self.assertIn("[0] done\n", said)
        self.assertIn("moerun: standard output: Broken pipe; its output is lost\n", said)

    def test_output_that_is_not_read_until_the_end_is_counted(self):
        job = start("-n", "1", "--timeout", "1", "sh", "-c", TALK)
        self.assertEqual(job.wait(PATIENCE), 124)
        self.assertRegex(job.stderr.read().decode(), r"moerun: standard output: nobody reads it; [1-9]\d* bytes are lost\n")
        self.ended(job)


if __name__ == "__main__":
    unittest.main()
