#!/usr/bin/env python3
"""The files that are new work: those of the commits of HEAD's last day, and of the working tree.

Usage: changed_files.py   prints them, one per line, and fails where nobody can say: in a checkout without history.
scripts/test.sh checks these files' share of what is expensive (lint, planted defects), and all of it with --all.
"""
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
DAY = 24 * 3600


def git(root, *arguments):
    command = ["git", "-C", str(root), "-c", f"safe.directory={root}", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def changed_files(root=ROOT):
    """Paths relative to `root`, or None if they are unknown."""
    try:
        if git(root, "rev-parse", "--is-shallow-repository").strip() != "false":
            return None
        newest = int(git(root, "log", "-1", "--format=%ct"))
        # By the committer's date, whose order follows history closely enough for a choice of tests.
        listings = [git(root, "log", f"--since={newest - DAY}", "--format=", "--name-only", "-m", "-z"),
                    git(root, "diff", "HEAD", "--name-only", "-z"),
                    git(root, "ls-files", "--others", "--exclude-standard", "-z")]
    except (OSError, ValueError, subprocess.CalledProcessError):
        return None
    return {path.strip("\n") for listing in listings for path in listing.split("\0") if path.strip("\n")}


if __name__ == "__main__":
    found = changed_files()
    if found is None:
        sys.exit("this checkout has no history")
    print("\n".join(sorted(found)))
