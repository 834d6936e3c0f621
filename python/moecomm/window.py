"""Window memory: memory of a rank that its peers write and read without a copy."""

from __future__ import annotations

import ctypes
import functools
import operator
from typing import Any, Dict, Sequence, Tuple

from . import _library, errors
from .arrays import type_of_typestr
from .membership import Membership
from .values import INT64_MAX, integer


class WindowMemory:
    """Memory of this rank that peers write without a copy. Communicator.window() makes it, from heap_bytes.

    comm     the Communicator
    shape    of the array
    typestr  its element type as numpy writes it: "<f4", "<u2", "|u1", ...

    numpy.asarray(memory) (host backend) and torch.as_tensor(memory) (cuda backend) are views of it. `address` is that of
    its first byte, and `nbytes` its size. free() or the communicator's destroy() frees it. No view may be used
    afterwards."""

    def __init__(self, comm: Membership, shape: Sequence[int], typestr: str):
        if not hasattr(shape, "__iter__"):
            raise TypeError(f"shape is {shape!r}, expected a sequence of integers")
        self.shape: Tuple[int, ...] = tuple(
            integer(extent, f"shape[{axis}]", 0, INT64_MAX) for axis, extent in enumerate(shape)
        )
        self.typestr = typestr
        self.nbytes = functools.reduce(operator.mul, self.shape, 1) * type_of_typestr(typestr, "typestr")[1]
        integer(self.nbytes, "the bytes of shape and typestr", 0, INT64_MAX)
        self._comm = comm
        memory = ctypes.c_void_p()
        with comm.native as pointer:
            result = _library.library().moeMemAlloc(pointer, self.nbytes, ctypes.byref(memory))
            errors.check(_library.library(), result, pointer)
            self._on_host = comm.place.device == "cpu"
        self.address: int = memory.value or 0
        self._freed = False

    def _interface(self, on_host: bool) -> Dict[str, Any]:
        if on_host != self._on_host:
            raise AttributeError("this window memory is on another kind of device")
        self._require_memory()
        return {"shape": self.shape, "typestr": self.typestr, "data": (self.address, False), "version": 3}

    @property
    def __array_interface__(self) -> Dict[str, Any]:
        return self._interface(True)

    @property
    def __cuda_array_interface__(self) -> Dict[str, Any]:
        return self._interface(False)

    def _require_memory(self) -> None:
        if self._freed or self._comm.native.pointer is None:
            raise errors.InvalidUsage("the window memory has been freed")

    def data_ptr(self) -> int:
        """The address of the first byte. Raises InvalidUsage once the memory has been freed."""
        self._require_memory()
        return self.address

    def free(self) -> None:
        """Frees the memory. No queued work may still use it. Idempotent. The communicator's destroy does it too."""
        if self.address and self._comm.native.pointer is not None:
            with self._comm.native as pointer:
                errors.check(_library.library(), _library.library().moeMemFree(pointer, self.address), pointer)
        self.address = 0
        self._freed = True
