#!/usr/bin/env python3
"""Prints the results of CollectiveX beside those of moe_perf for the same cases:

    perf/collectivex/compare.py RESULT.json MOE_PERF.json

RESULT.json is what the harness wrote (--out), MOE_PERF.json a report of moe_perf (--json). The exit status is 1 if the
harness's oracle has refused a row."""

import json
import sys


def read(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def median_of(component):
    """The median of one of the harness's components; NaN if it was not measured."""
    found = component["percentiles_us"]
    return found["p50"] if found else float("nan")


def line_of(row, steps):
    correct, components = row["correctness"], row["components"]
    period, roundtrip = median_of(components["pair_period"]), median_of(components["roundtrip"])
    step = steps.get(row["tokens_per_rank"], float("nan"))
    times = f"{period:10.1f} {roundtrip:10.1f} {step:14.1f} {100 * (period / step - 1):+9.1f} %"
    verdict = "correct" if correct["passed"] else "WRONG"
    return f"{row['tokens_per_rank']:6} {times}  {verdict}, error {correct['max_relative_error']:.4f}"


def main(result, report):
    found = read(result)
    case = found["identity"]["case_factors"]["case"]
    steps = {case["tokens"]: case["step_us"]["median"] for case in read(report)}
    print(f"{case['mode']}, {case['precision']}, {case['ep']} ranks: {found['outcome']['status']}. Medians in us:")
    print(f"{'tokens':>6} {'period':>10} {'roundtrip':>10} {'moe_perf step':>14} {'period':>11}")
    rows = found["measurement"]["rows"]
    for row in rows:
        print(line_of(row, steps))
    return 0 if rows and all(row["correctness"]["passed"] for row in rows) else 1


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    raise SystemExit(main(*sys.argv[1:]))
