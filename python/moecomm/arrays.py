"""The values that may be passed where the C interface takes an address: an int, a numpy array, an object with
data_ptr() (torch), or one with __cuda_array_interface__ or __dlpack__. describe() describes all of them in the same
terms. All but ints must be contiguous, because the library sees plain memory, unless strides are asked for. No framework
is imported."""

from __future__ import annotations

import ctypes
import functools
import numbers
import re
import sys
from typing import Any, Mapping, NamedTuple, Optional, Sequence, Tuple

from .values import ADDRESS_MAX, integer


class Array(NamedTuple):
    """An argument. If it is a plain address, only the address is known."""

    address: int  # of the first element; 0 for None and for arrays without elements
    shape: Tuple[int, ...] = ()
    dtype: Optional[str] = None  # "float32", "bfloat16", "float8_e4m3fn", "bool", ... the same for all frameworks
    itemsize: int = 0
    device: Optional[str] = None  # "cpu", "cuda", "managed" (both), or the framework's name of another device
    ordinal: Optional[int] = None  # of a cuda device
    writable: bool = True
    given: bool = True  # not None
    is_array: bool = True  # otherwise an address or None
    strides: Optional[Tuple[int, ...]] = None  # in bytes; None: contiguous
    tells_writable: bool = True  # otherwise `writable` is a guess


NOTHING = Array(0, given=False, is_array=False)


def describe(array: Any, what: str = "array", strided: bool = False) -> Array:
    """Describes an argument. `what` names it in errors. `strided`: it need not be contiguous."""
    if array is None:
        return NOTHING
    if strided:
        return _of_strided(array, what)
    interface = getattr(array, "__array_interface__", None)  # first, because it takes the longest
    if interface is not None and interface["shape"]:
        return _of_interface(array, interface, "cpu", what)
    if isinstance(array, bool):
        raise TypeError(f"{what}: a bool is no address")
    if isinstance(array, numbers.Integral):  # includes numpy's integers, which look like arrays
        return Array(integer(array, what, 0, ADDRESS_MAX), is_array=False)
    if interface is not None:
        return _of_interface(array, interface, "cpu", what)
    if hasattr(array, "data_ptr") and (hasattr(array, "dtype") or not hasattr(array, "__cuda_array_interface__")):
        return _of_tensor(array, what)
    if hasattr(array, "__cuda_array_interface__"):
        return _of_interface(array, array.__cuda_array_interface__, "cuda", what)
    if hasattr(array, "__dlpack__"):
        return _of_dlpack(array, what)
    of_what = f" of {array.dtype}" if hasattr(array, "dtype") else ""
    raise TypeError(
        f"{what}: expected an address, a numpy array, a tensor or None, not {type(array).__name__}{of_what}"
    )


def _of_strided(array: Any, what: str) -> Array:
    """An array of any strides, if its type tells them. Arrays of other types must be contiguous."""
    if hasattr(array, "data_ptr") and hasattr(array, "stride") and not hasattr(array, "__array_interface__"):
        strides, step = tuple(array.stride()), int(array.element_size())
        found = _of_tensor(array, what, contiguous=False)
        return found._replace(strides=tuple(int(stride) * step for stride in strides))
    for name, device in (("__array_interface__", "cpu"), ("__cuda_array_interface__", "cuda")):
        interface = getattr(array, name, None)
        if interface is None or not interface["shape"] or not interface.get("strides"):
            continue
        found = _of_interface(array, {**interface, "strides": None}, device, what)
        return found._replace(strides=tuple(int(stride) for stride in interface["strides"]))
    return describe(array, what)


def address(array: Any, what: str = "array") -> int:
    """The address of the first element; 0 for None and for arrays without elements."""
    return describe(array, what).address


@functools.lru_cache(maxsize=256)
def dtype_name(dtype: Any) -> str:
    """ "float32" for numpy and torch alike."""
    return str(dtype).rpartition(".")[2]


_KINDS = {"b": "bool", "i": "int", "u": "uint", "f": "float", "c": "complex", "V": "void"}


