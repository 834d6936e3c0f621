"""Window memory for torch's allocator: see window_pool."""

from __future__ import annotations

import contextlib
import threading
import weakref
from typing import Any, Dict, Iterator, Optional

import torch

from .. import _library, errors
from ..comm import Communicator
from .memory import device_of

# One for the process, because torch calls it as long as one of its blocks lives.
_allocator: Optional[Any] = None
_making = threading.Lock()
# A torch.cuda.MemPool for each thread, since torch routes at most one thread's allocations into a pool at a time.
_pools: weakref.WeakKeyDictionary[Communicator, Dict[int, Any]] = weakref.WeakKeyDictionary()
_here = threading.local()  # .comm: whose window_pool this thread has entered


def _pool_of(comm: Communicator, device: torch.device) -> Any:
    """This thread's pool."""
    global _allocator
    with _making:
        if _allocator is None:
            path = _library.library()._name
            _allocator = torch.cuda.memory.CUDAPluggableAllocator(path, "moeMemPoolAlloc", "moeMemPoolFree")
        pools = _pools.setdefault(comm, {})
        thread = threading.get_ident()
        if thread not in pools:
            with torch.cuda.device(device):
                pools[thread] = torch.cuda.MemPool(_allocator.allocator())
        return pools[thread]


@contextlib.contextmanager
def _serving(comm: Communicator) -> Iterator[None]:
    """The communicator serves this thread."""
    library = _library.library()
    with comm.native as pointer:
        errors.check(library, library.moeMemPoolUse(pointer), pointer)
    _here.comm = comm
    try:
        yield
    finally:
        _here.comm = None
        library.moeMemPoolUse(None)


def _explain(error: BaseException) -> None:
    """Adds the library's sentence to torch's, which only says that there was no memory."""
    sentence = (_library.library().moeGetLastError(None) or b"").decode(errors="replace")
    if sentence.startswith("moeMemPoolAlloc: "):
        error.args = (f"{error}\n{sentence}",)


def _require_pools(device: torch.device) -> None:
    """Raises NotImplementedError if torch lacks the pools that are needed."""
    if device.type != "cuda":
        raise NotImplementedError("window_pool needs the cuda backend: torch has memory pools on GPUs only")
    if not hasattr(torch._C, "_cuda_beginAllocateCurrentThreadToPool"):
        raise NotImplementedError(
            f"window_pool needs torch 2.8 or later: in {torch.__version__} a pool takes the allocations of all threads"
        )
    if torch.cuda.is_current_stream_capturing() and not hasattr(torch.cuda.CUDAGraph, "_retain_pool"):
        raise NotImplementedError(
            f"window_pool during a capture needs a newer torch: in {torch.__version__} the graph's own pool may count"
        )


@contextlib.contextmanager
def window_pool(comm: Communicator) -> Iterator[None]:
    """Makes torch's allocations on this thread window memory of `comm`, so that dispatches deliver into them, and
    high-throughput combines read them, without a copy. Local.

        with moecomm.torch.window_pool(comm):
            out = torch.empty(rows, hidden, dtype=torch.bfloat16, device="cuda")

    It concerns tensors on the communicator's device, and ends with the `with` statement: other threads, such as that of
    a backward pass, allocate as before. The memory comes from heap_bytes, in torch's segments: 2 MiB for tensors up to
    1 MiB, 20 MiB below 10 MiB, else a multiple of 2 MiB. Freed memory stays in the pool for the thread's next
    tensors (release_window_pool). If nothing fits, torch raises its OutOfMemoryError. Outside the `with` statement, its
    text ends with the library's sentence.

    Tensors may outlive the communicator: they are then plain memory, and keep its whole window allocated.

    Raises NotImplementedError on the host backend and where torch cannot do this, moecomm.InvalidUsage inside the pool
    of another communicator, with the setting allocate, or after destroy()."""
    device = device_of(comm)
    _require_pools(device)
    entered = getattr(_here, "comm", None)
    if entered is comm:
        yield
        return
    if entered is not None:
        raise errors.InvalidUsage("this thread is inside the window_pool of another communicator: leave that first")
    with _serving(comm), torch.cuda.use_mem_pool(_pool_of(comm, device), device):
        try:
            yield
        except torch.cuda.OutOfMemoryError as error:
            _explain(error)
            raise


def release_window_pool(comm: Communicator) -> None:
    """Returns memory to the heap of `comm` that torch keeps for window_pool, on all threads, and that no tensor uses.
    Memory in use returns with the first torch.cuda.empty_cache() after its tensors are gone. Once the Communicator has
    been dropped, all memory returns in that way. Calls empty_cache(), which waits for the device. Local. Not while a
    thread is inside the pool."""
    if _pools.pop(comm, None) is not None:
        torch.cuda.empty_cache()
