#!/usr/bin/env python3
"""scripts/changed_files.py distinguishes new work from old, and the draw of mutants by it leaves out none in the end."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "tests/sim")]
import changed_files  # noqa: E402
import run_mutants  # noqa: E402


class ChangedFiles(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name) / "first"
        self.root.mkdir()
        self.git("init", "-q")

    def git(self, *arguments, day=0):
        date = f"2026-11-{day:02} 12:00 +0000" if day else ""
        identity = {f"GIT_{role}_{what}": "somebody" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        subprocess.run(["git", *arguments], check=True, capture_output=True, cwd=self.root, env=dict(
            os.environ, GIT_COMMITTER_DATE=date, GIT_AUTHOR_DATE=date, **identity))

    def commit(self, name, day):
        (self.root / name).write_text(str(day))
        self.git("add", name)
        self.git("commit", "-q", "-m", name, day=day)

    def test_are_those_of_the_last_day_and_of_the_working_tree(self):
        self.commit("old", 2)
        self.commit("edited", 3)
        self.commit("new", 10)
        self.commit("a name with spaces", 10)
        (self.root / "edited").write_text("again")
        (self.root / "untracked").write_text("")
        self.assertEqual(changed_files.changed_files(self.root), {"new", "a name with spaces", "edited", "untracked"})

    def test_are_unknown_without_history(self):
        self.assertIsNone(changed_files.changed_files(self.root))
        self.commit("old", 2)
        self.commit("new", 10)
        shallow = self.root.parent / "shallow"
        self.git("clone", "-q", "--depth", "1", f"file://{self.root}", str(shallow))
        self.assertIsNone(changed_files.changed_files(shallow))
        self.assertIsNone(changed_files.changed_files(self.root.parent))


class Draw(unittest.TestCase):
    mutants = [{"name": str(number), "file": f"src/{number % 20}.h"} for number in range(300)]

    def test_has_every_mutant_of_a_changed_file_and_some_more(self):
        drawn = run_mutants.draw(self.mutants, {"src/3.h"}, "seed")
        self.assertEqual(sum(mutant["file"] == "src/3.h" for mutant in drawn), 15)
        self.assertEqual(len(drawn), 15 + run_mutants.DRAWN)
        self.assertEqual(drawn, [mutant for mutant in self.mutants if mutant in drawn])

    def test_is_no_larger_than_ci_has_time_for(self):
        changed = {mutant["file"] for mutant in self.mutants}
        self.assertEqual(len(run_mutants.draw(self.mutants, changed, "seed")), run_mutants.CHANGED)

    def test_differs_from_commit_to_commit_until_all_have_been_drawn(self):
        self.assertEqual(run_mutants.draw(self.mutants, set(), "a"), run_mutants.draw(self.mutants, set(), "a"))
        names = {mutant["name"] for seed in range(200) for mutant in run_mutants.draw(self.mutants, set(), str(seed))}
        self.assertEqual(len(names), len(self.mutants))

    def test_is_all_where_the_change_is_unknown(self):
        self.assertEqual(run_mutants.draw(self.mutants, None, ""), self.mutants)


if __name__ == "__main__":
    unittest.main()
