"""Events, and the stream on which a Buffer communicates."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, ContextManager, Iterable, Optional, Union

import torch

from ..comm import Communicator
from ..torch.memory import CurrentStream, order_of

_cuda: Any = torch.cuda  # whose classes have no annotations


class EventHandle:
    """A CUDA event, recorded when it is made. Without GPUs the work is already done. `stream`: None is torch's current
    one."""

    def __init__(self, stream: Any = None):
        self._event: Any = None
        if torch.cuda.is_available():
            self._event = _cuda.Event()
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
    """The `event` that dispatch and combine return. As a context manager it lets the current stream wait at the end of
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
        """Registers hook_after_wait, a function that the next current_stream_wait() calls once. Raises ValueError if there
        is one."""
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
    """The stream on which a Buffer queues its work: one of its own, if the caller lets the work run beside that of the
    current stream, else the current one. On CPUs there is no stream, and every call returns after its work."""

    def __init__(self, device: torch.device):
        self.device = device
        self.stream: Any = _cuda.Stream(device, priority=-1) if device.type == "cuda" else None
        self._current = CurrentStream(device)

    def current(self) -> Any:
        """The caller's stream; None on CPUs."""
        return None if self.stream is None else self._current.get()

    def start(
        self,
        comm: Optional[Communicator],
        previous_event: Union[None, EventHandle, EventOverlap],
        asynchronous: bool = False,
    ) -> Any:
        """The stream of a call, after comm's steps. The own stream waits for previous_event or else for the current
        one. A call that is not asynchronous and has no event ends before anything else begins on the current stream, so
        it needs neither another stream nor events."""
        if self.stream is None:
            return None
        event = previous_event if isinstance(previous_event, EventHandle) else getattr(previous_event, "event", None)
        stream = self.stream if asynchronous or event is not None else self.current()
        if event is not None:
            event.make_wait(stream)
        elif stream is self.stream:
            stream.wait_stream(self.current())
        if comm is not None:
            order_of(comm).enter(stream)
        return stream

    def on(self, stream: Any) -> ContextManager[Any]:
        """Makes `stream`, of start(), torch's current stream in a block, so that tensors made there belong to it."""
        return torch.cuda.stream(stream) if stream is not None and stream is self.stream else _NO_CHANGE

    def finish(
        self,
        stream: Any,
        asynchronous: bool,
        used: Iterable[Optional[torch.Tensor]],
        made: Iterable[Optional[torch.Tensor]] = (),
        outputs: Iterable[Optional[torch.Tensor]] = (),
        there: bool = False,
    ) -> EventOverlap:
        """Ends a call. Without `asynchronous` the current stream waits for it.

        used  tensors of the current stream. If they are freed while the own stream still works, it keeps their memory
        made  tensors that were made on the own stream and that the caller gets
        outputs  tensors of the own stream with `there`, else of the current stream"""
        if self.stream is None:
            return EventOverlap(EventHandle() if asynchronous else None)
        if stream is not self.stream:
            return EventOverlap()
        used, made = ((*used, *outputs), made) if not there else (used, (*made, *outputs))
        current = self.current()
        for tensor in made:
            if tensor is not None:
                tensor.record_stream(current)
        if not asynchronous:
            current.wait_stream(stream)
            return EventOverlap()
        for tensor in used:
            if tensor is not None:
                tensor.record_stream(stream)
        return EventOverlap(EventHandle(stream))


_NO_CHANGE: ContextManager[Any] = contextlib.nullcontext()
