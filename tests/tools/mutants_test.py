#!/usr/bin/env python3
"""Each planted bug of tests/sim/mutants.toml and tests/api/rule_mutants.toml quotes a text that occurs once. The scripts
that plant them demand it too, but only after they have built for minutes."""
import pathlib
import sys
import tomllib
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/sim"), str(ROOT / "tests/api")]
import rule_mutants  # noqa: E402
import run_mutants  # noqa: E402

MUTANTS = tomllib.loads((ROOT / "tests/sim/mutants.toml").read_text())["mutant"]
RULES = tomllib.loads((ROOT / "tests/api/rule_mutants.toml").read_text())["mutant"]


class MutantsTest(unittest.TestCase):
    def test_every_quoted_text_occurs_once(self):
        self.assertGreater(len(MUTANTS), 200)
        for mutant in MUTANTS + RULES:
            with self.subTest(mutant["name"]):
                self.assertEqual((ROOT / mutant["file"]).read_text().count(mutant["from"]), 1, mutant["file"])

    def test_every_job_is_known(self):
        jobs = {*run_mutants.THREADS, *run_mutants.QUEUES, *run_mutants.SIM_ARGUMENTS}
        self.assertEqual({mutant["job"] for mutant in MUTANTS} - jobs, set())
        self.assertEqual({rule_mutants.name_of(mutant) for mutant in RULES} - set(rule_mutants.PROGRAMS), set())

    def test_names_are_not_used_twice(self):
        names = [mutant["name"] for mutant in MUTANTS + RULES]
        self.assertEqual(sorted(names), sorted(set(names)))


if __name__ == "__main__":
    unittest.main()
