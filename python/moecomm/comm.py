"""Communicators: one rank's membership of a group of ranks, and its window memory."""

import ctypes
import functools
import operator
from collections import namedtuple

from . import _native, errors
from .handle import Handle

Info = namedtuple(
    "Info",
    "nranks rank backend device domain domain_count domain_rank domain_size timeout_ms bulk_copies window_bytes heap_bytes",
)
Peer = namedtuple("Peer", "rank transport domain process_id device host_name")
Limits = namedtuple(
    "Limits",
    "ranks_max topk_max experts_max tokens_max ll_tokens_max row_alignment row_bytes_max side_bytes_max outstanding_max",
)
MemorySize = namedtuple("MemorySize", "window_bytes control_bytes ll_bytes ht_bytes heap_bytes")

BACKENDS = {"auto": _native.moeBackendAuto, "host": _native.moeBackendHost, "cuda": _native.moeBackendCuda}
MODES = {"auto": _native.moeModeAuto, "ht": _native.moeModeHt, "ll": _native.moeModeLl}
TRANSPORTS = {
    _native.moeTransportSelf: "self",
    _native.moeTransportDirect: "direct",
    _native.moeTransportShm: "shm",
    _native.moeTransportCudaIpc: "cuda-ipc",
    _native.moeTransportTcp: "tcp",
    _native.moeTransportVerbs: "verbs",
    _native.moeTransportIbgda: "ibgda",
}
REMOTE_TRANSPORTS = {"auto": 0, **{name: value for value, name in TRANSPORTS.items() if value >= _native.moeTransportTcp}}
LOG_LEVELS = {name: number for number, name in enumerate(("none", "error", "warn", "info", "debug", "trace"))}


@functools.lru_cache(maxsize=None)
def library():
    """The loaded libmoecomm."""
    return _native.load()


def version():
    """The version of the loaded library, as (major, minor, patch)."""
    code = ctypes.c_int32()
    errors.check(library(), library().moeGetVersion(ctypes.byref(code)))
    return code.value // 10000, code.value // 100 % 100, code.value % 100


def error_string(result):
    """The short name of a result."""
    return library().moeGetErrorString(result).decode()


def unique_id():
    """128 bytes that name a new group. One process calls this, sends them to every rank over a trusted channel, and
    lives until all ranks have joined."""
    identity = _native.moeUniqueId_t()
    errors.check(library(), library().moeGetUniqueId(ctypes.byref(identity)))
    return bytes(identity.bytes)


def limits():
    """What the library can do at most."""
    return _limits_of(None)


def memory_size(nranks, **config):
    """Bytes that a rank of `nranks` will allocate with these settings (those of Communicator)."""
    size = _native.moeMemorySize_t()
    errors.check(library(), library().moeCommGetMemorySize(nranks, _make_config(config), ctypes.byref(size)))
    return MemorySize(*_values_of(size))


def _values_of(struct):
    return [getattr(struct, name) for name, _ in struct._fields_[1:]]


def _limits_of(comm):
    values = _native.moeLimits_t()
    errors.check(library(), library().moeGetLimits(comm, ctypes.byref(values)), comm)
    return Limits(*_values_of(values))


def _make_config(settings):
    """moeConfig_t from the keywords of Communicator."""
    config = _native.moeConfig_t()
    config.backend = BACKENDS[settings.pop("backend", "auto")]
    config.modes = MODES[settings.pop("modes", "auto")]
    log, log_level = settings.pop("log", None), settings.pop("log_level", None)
    if log_level == "none":  # 0 in the struct stands for the default, so the lines are dropped here
        log, log_level = (lambda level, line: None), "error"
    config.logLevel = LOG_LEVELS[log_level] if log_level is not None else 0
    config.device = settings.pop("device", -1)
    names = {
        "tokens_max": "tokensMax",
        "ll_tokens_max": "llTokensMax",
        "row_bytes_max": "rowBytesMax",
        "side_bytes_max": "sideBytesMax",
        "topk_max": "topkMax",
        "experts_max": "expertsMax",
        "timeout_ms": "timeoutMs",
        "sms": "sms",
        "staging_rows": "stagingRows",
        "heap_bytes": "heapBytes",
        "domain_size": "domainSize",
    }
    for keyword, field in names.items():
        setattr(config, field, settings.pop(keyword, 0))
    config.transport = REMOTE_TRANSPORTS[settings.pop("transport", "auto")]
    interface = settings.pop("interface_name", None)
    config.interfaceName = interface.encode() if interface is not None else None
    if log is not None:
        # A log line must never end in an exception: there is nobody to catch it.
        config.log = _native.moeLogFunction_t(lambda _, level, line: log(level, line.decode(errors="replace")))
    allocate, free = settings.pop("allocate", None), settings.pop("free", None)
    if (allocate is None) != (free is None):
        raise ValueError("allocate and free come together")
    if allocate is not None:
        config.allocate = _native.moeAllocate_t(lambda _, size, kind: allocate(size, kind) or None)
        config.free = _native.moeFree_t(lambda _, memory, size, kind: free(memory, size, kind))
    if settings:
        raise TypeError(f"unknown settings: {', '.join(sorted(settings))}")
    return config


