"""The console commands of the wheel: moerun, moe_perf, moe_info, moe_top, moe_trace. Each becomes the program of its name in moecomm/bin, in
the same process, so that signals and the exit status need no help. Copies from elsewhere have no such folder."""

import os
import pathlib
import sys


def run() -> None:
    name = pathlib.Path(sys.argv[0]).name
    os.execv(pathlib.Path(__file__).resolve().parent / "bin" / name, sys.argv)