def type_of_typestr(typestr: str, what: str) -> Tuple[str, int]:
    """Name and size in bytes of a type string: "<f4" is ("float32", 4)."""
    match = re.fullmatch(r"([<>|=])([biufcV])([1-9]\d*)", typestr) if isinstance(typestr, str) else None
    if match is None:
        raise ValueError(f"{what} is {typestr!r}, expected a kind of number and its bytes, like '<f4' or '|u1'")
    order, kind, digits = match.groups()
    if order == (">" if sys.byteorder == "little" else "<"):
        return typestr, int(digits)  # in a byte order that no type has here
    return _KINDS[kind] + ("" if kind == "b" else str(8 * int(digits))), int(digits)


def is_dense(shape: Sequence[int], strides: Sequence[int], itemsize: int) -> bool:
    """Whether the elements lie behind one another, without gaps. Strides in bytes."""
    if 0 in shape:
        return True
    expected = itemsize
    for extent, stride in zip(reversed(shape), reversed(strides)):
        if extent != 1 and stride != expected:
            return False
        expected *= extent
    return True


def _require_contiguous(
    shape: Sequence[int], strides: Optional[Sequence[int]], itemsize: int, what: str
) -> None:
    """Strides in bytes, or None."""
    if strides is not None and not is_dense(shape, strides, itemsize):
        raise ValueError(f"{what} is not contiguous: shape {tuple(shape)}, strides {tuple(strides)} bytes")


def _of_interface(array: Any, interface: Mapping[str, Any], device: str, what: str) -> Array:
    shape = tuple(int(extent) for extent in interface["shape"])
    dtype = getattr(array, "dtype", None)
    if dtype is not None:
        name, itemsize = dtype_name(dtype), int(dtype.itemsize)
        if getattr(dtype, "hasobject", False):
            raise TypeError(f"{what} holds {name}: Python objects cannot travel")
    else:
        name, itemsize = type_of_typestr(interface["typestr"], f"{what}: the type string")
    pointer, read_only = interface["data"]
    if 0 in shape:
        pointer = 0
    else:
        _require_contiguous(shape, interface.get("strides"), itemsize, what)
    return Array(int(pointer), shape, name, itemsize, device, None, not read_only)


def _of_tensor(tensor: Any, what: str, contiguous: bool = True) -> Array:
    shape = tuple(int(extent) for extent in getattr(tensor, "shape", ()))
    if contiguous and hasattr(tensor, "is_contiguous") and not tensor.is_contiguous():
        raise ValueError(f"{what} is not contiguous: shape {shape}")
    if not hasattr(tensor, "dtype"):
        return Array(tensor.data_ptr(), shape)
    device = getattr(tensor, "device", None)
    return Array(
        0 if 0 in shape else tensor.data_ptr(),
        shape,
        dtype_name(tensor.dtype),
        int(tensor.element_size()),
        getattr(device, "type", None),
        getattr(device, "index", None),
    )


def _of_dlpack(array: Any, what: str) -> Array:
    tensor = _read(_capsule_of(array, what), what)
    if 0 in tensor.shape:
        return tensor.as_array(0)
    if tensor.strides is not None:
        strides = [stride * tensor.itemsize for stride in tensor.strides]
        _require_contiguous(tensor.shape, strides, tensor.itemsize, what)
    return tensor.as_array(tensor.address)


def stream_address(stream: Any) -> int:
    """The address of a CUDA stream. `stream` is None (the default stream), an int, or an object with cuda_stream
    (torch.cuda.Stream)."""
    if stream is None:
        return 0
    if hasattr(stream, "cuda_stream"):
        address: int = stream.cuda_stream
        return address
    if isinstance(stream, numbers.Integral) and not isinstance(stream, bool):
        return integer(stream, "stream", 0, ADDRESS_MAX)
    raise TypeError(f"stream: expected an int, a torch.cuda.Stream or None, not {type(stream).__name__}")


# ---- DLPack ----------------------------------------------------------------------------------------------------------


