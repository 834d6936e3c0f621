"""Compares moecomm/_native.py with include/moecomm.h: every constant, struct field, function and its types, in order.
Needs neither the library nor a compiler."""

import ctypes
import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))

from moecomm import _native  # noqa: E402
from moecomm._version import VERSION  # noqa: E402

SCALARS = {
    "size_t": ctypes.c_size_t,
    "int32_t": ctypes.c_int32,
    "int64_t": ctypes.c_int64,
    "uint8_t": ctypes.c_uint8,
    "uint32_t": ctypes.c_uint32,
    "uint64_t": ctypes.c_uint64,
    "char": ctypes.c_char,
    "float": ctypes.c_float,
    "void": None,
}

# Addresses of host memory that Python itself reads or writes. Every other pointer to numbers is device memory.
HOST_POINTERS = {
    ("moeCounts", "rowsPerRank"),
    ("moeCounts", "rowsPerExpert"),
    ("moeCounts", "rowsWantedPerExpert"),
    ("moeCounts", "rowsOfAllExperts"),
    ("moePlacement", "logical"),
    ("moePlacement", "ranks"),
    ("moePlacement", "localExperts"),
    ("moeGetVersion", "version"),
}


def header_text():
    text = (ROOT / "include/moecomm.h").read_text()
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    text = re.sub(r"#define (?:[^\n]*\\\n)*[^\n]*", "", text)
    return re.sub(r"^#.*$", "", text, flags=re.M)


TEXT = header_text()


def parse_declaration(declaration):
    """("const void* rows") -> ("const void*", "rows", 0)"""
    match = re.fullmatch(r"(.*?[\s*])(\w+)(?:\[(\d+)\])?", " ".join(declaration.split()))
    return match[1].strip(), match[2], int(match[3] or 0)


def structs():
    for match in re.finditer(r"typedef struct (\w+) \{(.*?)\} (\w+);", TEXT, flags=re.S):
        fields = [parse_declaration(field) for field in match[2].split(";") if field.strip()]
        yield match[1], match[3], fields


def functions():
    for match in re.finditer(r"MOE_API ([\w\s*]+?)(\w+)\(([^)]*)\);", TEXT):
        yield match[1].strip(), match[2], [parse_declaration(argument) for argument in match[3].split(",")]


def callbacks():
    for match in re.finditer(r"typedef ([\w\s*]+?)\(\*(\w+)\)\(([^)]*)\);", TEXT):
        yield match[1].strip(), match[2], [parse_declaration(argument)[0] for argument in match[3].split(",")]


def expected_type(text, owner, name):
    text = text.replace("const ", "").strip()
    if not text.endswith("*"):
        return SCALARS[text] if text in SCALARS else getattr(_native, text)
    target = text[:-1].strip()
    if target == "char":
        return ctypes.c_char_p
    if target == "void*":
        return ctypes.POINTER(ctypes.c_void_p)
    if target in SCALARS:
        return ctypes.POINTER(SCALARS[target]) if (owner, name) in HOST_POINTERS else ctypes.c_void_p
    return ctypes.POINTER(getattr(_native, target))


class HeaderTest(unittest.TestCase):
    def test_every_enumerator_is_mirrored(self):
        found = {}
        for body in re.findall(r"enum(?: \w+)? \{(.*?)\}", TEXT, flags=re.S):
            for name, value in re.findall(r"(\w+) = (-?\d+)", body):
                found[name] = int(value)
        self.assertGreater(len(found), 40)
        self.assertEqual(found, _native.CONSTANTS)

    def test_every_struct_has_the_same_fields(self):
        count = 0
        for _, name, fields in structs():
            count += 1
            mirrored = [field[0] for field in getattr(_native, name)._fields_]
            self.assertEqual([field[1] for field in fields], mirrored, name)
        self.assertEqual(count, 17 + 1)

    def test_every_field_has_the_same_type(self):
        for owner, name, fields in structs():
            for (text, field, extent), (_, mirrored) in zip(fields, getattr(_native, name)._fields_):
                expected = expected_type(text, owner, field)
                self.assertIs(expected * extent if extent else expected, mirrored, f"{name}.{field}")

    def test_structs_know_their_size(self):
        for _, name, fields in structs():
            if fields[0][1] == "size":
                struct = getattr(_native, name)
                self.assertEqual(struct().size, ctypes.sizeof(struct), name)

    def test_initializers_are_mirrored(self):
        raw = (ROOT / "include/moecomm.h").read_text()
        initializer = re.search(r"MOE_CONFIG_INITIALIZER.*?\{ sizeof\(moeConfig_t\), (.*?) \}", raw, flags=re.S)[1]
        values = [int(value) for value in initializer.split(",")]
        config = _native.moeConfig_t()
        for (field, _), value in zip(_native.moeConfig_t._fields_[1:], values):
            mirrored = getattr(config, field)
            self.assertEqual(mirrored if isinstance(mirrored, int) else int(bool(mirrored)), value, field)
        others = [line for line in re.findall(r"\{ sizeof\((\w+)\), ([^}]*)\}", raw) if line[0] != "moeConfig_t"]
        self.assertEqual(len(others), 14)
        for name, values in others:
            self.assertLessEqual(set(values.replace(" ", "").split(",")), {"0", "NULL"}, name)

    def test_every_function_is_mirrored(self):
        names = [name for _, name, _ in functions()]
        self.assertGreater(len(names), 20)
        self.assertEqual(names, list(_native.PROTOTYPES))
        self.assertEqual(len(names), TEXT.count("MOE_API "))

    def test_every_function_has_the_same_types(self):
        for result, name, arguments in functions():
            mirrored_result, mirrored_arguments = _native.PROTOTYPES[name]
            self.assertIs(expected_type(result, name, "result"), mirrored_result, name)
            expected = [expected_type(text, name, argument) for text, argument, _ in arguments]
            self.assertEqual(expected, mirrored_arguments, name)

    def test_every_callback_has_the_same_types(self):
        found = list(callbacks())
        self.assertEqual(len(found), 3)
        for result, name, arguments in found:
            mirrored = getattr(_native, name)
            self.assertIs(expected_type(result, name, "result"), mirrored._restype_, name)
            self.assertEqual(tuple(expected_type(text, name, "") for text in arguments), mirrored._argtypes_, name)

    def test_the_version_is_the_header_s(self):
        raw = (ROOT / "include/moecomm.h").read_text()
        parts = [re.search(rf"MOE_VERSION_{part} (\d+)", raw)[1] for part in ("MAJOR", "MINOR", "PATCH")]
        self.assertEqual(".".join(parts), VERSION)


if __name__ == "__main__":
    unittest.main()
