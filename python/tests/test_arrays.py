"""The values that arrays.address accepts and refuses. numpy is used if it is installed; DLPack is also tested without
it."""

import ctypes
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from moecomm import arrays, checks  # noqa: E402

try:
    import numpy
except ImportError:
    numpy = None

try:
    import jax
except ImportError:
    jax = None


class Managed(ctypes.Structure):
    _fields_ = [("tensor", arrays._DLTensor), ("manager_ctx", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class ManagedVersioned(ctypes.Structure):
    _fields_ = [("head", arrays._VersionedHead), ("tensor", arrays._DLTensor)]


def new_capsule(pointer, name):
    make = ctypes.pythonapi.PyCapsule_New
    make.restype = ctypes.py_object
    make.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return make(pointer, name, None)


class Exporter:
    """An object with only __dlpack__."""

    def __init__(self, shape, strides=None, byte_offset=0, versioned=False, device=1, flags=0):
        self.memory = ctypes.create_string_buffer(256)
        self._shape = (ctypes.c_int64 * len(shape))(*shape)
        self._strides = (ctypes.c_int64 * len(shape))(*strides) if strides else None
        self._managed = ManagedVersioned() if versioned else Managed()
        self._name = b"dltensor_versioned" if versioned else b"dltensor"
        self._device = device
        self.streams = []
        tensor = self._managed.tensor
        tensor.data = ctypes.addressof(self.memory)
        tensor.ndim = len(shape)
        tensor.shape = self._shape
        if self._strides:
            tensor.strides = self._strides
        tensor.byte_offset = byte_offset
        tensor.device = arrays._DLDevice(device, 0)
        tensor.dtype = arrays._DLDataType(2, 32, 1)
        if versioned:
            self._managed.head.major, self._managed.head.flags = 1, flags

    def __dlpack_device__(self):
        return (self._device, 0)

    def __dlpack__(self, stream=None):
        self.streams.append(stream)
        return new_capsule(ctypes.addressof(self._managed), self._name)


class AddressTest(unittest.TestCase):
    def test_none_is_a_null_pointer(self):
        self.assertEqual(arrays.address(None), 0)

    def test_an_int_is_an_address(self):
        self.assertEqual(arrays.address(4096), 4096)

    def test_other_things_are_refused_by_name(self):
        with self.assertRaisesRegex(TypeError, "rows: .*list"):
            arrays.address([1, 2], "rows")
        with self.assertRaises(TypeError):
            arrays.address(True)

    def test_dlpack_gives_data_and_offset(self):
        for versioned in (False, True):
            exporter = Exporter((3, 4), byte_offset=16, versioned=versioned)
            self.assertEqual(arrays.address(exporter), ctypes.addressof(exporter.memory) + 16)

    def test_contiguous_strides_are_accepted(self):
        exporter = Exporter((1, 3, 4), strides=(99, 4, 1))
        self.assertEqual(arrays.address(exporter), ctypes.addressof(exporter.memory))

    def test_other_strides_are_refused(self):
        with self.assertRaisesRegex(ValueError, "rows is not contiguous"):
            arrays.address(Exporter((3, 4), strides=(8, 1)), "rows")
        with self.assertRaises(ValueError):
            arrays.address(Exporter((3, 4), strides=(1, 3)))

    def test_an_empty_tensor_has_no_address(self):
        self.assertEqual(arrays.address(Exporter((0, 4))), 0)

    def test_no_stream_is_synchronised(self):
        exporter = Exporter((4,), device=2)
        arrays.address(exporter)
        self.assertEqual(exporter.streams, [-1])

    def test_tensors_are_asked_for_data_ptr(self):
        class Tensor:
            shape = (2, 2)

            def __init__(self, contiguous):
                self._contiguous = contiguous

            def data_ptr(self):
                return 512

            def is_contiguous(self):
                return self._contiguous

        self.assertEqual(arrays.address(Tensor(True)), 512)
        with self.assertRaises(ValueError):
            arrays.address(Tensor(False))

    @unittest.skipIf(numpy is None, "numpy is not installed")
    def test_numpy_arrays(self):
        array = numpy.zeros((4, 6), numpy.float32)
        self.assertEqual(arrays.address(array), array.ctypes.data)
        self.assertEqual(arrays.address(array[1:3]), array.ctypes.data + 24)
        self.assertEqual(arrays.address(array[:0]), 0)
        for wrong in (array.T, array[:, :3], array[::2]):
            with self.assertRaises(ValueError):
                arrays.address(wrong)


class WritableTest(unittest.TestCase):
    """An output must be an array that may be written, as far as it tells."""

    def take(self, array, **options):
        return checks.take(array, "out_rows", checks.Place("cpu", None), **{"writes": True, **options})

    def test_a_capsule_without_a_version_does_not_tell(self):
        old = Exporter((3, 4))
        with self.assertRaisesRegex(ValueError, "^out_rows is a Exporter whose __dlpack__ has no version, .* DLPack 1.0"):
            self.take(old)
        self.assertEqual(self.take(old, writes=False).shape, (3, 4))
        self.assertEqual(self.take(Exporter((3, 4), versioned=True)).shape, (3, 4))
        with self.assertRaisesRegex(ValueError, "^out_rows is read-only, expected a writable array$"):
            self.take(Exporter((3, 4), versioned=True, flags=1))

    def test_those_of_torch_and_cupy_may_be_written(self):
        for module in ("torch", "cupy._core.core"):
            kind = type("Tensor", (Exporter,), {"__module__": module})
            self.assertEqual(self.take(kind((3, 4))).shape, (3, 4))

    def test_arrays_of_jax_never_change(self):
        sentence = "^out_rows is an array of jax, which is immutable: expected an array that may be written"
        for module in ("jaxlib._jax", "jax._src.array", "jaxlib.xla_extension"):
            for versioned in (False, True):
                kind = type("ArrayImpl", (Exporter,), {"__module__": module})
                with self.assertRaisesRegex(ValueError, sentence):
                    self.take(kind((3, 4), versioned=versioned))
                self.take(kind((3, 4), versioned=versioned), writes=False)
        if jax is not None:
            with self.assertRaisesRegex(ValueError, sentence):
                self.take(jax.numpy.zeros((3, 4)))
            self.assertEqual(self.take(jax.numpy.zeros((3, 4)), writes=False).shape, (3, 4))


class StreamTest(unittest.TestCase):
    def test_streams(self):
        class Stream:
            cuda_stream = 77

        self.assertEqual(arrays.stream_address(None), 0)
        self.assertEqual(arrays.stream_address(5), 5)
        self.assertEqual(arrays.stream_address(Stream()), 77)
        with self.assertRaises(TypeError):
            arrays.stream_address("default")


if __name__ == "__main__":
    unittest.main()
