#!/usr/bin/env python3
"""scripts/check_kernels.py must find every defect of planted.cu and every wrong entry of a table.

Usage: check_kernels_test.py NVCC   Exits with 77 if there is no disassembler.
"""
import contextlib
import functools
import io
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
CHECKER = HERE.parents[1] / "scripts/check_kernels.py"
sys.dont_write_bytecode = True
sys.path.insert(0, str(CHECKER.parent))
import check_kernels  # noqa: E402

NVCC = "nvcc"


COMPILED = tempfile.TemporaryDirectory()


@functools.cache
def compiled(command):
    """Runs a compiler command once and returns the object that it makes."""
    path = pathlib.Path(COMPILED.name) / f"{len(list(pathlib.Path(COMPILED.name).iterdir()))}.o"
    subprocess.run([*command.split(), "-o", path], check=True)
    return path


class Checker(unittest.TestCase):
    def setUp(self):
        self.work = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.work)
        self.table = self.work / "kernels.toml"

    def check(self, plant, *options, arch="sm_90"):
        """The checker's (status, output) for planted.cu with one defect."""
        command = f"{NVCC} -std=c++17 -O3 -DPLANT={plant} -arch={arch} -x cu -c {HERE}/planted.cu"
        shutil.copy(compiled(command), self.work / "planted.o")
        (self.work / "compile_commands.json").write_text(json.dumps(
            [{"directory": str(self.work), "command": f"{command} -o planted.o", "file": "/src/planted.cu"}]))
        return self.run_checker("--arch", arch, *options)

    def run_checker(self, *options):
        done = subprocess.run([sys.executable, CHECKER, self.work, "--table", self.table, *options],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        return done.returncode, done.stdout

    def learn(self):
        status, said = self.check("GOOD", "--update")
        self.assertEqual(status, 0, said)

    def refused(self, plant, sentence, arch="sm_90"):
        status, said = self.check(plant, arch=arch)
        self.assertEqual(status, 1, f"{plant} was not found:\n{said}")
        self.assertRegex(said, sentence)

    def test_accepts_what_it_has_learned_on_every_architecture(self):
        for arch in check_kernels.ARCHITECTURES:
            self.assertEqual(self.check("GOOD", "--update", arch=arch)[0], 0)
        for arch in check_kernels.ARCHITECTURES:
            status, said = self.check("GOOD", arch=arch)
            self.assertEqual(status, 0, said)
            rows = re.search(r"(\d+)/(\d+)/0/0 row accesses  copyRows", said)
            self.assertIsNotNone(rows, said)
            self.assertGreaterEqual(int(rows.group(1)), 4)
            self.assertGreaterEqual(int(rows.group(2)), 4)

    def test_finds_every_planted_defect_and_names_kernel_and_architecture(self):
        self.learn()
        where = "copyRows for sm_90: "
        for plant, sentence in {
                "STACK": where + r"it has \d+ bytes of stack and spills, must have none",
                "SPILL": where + r"it has \d+ bytes of stack and spills, must have none",
                "NARROW_STORE": where + r"stores of less than 16 bytes .*: found \d+, expected at most 0",
                "NARROW_LOAD": where + r"loads of less than 16 bytes .*: found \d+, expected at most 0",
                "WEAK_FLAG": where + r"a flag is accessed with less than system scope: ST\S*STRONG\.GPU",
                "NO_RELEASE": where + r"flags are stored and there is no fence at system scope",
                "NO_ACQUIRE": where + r"flags are read and there is no acquire",
                "MORE_REGISTERS": where + r"registers: found \d+, expected at most \d+",
                "LONGER_POST": r"putRows for sm_90: instructions of such a call: found \d+, expected at most \d+",
                "NO_BULK_STORE": r"bulkCopy for sm_90: UBLKCP\.G\.S: found 0, expected 1",
                "FEWER_FENCES": where + r"MEMBAR\.\S*SYS: found 1, expected 2"}.items():
            with self.subTest(plant):
                self.refused(plant, sentence)

    def test_rules_hold_for_an_update_too(self):
        for plant in ("STACK", "SPILL", "WEAK_FLAG", "NO_RELEASE", "NO_ACQUIRE", "NO_BULK_STORE"):
            with self.subTest(plant):
                status, said = self.check(plant, "--update")
                self.assertEqual(status, 1, said)
                self.assertFalse(self.table.exists())

    def test_refuses_a_wrong_table(self):
        self.learn()
        right = self.table.read_text()
        for pattern, wrong, sentence in (
                (r"registers = \d+", "registers = 3", r"for sm_90: registers: found \d+, expected at most 3"),
                (r"row_loads = [1-9]\d*", "row_loads = 99", r"copyRows for sm_90: loads of 16 bytes .*: found \d+, "
                                                            r"expected at least 99"),
                (r"row_stores = [1-9]\d*", "row_stores = 99", r"copyRows for sm_90: stores of 16 bytes .*: found \d+"),
                (r"post_loop = \d+", "post_loop = 1", r"putRows for sm_90: instructions from one call that posts to the "
                                                      r"next: found \d+, expected at most 1"),
                (r"post_ring_waits = \d+\n", "", r"putRows for sm_90: waits for memory in a call that rings: found \d+, "
                                                r"expected at most 0"),
                (r'"copyRows"', '"copyCows"', r"copyRows for sm_90: it is not in the table"),
                (r'"copyRows"', '"copyCows"', r"copyCows for sm_90: it is in the table, but was not found"),
                (r"CCTL.IVALL \d+", "CCTL.IVALL 9", r"CCTL.IVALL: found \d+, expected 9"),
                (r'"CCTL.IVALL \d+", ', "", r"CCTL.IVALL: found \d+, expected 0"),
                (r'"UBLKCP.S.G 1"', '"UBLKCP.S.G 1", "MEMBAR.SC.GPU 2"', r"MEMBAR.SC.GPU: found 0, expected 2")):
            with self.subTest(sentence):
                changed = re.sub(pattern, wrong, right, count=1)
                self.assertNotEqual(changed, right)
                self.table.write_text(changed)
                self.refused("GOOD", sentence)

    def test_compares_kinds_alone_with_another_compiler(self):
        self.learn()
        text = re.sub(r'nvcc = ".*"', 'nvcc = "1.0.0"', self.table.read_text())
        self.table.write_text(re.sub(r"registers = \d+", "registers = 3", text))
        status, said = self.check("GOOD")
        self.assertEqual(status, 0, said)
        self.assertIn("not the table's", said)
        self.refused("NO_ACQUIRE", "copyRows for sm_90: CCTL.IVALL: found 0, expected 1")

    def test_without_a_disassembler_says_that_it_is_skipped(self):
        self.learn()
        hidden = check_kernels.find_tools
        check_kernels.find_tools = lambda compiler: hidden(compiler) | {"nvdisasm": None}
        self.addCleanup(setattr, check_kernels, "find_tools", hidden)
        arguments, sys.argv = sys.argv, [str(CHECKER), str(self.work), "--table", str(self.table), "--arch", "sm_90"]
        self.addCleanup(setattr, sys, "argv", arguments)
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            self.assertEqual(check_kernels.main(), 77)
        self.assertIn("skipped: there is no nvdisasm", said.getvalue())

    def test_refuses_a_build_that_lacks_what_it_is_to_compare(self):
        self.learn()
        status, said = self.run_checker("--arch", "sm_80")
        self.assertEqual(status, 1)
        self.assertIn("the build is not for sm_80", said)
        (self.work / "planted.o").unlink()
        status, said = self.run_checker("--arch", "sm_90")
        self.assertEqual(status, 1)
        self.assertIn("is not there: build it first", said)


class SharedMemory(unittest.TestCase):
    def test_of_a_bulk_kernel_is_what_the_launch_plan_leaves(self):
        most = check_kernels.static_shared_most()
        for shared, wrong in ((most, 0), (most + 1, 1)):
            found = {"wasted": 0, "shared": shared}
            self.assertEqual(len(list(check_kernels.broken_rules("bulkStepKernel<Step::x>", "sm_90", found))), wrong)
            self.assertEqual(list(check_kernels.broken_rules("stepKernel<Step::x>", "sm_90", found)), [])


class BulkCopies(unittest.TestCase):
    def test_of_a_kernel_that_sums_go_one_way(self):
        found = {"wasted": 0, "shared": 0}
        for policy, opcodes, wrong in (("CudaBulkWarp", {"UBLKCP.S.G": 1}, 1), ("CudaBulkSums", {"UBLKCP.S.G": 1}, 0),
                                       ("CudaBulkSums", {"UBLKCP.G.S": 1}, 1)):
            kernel = f"bulkStepKernel<Step::x, {policy}>"
            self.assertEqual(len(list(check_kernels.broken_rules(kernel, "sm_90", found | {"opcodes": opcodes}))), wrong)


class Names(unittest.TestCase):
    def test_are_written_as_in_the_source(self):
        self.assertEqual(check_kernels.readable(["_ZN3moe10stepKernelILNS_4StepE0EEEvNS_10StepParamsE"]),
                         ["stepKernel<Step::route>"])


if __name__ == "__main__":
    if len(sys.argv) > 1:
        NVCC = sys.argv.pop(1)
    if None in check_kernels.find_tools(shutil.which(NVCC) or NVCC).values():
        print("skipped: there is no disassembler (scripts/install_deps.sh fetches them)")
        sys.exit(77)
    os.environ.setdefault("JOBS", "1")
    unittest.main()
