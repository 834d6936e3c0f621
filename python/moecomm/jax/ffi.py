"""Handlers of XLA's foreign function interface, written in Python. XLA calls them through a C ABI
(xla/ffi/api/c_api.h in jaxlib), whose structs are declared here as far as handlers read them. Decision 0111 says why no
compiler is needed, and what a call costs. calls.py has the handlers."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_char_p, c_int, c_int32, c_int64, c_size_t, c_void_p
from typing import Any, Callable, List, NamedTuple, Optional, Tuple

import jax

from .. import errors

PLATFORMS = ("cpu", "CUDA")  # as XLA's registry calls them
VERSION = (0, 3)  # of the ABI, the newest whose structs were compared with these; 0.1 has the same fields
_OLDEST_MINOR = 1
_METADATA = 1  # the type of the extension by which XLA asks for the version
_INTERNAL = 13  # XLA_FFI_Error_Code_INTERNAL
ROW_TYPES = {16: "bfloat16", 10: "float16", 11: "float32"}  # by XLA_FFI_DataType


class _Version(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("extension", c_void_p), ("major", c_int), ("minor", c_int)]


class _Metadata(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("version", _Version), ("traits", ctypes.c_uint32)]


class _Extension(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("type", c_int), ("next", c_void_p), ("metadata", POINTER(_Metadata))]


class _Buffer(ctypes.Structure):
    _fields_ = [
        *(("size", c_size_t), ("extension", c_void_p), ("dtype", c_int), ("data", c_void_p)),
        *(("rank", c_int64), ("dims", POINTER(c_int64))),
    ]


class _Buffers(ctypes.Structure):
    """Arguments or results."""

    _fields_ = [
        *(("size", c_size_t), ("extension", c_void_p), ("count", c_int64), ("types", c_void_p)),
        ("at", POINTER(POINTER(_Buffer))),
    ]


class _Scalar(ctypes.Structure):
    _fields_ = [("dtype", c_int), ("value", POINTER(c_int64))]


class _Attributes(ctypes.Structure):
    _fields_ = [
        *(("size", c_size_t), ("extension", c_void_p), ("count", c_int64), ("types", c_void_p)),
        *(("names", c_void_p), ("at", POINTER(POINTER(_Scalar)))),
    ]


class _Api(ctypes.Structure):
    """The functions of XLA that handlers may call."""

    _fields_ = [
        *(("size", c_size_t), ("extension", c_void_p), ("version", _Version), ("internal", c_void_p)),
        *(("error_create", c_void_p), ("error_message", c_void_p), ("error_destroy", c_void_p), ("register", c_void_p)),
        *(("stream_get", c_void_p), ("others", c_void_p * 12), ("device_ordinal_get", c_void_p)),
    ]


class _Frame(ctypes.Structure):
    _fields_ = [
        *(("size", c_size_t), ("extension", POINTER(_Extension)), ("api", POINTER(_Api)), ("context", c_void_p)),
        *(("stage", c_int), ("arguments", _Buffers), ("results", _Buffers), ("attributes", _Attributes)),
    ]


class _ErrorArguments(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("extension", c_void_p), ("message", c_char_p), ("code", c_int)]


class _StreamArguments(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("extension", c_void_p), ("context", c_void_p), ("found", c_void_p)]


class _OrdinalArguments(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("extension", c_void_p), ("context", c_void_p), ("found", c_int32)]


_Handler = ctypes.CFUNCTYPE(c_void_p, POINTER(_Frame))
_Function = ctypes.CFUNCTYPE(c_void_p, c_void_p)  # of the API: takes a struct of arguments, returns an error or NULL
_kept: List[Any] = []  # handlers, which XLA may call as long as the process lives


class Array(NamedTuple):
    """An argument or a result. Its shape was checked when the program was traced."""

    address: Optional[int]  # None without elements
    shape: Tuple[int, ...]
    row_type: Optional[str]  # None: no type of rows


def _array(pointer: Any) -> Array:
    buffer = pointer.contents
    shape = tuple(buffer.dims[: buffer.rank])
    return Array(None if 0 in shape else buffer.data, shape, ROW_TYPES.get(buffer.dtype))


class Call:
    """One execution of a custom call. It is valid until its handler returns."""

    def __init__(self, frame: Any):
        self._frame = frame
        self.key: int = frame.attributes.at[0].contents.value[0]
        self.arguments = [_array(frame.arguments.at[place]) for place in range(frame.arguments.count)]
        self.results = [_array(frame.results.at[place]) for place in range(frame.results.count)]

    def _ask(self, address: Optional[int], kind: Any) -> Any:
        if not address:
            raise errors.Unsupported("this jaxlib does not tell handlers their device: expected jax 0.6 or later")
        question = kind(ctypes.sizeof(kind), None, self._frame.context)
        if _Function(address)(ctypes.addressof(question)):
            raise RuntimeError(f"XLA did not answer {kind.__name__}")
        return question.found

    def stream(self) -> int:
        """The CUDA stream of the call."""
        return self._ask(self._frame.api.contents.stream_get, _StreamArguments) or 0

    def ordinal(self) -> int:
        """The device: on GPUs its ordinal in the process, on CPUs the id of the jax.Device."""
        api = self._frame.api.contents
        known = api.size >= ctypes.sizeof(_Api)
        found: int = self._ask(api.device_ordinal_get if known else None, _OrdinalArguments)
        return found


def _tell_version(frame: Any) -> None:
    """Answers XLA's question at registration with a version that it and this module have."""
    supported = frame.api.contents.version.minor if frame.api else _OLDEST_MINOR
    version = frame.extension.contents.metadata.contents.version
    version.major, version.minor = VERSION[0], min(supported, VERSION[1])


def _failure(frame: Any, error: BaseException) -> Any:
    message = f"{type(error).__name__}: {error}".encode()
    made = _ErrorArguments(ctypes.sizeof(_ErrorArguments), None, message, _INTERNAL)
    return _Function(frame.api.contents.error_create)(ctypes.addressof(made))


def register(name: str, function: Callable[[Call], None]) -> None:
    """Makes `function` the target `name` of custom calls. Exceptions become errors of the program that runs."""

    def run(pointer: Any) -> Any:
        frame = pointer.contents
        if frame.extension and frame.extension.contents.type == _METADATA:
            return _tell_version(frame)
        try:
            return function(Call(frame))
        except BaseException as error:  # noqa: B902  XLA cannot pass it on
            return _failure(frame, error)

    handler = _Handler(run)
    _kept.append(handler)
    capsule: Any = getattr(jax.ffi, "pycapsule")  # lacks annotations
    for platform in PLATFORMS:
        jax.ffi.register_ffi_target(name, capsule(handler), platform=platform)
