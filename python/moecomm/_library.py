"""libmoecomm.so: where it is searched, and how it is loaded."""

import ctypes
import ctypes.util
import functools
import os
import pathlib
import sys
from typing import List

from . import _native

LIBRARY_NAMES = ("libmoecomm.so.0.1", "libmoecomm.so")


def candidates() -> List[str]:
    """Where the library may be, best first: MOECOMM_LIBRARY, next to this package (the wheel has a folder for it), then
    the system's directories. A package that was installed editable has two folders, one of them with the library."""
    chosen = os.environ.get("MOECOMM_LIBRARY")
    if chosen:
        return [chosen]
    folders = [pathlib.Path(folder).resolve() for folder in sys.modules["moecomm"].__path__]
    beside = [str(at / name) for here in folders for at in (here, here / "lib") for name in LIBRARY_NAMES
              if (at / name).exists()]
    found = ctypes.util.find_library("moecomm")
    return beside + list(LIBRARY_NAMES) + ([found] if found else [])


@functools.lru_cache(maxsize=None)
def library() -> ctypes.CDLL:
    """The loaded libmoecomm, for callers of the C interface: ctypes knows the types of its functions. Raises OSError with
    every path that was tried."""
    return load()


def load() -> ctypes.CDLL:
    """Loads the library and declares its functions. Raises OSError with every path that was tried."""
    reasons = []
    for path in candidates():
        try:
            # RTLD_LOCAL, because no other library needs these symbols.
            library = ctypes.CDLL(path, mode=ctypes.RTLD_LOCAL)
        except OSError as error:
            reasons.append(f"{path}: {error}")
            continue
        for name, (result, arguments) in _native.PROTOTYPES.items():
            function = getattr(library, name)
            function.restype = result
            function.argtypes = arguments
        return library
    raise OSError("libmoecomm was not found; set MOECOMM_LIBRARY to its path. Tried: " + "; ".join(reasons))
