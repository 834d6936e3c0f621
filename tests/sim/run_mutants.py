#!/usr/bin/env python3
"""Plants each bug of mutants.toml in a copy of the sources and demands that its job fails.

The script fails if a mutant survives, does not compile, or quotes a text that does not occur exactly once. It also
fails if a job fails without a bug. `--only TEXT` runs the mutants whose name contains TEXT.

The script first builds all jobs without a bug, and the compiler says what each file includes. For a mutant it compiles
only those files again that include the changed file. A mutant in a file that its job does not include is a failure too.
"""

import argparse
import concurrent.futures
import hashlib
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import time
import tomllib

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
from changed_files import changed_files, git  # noqa: E402

CHANGED, DRAWN = 18, 12  # the most mutants of changed files in a draw, and those of others
COMMON = ["support/cases/cast_case.cc", "support/cases/payload_case.cc", "support/programs/combine_operation.cc",
          "support/programs/describe_operation.cc", "support/programs/dispatch_operation.cc",
          "support/programs/judge.cc", "support/programs/operations.cc", "support/programs/program.cc",
          "support/programs/protocol_world.cc", "support/programs/ready_combine.cc", "support/programs/scenario.cc",
          "support/programs/spoil_call.cc", "support/programs/tally_operation.cc", "support/programs/world_shapes.cc",
          "support/reference/cast_reference.cc", "support/reference/fp8_reference.cc",
          "support/reference/lost_ranks.cc", "support/reference/placed_experts.cc", "support/reference/reference.cc",
          "support/reference/reference_describe.cc", "support/reference/routing_input.cc",
          "support/reference/wire_reference.cc", "support/reference/words_output.cc"]
FLAGS = ["-std=c++20", "-Og", "-ffp-contract=off", "-w"]  # compiling takes most of the time
TSAN = ["-fsanitize=thread", "-g1"]
JOB_SECONDS = 90  # on a machine with nothing else to do
SEEDS, SEEDS_WITH_BUG = 300, 4000  # a bug ends the job at its first failing seed; sim_test.cc runs more seeds

# A job consists of the sources that a bug may change, the judges (which no bug changes) and the way to run it.
THREADS = {"host-tsan": "CompiledTeam<moe::HostWarp>", "lanes-tsan": "LaneTeam<4>"}
QUEUES = {"queues": [], "queues-tsan": TSAN}
QUEUE_SOURCES = [f"fake_mlx5/{name}.cc" for name in (
    "adapter_test", "put_queue_test", "queue_test", "soft_adapter", "wqe_reader")]
# Beside these: support/simulator/sim_steps_*.cc. The simulator's waits, stores and puts obey the rules of src/device/view.
SIM_SOURCES = ["support/programs/settle_world.cc", "support/simulator/simulator.cc",
               "support/simulator/simulator_puts.cc", "support/simulator/simulator_stores.cc"]
SIM_JUDGES = COMMON + ["support/simulator/fiber.cc", "sim/worlds.cc", "sim/moecomm_sim.cc"]
SIM_ARGUMENTS = {
    "sim-ht": ["--protocol", "ht"],
    "sim-ll": ["--protocol", "ll"],
    "sim-both": ["--protocol", "both"],
    "sim-capacity": ["--mishap", "capacity"],
    "sim-stranger": ["--mishap", "stranger"],
    "sim-row-size": ["--mishap", "row-size"],
    "sim-death": ["--mishap", "death"],
    "sim-decoder-death": ["--protocol", "ll", "--decoders", "--mishap", "death"],
    "sim-bad-index": ["--mishap", "bad-index"],
    "sim-twice": ["--mishap", "twice"],
    "sim-ht-twice": ["--protocol", "ht", "--mishap", "twice"],
    "sim-unready": ["--mishap", "unready"],
    "sim-recover": ["--mishap", "recover", "--operations", "16"],
    "sim-decoder-recover": ["--protocol", "ll", "--decoders", "--mishap", "recover"],
    "sim-loss": ["--mishap", "loss", "--operations", "16"],
    "sim-decoder-loss": ["--protocol", "ll", "--decoders", "--mishap", "loss", "--operations", "16"],
}


