#!/usr/bin/env python3
"""Makes calls of libc fail, one by one, in one rank of a small job, or kills or stops the rank at such a call. Every
rank must succeed, or end in time with a clean failure (fault_rank.cc). Prints a table of rounds, outcomes and bad ones.

Usage: sweep.py (--sample | --all) FAULT_RANK INJECTOR [--only CALL] [--world NAME] [--jobs N]
"""
import argparse
import collections
import concurrent.futures
import errno
import itertools
import os
import signal
import socket
import subprocess
import sys
import time

# Two ranks that share memory, two domains without a chosen transport, and three domains in LL over TCP.
WORLDS = {
    "shm": (2, {}),
    "tcp": (2, {"MOECOMM_DOMAIN_SIZE": "1"}),
    "ll3": (3, {"MOECOMM_DOMAIN_SIZE": "1", "MOECOMM_TRANSPORT": "tcp", "FAULT_LL": "1"}),
}
# Errors that a call is also tried with, besides the errno that fits best.
MORE_ERRORS = {
    "connect": ["ECONNREFUSED", "ETIMEDOUT"], "accept4": ["ECONNABORTED", "EINTR"], "poll": ["EINTR"],
    "sendmsg": ["ENOMEM", "EINTR"], "recvmsg": ["ECONNRESET", "ETIMEDOUT", "EINTR"],
    "getrandom": ["EINTR"], "epoll_wait": ["EINTR"], "mmap": ["EPERM"], "fcntl": ["EINVAL"],
}
# Errors that may be the fault of either end of a connection.
OF_EITHER_END = {"ECONNRESET", "ETIMEDOUT"}
LIMIT_S = 40  # for one job; the deadlines inside it are much shorter
Fault = collections.namedtuple("Fault", "world victim call at count error mode")


FIRST_PORT = 21000 + os.getpid() % 5000  # sweeps that run at the same time begin at different ports
PORTS = itertools.cycle([*range(FIRST_PORT, 32000), *range(21000, FIRST_PORT)])  # below the kernel's ephemeral ports


def free_port():
    for port in PORTS:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if probe.connect_ex(("127.0.0.1", port)) == errno.ECONNREFUSED:
                return port


