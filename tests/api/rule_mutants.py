#!/usr/bin/env python3
"""Plants each mistake of rule_mutants.toml in the code that keeps a group of processes together, and demands that its
test fails. tests/sim/run_mutants.py does the same for the protocol.

The script fails if a mutant survives, does not compile, or quotes a text that does not occur exactly once. It also
fails if a test fails without a mistake. It takes the objects of a build that is up to date, compiles only the files
again that a mistake changes, and links them with the rest.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import sys
import time
import tomllib

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/sim"))
from run_mutants import job_seconds, plant  # noqa: E402

SEEDS = {"survive": range(1, 21, 4), "replace": range(1, 5)}


def commands_of(test: str, moerun: str, program: str):
    """The commands of a test, one after the other. The first that fails ends it."""
    name = test.removesuffix("-rack")
    if name == "survive":
        return [[str(ROOT / "tests/api/survive_test.sh"), moerun, program, "host", "5", "4", str(seed)]
                for seed in SEEDS[name]]
    if name == "replace":
        return [[str(ROOT / "tests/api/replace_test.sh"), program, "4", "4", str(seed)] for seed in SEEDS[name]]
    filters = {
        "recover": "*Recover.*Host",
        "parting": "*Parting*Host*",
        "sleep": "*Sleep*Host*",
        "counts": "CommRecover.*:CommParting.*",
        "domains": "Domains.*",
        "survivors": "*BootstrapSurvivors*:BootstrapListen.*:BootstrapReplace*:BootstrapRecover*",
    }
    alone = [program, f"--gtest_filter={filters[name]}:-*Cuda*", "--gtest_fail_fast"]
    if PROGRAMS[name] == "moecomm_unit_tests":
        return [alone]
    together = [moerun, "-n", "4", *alone]
    return [together] if test != name else [alone, together]


PROGRAMS = {
    "survive": "moecomm_survivor_rank",
    "replace": "moecomm_replace_rank",
    "recover": "moecomm_api_tests",
    "parting": "moecomm_api_tests",
    "sleep": "moecomm_api_tests",
    "counts": "moecomm_unit_tests",
    "domains": "moecomm_unit_tests",
    "survivors": "moecomm_unit_tests",
}


def name_of(mutant):
    """The test of a mutant, on whatever hosts it runs."""
    return mutant["test"].removesuffix("-rack")


class Build:
    def __init__(self, folder: pathlib.Path):
        self.folder = folder
        self.compilers = {}
        for entry in json.loads((folder / "compile_commands.json").read_text()):
            words = shlex.split(entry["command"])
            self.compilers[words[words.index("-o") + 1]] = words
        self.users = {}  # of each file, the library's objects that are compiled from it
        for block in self.ninja("-t", "deps").split("\n\n"):
            target, *files = block.splitlines() or [""]
            target = target.partition(":")[0]
            if not target.startswith("src/CMakeFiles/moecomm_objects.dir/"):
                continue
            for file in files:
                path = os.path.relpath(os.path.abspath(folder / file.strip()), ROOT)
                self.users.setdefault(path, []).append(target)

    def ninja(self, *arguments):
        return self.checked(["ninja", "-C", str(self.folder), *arguments], "ninja")

    def checked(self, command, what: str):
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"{what}:\n{done.stderr[:2000]}")
        return done.stdout

    def compile(self, target: str, overlay: pathlib.Path, file: str) -> str:
        words = list(self.compilers[target])
        at = next(i for i, word in enumerate(words) if word.startswith("-I"))
        words = [word for word in words if not word.startswith("-O")] + ["-w"]
        words.insert(min(at, len(words)), f"-I{overlay}/src")
        changed = str(overlay / target)
        words[words.index("-o") + 1] = changed
        words = [str(overlay / file) if word == str(ROOT / file) else word for word in words]
        for option in ("-MD", "-MT", "-MF"):
            if option in words:
                place = words.index(option)
                del words[place:place + (1 if option == "-MD" else 2)]
        pathlib.Path(changed).parent.mkdir(parents=True, exist_ok=True)
        self.checked(words, "does not compile")
        return changed

    def program(self, name: str, overlay: pathlib.Path, file: str) -> str:
        """The program with the mistake in `file` of `overlay`."""
        objects = self.users.get(file, [])
        if not objects:
            raise RuntimeError(f"nothing is compiled from {file}")
        link = self.links[name]
        for target in objects:
            if f" {target} " not in link:
                continue
            link = link.replace(f" {target} ", f" {self.compile(target, overlay, file)} ")
        to = str(overlay / name)
        self.checked(["sh", "-c", link.replace(f" -o tests/{name} ", f" -o {to} ")], "does not link")
        return to

    def read_links(self, names):
        self.links = {name: self.ninja("-t", "commands", name).splitlines()[-1] for name in names}


def failure(test: str, moerun: str, program: str):
    """How a test failed, or None if it passed."""
    environment = dict(os.environ, SURVIVE_JOBS="2", MOECOMM_LOG_LEVEL="none")
    if test.endswith("-rack"):
        environment["MOECOMM_RACK"] = "2"
    end = time.monotonic() + job_seconds()
    for command in commands_of(test, moerun, program):
        if "survive_test" in command[0]:
            environment["FIRST_SEED"] = command.pop()
        # A group of its own, so that all its processes can be ended.
        running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment,
                                   start_new_session=True)
        try:
            if running.wait(max(1, end - time.monotonic())) != 0:
                return f"status {running.returncode}"
        except subprocess.TimeoutExpired:
            return "hangs"
        finally:
            try:
                os.killpg(running.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            running.wait()
    return None


def try_mutant(build: Build, work: pathlib.Path, index: int, mutant):
    begin = time.monotonic()
    overlay = work / f"mutant{index}"
    try:
        plant(ROOT, mutant, overlay)
        program = build.program(PROGRAMS[name_of(mutant)], overlay, mutant["file"])
        how = failure(mutant["test"], str(build.folder / "src/moerun"), program)
        verdict = "caught" if how else "SURVIVED"
    except RuntimeError as error:
        verdict, how = "BROKEN", str(error)
    shutil.rmtree(overlay, ignore_errors=True)
    return verdict, how, time.monotonic() - begin


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", help="folder of a build with the programs of tests/api")
    parser.add_argument("--work", default="/tmp/moecomm-rule-mutants", help="directory for what is built")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    build = Build(pathlib.Path(options.build).resolve())
    planted = tomllib.loads((ROOT / "tests/api/rule_mutants.toml").read_text())["mutant"]
    mutants = [m for m in planted if options.only in m["name"]]
    build.read_links(sorted({PROGRAMS[name_of(m)] for m in mutants}))
    bad = 0
    for test in sorted({m["test"] for m in mutants}):
        program = str(build.folder / "tests" / PROGRAMS[test.removesuffix("-rack")])
        how = failure(test, str(build.folder / "src/moerun"), program)
        print(f"{'passes' if how is None else 'FAILS':10} {test} without a mistake", flush=True)
        bad += how is not None
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        work = pathlib.Path(options.work).resolve()
        results = pool.map(lambda item: try_mutant(build, work, *item), enumerate(mutants))
        for mutant, (verdict, how, seconds) in zip(mutants, results):
            print(f"{verdict:10} {mutant['name']} ({mutant['test']}: {how}, {seconds:.1f} s)", flush=True)
            bad += verdict != "caught"
    print(f"{len(mutants)} of {len(planted)} mutants, {bad} not as they must be")
    return 1 if bad or not mutants else 0


if __name__ == "__main__":
    sys.exit(main())