class Builder:
    def __init__(self, work: pathlib.Path, compiler: str):
        self.work = work
        self.tree = work / "tree"  # a copy, so that edits during a run do not reach the build
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

    def parts_of(self, job: str):
        """The sources that a bug may change, and the judges: two lists of (source, flags)."""
        if job in QUEUES:
            return [(source, QUEUES[job]) for source in QUEUE_SOURCES], []
        if job in THREADS:
            changing = [("sim/mutant_threads.cc", TSAN + [f"-DMOE_TEAM={THREADS[job]}"])]
            return changing, [(source, TSAN) for source in COMMON + ["protocol/fixed_shape.cc"]]
        folder = self.tree / "tests/support/simulator"
        steps = sorted(f"support/simulator/{path.name}" for path in folder.glob("sim_steps_*.cc"))
        return [(source, []) for source in SIM_SOURCES + steps], [(source, []) for source in SIM_JUDGES]

    def object_of(self, part) -> pathlib.Path:
        """The object of the build without a bug."""
        source, flags = part
        return self.work / "clean" / ("_".join([source.replace("/", "_"), *flags]) + ".o")

    def compile(self, part, to: pathlib.Path, overlays=()):
        source, flags = part
        to.parent.mkdir(parents=True, exist_ok=True)
        # If `source` is an absolute path, it replaces the tree's.
        path = self.tree / "tests" / source
        self.run([*flags, *overlays, *self.includes, *FLAGS, "-MMD", "-c", str(path), "-o", str(to)])
        return to

    def includes_of(self, part):
        """The files of the tree that a source is compiled from, according to the compiler."""
        rule = self.object_of(part).with_suffix(".d").read_text().replace("\\\n", " ")
        # A compiler cache may have made the paths relative.
        paths = (pathlib.Path(os.path.abspath(word)) for word in shlex.split(rule.partition(": ")[2]))
        return {str(path.relative_to(self.tree)) for path in paths if path.is_relative_to(self.tree)}

    def build_job(self, job: str, overlay: pathlib.Path, file=None):
        """The program of a job with the bug in `file` of `overlay`. The overlay's folders precede the tree's."""
        changing, judges = self.parts_of(job)
        concerned = [part for part in changing if file in self.includes_of(part)]
        if file and not concerned:
            raise RuntimeError(f"nothing of {job} includes {file}")
        overlays = [f"-I{overlay}/tests", f"-I{overlay}/src"]
        objects = [self.object_of(part) for part in changing + judges if part not in concerned]
        if concerned:
            # The sources are compiled as one file, because parsing their includes takes most of the time. If several
            # objects have an inline function, the linker takes it from the first object, which is the one with the bug.
            together = overlay / "again.cc"
            together.write_text("".join(f'#include "{self.tree}/tests/{source}"\n' for source, _ in concerned))
            objects.insert(0, self.compile((together, concerned[0][1]), overlay / "again.o", overlays))
        program = overlay / "job"
        libraries = ["-lgtest_main", "-lgtest"] if job in QUEUES else []
        sanitizer = TSAN if job in THREADS else QUEUES.get(job, [])
        self.run([*sanitizer, *map(str, objects), "-o", str(program), *libraries, "-lfmt", "-pthread"])
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


def job_seconds():
    """The time after which a job hangs. On a busy machine it is longer, or slow jobs would count as mutants caught."""
    return JOB_SECONDS * max(1, os.getloadavg()[0] / os.cpu_count())


