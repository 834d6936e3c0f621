"""Communicators: one rank's membership of a group of ranks."""

from __future__ import annotations

import ctypes
import os
import warnings
import weakref
from typing import TYPE_CHECKING, Any, Callable, List, NamedTuple, Optional, Sequence, Tuple

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
    from .ring import HandleRing


class Peer(NamedTuple):
    """A rank's place, and the transport from this rank to it: the answer of moeCommGetPeerInfo.

    rank        the peer, 0..nranks - 1
    transport   "self", "direct", "shm", "cuda-ipc", "fabric", "tcp", "verbs" or "ibgda"
    domain      index of the peer's domain
    process_id  the peer's, as its host numbers it
    device      the peer's CUDA ordinal; -1 with the host backend
    lost        the group goes on without it; its place is that of its last process
    host_name   the peer's host; at most 63 bytes of its name"""

    rank: int
    transport: str
    domain: int
    process_id: int
    device: int
    lost: bool
    host_name: str


class MemorySize(NamedTuple):
    """Bytes that one rank allocates: the answer of moeCommGetMemorySize. docs/reference/memory.md has the formulas.

    window_bytes       the symmetric window, heap included
    control_bytes      of these: flags, counts and row headers
    ll_bytes           of these: LL slots
    ht_bytes           of these: HT slots and staging area
    heap_bytes         of these: for Communicator.window()
    private_bytes      device memory of the communicator beside the window
    host_bytes         host memory of the communicator that kernels reach, page-locked with GPUs
    handle_bytes       device memory of one handle at most
    handle_host_bytes  host memory of one handle that kernels reach, at most
    local_only_bytes   device memory that the first handle with local_only takes for all of them"""

    window_bytes: int
    control_bytes: int
    ll_bytes: int
    ht_bytes: int
    heap_bytes: int
    private_bytes: int
    host_bytes: int
    handle_bytes: int
    handle_host_bytes: int
    local_only_bytes: int


def version() -> Tuple[int, int, int]:
    """The version of the loaded library, as (major, minor, patch). Raises OSError if no library is found."""
    code = ctypes.c_int32()
    errors.check(library(), library().moeGetVersion(ctypes.byref(code)))
    return code.value // 10000, code.value // 100 % 100, code.value % 100


def error_string(result: int) -> str:
    """The short name of a result: of a moeResult value such as MoeError.result, or of any other number."""
    text: bytes = library().moeGetErrorString(integer(result, "result", -INT32_MAX))
    return text.decode()


def unique_id() -> bytes:
    """128 bytes that name a new group. One process calls this and sends them to every rank over a trusted channel.
    That process must live until all ranks have joined. Each rank joins once with them. Raises SystemFailure if there is
    no usable network interface."""
    identity = _native.moeUniqueId_t()
    errors.check(library(), library().moeGetUniqueId(ctypes.byref(identity)))
    return bytes(identity.bytes)


def limits() -> Limits:
    """The limits of the library. Communicator.limits has those of one communicator."""
    return limits_of(None)


