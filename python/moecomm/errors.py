"""One exception per result of the library. Its text is the sentence of moeGetLastError: what happened, and which
rank noticed."""

from __future__ import annotations

from typing import Any, Optional

from . import _native


class MoeError(Exception):
    """A call of the library failed. The text is the library's sentence: it names the rank, the call and the value.

    sentence  the text
    result    the moeResult value, which each class has as an attribute"""

    result: Optional[int] = None

    def __init__(self, sentence: str, result: Optional[int] = None):
        super().__init__(sentence)
        if result is not None:
            self.result = result


class InvalidArgument(MoeError, ValueError):
    """A bad value was passed. It is a ValueError too."""

    result = _native.moeInvalidArgument


class InvalidUsage(MoeError):
    """The value is right but the time is wrong, or ranks passed different values."""

    result = _native.moeInvalidUsage


class CudaError(MoeError):
    """A CUDA call failed."""

    result = _native.moeCudaError


class SystemFailure(MoeError, OSError):
    """A call of the operating system failed, or memory ran out. It is an OSError too."""

    result = _native.moeSystemError


class RemoteError(MoeError):
    """Another rank died, left or reported a failure."""

    result = _native.moeRemoteError


class Timeout(MoeError, TimeoutError):
    """A rank did not do its part within the configured time. It is a TimeoutError too."""

    result = _native.moeTimeout


class Aborted(MoeError):
    """Communicator.abort() was called, here or on another rank."""

    result = _native.moeAborted


class Unsupported(MoeError):
    """Not available on this machine or in this build."""

    result = _native.moeUnsupported


class InProgress(MoeError):
    """Not finished yet; ask again."""

    result = _native.moeInProgress


class InternalError(MoeError):
    """A defect of the library."""

    result = _native.moeInternalError


BY_RESULT = {
    kind.result: kind
    for kind in (
        InvalidArgument,
        InvalidUsage,
        CudaError,
        SystemFailure,
        RemoteError,
        Timeout,
        Aborted,
        Unsupported,
        InProgress,
        InternalError,
    )
}


def make(library: Any, result: int, comm: Optional[int] = None) -> MoeError:
    """The exception for `result`, with the sentence of `comm` (None: the calling thread's)."""
    sentence = library.moeGetLastError(comm).decode(errors="replace")
    if not sentence:
        sentence = library.moeGetErrorString(result).decode(errors="replace")
    return of(result, sentence)


def of(result: int, sentence: str) -> MoeError:
    """The exception for `result` with this sentence."""
    kind = BY_RESULT.get(result)
    return kind(sentence) if kind is not None else MoeError(sentence, result)


def check(library: Any, result: int, comm: Optional[int] = None) -> None:
    """Raises the exception for `result` unless it is moeSuccess."""
    if result != _native.moeSuccess:
        raise make(library, result, comm)
