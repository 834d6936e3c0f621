#!/usr/bin/env python3
"""Plants each bug of mutants.toml in a copy of the sources and demands that its job fails.

A mutant that survives, a text that does not occur exactly once and a mutant that does not compile are failures of this
script, and so is a job that fails without a bug. `--only TEXT` runs the mutants whose name contains TEXT.
"""

import argparse
import concurrent.futures
import os
import pathlib
import shutil
import subprocess
import sys
import time
import tomllib

ROOT = pathlib.Path(__file__).resolve().parents[2]
COMMON = ["support/cast_case.cc", "support/combine_operation.cc", "support/dispatch_operation.cc",
          "support/fp8_reference.cc", "support/judge.cc", "support/operations.cc", "support/program.cc",
          "support/protocol_world.cc", "support/reference.cc", "support/routing_input.cc", "support/scenario.cc"]
FLAGS = ["-std=c++20", "-Og", "-ffp-contract=off", "-w"]  # compiling takes most of the time
TSAN = ["-fsanitize=thread", "-g1"]
JOB_SECONDS = 90
SEEDS, SEEDS_WITH_BUG = 1500, 4000  # a bug ends the job at the first seed that shows it

# A job: what is compiled with the mutated headers, what it is linked with, and how it runs.
TEAMS = {"host-tsan": "HostTeam", "lanes-tsan": "LaneTeam<4>"}
QUEUES = {"queues": [], "queues-tsan": TSAN}
QUEUE_SOURCES = ["adapter_test", "put_queue_test", "queue_test", "soft_adapter", "wqe_reader"]
SIM_ARGUMENTS = {
    "sim-ht": ["--protocol", "ht"],
    "sim-ll": ["--protocol", "ll"],
    "sim-both": ["--protocol", "both"],
    "sim-capacity": ["--mishap", "capacity"],
    "sim-stranger": ["--mishap", "stranger"],
    "sim-row-size": ["--mishap", "row-size"],
    "sim-death": ["--mishap", "death"],
    "sim-twice": ["--mishap", "twice"],
}


