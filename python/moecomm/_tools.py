"""The console commands of the wheel: moerun, moe_perf, moe_info, moe_top, moe_trace. Each becomes the program of its name
in moecomm/bin, in the same process, so that signals and the exit status need no help. Copies from elsewhere have no such
folder. A package that was installed editable has two folders, one of them with the programs."""

import os
import pathlib
import sys


def run() -> None:
    name = pathlib.Path(sys.argv[0]).name
    places = [pathlib.Path(folder).resolve() / "bin" / name for folder in sys.modules["moecomm"].__path__]
    os.execv(next((place for place in places if place.exists()), places[0]), sys.argv)
