"""How handlers reach single numbers in the memory of a device: on CPUs directly, on GPUs through the driver, in the
order of the call's stream."""

from __future__ import annotations

import contextlib
import ctypes
from typing import Any, Iterator, Union


class HostMemory:
    """Memory of the process."""

    def copy(self, to: int, source: int, nbytes: int, stream: int) -> None:
        """Copies bytes from the library's memory to an output."""
        ctypes.memmove(to, source, nbytes)

    def store(self, address: int, value: int, stream: int) -> None:
        """Stores one int64."""
        ctypes.c_int64.from_address(address).value = value

    def load(self, address: int, stream: int) -> int:
        """Loads one int64."""
        return ctypes.c_int64.from_address(address).value


class CudaMemory:
    """Memory of a GPU. load() waits for the stream, since the ticket of a route must be known on the CPU."""

    def __init__(self) -> None:
        self._driver: Any = ctypes.CDLL("libcuda.so.1")

    def _call(self, function: str, *arguments: Any) -> None:
        result = getattr(self._driver, function)(*arguments)
        if result != 0:
            raise RuntimeError(f"{function} failed with CUDA driver error {result}")

    @contextlib.contextmanager
    def _context(self, stream: int) -> Iterator[Any]:
        """The stream's context, which need not be current in XLA's thread."""
        context = ctypes.c_void_p()
        self._call("cuStreamGetCtx", ctypes.c_void_p(stream), ctypes.byref(context))
        self._call("cuCtxPushCurrent_v2", context)
        try:
            yield ctypes.c_void_p(stream)
        finally:
            self._call("cuCtxPopCurrent_v2", ctypes.byref(context))

    def copy(self, to: int, source: int, nbytes: int, stream: int) -> None:
        """Copies bytes from the library's memory to an output."""
        with self._context(stream) as queue:
            size = ctypes.c_size_t(nbytes)
            self._call("cuMemcpyDtoDAsync_v2", ctypes.c_uint64(to), ctypes.c_uint64(source), size, queue)

    def store(self, address: int, value: int, stream: int) -> None:
        """Stores one int64, as two words that travel with the calls."""
        with self._context(stream) as queue:
            for place, word in enumerate((value & 0xFFFFFFFF, value >> 32)):
                at, one = ctypes.c_uint64(address + 4 * place), ctypes.c_size_t(1)
                self._call("cuMemsetD32Async", at, ctypes.c_uint(word), one, queue)

    def load(self, address: int, stream: int) -> int:
        """Loads one int64 when the earlier work on the stream is done."""
        found = ctypes.c_int64()
        with self._context(stream) as queue:
            at, size = ctypes.c_uint64(address), ctypes.c_size_t(8)
            self._call("cuMemcpyDtoHAsync_v2", ctypes.byref(found), at, size, queue)
            self._call("cuStreamSynchronize", queue)
        return found.value


Memory = Union[HostMemory, CudaMemory]
