"""What may be passed where the C interface wants an address: an int, a numpy array, an object with data_ptr() (torch),
or one with __dlpack__. All but ints must be contiguous, since the library sees plain memory. No framework is imported."""

import ctypes

_DLPACK_NAMES = (b"dltensor", b"dltensor_versioned")


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
    """The fields of a versioned managed tensor in front of its DLTensor."""

    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
    ]


# A stream argument to __dlpack__ that asks for no synchronisation: the caller orders the streams.
_DLPACK_CUDA = 2
_NO_SYNC = -1


def _contiguous(shape, strides):
    expected = 1
    for extent, stride in zip(reversed(shape), reversed(strides)):
        if extent != 1 and stride != expected:
            return False
        expected *= extent
    return True


def _capsule_name(capsule):
    is_valid = ctypes.pythonapi.PyCapsule_IsValid
    is_valid.restype = ctypes.c_int
    is_valid.argtypes = [ctypes.py_object, ctypes.c_char_p]
    for name in _DLPACK_NAMES:
        if is_valid(capsule, name):
            return name
    raise TypeError("__dlpack__ returned no DLPack capsule")


def _address_of_capsule(capsule, what):
    name = _capsule_name(capsule)
    get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
    get_pointer.restype = ctypes.c_void_p
    get_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    address = get_pointer(capsule, name)
    if name == b"dltensor_versioned":
        address += ctypes.sizeof(_VersionedHead)
    tensor = _DLTensor.from_address(address)
    shape = tensor.shape[: tensor.ndim]
    if 0 in shape:
        return 0
    if tensor.strides and not _contiguous(shape, tensor.strides[: tensor.ndim]):
        raise ValueError(f"{what} is not contiguous: shape {shape}, strides {tensor.strides[: tensor.ndim]}")
    return (tensor.data or 0) + tensor.byte_offset


def _address_of_dlpack(array, what):
    # The capsule is not consumed: its destructor gives the tensor back, and the caller keeps the array alive.
    if hasattr(array, "__dlpack_device__") and array.__dlpack_device__()[0] == _DLPACK_CUDA:
        return _address_of_capsule(array.__dlpack__(stream=_NO_SYNC), what)
    return _address_of_capsule(array.__dlpack__(), what)


def address(array, what="array"):
    """The address of the first element; 0 for None and for empty arrays. `what` names the argument in errors."""
    if array is None:
        return 0
    if isinstance(array, bool):
        raise TypeError(f"{what}: a bool is no address")
    if isinstance(array, int):
        return array
    if hasattr(array, "data_ptr"):
        if hasattr(array, "is_contiguous") and not array.is_contiguous():
            raise ValueError(f"{what} is not contiguous: shape {tuple(array.shape)}")
        return array.data_ptr()
    if hasattr(array, "__array_interface__"):
        interface = array.__array_interface__
        strides = interface.get("strides")
        itemsize = int(interface["typestr"][2:])
        if strides and 0 not in interface["shape"]:
            if not _contiguous(interface["shape"], [stride / itemsize for stride in strides]):
                raise ValueError(f"{what} is not contiguous: shape {interface['shape']}, strides {strides} bytes")
        return interface["data"][0] if 0 not in interface["shape"] else 0
    if hasattr(array, "__dlpack__"):
        return _address_of_dlpack(array, what)
    raise TypeError(f"{what}: expected an address, a numpy array, a tensor or None, not {type(array).__name__}")


def stream_address(stream):
    """A CUDA stream as an int: None is the default stream; an int, or an object with cuda_stream (torch.cuda.Stream)."""
    if stream is None:
        return 0
    if hasattr(stream, "cuda_stream"):
        return stream.cuda_stream
    if isinstance(stream, int) and not isinstance(stream, bool):
        return stream
    raise TypeError(f"stream: expected an int, a torch.cuda.Stream or None, not {type(stream).__name__}")


def shape_of(array):
    """The shape of an array as a tuple, or None for addresses and None."""
    shape = getattr(array, "shape", None)
    return tuple(int(extent) for extent in shape) if shape is not None else None
