#!/usr/bin/env python3
"""scripts/lint.py checks files again that have changed, their users, and files that did not pass."""
import json
import os
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts"))
import lint  # noqa: E402


class Lint(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name).resolve()
        self.write("src/a.cc", '#include "a.h"\n')
        self.write("src/b.cc", '  #  include "room/b.h"\n#include <vector>\n')
        self.write("src/a.h", "")
        self.write("src/room/b.h", '#include "c.h"\n')
        self.write("src/room/c.h", "")
        self.write(".clang-tidy", "")
        self.bad = set()

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def checked(self, *arguments, status=0):
        """The names of the files that lint.py passes to clang-tidy."""
        (self.root / "build").mkdir(exist_ok=True)
        commands = [{"file": f"{self.root}/src/{name}", "command": f"c++ -I{self.root}/src -c {name}"}
                    for name in ("a.cc", "b.cc")]
        (self.root / "build/compile_commands.json").write_text(json.dumps(commands))
        seen = []

        def check(_, path):
            seen.append(name := pathlib.Path(path).name)
            return name not in self.bad, []

        with mock.patch.multiple(lint, ROOT=self.root, TIDY="true", check=check), mock.patch("builtins.print"), \
                mock.patch.object(sys, "argv", ["lint.py", str(self.root / "build"), *arguments]):
            self.assertEqual(lint.main(), status)
        return sorted(seen)

    def test_all_files_at_first_and_on_demand(self):
        self.assertEqual(self.checked(), ["a.cc", "b.cc"])
        self.assertEqual(self.checked(), [])
        self.assertEqual(self.checked("--all"), ["a.cc", "b.cc"])

    def test_new_work_and_its_users_where_nothing_is_recorded(self):
        for changed, checked in ((["src/room/c.h"], ["b.cc"]), (["README.md"], []), ([".clang-tidy"], ["a.cc", "b.cc"])):
            with self.subTest(changed), mock.patch.object(lint, "changed_files", return_value=set(changed)), \
                    mock.patch.object(lint, "git", return_value="commit"):
                self.assertEqual(self.checked(), checked)
                self.write("src/a.h", f"// changed after {changed}")
                self.assertEqual(self.checked(), ["a.cc"])
                self.assertEqual(self.checked("--all"), ["a.cc", "b.cc"])
                (self.root / "build/lint.json").unlink()

    def test_a_draw_of_new_work_that_the_commit_determines(self):
        with mock.patch.object(lint, "changed_files", return_value={"src/a.h", "src/room/b.h"}), \
                mock.patch.multiple(lint, DRAWN=1, git=lambda *_: "commit"):
            first = self.checked()
            self.assertEqual(len(first), 1)
            self.assertEqual(self.checked(), sorted({"a.cc", "b.cc"} - set(first)))
            (self.root / "build/lint.json").unlink()
            self.assertEqual(self.checked(), first)

    def test_users_of_what_changes_at_any_distance(self):
        self.checked()
        self.write("src/room/c.h", "// changed")
        self.assertEqual(self.checked(), ["b.cc"])
        self.write("src/a.h", "// changed")
        self.assertEqual(self.checked(), ["a.cc"])
        self.write(".clang-tidy", "# other rules")
        self.assertEqual(self.checked(), ["a.cc", "b.cc"])

    def test_a_header_that_now_is_found_earlier_is_a_change(self):
        self.checked()
        self.write("src/room/room/b.h", "")
        self.assertEqual(self.checked(), [])
        self.write("src/c.h", "")
        self.assertEqual(self.checked(), ["b.cc"])

    def test_what_did_not_pass(self):
        self.bad = {"b.cc"}
        self.assertEqual(self.checked(status=1), ["a.cc", "b.cc"])
        self.assertEqual(self.checked(status=1), ["b.cc"])
        self.bad = set()
        self.assertEqual(self.checked(), ["b.cc"])
        self.assertEqual(self.checked(), [])


if __name__ == "__main__":
    unittest.main()
