"""The number of Python calls in a step must not grow unnoticed: perf/python/paths.py has the steps. The limits are the
counts of 2026-11-29 (Python 3.11, torch 2.15), plus a tenth for other versions."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from support import MISSING, numpy, world

try:
    import torch
except ImportError:
    torch = None

BENCH = pathlib.Path(__file__).resolve().parents[2] / "perf/python"
try:
    sys.path.insert(0, str(BENCH))
    import paths
except ImportError:  # the tests have been copied without it
    paths = None

RAW = {
    "c LL rank-major": 1,
    "raw LL rank-major": 65,
    "raw LL padded": 73,
    "plan LL rank-major": 41,
    "plan LL rank-major, addresses": 34,
    "plan LL padded": 45,
}
TORCH = {
    **RAW,
    "deep_ep LL bf16": 104,
    "deep_ep LL fp8": 107,
    "deep_ep LL bf16, weights at dispatch": 114,
    "deep_ep LL fp8, weights at dispatch": 117,
    "deep_ep LL bf16, hooks, weights at dispatch": 142,
    "deep_ep LL fp8, hooks": 150,
    "deep_ep HT": 238,
    "deep_ep HT, half to all of these tokens": 238,
    "Dispatcher forward": 141,
    "Dispatcher forward and backward": 512,
}


@unittest.skipIf(MISSING, MISSING)
@unittest.skipIf(paths is None, "perf/python is not here")
class CallsTest(unittest.TestCase):
    def require(self, counted, limits):
        self.assertEqual(set(counted) - {"add_"}, set(limits))
        for name, limit in limits.items():
            with self.subTest(name):
                self.assertLessEqual(counted[name], limit)
                self.assertGreater(counted[name], limit // 2, "lower the limit")

    @unittest.skipIf(numpy is None, "numpy is not installed")
    def test_of_the_binding(self):
        shape = paths.Shape(tokens=1, hidden=64, experts=8, topk=2)
        counted = {}

        def body(comm):
            rows, ids = numpy.ones((1, 64), numpy.float32), numpy.array([[0, 3]], numpy.int32)
            make = lambda extents: numpy.zeros(extents, numpy.float32)  # noqa: E731
            found = paths.binding_paths(comm, shape, make, ids, rows, paths.Queue())
            counted.update({path.name: paths.count_calls(path.step) for path in found})
            comm.destroy()  # while the steps hold the handles

        world(body, 1)
        self.require(counted, RAW)

    @unittest.skipIf(torch is None, "torch is not installed")
    def test_of_all_ways_and_the_benchmark_itself(self):
        options = "--device cpu --hidden 128 --experts 8 --topk 2 --tokens 1 --steps 3 --rounds 1".split()
        with tempfile.TemporaryDirectory() as folder:
            report = os.path.join(folder, "report.json")
            command = [sys.executable, str(BENCH / "bench.py"), *options, "--json", report]
            done = subprocess.run(command, capture_output=True, text=True, timeout=300)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertIn("1 tokens of 128 elements, top-2 of 8, 1 ranks, cpu", done.stdout)
            with open(report) as file:
                found = json.load(file)["found"]["1"]
        self.require({name: one["calls"] for name, one in found.items()}, TORCH)
        for name, one in found.items():
            self.assertGreater(one["wall"], 0, name)


if __name__ == "__main__":
    unittest.main()
