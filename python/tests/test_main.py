"""python -m moecomm."""

import importlib.util
import os
import pathlib
import subprocess
import sys
import unittest

from support import MISSING, moecomm

PYTHON = pathlib.Path(__file__).resolve().parents[1]


def run(**variables):
    """The result of `python -m moecomm`."""
    return subprocess.run([sys.executable, "-m", "moecomm"], cwd=PYTHON, env={**os.environ, **variables},
                          capture_output=True, text=True, timeout=300)  # fmt: skip


class MainTest(unittest.TestCase):
    @unittest.skipIf(MISSING, MISSING)
    def test_it_says_what_is_there(self):
        ran = run()
        self.assertEqual((ran.returncode, ran.stderr), (0, ""))
        found = {line[:14].strip(): line[14:] for line in ran.stdout.splitlines()}
        self.assertEqual(
            list(found), ["moecomm", "library", "path", "backend host", "backend cuda", "python", "torch", "driver"]
        )
        self.assertEqual(found["moecomm"], moecomm.__version__)
        version = ".".join(map(str, moecomm.version())).replace(".", r"\.")
        self.assertRegex(found["library"], rf"^{version}(, commit [0-9a-f]+(-dirty)?)?$")
        self.assertRegex(pathlib.Path(found["path"]).name, r"^libmoecomm\.so")
        self.assertTrue(pathlib.Path(found["path"]).is_absolute())
        self.assertEqual(found["backend host"], "works")
        self.assertRegex(found["backend cuda"], "^works$|^does not work: ")
        self.assertEqual(found["torch"].startswith("not installed"), importlib.util.find_spec("torch") is None)

    def test_it_says_why_the_library_cannot_be_loaded(self):
        ran = run(MOECOMM_LIBRARY="/no/libmoecomm.so")
        self.assertEqual((ran.returncode, ran.stdout), (1, ""))
        self.assertRegex(ran.stderr, r"^moecomm .*: libmoecomm was not found; .*: /no/libmoecomm.so: cannot open")
        self.assertNotIn("Traceback", ran.stderr)

    @unittest.skipUnless(pathlib.Path("/lib/x86_64-linux-gnu/libm.so.6").exists(), "no libm there")
    def test_another_library_is_refused(self):
        ran = run(MOECOMM_LIBRARY="/lib/x86_64-linux-gnu/libm.so.6")
        self.assertEqual((ran.returncode, ran.stdout), (1, ""))
        self.assertIn("moeGetVersion", ran.stderr)


if __name__ == "__main__":
    unittest.main()
