#!/usr/bin/env python3
"""Reads the library's objects, prints what every kernel uses on each architecture, and fails where the generated code
breaks a rule or differs from tests/codegen/kernels.toml.

Usage: check_kernels.py BUILD_DIR [--update] [--table FILE] [--arch sm_90]...
BUILD_DIR is a build with CUDA, for all architectures that we ship or for those that --arch names. Its
compile_commands.json has the names of the objects of .cu files. --update rewrites the table: check the difference
before you commit it. Status 77: cuobjdump or nvdisasm is missing (scripts/install_deps.sh fetches both).

Rules, which --update does not change:
  - no stack, no spilled registers, no local memory;
  - flags (64-bit words with an order) have system scope. Stores to them come with a fence at system scope, and loads
    with an acquire that drops the first-level cache;
  - from sm_90 on, kernels named bulk... copy in bulk both ways. Those that sum copy in bulk into shared memory only.
Table, for each kernel and architecture:
  - registers: the maximum;
  - row_loads, row_stores: the minimum of 16-byte accesses of global memory in the loops that move rows;
  - narrow_loads, narrow_stores: the maximum of narrower accesses there;
  - for kernels that post puts to adapters, on the shortest path (docs/internals/rdma.md): post_loop, the maximum of
    instructions of a warp from one call to the next; post_call, in a call for up to 32 puts; post_ring, in a call that
    also rings; and how many of these wait for memory (..._waits);
  - order: the exact numbers of instructions that order memory or copy in bulk.
The numbers depend on the compiler. With another nvcc than the table's, only the kinds of instructions are compared.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import textwrap
import tomllib

import sass

ROOT = pathlib.Path(__file__).resolve().parents[1]
TABLE = ROOT / "tests/codegen/kernels.toml"
ARCHITECTURES = ("sm_80", "sm_90", "sm_100")
AT_MOST = {"registers": "registers", "narrow_loads": "loads of less than 16 bytes in loops that move rows",
           "narrow_stores": "stores of less than 16 bytes in loops that move rows"}
POSTING = {"post_loop": "instructions from one call that posts to the next", "post_call": "instructions of such a call",
           "post_call_waits": "waits for memory in a call that posts", "post_ring": "instructions of a call that rings",
           "post_ring_waits": "waits for memory in a call that rings"}
AT_LEAST = {"row_loads": "loads of 16 bytes in loops that move rows",
            "row_stores": "stores of 16 bytes in loops that move rows"}
# An access with a scope, a fence, an acquire that drops the first-level cache, or a bulk copy.
ORDER = re.compile(r"(LD|ST|ATOM|RED)G?\.\S*STRONG\.|MEMBAR\.|FENCE\.|CCTL\.IVALL|UBLKCP")
FLAG = r"G?\.\S*64\.STRONG\."


def compiler_of(command):
    """The words of a command without its launcher, if it has one."""
    words = shlex.split(command["command"])
    return next(word for word in words if "nvcc" in pathlib.Path(word).name)


def compiler_version(compiler):
    return re.search(r"V([\d.]+)", output_of(compiler, "--version")).group(1)


def object_of(command):
    """The output file of a compile command."""
    words = shlex.split(command["command"])
    path = pathlib.Path(command["directory"]) / words[words.index("-o") + 1]
    if not path.exists():
        sys.exit(f"{path} is not there: build it first")
    return path


def find_tools(compiler):
    """{name: path} of the disassemblers. The path of a missing one is None."""
    beside = [pathlib.Path(compiler).parent, ROOT / "build/nvdisasm/nvidia/cu13/bin"]
    path = os.pathsep.join([os.environ.get("PATH", ""), *map(str, beside)])
    return {tool: shutil.which(tool, path=path) for tool in ("cuobjdump", "nvdisasm")}


def output_of(*words, **options):
    return subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True, **options).stdout


def number_of(architecture):
    return int(re.sub(r"\D", "", architecture))


def usage_of(report, architecture):
    """{mangled name: registers, bytes of shared memory, bytes of stack and local memory, spills among them} of every
    kernel."""
    # In cubins since sm_90, a kernel with shared memory has the system's 1 KB before its own in that section.
    reserved = 1024 if number_of(architecture) >= 90 else 0
    found = {}
    for name, line in re.findall(r"Function (\w+):\n(.*)", report):
        use = {key: int(number) for key, number in re.findall(r"(\w+):(\d+)", line)}
        found[name] = {"registers": use["REG"], "shared": max(use["SHARED"] - reserved, 0),
                       "wasted": use["STACK"] + use["LOCAL"]}
    return found


def measure_cubin(cubin, architecture, tools):
    """{mangled name: what the kernel uses}."""
    found = usage_of(output_of(tools["cuobjdump"], "-res-usage", cubin), architecture)
    for name, code in sass.kernels(output_of(tools["nvdisasm"], "-c", cubin)).items():
        if name not in found:
            continue
        rows, opcodes = sass.row_accesses(code), sass.opcodes(code)
        found[name] |= {"row_loads": rows.loads, "row_stores": rows.stores, "narrow_loads": rows.narrow_loads,
                        "narrow_stores": rows.narrow_stores, "opcodes": opcodes,
                        "order": {opcode: count for opcode, count in opcodes.items() if ORDER.match(opcode)}}
        if (posting := sass.posting(code)) is not None:
            found[name] |= dict(zip(POSTING, (posting.loop.instructions, *posting.call, *posting.ring)))
    return found


def measure(objects, architectures, tools):
    """{(kernel, architecture): what it uses}."""
    with tempfile.TemporaryDirectory() as work:
        for number, path in enumerate(objects):
            (folder := pathlib.Path(work) / str(number)).mkdir()
            output_of(tools["cuobjdump"], "-xelf", "all", path, cwd=folder)
        jobs = []
        for architecture in architectures:
            cubins = sorted(pathlib.Path(work).glob(f"*/*.{architecture}.cubin"))
            if len(cubins) != len(objects):
                sys.exit(f"the build is not for {architecture}")
            jobs += [(cubin, architecture) for cubin in cubins]
        with concurrent.futures.ProcessPoolExecutor(int(os.environ.get("JOBS", os.cpu_count()))) as pool:
            results = list(pool.map(measure_cubin, *zip(*jobs), [tools] * len(jobs)))
    measured = {}
    for (_, architecture), found in zip(jobs, results):
        measured |= {(name, architecture): use for name, use in zip(readable(found), found.values())}
    return measured


def readable(names):
    """The names as in the source: stepKernel<Step::combine>."""
    enums = {}
    for header in sorted((ROOT / "src/device").rglob("*.h")):
        for name, body in re.findall(r"enum class (\w+)[^{;]*\{([^}]*)\}", header.read_text()):
            value = -1
            for entry in filter(None, (word.strip() for word in re.sub(r"//[^\n]*", "", body).split(","))):
                word, _, given = entry.partition("=")
                value = int(given, 0) if given.strip().isdigit() else value + 1
                enums[f"({name}){value}"] = f"{name}::{word.strip()}"
    plain = subprocess.run(["c++filt"], input="\n".join(names), check=True, text=True, stdout=subprocess.PIPE).stdout
    for noise, plainer in (("(anonymous namespace)::", ""), ("void ", ""), ("moe::", ""), ("> >", ">>"), ("> >", ">>")):
        plain = plain.replace(noise, plainer)
    plain = re.sub(r"\(\w+\)\d+", lambda match: enums.get(match.group(), match.group()), plain)
    return [re.sub(r"\([^()]*\)$", "", name) for name in plain.splitlines()]


def static_shared_most():
    """Bytes of static shared memory that the launch plan leaves to a bulk kernel."""
    plan = (ROOT / "src/backend/cuda_plan.h").read_text()
    return int(re.search(r"kStaticSharedBytes = (\d+);", plan).group(1)) - 128


def broken_rules(kernel, architecture, found):
    if kernel.startswith("bulk") and found["shared"] > static_shared_most():
        yield f"it has {found['shared']} bytes of static shared memory, the launch plan leaves {static_shared_most()}"
    if found["wasted"]:
        yield f"it has {found['wasted']} bytes of stack and spills, must have none"
    opcodes = found.get("opcodes")
    if opcodes is None:
        return

    def counted(pattern):
        return sum(count for opcode, count in opcodes.items() if re.match(pattern, opcode))

    if counted(r"(LDL|STL)\b"):
        yield f"it accesses local memory {counted('(LDL|STL)')} times, must not"
    for opcode, count in opcodes.items():
        if re.match(f"(LD|ST){FLAG}(?!SYS)", opcode):
            yield f"a flag is accessed with less than system scope: {opcode} occurs {count} times, .SYS is a must"
    if counted(f"ST{FLAG}SYS") and not counted(r"MEMBAR\.\S*SYS"):
        yield "flags are stored and there is no fence at system scope (MEMBAR.*.SYS) that makes it a release"
    if counted(f"LD{FLAG}SYS") and not counted(r"CCTL\.IVALL"):
        yield "flags are read and there is no acquire (CCTL.IVALL)"
    if kernel.startswith("bulk") and number_of(architecture) >= 90:
        ways = ("UBLKCP.S.G",) if "CudaBulkSums" in kernel else ("UBLKCP.S.G", "UBLKCP.G.S")
        for opcode in ways:
            if not counted(re.escape(opcode)):
                yield f"{opcode} occurs 0 times in a kernel for bulk copies"


def differences(found, expected, same_compiler):
    """Violations of the table. Values that were not measured are not compared."""
    if same_compiler:
        for key, what in (AT_MOST | POSTING).items():
            if found.get(key, 0) > expected.get(key, 0):
                yield f"{what}: found {found[key]}, expected at most {expected.get(key, 0)}"
    for key, what in AT_LEAST.items():
        least = expected[key] if same_compiler else min(expected[key], 1)
        if found.get(key, least) < least:
            yield f"{what}: found {found[key]}, expected at least {least}"
    if "order" not in found:
        return
    wanted = {opcode: int(count) for opcode, count in (entry.split() for entry in expected["order"])}
    for opcode in sorted(wanted.keys() | found["order"].keys()):
        now, then = found["order"].get(opcode, 0), wanted.get(opcode, 0)
        if now != then and (same_compiler or 0 in (now, then)):
            yield f"{opcode}: found {now}, expected {then}"


def complaints(measured, table, same_compiler):
    for (kernel, architecture), found in measured.items():
        expected = table.get(kernel, {}).get(architecture)
        lines = list(broken_rules(kernel, architecture, found))
        if expected is None:
            lines.append("it is not in the table")
        else:
            lines += differences(found, expected, same_compiler)
        yield from (f"{kernel} for {architecture}: {line}" for line in lines)
    architectures = {architecture for _, architecture in measured}
    for kernel, entries in table.items():
        for architecture in architectures & entries.keys():
            if (kernel, architecture) not in measured:
                yield f"{kernel} for {architecture}: it is in the table, but was not found"


def print_usage(measured):
    for (kernel, architecture), found in measured.items():
        keys = ("row_loads", "row_stores", "narrow_loads", "narrow_stores")
        rows = "/".join(str(found.get(key, "?")) for key in keys)
        print(f"{architecture:7} {found['registers']:4} registers {found['shared']:6} shared {rows:>14} row accesses  "
              f"{kernel}")


def write_table(path, version, measured, table):
    """Keeps the entries of architectures that were not measured."""
    architectures = {architecture for _, architecture in measured}
    entries = {(kernel, architecture): entry for kernel, rest in table.items() for architecture, entry in rest.items()
               if architecture not in architectures}
    for key, found in measured.items():
        order = [f"{opcode} {count}" for opcode, count in sorted(found["order"].items())]
        entries[key] = {name: found[name] for name in (*AT_MOST, *AT_LEAST)} | {"order": order}
        entries[key] |= {name: found[name] for name in POSTING if name in found}
    lines = ["# What the kernels' code looks like. Written by scripts/check_kernels.py --update; see there.",
             f'nvcc = "{version}"']
    for (kernel, architecture), entry in sorted(entries.items(), key=lambda item: (item[0][0], int(item[0][1][3:]))):
        names = ("registers", *AT_LEAST, "narrow_loads", "narrow_stores", *POSTING)
        numbers = [f"{name} = {entry[name]}" for name in names if name in entry]
        order = ", ".join(f'"{text}"' for text in entry["order"]).replace(" ", "\0").replace(",\0", ", ")
        wrapped = textwrap.fill(order, 116, initial_indent="  ", subsequent_indent="  ", break_long_words=False,
                                break_on_hyphens=False).replace("\0", " ")
        lines += ["", f'["{kernel}".{architecture}]', *numbers, f"order = [\n{wrapped}\n]" if order else "order = []"]
    path.write_text("\n".join(lines) + "\n")


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n")[3])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--update", action="store_true")
    parser.add_argument("--table", type=pathlib.Path, default=TABLE)
    parser.add_argument("--arch", action="append")
    options = parser.parse_args()
    commands = [command for command in json.loads((options.build / "compile_commands.json").read_text())
                if command["file"].endswith(".cu") and "/src/" in command["file"]]
    if not commands:
        sys.exit("the build has no .cu file of the library")
    compiler = compiler_of(commands[0])
    tools = find_tools(compiler)
    if missing := [name for name, path in tools.items() if path is None]:
        print(f"skipped: there is no {' and no '.join(missing)}: scripts/install_deps.sh fetches it")
        return 77
    measured = measure([object_of(command) for command in commands], options.arch or ARCHITECTURES, tools)
    if not measured:
        sys.exit("no kernels found")
    print_usage(measured)
    version = compiler_version(compiler)
    table = tomllib.loads(options.table.read_text()) if options.table.exists() else {}
    same_compiler = table.pop("nvcc", version) == version
    if options.update:
        faults = [f"{kernel} for {architecture}: {line}" for (kernel, architecture), found in measured.items()
                  for line in broken_rules(kernel, architecture, found)]
        if not faults:
            write_table(options.table, version, measured, table)
    else:
        faults = list(complaints(measured, table, same_compiler))
    if not same_compiler:
        print(f"nvcc is {version}, not the table's: numbers are not compared")
    print("\n".join(faults) if faults else f"{len(measured)} kernels, as they must be")
    if faults and not options.update:
        print(f"If this is meant: {sys.argv[0]} {options.build} --update, and look at what changes in {options.table}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