class WindowMemory:
    """Memory of this rank that peers write without a copy. numpy.asarray(memory) (host backend) and
    torch.as_tensor(memory) (cuda backend) are views of it; `shape` and `typestr` ("<f4", "<u2", ...) say of what.
    Freed by free() or with the communicator: no view may be used afterwards."""

    def __init__(self, comm, shape, typestr):
        self.shape = tuple(shape)
        self.typestr = typestr
        self.nbytes = functools.reduce(operator.mul, self.shape, 1) * int(typestr[2:])
        self._comm = comm
        memory = ctypes.c_void_p()
        comm._check(library().moeMemAlloc(comm.pointer, self.nbytes, ctypes.byref(memory)))
        self.address = memory.value or 0
        name = "__array_interface__" if comm.backend == "host" else "__cuda_array_interface__"
        setattr(self, name, {"shape": self.shape, "typestr": typestr, "data": (self.address, False), "version": 3})

    def data_ptr(self):
        return self.address

    def free(self):
        """Gives the memory back. No queued work may still use it."""
        if self.address and self._comm.pointer:
            self._comm._check(library().moeMemFree(self._comm.pointer, self.address))
        self.address = 0


class Communicator:
    """One rank of a group. Joining blocks until all `nranks` ranks have joined; use as a context manager, or call
    destroy().

    Settings, all optional (moeConfig_t has their meaning): backend "auto" | "host" | "cuda", modes "auto" | "ht" | "ll",
    device, tokens_max, ll_tokens_max, row_bytes_max, side_bytes_max, topk_max, experts_max, timeout_ms, sms,
    staging_rows, heap_bytes, interface_name, log_level "none".."trace", log (callable of level and line), allocate
    (callable of size and kind, returning an address) and free (of address, size and kind)."""

    def __init__(self, nranks, rank, identity, **settings):
        config = _make_config(settings)
        uid = _native.moeUniqueId_t((ctypes.c_uint8 * 128).from_buffer_copy(identity))
        pointer = _native.moeComm_t()
        result = library().moeCommInit(ctypes.byref(pointer), nranks, rank, ctypes.byref(uid), config)
        self._adopt(result, pointer, config)

    @classmethod
    def from_env(cls, **settings):
        """Joins as the launcher's environment says: moerun, torchrun, Slurm/PMI or Open MPI."""
        config = _make_config(settings)
        self = cls.__new__(cls)
        pointer = _native.moeComm_t()
        self._adopt(library().moeCommInitFromEnv(ctypes.byref(pointer), config), pointer, config)
        return self

    def _adopt(self, result, pointer, config):
        self.pointer = None
        errors.check(library(), result)
        self.pointer = pointer.value
        self._config = config  # keeps the callbacks alive

    def _check(self, result):
        errors.check(library(), result, self.pointer)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.destroy()

    def destroy(self):
        """Leaves the group and frees everything, handles and window memory included. Not collective."""
        pointer, self.pointer = self.pointer, None
        if pointer:
            errors.check(library(), library().moeCommDestroy(pointer))

    def abort(self):
        """Ends all waits, here and on the peers. Any thread."""
        self._check(library().moeCommAbort(self.pointer))

    def async_error(self):
        """The communicator's first asynchronous failure as an exception object, or None. Does not wait for a failure,
        only for its sentence (moeGetLastError)."""
        failure = _native.moeResult_t()
        self._check(library().moeCommGetAsyncError(self.pointer, ctypes.byref(failure)))
        if failure.value == _native.moeSuccess:
            return None
        return errors.make(library(), failure.value, self.pointer)

    def last_error(self):
        """The sentence of the first failure or latest refusal; empty if there was none."""
        return library().moeGetLastError(self.pointer).decode(errors="replace")

    @property
    def info(self):
        """Info: nranks, rank, backend, device, domain, ..."""
        info = _native.moeCommInfo_t()
        self._check(library().moeCommGetInfo(self.pointer, ctypes.byref(info)))
        return Info(*_values_of(info))

    @property
    def rank(self):
        return self.info.rank

    @property
    def nranks(self):
        return self.info.nranks

    @property
    def backend(self):
        """"host" or "cuda"."""
        return "cuda" if self.info.backend == _native.moeBackendCuda else "host"

    @property
    def limits(self):
        """What this communicator was built for."""
        return _limits_of(self.pointer)

    def peer(self, rank):
        """Peer: rank, transport ("self", "direct", "shm", "cuda-ipc"), domain, process_id, device, host_name."""
        info = _native.moePeerInfo_t()
        self._check(library().moeCommGetPeerInfo(self.pointer, rank, ctypes.byref(info)))
        return Peer(
            info.rank,
            TRANSPORTS.get(info.transport, str(info.transport)),
            info.domain,
            info.processId,
            info.device,
            info.hostName.decode(errors="replace"),
        )

    def window(self, shape, typestr="|u1"):
        """WindowMemory of this shape and element type, from heap_bytes."""
        return WindowMemory(self, shape, typestr)

    def handle(self, experts, topk, **settings):
        """A Handle; all ranks make the same ones."""
        return Handle(self, experts, topk, **settings)
