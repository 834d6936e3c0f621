#!/usr/bin/env python3
"""The inputs of each step of scripts/test.sh. A step is left out while none of them has changed since it passed.

Usage: step_inputs.py STEP   prints a digest of the step's inputs: the files of the table below that git knows or would
                             add, and what all steps on a machine share: tools, processor, environment. Prints nothing
                             for a step that is not in the table; such a step always runs.
In case of doubt the table lists too much for a step, never too little.
"""
import functools
import glob
import hashlib
import os
import pathlib
import platform
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
EVERYTHING = [""]
# Documents that only people read. Tests read the others, and README.
PROSE = ["docs/decisions", "docs/internals/architecture.md", "docs/internals/hardware-checklist.md",
         "docs/internals/notebook.md", "docs/internals/protocol.md", "docs/internals/rdma.md", "CONTRIBUTING.md",
         "STYLE.md", "REVIEW.md", "SECURITY.md", "CITATION.cff", ".github", "packaging/release.md",
         *(path.relative_to(ROOT).as_posix() for path in sorted(ROOT.glob("src/**/README.md"))),
         "tests/README.md", "tests/sim/README.md", "tests/fake_mlx5/README.md"]
BUILD = ["CMakeLists.txt", "CMakePresets.json", "cmake", "include", "src", "scripts/test.sh", "scripts/tool_pages.py"]
HOST_BUILD = BUILD + ["perf", "tests", "examples"]
SITE = ["scripts/site", "scripts/site.sh", "tests/tools/site_test.py", "tests/tools/site_code_test.py"]
# Tests that are no part of the compiled programs of `tests`, and what they test.
OTHER_TESTS = ["tests/codegen/check_kernels_test.py", "tests/codegen/planted.cu", "tests/sim/run_mutants.py",
               "tests/sim/mutants.toml", "tests/sim/mutant_threads.cc", *SITE]
# step: (inputs, exceptions). A name stands for a file or a folder; "*.h" for files with this ending.
TABLE = {
    "format": ([".clang-format", "scripts/test.sh", "*.h", "*.hpp", "*.cuh", "*.cc", "*.c", "*.cu"], []),
    "tidy": (EVERYTHING, []),
    "tests": (EVERYTHING, PROSE + OTHER_TESTS),
    "asan": (EVERYTHING, PROSE + OTHER_TESTS),
    "tsan": (HOST_BUILD + ["docs"], PROSE + OTHER_TESTS),
    "rxe": (HOST_BUILD, PROSE + OTHER_TESTS + ["tests/unit", "tests/tools", "tests/codegen", "tests/sim"]),
    "mutants": (["include", "src/device", "scripts/test.sh", "tests/support", "tests/protocol", "tests/sim",
                 "tests/fake_mlx5", "scripts/changed_files.py"], []),
    "lint": (BUILD + [".clang-tidy", "scripts/lint.py", "scripts/changed_files.py"], []),
    "codegen": (["CMakeLists.txt", "CMakePresets.json", "cmake", "include", "src/CMakeLists.txt", "src/device",
                 "src/backend/cuda_plan.h", "scripts", "tests/codegen"], []),
    "package": (EVERYTHING, [name for name in PROSE if name != "docs/decisions"] + OTHER_TESTS),
    "python": (BUILD + ["pyproject.toml", "python", "examples", "docs/guide/first-layer.md", "perf/collectivex",
                        "perf/python", "scripts/fetch_torch.sh", "scripts/engines.sh"], []),
    "site": (SITE + ["*.md", "docs", "include", "src", "perf", "python/moecomm", "examples", "LICENSE",
                     "scripts/test.sh", "scripts/step_inputs.py", "scripts/tool_pages.py", "tests/abi/exports.txt"], []),
}
VARIABLES = ("CC", "CXX", "CFLAGS", "CXXFLAGS", "LDFLAGS", "CUDACXX", "CUDAFLAGS", "CUDAARCHS", "PATH")


def is_of(path, names):
    return any(name == "" or path == name or path.startswith(name + "/") or
               (name.startswith("*.") and path.endswith(name[1:])) for name in names)


def files_of(step, root=ROOT):
    """The input files of a step, in order; None for a step that is not in the table."""
    if step not in TABLE:
        return None
    command = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listing = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout.decode()
    reads, but_not = TABLE[step]
    return sorted({path for path in listing.split("\0") if path and is_of(path, reads) and not is_of(path, but_not)})


def content_of(path):
    """The content that shows whether a file has changed. Links and deleted files count too."""
    if path.is_symlink():
        return "link " + os.readlink(path)
    if not path.is_file():
        return "none"
    return f"{os.access(path, os.X_OK)} {hashlib.sha256(path.read_bytes()).hexdigest()}"


def first_line(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout
    except OSError:
        return "none"


@functools.cache
def machine():
    """What every step depends on besides its files. Packages stand for the tools that they contain."""
    cpu = pathlib.Path("/proc/cpuinfo")
    flags = sorted({line for line in cpu.read_text().splitlines() if line.startswith("flags")}) if cpu.exists() else []
    nvcc = "/usr/local/cuda/bin/nvcc"
    tools = [first_line("dpkg-query", "-W", "-f", "${Package} ${Version} ${Status}\n"), first_line("nvcc", "--version"),
             first_line(nvcc, "--version"), sys.version]
    tools += [first_line(tool, "--version") for tool in ("cmake", "c++", "clang++", "clang-tidy-14", "clang-format-14")]
    variables = [f"{name}={value}" for name, value in sorted(os.environ.items())
                 if name in VARIABLES or name.startswith(("MOECOMM_", "CMAKE_"))]
    devices = sorted(glob.glob("/dev/nvidia*") + glob.glob("/dev/infiniband/*"))
    return [*tools, *flags, *variables, *devices, platform.release(), str(os.getuid())]


def digest_of(step, root=ROOT):
    files = files_of(step, root)
    if files is None:
        return ""
    digest = hashlib.sha256()
    for text in [step, *machine(), *(f"{path} {content_of(root / path)}" for path in files)]:
        digest.update(text.encode() + b"\0")
    return digest.hexdigest()


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    os.environ |= {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": str(ROOT)}
    print(digest_of(sys.argv[1]))


if __name__ == "__main__":
    main()