def job_failure(job: str, program: pathlib.Path, seeds: int):
    """How the job failed, or None if it passed."""
    arguments = [] if job in THREADS or job in QUEUES else ["--seeds", str(seeds), *SIM_ARGUMENTS[job]]
    environment = dict(os.environ, TSAN_OPTIONS="halt_on_error=1 exitcode=66", GTEST_FAIL_FAST="1")
    try:
        done = subprocess.run([str(program), *arguments], capture_output=True, timeout=job_seconds(), env=environment)
    except subprocess.TimeoutExpired:
        return "hangs"
    if done.returncode == 0:
        return None
    if b"ThreadSanitizer" in done.stderr:
        return "data race"
    if done.returncode < 0:
        return "crashes"
    words = done.stdout.decode(errors="replace").split()
    return " ".join(words[:2]) if words[:1] == ["seed"] else "wrong result"


def try_mutant(builder: Builder, index: int, mutant):
    begin = time.monotonic()
    overlay = builder.work / f"mutant{index}"
    try:
        plant(builder.tree, mutant, overlay)
        program = builder.build_job(mutant["job"], overlay, mutant["file"])
        how = job_failure(mutant["job"], program, SEEDS_WITH_BUG)
        verdict = "caught" if how else "SURVIVED"
    except RuntimeError as error:
        verdict, how = "BROKEN", str(error)
    return verdict, how, time.monotonic() - begin


def try_without_bug(builder: Builder, job: str):
    overlay = builder.work / f"clean-{job}"
    overlay.mkdir(parents=True, exist_ok=True)
    return "passes" if job_failure(job, builder.build_job(job, overlay), SEEDS) is None else "FAILS"


def draw(mutants, changed, seed: str):
    """Up to CHANGED mutants of changed files and DRAWN others, which differ from seed to seed. All, if `changed` is
    None."""
    if changed is None:
        return mutants
    by_hash = sorted(mutants, key=lambda mutant: hashlib.sha256(f"{seed} {mutant['name']}".encode()).digest())
    drawn = [mutant for mutant in by_hash if mutant["file"] in changed][:CHANGED]
    drawn += [mutant for mutant in by_hash if mutant["file"] not in changed][:DRAWN]
    return [mutant for mutant in mutants if mutant in drawn]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", default="/tmp/moecomm-mutants", help="directory for what is built")
    parser.add_argument("--compiler", default=os.environ.get("CXX", "g++"))
    parser.add_argument("--jobs", type=int, default=min(4, os.cpu_count() or 1))
    parser.add_argument("--only", default="")
    parser.add_argument("--drawn", action="store_true")
    options = parser.parse_args()
    work = pathlib.Path(options.work).resolve()
    work.mkdir(parents=True, exist_ok=True)
    builder = Builder(work, options.compiler)
    planted = tomllib.loads((builder.tree / "tests/sim/mutants.toml").read_text())["mutant"]
    mutants = [m for m in planted if options.only in m["name"]]
    if options.drawn and (changed := changed_files()) is not None:
        mutants = draw(mutants, changed, git(ROOT, "rev-parse", "HEAD"))
    jobs = sorted({m["job"] for m in mutants})
    bad = 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        parts = {builder.object_of(part): part for job in jobs for part in sum(builder.parts_of(job), [])}
        list(pool.map(lambda path: builder.compile(parts[path], path), parts))
        for job, verdict in zip(jobs, pool.map(lambda j: try_without_bug(builder, j), jobs)):
            print(f"{verdict:10} {job} without a bug", flush=True)
            bad += verdict != "passes"
        results = pool.map(lambda item: try_mutant(builder, *item), enumerate(mutants))
        for mutant, (verdict, how, seconds) in zip(mutants, results):
            print(f"{verdict:10} {mutant['name']} ({mutant['job']}: {how}, {seconds:.1f} s)", flush=True)
            bad += verdict != "caught"
    print(f"{len(mutants)} of {len(planted)} mutants, {bad} not as they must be")
    return 1 if bad or not mutants else 0


if __name__ == "__main__":
    sys.exit(main())
