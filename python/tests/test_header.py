"""moecomm/_native.py agrees with include/moecomm.h, and with the layout that C compilers would give it. Needs neither
the library nor a compiler."""

import ctypes
import pathlib
import re
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))

from moecomm import _native  # noqa: E402
from moecomm._version import VERSION  # noqa: E402

RAW = (ROOT / "include/moecomm.h").read_text()
TEXT = re.sub(r"/\*.*?\*/", "", RAW, flags=re.S)
SCRIPT = ROOT / "scripts/native_py.py"
BYTES = {"int32_t": 4, "uint32_t": 4, "int64_t": 8, "uint64_t": 8, "size_t": 8, "char": 1, "uint8_t": 1}


def structs():
    """Name, and the declarations of the fields."""
    for match in re.finditer(r"typedef struct \w+ \{(.*?)\} (\w+);", TEXT, flags=re.S):
        yield match[2], [" ".join(field.split()) for field in match[1].split(";") if field.strip()]


def layout_of(fields):
    """Offsets of the fields, and the size of the struct, where pointers have 8 bytes."""
    at, largest, offsets = 0, 1, []
    for field in fields:
        kind, extent = field.rpartition(" ")[0], re.search(r"\[(\d+)\]", field)
        each = BYTES.get(kind, 8)
        at += -at % each
        offsets.append(at)
        at += each * int(extent[1] if extent else 1)
        largest = max(largest, each)
    return offsets, at + -at % largest


class HeaderTest(unittest.TestCase):
    def run_script(self, *arguments):
        return subprocess.run([sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True, timeout=60)

    @unittest.skipUnless(SCRIPT.exists(), "scripts/native_py.py is not here")
    def test_the_file_is_what_the_header_gives(self):
        done = self.run_script("--check")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))

    @unittest.skipUnless(SCRIPT.exists(), "scripts/native_py.py is not here")
    def test_the_script_explains_itself(self):
        done = self.run_script("--help")
        self.assertEqual(done.returncode, 2)
        self.assertIn("native_py.py --check", done.stdout)

    def test_nothing_is_left_out(self):
        enumerators = re.findall(r"\b(moe\w+) = (-?\d+)", TEXT)
        self.assertGreater(len(enumerators), 60)
        for name, value in enumerators:
            self.assertEqual(getattr(_native, name), int(value), name)
        self.assertEqual(len(_native.PROTOTYPES), TEXT.count("MOE_API ") - 1)  # and its definition
        self.assertEqual(len(list(structs())), 22 + 1)

    @unittest.skipIf(ctypes.sizeof(ctypes.c_void_p) != 8, "pointers have another size")
    def test_structs_have_the_layout_of_c(self):
        for name, fields in structs():
            found = getattr(_native, name)
            offsets, size = layout_of(fields)
            self.assertEqual([getattr(found, field).offset for field, _ in found._fields_], offsets, name)
            self.assertEqual(ctypes.sizeof(found), size, name)

    def test_structs_know_their_size(self):
        for name, fields in structs():
            if fields[0] == "size_t size":
                struct = getattr(_native, name)
                self.assertEqual(struct().size, ctypes.sizeof(struct), name)

    def test_initializers_are_mirrored(self):
        found = re.findall(r"\{\s*sizeof\((\w+)\),([^{}]*)", RAW.replace("\\\n", ""))
        self.assertEqual(len(found), 22)
        for name, values in found:
            struct = getattr(_native, name)
            made = struct()
            for (field, _), value in zip(struct._fields_[1:], values.split(",")):
                mirrored = getattr(made, field)
                number = mirrored if isinstance(mirrored, int) else int(bool(mirrored))
                self.assertEqual(number, int(value.replace("NULL", "0").strip() or 0), f"{name}.{field}")

    def test_memory_of_the_host_can_be_read(self):
        for pointer in (_native.moeCounts_t().rowsPerRank, _native.moePlacement_t().logical):
            self.assertIsInstance(pointer, ctypes.POINTER(ctypes.c_int32))
        self.assertIsNone(_native.moeDeviceCounts_t().rowsPerExpert)

    def test_the_version_is_the_header_s(self):
        parts = [re.search(rf"MOE_VERSION_{part} (\d+)", RAW)[1] for part in ("MAJOR", "MINOR", "PATCH")]
        self.assertEqual(".".join(parts), VERSION)


if __name__ == "__main__":
    unittest.main()