def memory_size(nranks: int, **config: Unpack[CommunicatorOptions]) -> MemorySize:
    """The bytes that a rank will allocate. Allocates nothing itself.

    nranks  ranks of the communicator
    config  the keywords of Communicator

    Raises InvalidArgument, TypeError or ValueError for settings with which no communicator could be made."""
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
    """One rank of a group. The constructor blocks until all ranks have joined, at most for the timeout. Use it as a
    context manager, or call destroy(). A communicator that is dropped without that is destroyed in the background, with a
    ResourceWarning. One that still exists when the interpreter exits is destroyed then. Do not rely on either.

    nranks          ranks of the group
    rank            this one, 0..nranks - 1
    identity        the 128 bytes of unique_id(), the same on all ranks; those of replace(): this process takes the
                    place of a lost rank, when the survivors call recover()

    All settings are optional. Where one is not given, the variable MOECOMM_<NAME> counts, then the default. Ranks pass
    the same values, except device, heap_bytes, timeout_ms, sms, interface_name, the folders, the log and the allocator.
    moeConfig_t says more of each.

    backend         "host" or "cuda", which is where the arrays of its steps are; "auto" takes a usable GPU if there is
                    one
    device          CUDA ordinal; -1: the calling thread's current device
    modes           "ht" or "ll": the mode whose buffers are made; "auto": both
    tokens_max      HT: the most tokens that a rank sends in one call; 0: 4096
    ll_tokens_max   the same of LL; 0: 128
    row_bytes_max   the most bytes of a row, a multiple of 16; 0: 16384
    side_bytes_max  the most bytes of a row's payloads together, a multiple of 16; 0: none
    topk_max        the most experts of a token, 1..32; 0: 8
    experts_max     the most experts over all ranks; 0: 1024
    timeout_ms      every wait for another rank ends within this; 0: 30000
    sms             GPU multiprocessors that one call may use; 0: the library's choice
    staging_rows    HT: rows of the staging area; 0: nranks * tokens_max; -1: none
    staging_areas   HT: 1 or 2; 0: 1
    heap_bytes      bytes for window(); 0: none
    domain_size     ranks of a domain; 0: as many as share a host
    ll_sets         LL: sets of slots, 1..4; 0: 2
    transport       between domains: "tcp", "verbs", "ibgda", or "auto"
    interface_name  the network interface on which ranks meet, such as "eth0"
    dump_folder     a folder for the latest steps when the communicator fails
    watch_folder    a folder for the sockets of moe_top
    log_level       "none", "error", "warn", "info", "debug" or "trace"
    log             a callable that gets level and line
    allocate, free  callables: allocate gets size and kind and returns an address or None, free gets address, size and
                    kind

    Any thread may call log functions and allocators until the communicator is destroyed. They must not destroy it.

    Raises TypeError or ValueError for a bad setting, InvalidUsage where ranks disagree, Timeout or RemoteError that name
    a missing or dead rank, Unsupported, SystemFailure or CudaError. Every method raises what the library raises: a
    MoeError."""

    def __init__(self, nranks: int, rank: int, identity: bytes, **settings: Unpack[CommunicatorOptions]):
        nranks, rank = integer(nranks, "nranks"), integer(rank, "rank")
        uid = _unique_id_from(identity)
        self._join(
            lambda pointer, config: library().moeCommInit(pointer, nranks, rank, ctypes.byref(uid), config), settings
        )

    @classmethod
    def from_env(cls, **settings: Unpack[CommunicatorOptions]) -> Communicator:
        """Joins the group that a launcher has started: moerun, torchrun, Slurm/PMI or Open MPI, whose environment gives
        nranks, rank and the meeting point.

        settings  the keywords of Communicator

        Raises InvalidUsage if no launcher is recognised, and what the constructor raises."""
        self = cls.__new__(cls)
        self._join(lambda pointer, config: library().moeCommInitFromEnv(pointer, config), settings)
        return self

    def _join(self, init: Callable[[Any, Any], int], settings: CommunicatorOptions) -> None:
        config = make_config(settings)
        native = Native(config, has_callbacks(config))
        native.init(lambda pointer: init(ctypes.byref(pointer), config))
        self.native = native
        self.memory_fresh = False  # whether the latest recover() has lost what was in window memory
        self.lost: List[int] = []  # ranks that the group goes on without, since the latest recover()
        self.rings: weakref.WeakSet[HandleRing] = weakref.WeakSet()  # of this communicator's handles
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
        """Ends all waits, here and on the peers: the communicator fails with Aborted on all ranks. Any thread."""
        with self.native as pointer:
            errors.check(library(), library().moeCommAbort(pointer), pointer)

    def set_timeout(self, timeout_ms: int) -> None:
        """Sets the timeout of this rank's waits for others, those under way too. info.timeout_ms tells it. Any thread.

        timeout_ms  1..86400000"""
        timeout_ms = integer(timeout_ms, "timeout_ms", -INT32_MAX)
        with self.native as pointer:
            errors.check(library(), library().moeCommSetTimeout(pointer, timeout_ms), pointer)

    def suspend(self) -> None:
        """Gives the memory of all ranks' windows back to the system until resume(). Collective. Handles, routes, plans
        and captured graphs stay. Window memory, that of pools too, must not be touched meanwhile, and is zeros afterwards.
        Calls that need it raise InvalidUsage. Waits for all work of this rank's GPU.

        Raises InvalidUsage (an operation of a rank awaits complete(), or the communicator is suspended) or Unsupported
        (memory that cannot change: see moeCommSuspend). Nothing has changed then, on any rank."""
        with self.native as pointer:
            errors.check(library(), library().moeCommSuspend(pointer), pointer)

    def resume(self) -> None:
        """Takes fresh memory to the addresses of all ranks' windows, after suspend(). Collective.

        Raises InvalidUsage (the communicator is not suspended), SystemFailure or CudaError (a rank gets no memory: all
        stay suspended, and the call may be repeated)."""
        with self.native as pointer:
            errors.check(library(), library().moeCommResume(pointer), pointer)

    def disconnect(self) -> None:
        """Closes what ties a suspended communicator to other processes, so that its process can be checkpointed with CRIU
        and cuda-checkpoint. Collective, after suspend(). Until reconnect() it has no socket, thread or mapping of a
        peer's memory, and hears of no failure; everything else stays.

        Raises InvalidUsage (it is not suspended, or is disconnected already) or Unsupported (ranks are lost). Nothing has
        changed then."""
        with self.native as pointer:
            errors.check(library(), library().moeCommDisconnect(pointer), pointer)

    def reconnect(self, identity: bytes) -> None:
        """Lets the ranks meet again after disconnect(), perhaps on other hosts. Collective. The communicator is suspended
        then: resume() wakes it.

        identity  the 128 bytes of a new unique_id(), the same on all ranks

        Raises InvalidUsage (it is not disconnected, or ranks bring different communicators), Unsupported (ranks of a
        domain no longer reach each other's memory), Timeout or RemoteError (ranks that have not come, or have died). It
        stays disconnected then, and all ranks may call again, with another identity."""
        uid = _unique_id_from(identity)
        with self.native as pointer:
            errors.check(library(), library().moeCommReconnect(pointer, ctypes.byref(uid)), pointer)

    def recover(self, timeout_ms: int, losses_max: int = 0, evicted: Sequence[int] = ()) -> List[int]:
        """Goes on after a failure: a rank came too late, or has died. Collective: all living ranks call it when they have
        learned of the failure. Handles, plans, captured graphs and window memory stay. Routes are void: the next call of
        a handle must be one that routes. What awaited complete() is cancelled. All ranks repeat the same calls. Waits for
        all work of this rank's GPU.

        timeout_ms  1..86400000: how long this rank waits for the others
        losses_max  0..nranks - 1: the most ranks that the group may go on without, earlier losses included. The same on
                    all ranks. Entries that name an expert of a lost rank count as unused
        evicted     ranks that the group gives up though they may live, such as one that hangs. They count as lost. The
                    same on all ranks, without this one. If one of them still runs, window memory is fresh and zero
                    afterwards, and `memory_fresh` is True

        Returns the lost ranks, ascending. `lost` has them too.

        A suspended communicator is awake afterwards, with fresh memory.

        Raises Unsupported (several domains; a lost rank was a thread of a survivor),
        RemoteError (more ranks have died or left) and Timeout (a rank has not come, or the process of a lost rank still
        runs), which name the rank. The communicator has this failure then, and all ranks may call again."""
        timeout_ms = integer(timeout_ms, "timeout_ms", -INT32_MAX)
        recovery = _native.moeRecovery_t()
        recovery.lossesMax = integer(losses_max, "losses_max", -INT32_MAX)
        lost = (ctypes.c_int32 * self.nranks)()
        recovery.lost = ctypes.addressof(lost)
        ranks = [integer(rank, f"evicted[{i}]", -INT32_MAX) for i, rank in enumerate(evicted)]
        given_up = (ctypes.c_int32 * len(ranks))(*ranks)
        recovery.evicted = ctypes.addressof(given_up) if ranks else None
        recovery.evictedCount = len(ranks)
        with self.native as pointer:
            errors.check(library(), library().moeCommRecover(pointer, ctypes.byref(recovery), timeout_ms), pointer)
        self.lost = list(lost[: recovery.losses])
        self.memory_fresh = recovery.memoryFresh != 0
        for ring in self.rings:
            ring.restart()
        return list(self.lost)

    def replace(self, rank: int) -> bytes:
        """The identity with which a new process takes the number of a lost rank: it calls Communicator(nranks, rank,
        identity) with the settings of the others, and waits. The survivors' next recover() takes it in, and `lost` is
        without it then. The new process first makes the handles that the others have, in their order. One survivor
        calls this, and sends the 128 bytes over a trusted channel.

        rank  a rank that has died, has called destroy(), or was evicted

        Raises InvalidUsage (the rank is not lost), InvalidArgument and Unsupported (several domains; a window shared by
        CUDA IPC). Nothing has changed then."""
        identity = _native.moeUniqueId_t()
        rank = integer(rank, "rank", -INT32_MAX)
        with self.native as pointer:
            errors.check(library(), library().moeCommReplace(pointer, rank, ctypes.byref(identity)), pointer)
        return bytes(identity.bytes)

    def dump(self, path: Optional[str] = None) -> None:
        """Writes this rank's latest steps to a file, for moe_trace. Also after a failure. Any thread.

        path  the file, which is replaced as a whole; None: one in dump_folder

        Raises InvalidUsage (no path and no folder), SystemFailure (the file cannot be written), Timeout."""
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
        """This rank, 0..nranks - 1."""
        return self.info.rank

    @property
    def nranks(self) -> int:
        """Ranks of the communicator."""
        return self.info.nranks

    @property
    def backend(self) -> str:
        """The backend in use, "host" or "cuda"."""
        return _backend_of(self.info)

    def peer(self, rank: int) -> Peer:
        """A rank's place, and the transport from this rank to it. `rank`: 0..nranks - 1."""
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
            info.lost != 0,
            info.hostName.decode(errors="replace"),
        )

    def window(self, shape: Sequence[int], typestr: str = "|u1") -> WindowMemory:
        """Makes WindowMemory, from heap_bytes. Local.

        shape    of the array
        typestr  its element type as numpy writes it: "<f4", "<u2", "|u1", ...

        Raises InvalidArgument if the heap has no such block."""
        return WindowMemory(self, shape, typestr)

    def handle(self, experts: int, topk: int, **settings: Unpack[HandleOptions]) -> Handle:
        """Makes a Handle. All ranks make the same handles in the same order.

        experts   of all ranks together
        topk      entries of a token in topk_idx
        settings  the keywords of Handle

        Raises TypeError, ValueError or InvalidArgument for a bad value, SystemFailure or CudaError without memory."""
        for name in settings:
            if name not in HandleOptions.__annotations__:
                raise no_keyword("handle", name, HandleOptions.__annotations__)
        return Handle(self, experts, topk, **settings)
