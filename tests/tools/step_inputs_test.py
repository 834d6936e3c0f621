#!/usr/bin/env python3
"""scripts/step_inputs.py sees exactly what a step reads. scripts/test.sh skips steps whose inputs did not change."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import lint  # noqa: E402
import step_inputs  # noqa: E402

# Replaces the steps of scripts/test.sh with steps that add a line to a file when they run.
STEPS = """
all_steps="deps format python lint"
for step in deps format python lint; do eval "step_$step() { echo $step >>ran; ${during:-:}; return ${status:-0}; }"; done
names=()"""


class Inputs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        for name in ("src/a.cc", "src/a.h", "python/a.py", "docs/guide/a.md", "docs/decisions/a.md", ".clang-format"):
            self.write(name, "one")
        (self.root / "scripts").mkdir()
        shutil.copy(ROOT / "scripts/step_inputs.py", self.root / "scripts")
        text = (ROOT / "scripts/test.sh").read_text()
        self.assertEqual(text.count("\nnames=()"), 1)
        self.write("scripts/test.sh", text.replace("\nnames=()", STEPS))
        self.write(".gitignore", "build\nran\n")
        subprocess.run(["git", "init", "-q", self.root], check=True)
        subprocess.run(["git", "-C", self.root, "add", "."], check=True)

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def changed(self, change):
        before = {step: step_inputs.digest_of(step, self.root) for step in step_inputs.TABLE}
        change()
        return {step for step in before if before[step] != step_inputs.digest_of(step, self.root)}

    def run_steps(self, *arguments, **variables):
        """The steps that ran, and the results in test.sh's table."""
        (self.root / "ran").unlink(missing_ok=True)
        done = subprocess.run(["bash", "scripts/test.sh", *arguments], cwd=self.root, capture_output=True, text=True,
                              env=os.environ | variables)
        ran = (self.root / "ran").read_text().split() if (self.root / "ran").exists() else []
        return ran, dict(re.findall(r"^(\w+) +(passed|unchanged|skipped|FAILED) +\d+$", done.stdout, re.M))

    def test_a_change_concerns_those_that_read_it(self):
        every = set(step_inputs.TABLE)
        self.assertEqual(self.changed(lambda: None), set())
        self.assertEqual(self.changed(lambda: self.write("docs/decisions/a.md", "two")), {"tidy", "package", "site"})
        self.assertEqual(self.changed(lambda: self.write("src/a.h", "two")), every - {"mutants", "codegen"})
        self.assertEqual(self.changed(lambda: self.write("src/device/new.h", "new")), every)
        self.assertEqual(self.changed(lambda: self.write("include/moecomm/new.hpp", "new")), every)
        self.assertEqual(self.changed(lambda: self.write("python/a.py", "two")),
                         {"tidy", "tests", "asan", "package", "python"})

    def test_files_that_come_go_and_become_programs_are_changes(self):
        self.assertIn("lint", self.changed(lambda: self.write("src/b.cc", "")))
        self.assertIn("lint", self.changed(lambda: (self.root / "src/b.cc").chmod(0o755)))
        self.assertIn("lint", self.changed((self.root / "src/b.cc").unlink))
        self.assertEqual(self.changed(lambda: self.write("build/b.cc", "ignored")), set())

    def test_a_step_that_passed_is_left_out_until_its_inputs_change(self):
        self.assertEqual(self.run_steps()[0], ["deps", "format", "python", "lint"])
        ran, results = self.run_steps()
        self.assertEqual(ran, ["deps"])  # deps is not in the table of inputs
        self.assertEqual(results, {"deps": "passed", "format": "unchanged", "python": "unchanged", "lint": "unchanged"})
        self.write("python/a.py", "two")
        self.assertEqual(self.run_steps()[0], ["deps", "python"])

    def test_a_step_that_was_asked_for_runs_and_so_do_all(self):
        self.run_steps()
        self.assertEqual(self.run_steps("lint")[0], ["lint"])
        self.assertEqual(self.run_steps("--all", "lint")[0], ["lint"])
        self.assertEqual(self.run_steps("--all")[0], ["deps", "format", "python", "lint"])

    def test_a_failure_a_skip_and_a_change_meanwhile_leave_no_stamp(self):
        for variables in ({"status": "1"}, {"status": "77"}, {"during": "echo >>src/$step.h"}):
            with self.subTest(variables):
                self.run_steps()
                self.run_steps("lint", **variables)
                self.assertIn("lint", self.run_steps()[0])

    def test_the_table_is_of_this_tree(self):
        listed = {name for reads, but_not in step_inputs.TABLE.values() for name in [*reads, *but_not]}
        for name in listed - {""}:
            if not name.startswith("*."):
                self.assertTrue((ROOT / name).exists(), name)
        steps = subprocess.run([ROOT / "scripts/test.sh", "--list"], capture_output=True, text=True).stdout.split()
        self.assertLessEqual(set(step_inputs.TABLE), set(steps))

    def test_kernels_and_mutants_include_nothing_else(self):
        closure = lint.Closure([ROOT / "src", ROOT / "include", ROOT / "tests"])
        for step, sources in (("codegen", (ROOT / "src").rglob("*.cu")),
                              ("mutants", [*(ROOT / "tests/support/simulator").glob("sim*.cc"),
                                           *(ROOT / "tests/sim").glob("*.cc")])):
            inputs = set(step_inputs.files_of(step))
            for source in sources:
                for path in closure.of(source):
                    self.assertIn(str(path.relative_to(ROOT)), inputs, f"{step}: {source} includes it")


if __name__ == "__main__":
    unittest.main()
