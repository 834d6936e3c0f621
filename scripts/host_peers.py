#!/usr/bin/env python3
"""Compares the host backend with MPI and with a hand-written exchange, in tables of times in us and of ratios.

Usage: host_peers.py [--build DIR] [--ranks N...] [--links shm,tcp] [--tokens N...] [--rounds N] [--json FILE]
The build needs -DMOECOMM_PEERS=ON, as `scripts/test.sh peers` configures it.

All do the same job (perf/peers/job.h) with the same numbers of rows, and verify it. They take turns, round after round,
so that other load on the machine hits them equally. A ratio is the median of the ratios of single rounds.

  moecomm  moe_perf, in mode auto unless --mode is given; over TCP each rank is its own domain
  mpi      MPI_Alltoallv by mpirun as a user would start it: --mca btl self,tcp for TCP; where ranks outnumber
           processors --oversubscribe and mpi_yield_when_idle. Left out where mpirun or the program is missing
  floor    rows stored by hand to a shared window, one flag; shared memory only

pair: dispatch and combine on a known route. fresh: with a new route before it. A time is the median of a run, or its
minimum with --of min: on a machine with other users, only the minimum is free of the time that they take.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TOKENS = [1, 8, 32, 128, 512, 1024, 4096]
TIMES = ["dispatch", "pair", "fresh"]


def processors():
    return len(os.sched_getaffinity(0))


def iterations(tokens):
    """Enough iterations for a median, in no more than some tenths of a second."""
    return max(10, min(200, 20000 // tokens))


def moecomm_times(case, of):
    """The values of a case of moe_perf's report, under the peers' names."""
    if case["wrong_payloads"] or case["wrong_metadata"] or case["wrong_combines"]:
        sys.exit(f"moe_perf found wrong results: {case['tokens']} tokens")
    return {"dispatch": case["dispatch_us"][of], "pair": case["pair_us"][of], "fresh": case["step_us"][of]}


def peer_times(output, of):
    """The same values from a peer's line."""
    case = json.loads(output)
    if case["wrong"]:
        sys.exit(f"{case['way']} found {case['wrong']} wrong sums: {case['tokens']} tokens")
    return {time: case[time][of] for time in TIMES}


def run(command, environment=None):
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False, timeout=600,
                            env={**os.environ, **(environment or {})})
    if result.returncode != 0:
        sys.exit(f"status {result.returncode}: {' '.join(command)}\n{result.stdout}{result.stderr}")
    return result.stdout


def bound(options, ranks):
    """Binds ranks to cores for two ranks, as mpirun does, if there are enough cores."""
    return ["--bind", "core"] if ranks <= min(2, processors()) and "--bind" in run([options.moerun, "--help"]) else []


def run_moecomm(options, link, ranks, tokens):
    far = ["--domain-size", "1", "--transport", "tcp"] if link == "tcp" else []
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        run([options.moerun, "-n", str(ranks), *bound(options, ranks), f"{options.build}/perf/moe_perf", "--backend", "host", "--mode",
             options.mode, "--layout", "flat", *far, "--hidden", str(options.hidden), "--topk", str(options.topk),
             "--experts", str(options.experts), "--iters", "5", "--timed", str(iterations(tokens)), "--tokens", str(tokens),
             "--json", file.name])
        return moecomm_times(json.load(file)[0], options.of)


def job(options, tokens):
    return ["--hidden", str(options.hidden), "--topk", str(options.topk), "--experts", str(options.experts), "--iters",
            str(iterations(tokens)), str(tokens)]


def run_mpi(options, link, ranks, tokens):
    crowded = ["--oversubscribe", "--mca", "mpi_yield_when_idle", "1"] if ranks > processors() else []
    btl = ["--mca", "btl", "self,tcp"] if link == "tcp" else []
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"} if os.geteuid() == 0 else {}
    return peer_times(run(["mpirun", *crowded, *btl, "-np", str(ranks), f"{options.build}/perf/peers/mpi_alltoallv",
                           *job(options, tokens)], root), options.of)


def run_floor(options, link, ranks, tokens):
    return peer_times(run([f"{options.build}/perf/peers/shared_window", str(ranks), *job(options, tokens)]), options.of)


def ways(options, link):
    found = {"moecomm": run_moecomm}
    if shutil.which("mpirun") and os.path.exists(f"{options.build}/perf/peers/mpi_alltoallv"):
        found["mpi"] = run_mpi
    if link == "shm":
        found["floor"] = run_floor
    return found


def median_ratio(rounds, way, time):
    """moecomm's ratio to another way. Above 1 the other way is faster."""
    return statistics.median(one["moecomm"][time] / one[way][time] for one in rounds)


def row(tokens, rounds):
    """One line of the table: for each time the medians of the ways, then the ratios."""
    names = list(rounds[0])
    cells = [str(tokens)]
    for time in TIMES:
        cells.append(" / ".join(f"{statistics.median(one[name][time] for one in rounds):.0f}" for name in names))
        cells += [f"{median_ratio(rounds, name, time):.2f}" for name in names[1:]]
    return "| " + " | ".join(cells) + " |"


def head(names):
    cells = ["tokens"]
    for time in TIMES:
        cells.append(f"{time}: " + " / ".join(names))
        cells += [f"by {name}" for name in names[1:]]
    return "| " + " | ".join(cells) + " |\n" + "|---" * len(cells) + "|"


def measure(options, link, ranks, say):
    """For each number of tokens, the rounds with the times of each way."""
    found = ways(options, link)
    measured = {tokens: [] for tokens in options.tokens}
    for number in range(options.rounds):
        for tokens in options.tokens:
            say(f"{link}, {ranks} ranks, round {number + 1}/{options.rounds}, {tokens} tokens")
            measured[tokens].append({name: way(options, link, ranks, tokens) for name, way in found.items()})
    return measured


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(ROOT, "build", "optimised"))
    parser.add_argument("--moerun", help="another one than the build's")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--links", default="shm,tcp")
    parser.add_argument("--tokens", type=int, nargs="+", default=TOKENS)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--mode", default="auto", choices=["auto", "ht", "ll"])
    parser.add_argument("--of", default="median", choices=["median", "min"])
    parser.add_argument("--hidden", type=int, default=1024)
    parser.add_argument("--topk", type=int, default=4)
    parser.add_argument("--experts", type=int, default=32)
    parser.add_argument("--json", help="file for every round's times")
    options = parser.parse_args(arguments)
    options.moerun = options.moerun or f"{options.build}/src/moerun"
    return options


def main(arguments):
    options = parse(arguments)
    say = (lambda text: print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)) if sys.stderr.isatty() else (lambda _: None)
    report = []
    for link in options.links.split(","):
        for ranks in options.ranks:
            measured = measure(options, link, ranks, say)
            say("")
            names = list(next(iter(measured.values()))[0])
            print(f"{ranks} ranks, {'TCP' if link == 'tcp' else 'shared memory'}, {processors()} processors, mode {options.mode}, "
                  f"hidden {options.hidden} in bf16, top-{options.topk} of {options.experts}, {options.rounds} rounds; {options.of} of each, us\n")
            print(head(names))
            for tokens, rounds in measured.items():
                print(row(tokens, rounds))
                report.append({"link": link, "ranks": ranks, "tokens": tokens, "rounds": rounds})
            print(flush=True)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(report, file, indent=1)


if __name__ == "__main__":
    main(sys.argv[1:])
