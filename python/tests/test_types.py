"""mypy and pyright find nothing in the package, and the mistakes of planted_types.py. They are found on PATH or in
build/types/bin, a virtual environment with both."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

TESTS = pathlib.Path(__file__).resolve().parent
PYTHON = TESTS.parent
PLANTED = TESTS / "planted_types.py"
CHECKOUT = PYTHON.parent
SECONDS = 600
# Packages that import what pyright must find.
NEED = {"torch": ("torch", "deep_ep", "vllm", "sglang"), "jax": ("jax",)}


def tool(name):
    """The path of a checker; None if it is not installed."""
    return shutil.which(name) or shutil.which(name, path=str(CHECKOUT / "build/types/bin"))


def site_of(name):
    """The folder from which torch or jax is imported; None without it."""
    places = [CHECKOUT / "build/torch/site", *map(pathlib.Path, sys.path)]
    return next((str(place) for place in places if (place / name / "__init__.py").exists()), None)


def planted(checker):
    """(line, error) of each mistake of planted_types.py."""
    lines = PLANTED.read_text().splitlines()
    found = ((number, re.search(rf"# .*\b{checker}: (\w[\w-]*)", line)) for number, line in enumerate(lines, 1))
    return [(number, match.group(1)) for number, match in found if match]


class PlantedTest(unittest.TestCase):
    def test_there_are_fifteen(self):
        self.assertEqual(len(planted("mypy")), 15)
        self.assertEqual(len(planted("pyright")), 15)


class TypesTest(unittest.TestCase):
    def setUp(self):
        self._folder = tempfile.TemporaryDirectory()
        self.addCleanup(self._folder.cleanup)
        self.folder = pathlib.Path(self._folder.name)

    def run_tool(self, name, *arguments):
        """The output of a checker."""
        path = tool(name)
        if path is None:
            self.skipTest(f"{name} is not installed: pip install mypy pyright")
        environment = {**os.environ, "MYPYPATH": str(PYTHON)}
        ran = subprocess.run([path, *arguments], cwd=PYTHON, env=environment, timeout=SECONDS, capture_output=True, text=True)
        self.assertIn(ran.returncode, (0, 1), ran.stdout + ran.stderr)
        return ran.stdout

    def check(self, checker, found, output):
        """found: (path, line, error) of each error."""
        elsewhere = [one for one in found if pathlib.Path(one[0]).name != PLANTED.name]
        self.assertEqual(elsewhere, [], output)
        self.assertEqual(sorted((line, error) for _, line, error in found), planted(checker), output)

    def test_mypy(self):
        options = ("--config-file", "../pyproject.toml", "--cache-dir", str(self.folder), "--no-error-summary")
        output = self.run_tool("mypy", *options, "--no-pretty", "moecomm", str(PLANTED))
        errors = re.findall(r"^(.+?):(\d+): error: .*\[([\w-]+)\]$", output, re.M)
        self.assertEqual(len(errors), output.count(": error: "), output)
        self.check("mypy", [(path, int(line), error) for path, line, error in errors], output)

    def test_pyright(self):
        sites = {name: site_of(name) for name in NEED}
        missing = [package for name, packages in NEED.items() if sites[name] is None for package in packages]
        relative = os.path.relpath(PYTHON, self.folder)
        settings = {
            "pythonVersion": "3.9",
            "include": [f"{relative}/moecomm", f"{relative}/tests/{PLANTED.name}"],
            "exclude": [f"{relative}/moecomm/{package}" for package in missing],
            "extraPaths": [str(PYTHON), *sorted({site for site in sites.values() if site is not None})],
        }
        (self.folder / "pyrightconfig.json").write_text(json.dumps(settings))
        output = self.run_tool("pyright", "--project", str(self.folder), "--outputjson")
        answer = json.loads(output)
        self.assertGreater(answer["summary"]["filesAnalyzed"], 20, output)
        found = [
            (one["file"], one["range"]["start"]["line"] + 1, one.get("rule", ""))
            for one in answer["generalDiagnostics"]
            if one["severity"] in ("error", "warning")
        ]
        self.check("pyright", found, output)


if __name__ == "__main__":
    unittest.main()
