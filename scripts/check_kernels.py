#!/usr/bin/env python3
"""Compiles the library's .cu files once more with the assembler's report, prints what each kernel uses, and fails if one
uses stack memory or spills registers.

Usage: check_kernels.py BUILD_DIR   (a configured build with CUDA; reads its compile_commands.json)
"""
import json
import re
import shlex
import subprocess
import sys


def report_of(command):
    words = shlex.split(command["command"])
    words[words.index("-o") + 1] = "/dev/null"
    if "-MD" in words:  # the build's own list of headers stays as it is
        at = words.index("-MD")
        del words[at:at + 5]
    done = subprocess.run(words + ["-Xptxas=-v"], cwd=command["directory"], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        sys.exit(done.stdout)
    return done.stdout


def kernels(report):
    """(mangled name, architecture, registers, bytes of shared memory, stack and spills) of every kernel."""
    name = architecture = wasted = None
    for line in report.splitlines():
        if match := re.search(r"Compiling entry function '(\w+)' for '(\w+)'", line):
            name, architecture = match.groups()
            wasted = None
        elif "bytes stack frame" in line:
            wasted = sum(int(number) for number in re.findall(r"(\d+) bytes", line))
        elif name and (match := re.search(r"Used (\d+) registers", line)):
            shared = re.search(r"(\d+) bytes smem", line)
            yield name, architecture, int(match.group(1)), int(shared.group(1)) if shared else 0, wasted
            name = None


def readable(names):
    plain = subprocess.run(["c++filt"], input="\n".join(names), check=True, text=True, stdout=subprocess.PIPE).stdout
    plain = plain.replace("(anonymous namespace)::", "").replace("void ", "").replace("moe::", "")
    return [re.sub(r"\(StepParams.*|\(\w+\)$", "", name) for name in plain.splitlines()]


def main():
    with open(sys.argv[1] + "/compile_commands.json") as file:
        commands = [c for c in json.load(file) if c["file"].endswith(".cu") and "/src/" in c["file"]]
    found = [kernel for command in commands for kernel in kernels(report_of(command))]
    if not found:
        sys.exit("no kernels found")
    bad = 0
    for (_, architecture, registers, shared, wasted), name in zip(found, readable([kernel[0] for kernel in found])):
        bad += wasted != 0
        remark = "" if wasted == 0 else f"   <-- {wasted} bytes of stack and spills"
        print(f"{architecture:7} {registers:4} registers {shared:6} shared  {name}{remark}")
    print(f"{len(found)} kernels, {bad} of them with stack or spills")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
