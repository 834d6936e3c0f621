#!/usr/bin/env python3
"""Compares the project's goals for speed with measurements, from the reports of moe_perf (--json).

Usage: goals.py FILE...
Prints a table: case, goal, min / median / 99th percentile, share of the ceiling, and whether the goal is met. If a case
was measured more than once, the last one counts. "-" stands for a case that was not measured. The status is 1 if a file
is no report or has wrong results, otherwise 0, because meeting a goal depends on the machine.
"""
import json
import sys

BASE = {"format": "bf16", "cast": "none", "routing": "uniform", "graph": True}
HT = {**BASE, "mode": "ht", "layout": "flat", "ceiling": True}
LL = {**BASE, "mode": "ll", "layout": "rank-major", "ceiling": True}
PADDED = {**LL, "layout": "expert-major-padded"}
EXPERTS = {**HT, "layout": "expert-major", "sms": 24}
SWEEP = {**BASE, "layout": "flat", "ceiling": False, "sms": 0}

# Name, properties of the case, which time, goal in us.
TIMES = [(f"HT bf16 4096, dispatch, {sms} SMs", {**HT, "sms": sms, "tokens": 4096}, "dispatch", goal)
         for sms, goal in ((8, 540), (16, 490), (32, 480))]
TIMES += [(f"HT bf16 4096, combine, {sms} SMs", {**HT, "sms": sms, "tokens": 4096}, "combine", goal)
          for sms, goal in ((16, 492), (32, 482))]
TIMES += [(f"HT bf16 pair, FLAT, {sms or 'own choice of'} SMs, {tokens}", {**HT, "sms": sms, "tokens": tokens}, "pair", goal)
          for sms, tokens, goal in ((16, 4096, 980), (16, 8192, 1920), (0, 4096, 955), (0, 8192, 1870))]
TIMES += [(f"HT bf16 pair, EXPERT_MAJOR, 24 SMs, {tokens}", {**EXPERTS, "tokens": tokens}, "pair", goal)
          for tokens, goal in ((4096, 1080), (8192, 2120))]
TIMES += [("HT fp8 rows 4096, dispatch, 16 SMs", {**HT, "format": "fp8", "sms": 16, "tokens": 4096}, "dispatch", 255),
          ("LL pair, RANK_MAJOR, bf16, 128", {**LL, "tokens": 128}, "pair", 36),
          ("LL pair, RANK_MAJOR, fp8 cast, 128", {**LL, "cast": "fp8", "tokens": 128}, "pair", 31),
          ("LL pair, EXPERT_MAJOR_PADDED, bf16, 128", {**PADDED, "tokens": 128}, "pair", 42),
          ("LL pair, EXPERT_MAJOR_PADDED, fp8 cast, 128", {**PADDED, "cast": "fp8", "tokens": 128}, "pair", 37)]
TIMES += [(f"LL pair, RANK_MAJOR, bf16, {tokens}", {**LL, "tokens": tokens}, "pair", goal)
          for tokens, goal in ((1, 14), (8, 15), (32, 20), (64, 26), (512, 125))]
# Steps: a new route in each. This is what a layer takes.
TIMES += [(f"LL step, RANK_MAJOR, bf16, {tokens}", {**LL, "tokens": tokens}, "step", goal)
          for tokens, goal in ((1, 15), (8, 16), (32, 20), (64, 26), (128, 38), (512, 128))]
TIMES += [("LL step, RANK_MAJOR, fp8 cast, 128", {**LL, "cast": "fp8", "tokens": 128}, "step", 33),
          ("LL step, EXPERT_MAJOR_PADDED, bf16, 128", {**PADDED, "tokens": 128}, "step", 48),
          ("LL step, EXPERT_MAJOR_PADDED, fp8 cast, 128", {**PADDED, "cast": "fp8", "tokens": 128}, "step", 42)]
TIMES += [(f"HT step, FLAT, {sms or 'own choice of'} SMs, 4096", {**HT, "sms": sms, "tokens": 4096}, "step", goal)
          for sms, goal in ((16, 980), (0, 955))]
TIMES += [("HT step, EXPERT_MAJOR, 24 SMs, 4096", {**EXPERTS, "tokens": 4096}, "step", 1090)]

# Name, properties of the case. The goal is to come within 10 % of its own ceiling.
SHARE = 0.9
SKEWED = [(f"{mode} pair, {routing}", {**case, "routing": routing})
          for mode, case in (("HT", {**HT, "sms": 16, "tokens": 4096}), ("LL", {**LL, "tokens": 128}))
          for routing in ("zipf", "one-rank")]

AUTO = 1.05  # a step of AUTO over that of the better mode, at most
SWEPT = [1 << power for power in range(14)]


def read(files):
    cases = []
    for name in files:
        with open(name, encoding="utf-8") as file:
            cases += json.load(file)
    return cases


def find(cases, wanted):
    """The last case with these properties, or None."""
    for case in reversed(cases):
        if all(case.get(key) == value for key, value in wanted.items()):
            return case
    return None


def times(case, what):
    us = case[f"{what}_us"]
    return " / ".join(f"{us[name]:.1f}" for name in ("min", "median", "p99"))


def share(case, what):
    of = case.get(f"{what}_of_ceiling", 0)
    return f"{100 * of:.0f} %" if of > 0 else "-"


def verdict(met):
    return "met" if met else "**missed**"


def time_rows(cases):
    for name, wanted, what, goal in TIMES:
        case = find(cases, wanted)
        if case is None:
            yield name, f"<= {goal}", "-", "-", "-"
        else:
            yield name, f"<= {goal}", times(case, what), share(case, what), verdict(case[f"{what}_us"]["median"] <= goal)


def skewed_rows(cases):
    for name, wanted in SKEWED:
        case = find(cases, wanted)
        goal = f">= {100 * SHARE:.0f} % of its ceiling"
        if case is None:
            yield name, goal, "-", "-", "-"
        else:
            yield name, goal, times(case, "pair"), share(case, "pair"), verdict(case["pair_of_ceiling"] >= SHARE)


def auto_row(cases):
    """The worst ratio of AUTO over all token counts."""
    ratios = {}
    for tokens in SWEPT:
        found = [find(cases, {**SWEEP, "mode": mode, "tokens": tokens}) for mode in ("auto", "ht", "ll")]
        if None in found:
            continue
        auto, *modes = (case["step_us"]["median"] for case in found)
        ratios[tokens] = auto / min(modes)
    name, goal = "step of AUTO by the better mode, 1 to 8192", f"<= {AUTO}"
    if len(ratios) < len(SWEPT):
        return name, goal, f"{len(ratios)} of {len(SWEPT)} token counts measured", "-", "-"
    worst = max(ratios, key=ratios.get)
    return name, goal, f"{ratios[worst]:.2f}, at {worst} tokens", "-", verdict(ratios[worst] <= AUTO)


def table(cases):
    rows = [*time_rows(cases), auto_row(cases), *skewed_rows(cases)]
    lines = ["| case | goal, us | min / median / p99, us | of ceiling | |", "|---|---|---|---|---|"]
    return "\n".join(lines + [f"| {' | '.join(row)} |" for row in rows])


def wrong_results(cases):
    return sum(case.get(kind, 0) for case in cases for kind in ("wrong_payloads", "wrong_metadata", "wrong_combines"))


def main(files):
    if not files:
        sys.exit(__doc__)
    cases = read(files)
    print(table(cases))
    wrong = wrong_results(cases)
    print(f"{len(cases)} cases, {wrong} wrong elements")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