class Builder:
    def __init__(self, work: pathlib.Path, compiler: str):
        self.work = work
        self.tree = work / "tree"  # a copy: what is edited meanwhile does not mix with what is built
        shutil.rmtree(self.tree, ignore_errors=True)
        for part in ("src/device", "tests/support", "tests/protocol", "tests/sim", "tests/fake_mlx5", "include"):
            shutil.copytree(ROOT / part, self.tree / part, dirs_exist_ok=True)
        self.includes = [f"-I{self.tree}/tests", f"-I{self.tree}/src", f"-I{self.tree}/include"]
        launcher = shutil.which("ccache")
        self.compiler = ([launcher] if launcher else []) + [compiler]

    def run(self, arguments):
        done = subprocess.run(self.compiler + arguments, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError("does not compile:\n" + done.stderr[:2000])

    def compile(self, source: str, to: pathlib.Path, flags):
        self.run([*flags, *self.includes, *FLAGS, "-c", f"{self.tree}/tests/{source}", "-o", str(to)])
        return to

    def common_sources(self):
        """(source, object, flags) of everything that no mutant changes."""
        for source in COMMON + ["support/fiber.cc", "support/simulator_puts.cc",
                                "support/simulator_stores.cc", "sim/worlds.cc", "sim/moecomm_sim.cc"]:
            yield source, self.work / (source.replace("/", "_") + ".o"), []
        for source in COMMON + ["protocol/fixed_shape.cc"]:
            yield source, self.work / (source.replace("/", "_") + ".tsan.o"), TSAN

    def build_job(self, job: str, overlay: pathlib.Path):
        """The program of a job over the sources in `overlay`, which come before those of the tree."""
        overlays = [f"-I{overlay}/tests", f"-I{overlay}/src"]
        program = overlay / "job"
        if job in QUEUES:
            flags = overlays + QUEUES[job]
            objects = [self.compile(f"fake_mlx5/{name}.cc", overlay / f"{name}.o", flags) for name in QUEUE_SOURCES]
            self.run([*QUEUES[job], *map(str, objects), "-o", str(program), "-lgtest_main", "-lgtest", "-lfmt",
                      "-pthread"])
        elif job in TEAMS:
            common = [str(o) for _, o, flags in self.common_sources() if flags]
            changed = self.compile("sim/mutant_threads.cc", overlay / "changed.o",
                                   overlays + TSAN + [f"-DMOE_TEAM={TEAMS[job]}"])
            self.run([*TSAN, str(changed), *common, "-o", str(program), "-lfmt", "-pthread"])
        else:
            common = [str(o) for _, o, flags in self.common_sources() if not flags]
            changed = self.compile("support/simulator.cc", overlay / "changed.o", overlays)
            self.run([str(changed), *common, "-o", str(program), "-lfmt"])
        return program


def plant(tree: pathlib.Path, mutant, overlay: pathlib.Path):
    shutil.rmtree(overlay, ignore_errors=True)
    overlay.mkdir(parents=True)
    text = (tree / mutant["file"]).read_text()
    found = text.count(mutant["from"])
    if found != 1:
        raise RuntimeError(f"`from` occurs {found} times in {mutant['file']}")
    target = overlay / mutant["file"]
    target.parent.mkdir(parents=True)
    target.write_text(text.replace(mutant["from"], mutant["to"]))


def job_failure(job: str, program: pathlib.Path, seeds: int):
    """How the job failed, or None if it passed."""
    arguments = ["--seeds", str(seeds), *SIM_ARGUMENTS[job]] if job in SIM_ARGUMENTS else []
    environment = dict(os.environ, TSAN_OPTIONS="halt_on_error=1 exitcode=66", GTEST_FAIL_FAST="1")
    try:
        done = subprocess.run([str(program), *arguments], capture_output=True, timeout=JOB_SECONDS, env=environment)
    except subprocess.TimeoutExpired:
        return "hangs"
    if done.returncode == 0:
        return None
    if b"ThreadSanitizer" in done.stderr:
        return "data race"
    words = done.stdout.decode(errors="replace").split()
    return " ".join(words[:2]) if words[:1] == ["seed"] else "wrong result"


def try_mutant(builder: Builder, index: int, mutant):
    begin = time.monotonic()
    overlay = builder.work / f"mutant{index}"
    try:
        plant(builder.tree, mutant, overlay)
        how = job_failure(mutant["job"], builder.build_job(mutant["job"], overlay), SEEDS_WITH_BUG)
        verdict = "caught" if how else "SURVIVED"
    except RuntimeError as error:
        verdict, how = "BROKEN", str(error)
    return verdict, how, time.monotonic() - begin


def try_without_bug(builder: Builder, job: str):
    overlay = builder.work / f"clean-{job}"
    overlay.mkdir(parents=True, exist_ok=True)
    return "passes" if job_failure(job, builder.build_job(job, overlay), SEEDS) is None else "FAILS"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", default="/tmp/moecomm-mutants", help="directory for what is built")
    parser.add_argument("--compiler", default=os.environ.get("CXX", "g++"))
    parser.add_argument("--jobs", type=int, default=min(4, os.cpu_count() or 1))
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    work = pathlib.Path(options.work)
    work.mkdir(parents=True, exist_ok=True)
    builder = Builder(work, options.compiler)
    mutants = tomllib.loads((builder.tree / "tests/sim/mutants.toml").read_text())["mutant"]
    mutants = [m for m in mutants if options.only in m["name"]]
    jobs = sorted({m["job"] for m in mutants})
    bad = 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(lambda item: builder.compile(*item), builder.common_sources()))
        for job, verdict in zip(jobs, pool.map(lambda j: try_without_bug(builder, j), jobs)):
            print(f"{verdict:10} {job} without a bug", flush=True)
            bad += verdict != "passes"
        results = pool.map(lambda item: try_mutant(builder, *item), enumerate(mutants))
        for mutant, (verdict, how, seconds) in zip(mutants, results):
            print(f"{verdict:10} {mutant['name']} ({mutant['job']}: {how}, {seconds:.1f} s)", flush=True)
            bad += verdict != "caught"
    print(f"{len(mutants)} mutants, {bad} not as they must be")
    return 1 if bad or not mutants else 0


if __name__ == "__main__":
    sys.exit(main())
