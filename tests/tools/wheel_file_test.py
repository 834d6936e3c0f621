#!/usr/bin/env python3
"""scripts/wheel_file.py says for which systems a wheel is, and refuses binaries that would not run there."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import wheel_file  # noqa: E402


class Systems(unittest.TestCase):
    def test_the_newest_symbol_decides(self):
        for symbols, glibc in (
            ({("GLIBC", "2.2.5")}, 17),
            ({("GLIBC", "2.9"), ("GLIBC", "2.34"), ("GLIBC", "2.4")}, 34),
            ({("GLIBC", "2.34"), ("GLIBCXX", "3.4.30")}, 35),
            ({("GLIBC", "2.36"), ("GLIBCXX", "3.4.9")}, 36),
            ({("GLIBCXX", "3.4.31")}, 39),
            ({("CXXABI", "1.3.13"), ("GCC", "3.0")}, 34),
        ):
            with self.subTest(symbols=symbols):
                self.assertEqual(wheel_file.glibc_of(symbols, "a"), glibc)

    def test_what_no_system_has_is_refused(self):
        for symbol in (("GLIBCXX", "3.5"), ("CXXABI", "9.0"), ("GLIBC", "PRIVATE"), ("GLIBC", "ABI_DT_RELR")):
            with self.subTest(symbol=symbol), self.assertRaisesRegex(SystemExit, "a needs " + "_".join(symbol)):
                wheel_file.glibc_of({symbol}, "a")


class Size(unittest.TestCase):
    def test_a_wheel_that_has_outgrown_its_limit_is_removed(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "wheel")
            path.touch()
            os.truncate(path, (wheel_file.MIB_MAX[False] + 1) * 2**20)
            self.assertEqual(wheel_file.refuse_growth(path, kernels=True), wheel_file.MIB_MAX[False] + 1)
            with self.assertRaisesRegex(SystemExit, "MiB, more than"):
                wheel_file.refuse_growth(path, kernels=False)
            self.assertFalse(path.exists())


class Binaries(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.needed = self.library("needed")

    def library(self, name, *options):
        path = self.folder / f"lib{name}.so"
        subprocess.run(["cc", "-shared", "-nostdlib", "-x", "c", "/dev/null", "-x", "none", "-Wl,--no-as-needed",
                        *options, f"-Wl,-soname,{path.name}", "-o", path], check=True)
        return path

    def test_a_library_of_the_wheel_is_found_by_its_run_path_alone(self):
        good = self.library("good", self.needed, "-Wl,-rpath,$ORIGIN/../lib")
        self.assertRegex(wheel_file.platform_of([self.needed, good]), r"^manylinux_2_17_\w+$")
        for options in ((), (f"-Wl,-rpath,{self.folder}",), ("-Wl,-rpath,$ORIGIN/../lib:/opt",)):
            with self.subTest(options=options), self.assertRaisesRegex(SystemExit, "looks for libraries in"):
                wheel_file.platform_of([self.needed, self.library("bad", self.needed, *options)])

    def test_a_library_from_elsewhere_is_refused(self):
        user = self.library("user", self.needed, "-Wl,-rpath,$ORIGIN/../lib")
        with self.assertRaisesRegex(SystemExit, "libuser.so needs libneeded.so"):
            wheel_file.platform_of([user])


if __name__ == "__main__":
    unittest.main()