def start(arguments, world, rank, port, fault):
    nranks, settings = WORLDS[world]
    env = {**os.environ, **settings, "MOECOMM_RANK": str(rank), "MOECOMM_NRANKS": str(nranks),
           "MOECOMM_LOCAL_RANK": str(rank), "MOECOMM_ROOT": f"127.0.0.1:{port}", "MOECOMM_SECRET": "5a" * 16,
           "MOECOMM_LOG_LEVEL": "info", "MOECOMM_LOG_FILE": "/dev/null", "LD_PRELOAD": arguments.injector,
           "LD_BIND_NOW": "1"}  # with lazy binding, the loader would end the process when it runs out of memory
    known = fault is not None and fault.count == 1 and fault.error not in OF_EITHER_END
    env["FAULT_VICTIM"] = str(fault.victim) if known else "any"
    if fault is not None and rank == fault.victim:
        env.update(FAULT_CALL=fault.call, FAULT_AT=str(fault.at), FAULT_FOR=str(fault.count), FAULT_MODE=fault.mode)
        if fault.error:
            env["FAULT_ERRNO"] = str(getattr(errno, fault.error))
    return subprocess.Popen([arguments.rank], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def ended(process, end):
    """The process's output and status. The status is None if the process did not end in time."""
    try:
        text = process.communicate(timeout=max(0.1, end - time.monotonic()))[0]
        return text, process.returncode
    except subprocess.TimeoutExpired:
        process.kill()
        return process.communicate()[0], None


def play(arguments, world, fault):
    """The job's outcome (success, failure, or what is bad) and everything that it printed."""
    port = free_port()
    ranks = [start(arguments, world, rank, port, fault) for rank in range(WORLDS[world][0])]
    end = time.monotonic() + LIMIT_S
    texts, outcome = [], "success"
    order = sorted(range(len(ranks)), key=lambda rank: fault is not None and rank == fault.victim)
    for rank in order:
        expendable = fault is not None and fault.mode != "fail" and rank == fault.victim
        if expendable and ranks[rank].poll() is None:
            time.sleep(0.2)
            ranks[rank].kill()  # the fault may have stopped it
        text, status = ended(ranks[rank], end)
        texts.append(f"--- rank {rank}, status {status}\n{text}")
        if status is None:
            outcome = "hang"
        elif status == -signal.SIGKILL and expendable:
            continue
        elif status < 0 or status > 1:
            outcome = f"ended by {status}"
        elif status == 1 or "good: " not in text:
            outcome = "bad end"
        elif outcome == "success" and f"good: rank {rank}: failure" in text:
            outcome = "failure"
    return outcome, "\n".join(texts)


def counts_of(text):
    """How often each rank made each call, parsed from the output of a job without faults."""
    found = {}
    for part in text.split("--- rank ")[1:]:
        words = part.split("calls:")[1].split() if "calls:" in part else []
        found[int(part.split(",")[0])] = {name: int(n) for name, n in zip(words[::2], words[1::2])}
    return found


def spread(most, wanted):
    """`wanted` numbers spread over 1..most, or all of them if there are fewer."""
    if most <= wanted:
        return list(range(1, most + 1))
    return sorted({1 + round(i * (most - 1) / (wanted - 1)) for i in range(wanted)})


def plan(arguments, counts):
    """All faults to try. Counts differ from run to run, so a fault near the end may hit nothing. That job succeeds."""
    for world in arguments.worlds:
        for victim in ([0, WORLDS[world][0] - 1] if arguments.all else [WORLDS[world][0] - 1]):
            for call, most in counts[world][victim].items():
                if arguments.only not in (None, call) or most == 0:
                    continue
                if call == "any":
                    for mode in ["kill", "stop"]:
                        for at in spread(most, 60 if arguments.all else 3):
                            yield Fault(world, victim, call, at, 1, None, mode)
                    continue
                for at in spread(most, (4000 if call == "malloc" else 400) if arguments.all else 4):
                    yield Fault(world, victim, call, at, 1, None, "fail")
                if not arguments.all:
                    continue
                for error in MORE_ERRORS.get(call, []):
                    for at in spread(most, 40):
                        yield Fault(world, victim, call, at, 1, error, "fail")
                for at in spread(most, 20):
                    yield Fault(world, victim, call, at, 50, None, "fail")


def count_calls(arguments):
    counts = {}
    for world in arguments.worlds:
        outcome, text = play(arguments, world, None)
        if outcome != "success":
            sys.exit(f"without a fault: {outcome}\n{text}")
        counts[world] = counts_of(text)
    return counts


def sweep(arguments, faults):
    table = collections.defaultdict(collections.Counter)
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        for fault, (outcome, text) in zip(faults, pool.map(lambda f: play(arguments, f.world, f), faults)):
            key = fault.call if fault.mode == "fail" else fault.mode
            table[key]["rounds"] += 1
            table[key][outcome if outcome in ("success", "failure") else "bad"] += 1
            if outcome not in ("success", "failure"):
                print(f"BAD: {outcome}: {fault}\n{text}", flush=True)
    return table


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    kind = parser.add_mutually_exclusive_group(required=True)
    kind.add_argument("--sample", action="store_true")
    kind.add_argument("--all", action="store_true")
    parser.add_argument("rank")
    parser.add_argument("injector")
    parser.add_argument("--only")
    parser.add_argument("--world", choices=WORLDS)
    parser.add_argument("--jobs", type=int, default=6)
    arguments = parser.parse_args()
    arguments.worlds = [arguments.world] if arguments.world else list(WORLDS) if arguments.all else ["shm", "tcp"]
    faults = list(plan(arguments, count_calls(arguments)))
    table = sweep(arguments, faults)
    columns = ["rounds", "success", "failure", "bad"]
    print(f"{'call':<16}" + "".join(f"{column:>9}" for column in columns))
    for key in sorted(table) + ["all"]:
        row = table[key] if key != "all" else sum(table.values(), collections.Counter())
        print(f"{key:<16}" + "".join(f"{row[column]:>9}" for column in columns))
    bad = sum(row["bad"] for row in table.values())
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
