"""Communicators: one rank's membership of a group of ranks."""

from __future__ import annotations

import ctypes
import os
import warnings
from typing import TYPE_CHECKING, Any, Callable, NamedTuple, Optional, Sequence, Tuple

from . import _native, errors
from ._library import library
from .checks import Place
from .handle import Handle
from .lifetime import Native
from .membership import Info as Info
from .membership import Limits as Limits
from .membership import Membership, limits_of, values_of
from .options import HandleOptions
from .settings import TRANSPORTS, has_callbacks, make_config
from .values import INT32_MAX, integer, no_keyword, without_zero
from .window import WindowMemory

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .options import CommunicatorOptions


class Peer(NamedTuple):
    """The answer of moeCommGetPeerInfo."""

    rank: int
    transport: str
    domain: int
    process_id: int
    device: int
    host_name: str


class MemorySize(NamedTuple):
    """The answer of moeCommGetMemorySize."""

    window_bytes: int
    control_bytes: int
    ll_bytes: int
    ht_bytes: int
    heap_bytes: int


def version() -> Tuple[int, int, int]:
    """The version of the loaded library, as (major, minor, patch)."""
    code = ctypes.c_int32()
    errors.check(library(), library().moeGetVersion(ctypes.byref(code)))
    return code.value // 10000, code.value // 100 % 100, code.value % 100


def error_string(result: int) -> str:
    """The short name of a result."""
    text: bytes = library().moeGetErrorString(integer(result, "result", -INT32_MAX))
    return text.decode()


def unique_id() -> bytes:
    """128 bytes that name a new group. One process calls this and sends them to every rank over a trusted channel.
    That process must live until all ranks have joined."""
    identity = _native.moeUniqueId_t()
    errors.check(library(), library().moeGetUniqueId(ctypes.byref(identity)))
    return bytes(identity.bytes)


def limits() -> Limits:
    """The library's limits."""
    return limits_of(None)


def memory_size(nranks: int, **config: Unpack[CommunicatorOptions]) -> MemorySize:
    """Bytes that a rank of `nranks` will allocate with these settings (those of Communicator)."""
    size = _native.moeMemorySize_t()
    nranks = integer(nranks, "nranks")
    errors.check(library(), library().moeCommGetMemorySize(nranks, make_config(config), ctypes.byref(size)))
    return MemorySize(*values_of(size))


def _unique_id_from(identity: Any) -> _native.moeUniqueId_t:
    try:
        found = bytes(memoryview(identity))
    except TypeError:
        raise TypeError(f"identity is a {type(identity).__name__}, expected the 128 bytes of unique_id()") from None
    if len(found) != 128:
        raise ValueError(f"identity has {len(found)} bytes, expected the 128 of unique_id()")
    return _native.moeUniqueId_t((ctypes.c_uint8 * 128)(*found))


def _backend_of(info: Info) -> str:
    return "cuda" if info.backend == _native.moeBackendCuda else "host"


