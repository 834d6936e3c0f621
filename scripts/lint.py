#!/usr/bin/env python3
"""Runs clang-tidy on the library's files that have changed since they passed, or that include a file that has.

Usage: lint.py BUILD_DIR [--all] [--jobs N]
BUILD_DIR is a configured build with compile commands for each file. lint.json in it records what passed: for each file
a digest of its text, of all files of ours that it includes, of its compile command, and of clang-tidy and its settings.
Without that record, files are checked that are new work or include some (scripts/changed_files.py), at most DRAWN of
them, which the commit's hash draws. All are checked where new work is unknown or the rules are new, and with --all.
"""
import argparse
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

from changed_files import changed_files, git

ROOT = pathlib.Path(__file__).resolve().parents[1]
TIDY = "clang-tidy-14"
DRAWN = 48  # the most files in a draw
INCLUDE = re.compile(r'^\s*#\s*include\s*["<]([^">]+)[">]', re.M)


class Closure:
    """The files of ours that a file includes, directly or through others."""

    def __init__(self, folders):
        self.folders = [pathlib.Path(folder) for folder in folders]
        self.included = {}
        self.digests = {}

    def includes(self, path):
        if path not in self.included:
            found = set()
            for name in INCLUDE.findall(path.read_text(errors="replace")):
                places = (folder / name for folder in [path.parent, *self.folders])
                found |= {place.resolve() for place in list(places) if place.is_file()}
            self.included[path] = found
        return self.included[path]

    def of(self, path):
        reached, todo = set(), [path.resolve()]
        while todo:
            if (one := todo.pop()) not in reached:
                reached.add(one)
                todo += self.includes(one)
        return sorted(reached)

    def digest(self, path):
        if path not in self.digests:
            self.digests[path] = hashlib.sha256(path.read_bytes()).hexdigest()
        return self.digests[path]


def folders_of(command):
    """The include folders of ours. The system's are left out, because they change with the tools."""
    return [word[2:] for word in shlex.split(command["command"]) if word.startswith("-I")]


def digest_of(command, rules):
    closure = Closure(folders_of(command))
    parts = [rules, command["command"]] + [f"{path} {closure.digest(path)}"
                                           for path in closure.of(pathlib.Path(command["file"]))]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def users_of_new_work(sources):
    """The sources that are new work or include some; None if that is unknown, or if the rules are new."""
    changed = changed_files(ROOT)
    if changed is None or ".clang-tidy" in changed:
        return None
    changed = {(ROOT / path).resolve() for path in changed}
    return {path for path, command in sources.items()
            if not changed.isdisjoint(Closure(folders_of(command)).of(pathlib.Path(path)))}


def draw(paths, seed):
    """DRAWN of these paths, which differ from seed to seed."""
    return set(sorted(paths, key=lambda path: hashlib.sha256(f"{seed} {path}".encode()).digest())[:DRAWN])


def check(build, path):
    """Whether a file passes, and the lines that say why it does not."""
    done = subprocess.run([TIDY, "-quiet", "-p", str(build), path], capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if re.search(r"(warning|error):", line)]
    return done.returncode == 0, lines or done.stderr.splitlines()[-3:] if done.returncode else lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args()
    commands = json.loads((options.build / "compile_commands.json").read_text())
    sources = {command["file"]: command for command in commands
               if command["file"].startswith(f"{ROOT}/src/") and command["file"].endswith(".cc")}
    if not sources:
        sys.exit("the build compiles no file of the library by itself")
    version = subprocess.run([TIDY, "--version"], check=True, capture_output=True, text=True).stdout
    rules = version + (ROOT / ".clang-tidy").read_text()
    record = options.build / "lint.json"
    passed = json.loads(record.read_text()) if record.exists() and not options.all else {}
    digests = {path: digest_of(command, rules) for path, command in sources.items()}
    due = sorted(path for path in sources if passed.get(path) != digests[path])
    if not options.all and not record.exists() and (users := users_of_new_work(sources)) is not None:
        drawn = draw(users, git(ROOT, "rev-parse", "HEAD"))
        passed = {path: digests[path] for path in sources if path not in users}
        due = [path for path in due if path in drawn]
    complaints = set()
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for path, (passes, lines) in zip(due, pool.map(lambda path: check(options.build, path), due)):
            passed[path] = digests[path] if passes else ""
            complaints.update(lines if not passes else [])
    record.write_text(json.dumps({path: passed.get(path, "") for path in sorted(sources)}, indent=0))
    failed = [path for path in due if not passed[path]]
    print("\n".join(sorted(complaints)) or f"{TIDY}: {len(due)} of {len(sources)} files checked")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
