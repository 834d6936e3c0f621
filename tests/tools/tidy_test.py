#!/usr/bin/env python3
"""Plants each kind of violation that scripts/tidy.py looks for, and harmless text that only resembles one."""
import os
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts"))
import tidy  # noqa: E402


def complaints(path, text):
    found = []
    tidy.check_code(path, text, lambda _, line, what: found.append((line, what)))
    return found


class Tidy(unittest.TestCase):
    def assert_refused(self, path, text, line=1):
        found = complaints(path, text)
        self.assertEqual([number for number, _ in found], [line], f"{path}: {text!r}: {found}")

    def assert_accepted(self, path, text):
        self.assertEqual(complaints(path, text), [])

    def test_refuses_banned_calls(self):
        for path, text in [
            ("src/comm/communicator/comm.cc", 'auto x = std::getenv("A");'),
            ("src/comm/communicator/comm.cc", 'int f() { printf("x"); }'),
            ("src/comm/communicator/comm.cc", 'int f() { std::fprintf(stderr, "x"); }'),
            ("src/comm/communicator/comm.cc", "auto& out = std::cout;"),
            ("src/comm/communicator/comm.cc", "int f() { std::abort(); }"),
            ("src/comm/communicator/comm.cc", "int f() { exit(1); }"),
            ("src/comm/communicator/comm.cc", "int f() { if (x) ::_exit(1); }"),
            ("src/device/protocol/route/route.h", "// Says.\nvoid f() { __trap(); }"),
            ("src/transport/cuda.h", "// Says.\nvoid f() { cudaMalloc(&p, 4); }"),
            ("src/comm/communicator/comm.cc", "volatile int x;"),
            ("src/device/protocol/route/route.h", '// Says.\nasm("nop");'),
            ("src/device/protocol/route/route.h", "// Says.\n#if __CUDA_ARCH__ > 800\n#endif"),
            ("src/device/protocol/route/route.h", "// Says.\nauto x = std::memory_order_acquire;"),
            ("src/comm/communicator/comm.cc", "int f() { goto out; }"),
            ("src/comm/communicator/comm.cc", "static thread_local int x;"),
            ("src/comm/communicator/comm.cc", "using namespace std;"),
            ("src/comm/communicator/comm.cc", "enum class Kind { none, Some };"),
            ("src/comm/communicator/comm.cc", "enum class Kind : int {\n  kNone,\n  kSome\n};"),
            ("src/comm/communicator/comm.cc", "void f() {\n  a.b = 1, c = 2;\n}"),
        ]:
            with self.subTest(text=text):
                self.assert_refused(path, text, 1 + text.startswith("// Says."))

    def test_accepts_what_only_looks_like_them(self):
        for path, text in [
            ("src/comm/config/config.cc", 'auto x = std::getenv("A");'),
            ("src/comm/communicator/comm.cc", '// printf("x") and exit(1)\nint x = f("abort(");'),
            ("src/comm/communicator/comm.cc", "int f() { comm->abort(); }"),
            ("src/comm/communicator/comm.h", "// Says.\nclass C {\n  void abort();\n};"),
            ("src/comm/communicator/comm.cc", "auto s = fmt::format(x); std::snprintf(a, 1, b);"),
            ("src/comm/communicator/comm.cc", "enum Bits : int { kOne = 1, kTwo = 2 };\nenum class Kind { none = kOne };"),
            ("src/comm/communicator/comm.cc", "void f() {\n  int a = 1, b = 2;\n  c = g(1, d = 2);\n}"),
            ("src/tools/moerun.cc", 'int main() { printf("x"); exit(1); }'),
            ("src/device/policy/cuda/warp.h", '// Says.\nasm volatile("nop");'),
            ("src/device/policy/host/warp.h", "// Says.\nauto x = std::memory_order_acquire;"),
            ("src/bootstrap/net/link.cc", "auto x = std::memory_order_acquire;"),
            ("tests/unit/x_test.cc", 'int f() { printf("x"); std::abort(); }'),
        ]:
            with self.subTest(text=text):
                self.assert_accepted(path, text)

    def test_knows_the_direction_of_includes(self):
        self.assert_refused("src/bootstrap/net/link.cc", '#include "comm/config/config.h"\n')
        self.assert_refused("src/device/protocol/route/route.h", '// Says.\n#include "transport/window.h"\n', 2)
        self.assert_refused("src/device/view/views.h", '// Says.\n#include "device/rows/row_math.h"\n', 2)
        self.assert_refused("src/device/policy/host/warp.h", '// Says.\n#include "device/protocol/core/waves.h"\n', 2)
        self.assert_refused("src/device/protocol/core/waves.h", '// Says.\n#include "device/kernels/run_step.h"\n', 2)
        self.assert_refused("src/bootstrap/net/link.cc", '#include "bootstrap/group/node.h"\n')
        self.assert_refused("src/comm/handle/handle.cc", '#include "device/protocol/core/waves.h"\n')
        self.assert_refused("src/transport/tcp/sender.cc", '#include "transport/rdma/pace.h"\n')
        self.assert_refused("src/transport/rdma/rail.cc", '#include "transport/verbs/poster.h"\n')
        self.assert_refused("src/topology/nic.cc", '#include "device/view/shape.h"\n')
        self.assert_refused("src/unheard/of.cc", "int x;\n")
        self.assert_accepted("src/comm/communicator/comm.cc", '#include "comm/config/config.h"\n#include "device/view/shape.h"\n#include "moecomm.h"\n')

    def test_measures_functions(self):
        body = "  work();\n" * 69
        self.assert_refused("src/comm/a.cc", "void longOne(int a) {\n" + body + "}\n")
        self.assert_refused("src/comm/a.cc", "namespace moe {\nclass A {\n  A() : a_{1} {\n" + body + "  }\n};\n}\n", 3)
        self.assert_refused("tests/unit/a_test.cc", "TEST(A, B) {\n" + body + "}\n")
        self.assert_refused("src/comm/a.cc", "auto f() -> int {\n  if (a) {\n" + body + "  }\n}\n")
        self.assert_refused("include/moecomm/a.hpp", "inline int f() {\n  if (a) {\n" + body + "  }\n}\n")
        self.assert_accepted("src/comm/a.cc", "void shortOne() {\n" + "  work();\n" * 68 + "}\n")
        self.assert_accepted("src/comm/a.cc", "const Row kRows[] = {\n" + "  {f(1), {2}},\n" * 90 + "};\n")
        self.assert_accepted("src/comm/a.cc", "namespace {\nstruct A {\n" + "  int f() { return 1; }\n" * 90 + "};\n}\n")

    def test_wants_a_header_to_say_what_it_is(self):
        self.assert_refused("src/comm/a.h", "#pragma once\n")
        self.assert_accepted("src/comm/a.h", "// Says what it is.\n#pragma once\n")


if __name__ == "__main__":
    unittest.main()