class Communicator(Membership):
    """One rank of a group. The constructor blocks until all `nranks` ranks have joined. Use it as a context manager, or
    call destroy(). A communicator that is dropped without that is destroyed in the background, with a ResourceWarning.
    One that still exists when the interpreter exits is destroyed then. Do not rely on either.

    All settings are optional, and moeConfig_t has their meaning: backend "auto" | "host" | "cuda",
    modes "auto" | "ht" | "ll", device, tokens_max, ll_tokens_max, row_bytes_max, side_bytes_max, topk_max, experts_max,
    timeout_ms, sms, staging_rows, heap_bytes, domain_size, ll_sets, staging_areas, transport "auto" | "tcp" | "verbs" | "ibgda",
    interface_name, dump_folder, watch_folder, log_level "none".."trace", log (a callable with level and line), allocate (a callable with size and
    kind that returns an address) and free (with address, size and kind). Any thread may call log functions and
    allocators until the communicator is destroyed. They must not destroy it."""

    def __init__(self, nranks: int, rank: int, identity: bytes, **settings: Unpack[CommunicatorOptions]):
        nranks, rank = integer(nranks, "nranks"), integer(rank, "rank")
        uid = _unique_id_from(identity)
        self._join(
            lambda pointer, config: library().moeCommInit(pointer, nranks, rank, ctypes.byref(uid), config), settings
        )

    @classmethod
    def from_env(cls, **settings: Unpack[CommunicatorOptions]) -> Communicator:
        """Joins with the place that the launcher's environment gives: moerun, torchrun, Slurm/PMI or Open MPI."""
        self = cls.__new__(cls)
        self._join(lambda pointer, config: library().moeCommInitFromEnv(pointer, config), settings)
        return self

    def _join(self, init: Callable[[Any, Any], int], settings: CommunicatorOptions) -> None:
        config = make_config(settings)
        native = Native(config, has_callbacks(config))
        native.init(lambda pointer: init(ctypes.byref(pointer), config))
        self.native = native
        info = self.info
        # Where the arrays of this communicator's steps must be.
        self.place = Place("cuda", info.device) if info.backend == _native.moeBackendCuda else Place("cpu", None)
        self._description = f"rank {info.rank} of {info.nranks}, backend {_backend_of(info)}"

    def __repr__(self) -> str:
        kept = self.__dict__  # lacks what joining would have set, if that failed
        native = kept.get("native")
        gone = ", destroyed" if native is not None and native.pointer is None else ""
        return f"<{type(self).__name__} {kept.get('_description', 'that has not joined')}{gone}>"

    def __del__(self) -> None:
        native = self.__dict__.get("native")  # missing if joining has failed
        if native is None or native.pointer is None:
            return
        warnings.warn(f"{self!r} was dropped without destroy()", ResourceWarning, source=self)
        native.drop()

    @property
    def pointer(self) -> Optional[int]:
        """The moeComm_t, for callers of the C interface; None once destroyed."""
        return self.native.pointer

    def __enter__(self) -> Communicator:
        return self

    def __exit__(self, *_: Any) -> None:
        self.destroy()

    def destroy(self) -> None:
        """Leaves the group and frees everything, handles and window memory included. Not collective. Idempotent. Waits
        for running calls of other threads. All later calls raise InvalidUsage."""
        self.native.destroy()

    def abort(self) -> None:
        """Ends all waits, here and on the peers. Any thread."""
        with self.native as pointer:
            errors.check(library(), library().moeCommAbort(pointer), pointer)

    def set_timeout(self, timeout_ms: int) -> None:
        """Sets the timeout of this rank's waits for others, those under way too. info.timeout_ms tells it. Any thread."""
        timeout_ms = integer(timeout_ms, "timeout_ms", -INT32_MAX)
        with self.native as pointer:
            errors.check(library(), library().moeCommSetTimeout(pointer, timeout_ms), pointer)

    def dump(self, path: Optional[str] = None) -> None:
        """Writes this rank's latest steps to a file, for moe_trace: to `path`, or into dump_folder. Any thread."""
        encoded = None
        if path is not None:
            if not isinstance(path, (str, bytes, os.PathLike)):
                raise TypeError(f"path is {path!r}, expected a path or None")
            encoded = without_zero(os.fsencode(path), path, "path")
        with self.native as pointer:
            errors.check(library(), library().moeCommDump(pointer, encoded), pointer)

    def async_error(self) -> Optional[errors.MoeError]:
        """The communicator's first asynchronous failure as an exception object, or None. If there is a failure, this
        waits for its sentence (moeGetLastError)."""
        failure = _native.moeResult_t()
        with self.native as pointer:
            errors.check(library(), library().moeCommGetAsyncError(pointer, ctypes.byref(failure)), pointer)
            if failure.value == _native.moeSuccess:
                return None
            return errors.make(library(), failure.value, pointer)

    def last_error(self) -> str:
        """The sentence of the first failure or latest refusal; empty if there was none."""
        with self.native as pointer:
            sentence: bytes = library().moeGetLastError(pointer)
            return sentence.decode(errors="replace")

    @property
    def rank(self) -> int:
        return self.info.rank

    @property
    def nranks(self) -> int:
        return self.info.nranks

    @property
    def backend(self) -> str:
        """ "host" or "cuda"."""
        return _backend_of(self.info)

    def peer(self, rank: int) -> Peer:
        """Peer: rank, transport ("self", "direct", "shm", "cuda-ipc", "tcp", "verbs", "ibgda"), domain, process_id,
        device, host_name."""
        info = _native.moePeerInfo_t()
        rank = integer(rank, "rank")
        with self.native as pointer:
            errors.check(library(), library().moeCommGetPeerInfo(pointer, rank, ctypes.byref(info)), pointer)
        return Peer(
            info.rank,
            TRANSPORTS.get(info.transport, str(info.transport)),
            info.domain,
            info.processId,
            info.device,
            info.hostName.decode(errors="replace"),
        )

    def window(self, shape: Sequence[int], typestr: str = "|u1") -> WindowMemory:
        """WindowMemory of this shape and element type, from heap_bytes."""
        return WindowMemory(self, shape, typestr)

    def handle(self, experts: int, topk: int, **settings: Unpack[HandleOptions]) -> Handle:
        """A Handle. All ranks make the same handles in the same order."""
        for name in settings:
            if name not in HandleOptions.__annotations__:
                raise no_keyword("handle", name, HandleOptions.__annotations__)
        return Handle(self, experts, topk, **settings)
