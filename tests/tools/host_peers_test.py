#!/usr/bin/env python3
"""scripts/host_peers.py reads the reports of all ways, computes ratios per round, and accepts no wrong results."""
import json
import os
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts"))
import host_peers  # noqa: E402


def times(us):
    return {"dispatch": us, "pair": 2 * us, "fresh": 3 * us}


def report(**given):
    summary = {"min": 10, "median": 20}
    return {"tokens": 8, "wrong_payloads": 0, "wrong_metadata": 0, "wrong_combines": 0, "dispatch_us": summary,
            "pair_us": {"min": 30, "median": 40}, "step_us": {"min": 35, "median": 45}, **given}


class HostPeers(unittest.TestCase):
    def test_ratios_are_of_rounds_and_not_of_medians(self):
        rounds = [{"moecomm": times(10), "mpi": times(20)}, {"moecomm": times(100), "mpi": times(200)},
                  {"moecomm": times(300), "mpi": times(100)}]
        self.assertEqual(host_peers.row(8, rounds),
                         "| 8 | 100 / 100 | 0.50 | 200 / 200 | 0.50 | 300 / 300 | 0.50 |")
        self.assertEqual(host_peers.head(["moecomm", "mpi"]).splitlines()[0],
                         "| tokens | dispatch: moecomm / mpi | by mpi | pair: moecomm / mpi | by mpi | fresh: moecomm / mpi | by mpi |")

    def test_reads_what_moe_perf_and_the_peers_report(self):
        self.assertEqual(host_peers.moecomm_times(report(), "median"), {"dispatch": 20, "pair": 40, "fresh": 45})
        self.assertEqual(host_peers.moecomm_times(report(), "min"), {"dispatch": 10, "pair": 30, "fresh": 35})
        line = json.dumps({"way": "mpi", "tokens": 8, "wrong": 0,
                           **{time: {"min": 1, "median": 2} for time in (*host_peers.TIMES, "combine")}})
        self.assertEqual(host_peers.peer_times(line, "min"), {"dispatch": 1, "pair": 1, "fresh": 1})

    def test_wrong_results_end_it(self):
        for wrong in ("wrong_payloads", "wrong_metadata", "wrong_combines"):
            with self.assertRaisesRegex(SystemExit, "moe_perf found wrong results: 8 tokens"):
                host_peers.moecomm_times(report(**{wrong: 1}), "median")
        with self.assertRaisesRegex(SystemExit, "floor found 3 wrong sums: 8 tokens"):
            host_peers.peer_times(json.dumps({"way": "floor", "tokens": 8, "wrong": 3}), "median")

    def test_a_peer_that_fails_is_told_of(self):
        with self.assertRaisesRegex(SystemExit, "status 3: sh -c echo said; exit 3\nsaid"):
            host_peers.run(["sh", "-c", "echo said; exit 3"])


if __name__ == "__main__":
    unittest.main()
