"""python -m moecomm prints what a report of a problem needs: versions, the library's path, which backends work, and
what torch and the driver say of the GPU. Exit status: 0; 1 if the library cannot be loaded."""

from __future__ import annotations

import ctypes
import importlib
import os
import pathlib
import re
import subprocess
import sys
from typing import Any, Dict, List, Optional

from ._library import library
from ._version import VERSION
from .comm import Communicator, unique_id, version
from .errors import MoeError

SECONDS = 20  # for moe_info
# Settings of a communicator that needs little memory.
SMALL: Dict[str, Any] = dict(
    tokens_max=16, ll_tokens_max=16, row_bytes_max=16, topk_max=1, experts_max=1, log_level="none"
)


def path_of(loaded: ctypes.CDLL) -> str:
    """The file that the loader found."""
    try:
        maps = pathlib.Path("/proc/self/maps").read_text()
    except OSError:
        maps = ""
    name = re.escape(os.path.basename(loaded._name))
    found = re.search(rf"(/\S*/{name}\S*)$", maps, re.M)
    return found.group(1) if found is not None else loaded._name


def commit_of(path: str) -> str:
    """The commit of the programs that were built with the library; empty if there are none, or if they lack it."""
    beside = pathlib.Path(path).resolve().parent
    here = pathlib.Path(__file__).resolve().parent
    for program in (beside / "moe_info", here / "bin/moe_info", beside.parent / "bin/moe_info"):
        try:
            ran = subprocess.run([str(program), "--version"], capture_output=True, text=True, timeout=SECONDS)
        except (OSError, subprocess.TimeoutExpired):
            continue
        found = re.search(r", commit (\S+)", ran.stdout)
        if found is not None:
            return found.group(1)
    return ""


def backend_works(name: str) -> str:
    """Whether a communicator of one rank can be made: nothing less proves that a backend works."""
    settings = {**SMALL, "backend": name}
    try:
        Communicator(1, 0, unique_id(), **settings).destroy()
    except MoeError as error:
        return f"does not work: {error}"
    return "works"


def torch_version() -> str:
    """The version of torch, and whether it can use a GPU."""
    try:
        torch: Any = importlib.import_module("torch")
    except ImportError as error:
        return f"not installed ({error})"
    except Exception as error:  # noqa: B902  such as a CUDA library of another version
        return f"cannot be imported: {error}"
    if not torch.cuda.is_available():
        return f"{torch.__version__}, without a GPU"
    try:
        torch.zeros(1, device="cuda").item()
    except RuntimeError as error:
        return f"{torch.__version__}, whose GPU does not work: {str(error).splitlines()[0]}"
    return f"{torch.__version__}, whose GPU works: {torch.cuda.get_device_name()}"


def driver_version() -> str:
    """The version of NVIDIA's driver, and the newest CUDA that it runs."""
    try:
        found: Optional[Any] = re.search(r"  (\d+\.[\d.]+)  ", pathlib.Path("/proc/driver/nvidia/version").read_text())
    except OSError:
        found = None
    number = ctypes.c_int()
    try:
        failed = ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(number))
    except (OSError, AttributeError):
        failed = 1
    known: List[str] = [found.group(1)] if found is not None else []
    if not failed:
        known.append(f"CUDA {number.value // 1000}.{number.value % 1000 // 10}")
    return ", ".join(known) or "none"


def report() -> Dict[str, str]:
    """The lines of the report, by their names. Raises OSError or AttributeError if the library cannot be loaded."""
    path = path_of(library())
    commit = commit_of(path)
    return {
        "moecomm": VERSION,
        "library": ".".join(map(str, version())) + (f", commit {commit}" if commit else ""),
        "path": path,
        "backend host": backend_works("host"),
        "backend cuda": backend_works("cuda"),
        "python": sys.version.split()[0],
        "torch": torch_version(),
        "driver": driver_version(),
    }


def main() -> int:
    try:
        library()
    except (OSError, AttributeError) as error:  # AttributeError: a library of another version lacks functions
        print(f"moecomm {VERSION}: {error}", file=sys.stderr)
        return 1
    for name, text in report().items():
        print(f"{name:<14}{text}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
