"""Events, and the stream on which a Buffer communicates."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, ContextManager, Iterable, Optional, Union

import torch

from ..comm import Communicator
from ..torch.memory import order_of


class EventHandle:
    """A CUDA event, recorded on the current stream when it is made. Without GPUs the work is already done."""

    def __init__(self, stream: Any = None):
        self._event: Any = None
        if torch.cuda.is_available():
            self._event = torch.cuda.Event()
            self._event.record(torch.cuda.current_stream() if stream is None else stream)

    def current_stream_wait(self) -> None:
        """torch's current stream waits for the event."""
        if self._event is not None:
            torch.cuda.current_stream().wait_event(self._event)

    def make_wait(self, stream: Any) -> None:
        """`stream` waits for the event."""
        if self._event is not None:
            stream.wait_event(self._event)


class EventOverlap:
    """What dispatch and combine return as `event`. As a context manager it lets the current stream wait at the end of
    the block. `event` is None after a call without async_finish: the current stream waits for such a call anyway, so
    waiting again does nothing. `extra_tensors` are kept alive as long as this object."""

    def __init__(self, event: Optional[EventHandle] = None, extra_tensors: Optional[Iterable[Any]] = None):
        self.event = event
        self.extra_tensors = extra_tensors
        self.hook_after_wait: Optional[Callable[[], None]] = None
        self._release_after_block = False

    def current_stream_wait(self, release_handle: bool = False) -> None:
        """torch's current stream waits for the work. release_handle drops the event afterwards."""
        if self.event is not None:
            self.event.current_stream_wait()
        hook, self.hook_after_wait = self.hook_after_wait, None
        if hook is not None:
            hook()
        if release_handle:
            self.event = None

    wait = current_stream_wait

    def register_hook_after_wait(self, hook_after_wait: Callable[[], None]) -> None:
        """Registers a function that the next current_stream_wait calls once. Raises ValueError if there is one."""
        if self.hook_after_wait is not None:
            raise ValueError("hook_after_wait is given, but a hook is registered already")
        self.hook_after_wait = hook_after_wait

    def __call__(self, release_handle: bool = False) -> EventOverlap:
        self._release_after_block = release_handle
        return self

    def __enter__(self) -> EventOverlap:
        return self

    def __exit__(self, *_: Any) -> None:
        release, self._release_after_block = self._release_after_block, False
        self.current_stream_wait(release)


class Lane:
    """The communication stream of a Buffer. On CPUs there is none, and every call returns after its work."""

    def __init__(self, device: torch.device):
        self.device = device
        self.stream: Any = torch.cuda.Stream(device, priority=-1) if device.type == "cuda" else None

    def current(self) -> Any:
        """The caller's stream; None on CPUs."""
        return torch.cuda.current_stream(self.device) if self.stream is not None else None

    def start(self, comm: Optional[Communicator], previous_event: Union[None, EventHandle, EventOverlap]) -> Any:
        """The communication stream, behind previous_event or else the current stream, and behind comm's steps."""
        if self.stream is None:
            return None
        event = previous_event if isinstance(previous_event, EventHandle) else getattr(previous_event, "event", None)
        if event is not None:
            event.make_wait(self.stream)
        else:
            self.stream.wait_stream(self.current())
        if comm is not None:
            order_of(comm).enter(self.stream)
        return self.stream

    def on(self, stream: Any) -> ContextManager[Any]:
        """Makes `stream` torch's current stream in a block, so that tensors made there belong to it."""
        return torch.cuda.stream(stream) if stream is not None else contextlib.nullcontext()

    def finish(self, async_finish: bool, tensors: Iterable[Optional[torch.Tensor]]) -> EventOverlap:
        """Ends a call. Its tensors may be in use on both streams. Without async_finish the current stream waits."""
        if self.stream is None:
            return EventOverlap(EventHandle() if async_finish else None)
        current = self.current()
        for tensor in tensors:
            if tensor is not None:
                tensor.record_stream(self.stream)
                tensor.record_stream(current)
        if async_finish:
            return EventOverlap(EventHandle(self.stream))
        current.wait_stream(self.stream)
        return EventOverlap()
