"""The structs of moecomm.jax.ffi are those of jaxlib's C header. Needs jax and a C compiler."""

import pathlib
import shutil
import subprocess
import tempfile
import unittest

from support_jax import SKIP, jax

if SKIP is None:
    from moecomm.jax import ffi

# Structs there and here, with the name that each field has in the header.
BUFFERS = dict(size="struct_size", extension="extension_start", count="size", types="types")
ASKED = dict(size="struct_size", extension="extension_start", context="ctx")
STRUCTS = {
    "_Version": ("XLA_FFI_Api_Version", dict(major="major_version", minor="minor_version")),
    "_Metadata": ("XLA_FFI_Metadata", dict(size="struct_size", version="api_version", traits="traits")),
    "_Extension": ("XLA_FFI_Metadata_Extension", dict(type="extension_base.type", metadata="metadata")),
    "_Buffer": ("XLA_FFI_Buffer", dict(dtype="dtype", data="data", rank="rank", dims="dims")),
    "_Buffers": ("XLA_FFI_Args", dict(BUFFERS, at="args")),
    "_Scalar": ("XLA_FFI_Scalar", dict(dtype="dtype", value="value")),
    "_Attributes": ("XLA_FFI_Attrs", dict(BUFFERS, names="names", at="attrs")),
    "_Api": (
        "XLA_FFI_Api",
        dict(
            version="api_version",
            error_create="XLA_FFI_Error_Create",
            stream_get="XLA_FFI_Stream_Get",
            device_ordinal_get="XLA_FFI_DeviceOrdinal_Get",
        ),
    ),
    "_Frame": (
        "XLA_FFI_CallFrame",
        dict(
            **dict(size="struct_size", extension="extension_start", api="api", context="ctx", stage="stage"),
            **dict(arguments="args", results="rets", attributes="attrs"),
        ),
    ),
    "_ErrorArguments": ("XLA_FFI_Error_Create_Args", dict(message="message", code="errc")),
    "_StreamArguments": ("XLA_FFI_Stream_Get_Args", dict(ASKED, found="stream")),
    "_OrdinalArguments": ("XLA_FFI_DeviceOrdinal_Get_Args", dict(ASKED, found="device_ordinal")),
}


@unittest.skipIf(SKIP, SKIP)
class AbiTest(unittest.TestCase):
    def test_fields_are_where_the_header_has_them(self):
        compiler = shutil.which("cc")
        if compiler is None:
            self.skipTest("no C compiler")
        places = [(mine, field, other, name) for mine, (other, fields) in STRUCTS.items() for field, name in fields.items()]
        lines = [f'  printf("%zu\\n", offsetof({other}, {name}));' for _, _, other, name in places]
        values = ["XLA_FFI_Extension_Metadata", "XLA_FFI_Error_Code_INTERNAL"]
        values += [f"XLA_FFI_DataType_{name}" for name in ("BF16", "F16", "F32")]
        lines += [f'  printf("%d\\n", {name});' for name in values]
        body = "\n".join(lines)
        text = f'#include <stdio.h>\n#include "xla/ffi/api/c_api.h"\nint main(void) {{\n{body}\n}}\n'
        with tempfile.TemporaryDirectory() as folder:
            source, program = pathlib.Path(folder, "fields.c"), pathlib.Path(folder, "fields")
            source.write_text(text)
            subprocess.run([compiler, "-w", f"-I{jax.ffi.include_dir()}", source, "-o", program], check=True)
            printed = subprocess.run([program], check=True, capture_output=True, text=True).stdout.split()
        found = [int(number) for number in printed]
        for (mine, field, *_), offset in zip(places, found):
            self.assertEqual(getattr(getattr(ffi, mine), field).offset, offset, (mine, field))
        self.assertEqual(found[len(places) :], [ffi._METADATA, ffi._INTERNAL, *ffi.ROW_TYPES])


if __name__ == "__main__":
    unittest.main()