class _DLDevice(ctypes.Structure):
    _fields_ = [("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32)]


class _DLDataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", _DLDevice),
        ("ndim", ctypes.c_int32),
        ("dtype", _DLDataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _VersionedHead(ctypes.Structure):
    """The fields that precede the DLTensor in a versioned managed tensor."""

    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
    ]


_READ_ONLY, _COPIED = 1, 2  # bits of flags
_NAMES = (b"dltensor", b"dltensor_versioned")
_VERSION = (1, 1)  # the newest version that is read here

_CPU, _CUDA, _CUDA_HOST, _CUDA_MANAGED = 1, 2, 3, 13
_DEVICES = {_CPU: "cpu", _CUDA_HOST: "cpu", _CUDA: "cuda", _CUDA_MANAGED: "managed"}
# A stream argument to __dlpack__ that asks for no synchronisation, because the caller orders the streams.
_NO_SYNC = -1

_SIZED_TYPES = {0: "int", 1: "uint", 2: "float", 5: "complex"}
_OTHER_TYPES = {
    6: "bool",
    7: "float8_e3m4",
    8: "float8_e4m3",
    9: "float8_e4m3b11fnuz",
    10: "float8_e4m3fn",
    11: "float8_e4m3fnuz",
    12: "float8_e5m2",
    13: "float8_e5m2fnuz",
    14: "float8_e8m0fnu",
}
_BFLOAT = 4


class _Exported(NamedTuple):
    """The content of a capsule. Strides are in elements, or None for contiguous."""

    address: int
    shape: Tuple[int, ...]
    strides: Optional[Tuple[int, ...]]
    dtype: Optional[str]
    itemsize: int
    device: str
    ordinal: int
    writable: bool
    versioned: bool

    def as_array(self, pointer: int) -> Array:
        return Array(
            pointer,
            self.shape,
            self.dtype,
            self.itemsize,
            self.device,
            self.ordinal,
            self.writable,
            tells_writable=self.versioned,
        )


def _name_of(dtype: _DLDataType, what: str) -> Tuple[Optional[str], int]:
    if dtype.bits == 0:
        return None, 1  # not known
    if dtype.bits % 8 != 0:
        raise TypeError(f"{what}: elements of {dtype.bits} bits, expected whole bytes")
    if dtype.code in _SIZED_TYPES:
        name = f"{_SIZED_TYPES[dtype.code]}{dtype.bits}"
    else:
        name = f"bfloat{dtype.bits}" if dtype.code == _BFLOAT else _OTHER_TYPES.get(dtype.code, f"type{dtype.code}")
    if dtype.lanes > 1:
        name += f"x{dtype.lanes}"
    return name, dtype.bits // 8 * max(dtype.lanes, 1)


def _capsule_of(array: Any, what: str) -> Any:
    on_cuda = hasattr(array, "__dlpack_device__") and array.__dlpack_device__()[0] == _CUDA
    keywords = {"stream": _NO_SYNC} if on_cuda else {}
    try:
        try:
            return array.__dlpack__(max_version=_VERSION, **keywords)
        except TypeError:  # an exporter that predates versions
            return array.__dlpack__(**keywords)
    except BufferError as error:
        raise ValueError(f"{what}: {error}") from error


def _name_of_capsule(capsule: Any, what: str) -> bytes:
    is_valid = ctypes.pythonapi.PyCapsule_IsValid
    is_valid.restype = ctypes.c_int
    is_valid.argtypes = [ctypes.py_object, ctypes.c_char_p]
    for name in _NAMES:
        if is_valid(capsule, name):
            return name
    raise TypeError(f"{what}: __dlpack__ returned no DLPack capsule")


def _read(capsule: Any, what: str) -> _Exported:
    """Reads a capsule without taking it over: its destructor frees the tensor, and the caller keeps the array alive."""
    name = _name_of_capsule(capsule, what)
    get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
    get_pointer.restype = ctypes.c_void_p
    get_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    at = get_pointer(capsule, name)
    flags = 0
    if name == b"dltensor_versioned":
        head = _VersionedHead.from_address(at)
        if head.major > _VERSION[0]:
            raise TypeError(f"{what}: DLPack {head.major}.{head.minor}, expected {_VERSION[0]} or older")
        flags = head.flags
        at += ctypes.sizeof(_VersionedHead)
    if flags & _COPIED:
        raise ValueError(f"{what}: __dlpack__ gave a copy, so the caller would not see the result")
    tensor = _DLTensor.from_address(at)
    dtype, itemsize = _name_of(tensor.dtype, what)
    return _Exported(
        (tensor.data or 0) + tensor.byte_offset,
        tuple(tensor.shape[: tensor.ndim]),
        tuple(tensor.strides[: tensor.ndim]) if tensor.strides else None,
        dtype,
        itemsize,
        _DEVICES.get(tensor.device.device_type, f"DLPack device {tensor.device.device_type}"),
        tensor.device.device_id,
        not flags & _READ_ONLY,
        name == b"dltensor_versioned",
    )
