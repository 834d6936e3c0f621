"""Memory of the library as torch tensors, and the order of streams."""

from __future__ import annotations

import ctypes
import math
import weakref
from typing import Any, Callable, Optional, Sequence, Tuple, Union

import torch

from ..comm import Communicator
from ..handle import Handle
from ..handle_answers import Counts
from ..handle_refusals import noted
from ..ring import HandleRing
from ..window import WindowMemory


class _CudaBytes:
    """An object through which torch.as_tensor sees device memory. The tensor keeps this object, and so `owner`,
    alive."""

    def __init__(self, address: int, nbytes: int, owner: Any):
        self.owner = owner
        self.__cuda_array_interface__ = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
            "strides": None,
        }


def tensor_at(address: int, shape: Sequence[int], dtype: torch.dtype, device: torch.device, owner: Any) -> torch.Tensor:
    """A tensor over memory of the library, without a copy. It keeps `owner` alive, but not the memory."""
    nbytes = math.prod(shape) * dtype.itemsize
    if nbytes == 0:
        return torch.empty(tuple(shape), dtype=dtype, device=device)
    if device.type == "cuda":
        flat = torch.as_tensor(_CudaBytes(address, nbytes, owner), device=device)
    else:
        buffer = (ctypes.c_uint8 * nbytes).from_address(address)
        setattr(buffer, "owner", owner)
        flat = torch.frombuffer(buffer, dtype=torch.uint8)
    return flat.view(dtype).reshape(tuple(shape))


def device_of(comm: Communicator) -> torch.device:
    """Where tensors of this communicator's steps must be."""
    return torch.device("cpu") if comm.place.device == "cpu" else torch.device("cuda", comm.place.ordinal or 0)


class WindowTensor:
    """Window memory with a tensor over it: peers write `tensor` as out_rows of a dispatch, and read it as rows of a
    high-throughput combine, without a copy. `tensor` and its views are valid until free() or the communicator's
    destroy(), and nothing else frees the memory. window_tensor() makes it.

    comm   a Communicator with the setting heap_bytes, from which the memory comes
    shape  of the tensor
    dtype  of the tensor"""

    def __init__(self, comm: Communicator, shape: Sequence[int], dtype: torch.dtype):
        nbytes = math.prod(int(extent) for extent in shape) * dtype.itemsize
        self.memory: WindowMemory = comm.window((nbytes,))
        self.tensor = tensor_at(self.memory.address, shape, dtype, device_of(comm), self.memory)

    def free(self) -> None:
        """Frees the memory. No queued work may still use it, and nobody may touch its tensors. Idempotent."""
        self.memory.free()


def window_tensor(comm: Communicator, shape: Sequence[int], dtype: torch.dtype) -> WindowTensor:
    """Window memory of `comm` as a tensor of this shape and dtype, on the communicator's device. Local. Needs the
    setting heap_bytes. Raises moecomm.InvalidArgument if the heap has no such block."""
    return WindowTensor(comm, shape, dtype)


class StreamOrder:
    """Keeps the steps of one communicator in one order, whichever streams they are queued on."""

    def __init__(self) -> None:
        self._last: Optional[Any] = None

    def enter(self, stream: Any) -> None:
        """Called before a step is queued on `stream`: the steps before it come first. A capture cannot wait for work
        outside of it; there the caller's synchronisation before the capture orders them."""
        if stream is None:
            return
        if self._last is stream:
            return
        if self._last is not None and self._last != stream and not torch.cuda.is_current_stream_capturing():
            stream.wait_stream(self._last)
        self._last = stream


_counts: weakref.WeakKeyDictionary[Handle, torch.Tensor] = weakref.WeakKeyDictionary()


def rows_per_expert(handle: Handle, device: torch.device) -> torch.Tensor:
    """The handle's own [local experts] int32 on the device, which its next route changes. The view is made once: rings
    ask for it when they are made, so that a capture finds it. It holds no reference to the handle, whose owner keeps
    it."""
    found = _counts.get(handle)
    if found is None:
        address = handle.device_counts().rows_per_expert
        found = _counts[handle] = tensor_at(address, (handle.local_experts,), torch.int32, device, None)
    return found


def counts_of(handle: Handle, stream: Any) -> Counts:
    """The counts of a route, for which the host waits. Raises the fault of the route, such as an expert id out of
    range. After such a fault all ranks get no rows, so only a rank that gets none has to look."""
    found = handle.counts()
    if found.rows == 0:
        if stream is not None:
            stream.synchronize()  # status() answers for work that has run
        status = handle.status()
        if status is not None:
            raise noted(status)  # the step is over here as it is elsewhere
    return found


def prepare(ring: HandleRing, device: torch.device) -> HandleRing:
    """Makes the views of rows_per_expert for all handles of a ring."""
    for handle in ring.handles:
        rows_per_expert(handle, device)
    return ring


def order_of(comm: Communicator) -> StreamOrder:
    """The one StreamOrder of a communicator, which keeps it."""
    found: Optional[StreamOrder] = comm.__dict__.get("_stream_order")
    if found is not None:
        return found
    made: StreamOrder = comm.__dict__.setdefault("_stream_order", StreamOrder())  # another thread may have been faster
    return made


class CurrentStream:
    """Asks for torch's current stream on a GPU. Where torch tells the stream's address, in a tenth of the time, the object
    is asked for only when the address changes."""

    def __init__(self, device: Union[torch.device, int]):
        self._device = device
        index = device.index if isinstance(device, torch.device) else device
        self._index: Any = index if _address_of_current is not None else None
        self._known: Tuple[int, Any] = (-1, None)  # address and object of the latest answer

    def get(self) -> Any:
        if self._index is None or _address_of_current is None:
            return torch.cuda.current_stream(self._device)
        address, known = _address_of_current(self._index), self._known  # which another thread may replace
        if known[0] != address:
            known = self._known = (address, torch.cuda.current_stream(self._device))
        return known[1]


_address_of_current: Optional[Callable[[int], int]] = getattr(torch._C, "_cuda_getCurrentRawStream", None)


def form_of(tensor: Any) -> Any:
    """A key with everything that checks of a tensor read. None has the key None. Other values that are no plain tensor
    have a key that is never found."""
    if tensor.__class__ is torch.Tensor:
        return tensor.shape, tensor.dtype, tensor.device, tensor.is_contiguous()
    return None if tensor is None else object()


def kind_of(tensor: Any) -> Any:
    """form_of() without the number of rows."""
    if tensor.__class__ is torch.Tensor:
        return tensor.shape[1:], tensor.dtype, tensor.device, tensor.is_contiguous()
    return None if tensor is None else object()


def require_tensor(value: Any, name: str, axes: Tuple[str, ...]) -> None:
    """Requires a tensor with these axes. The library's binding checks the rest."""
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"{name} is a {type(value).__name__}, expected a tensor [{', '.join(axes)}]")
    if value.dim() != len(axes):
        raise ValueError(f"{name} has shape {tuple(value.shape)}, expected [{', '.join(axes)}]")
