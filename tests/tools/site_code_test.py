#!/usr/bin/env python3
"""The generator of the site (scripts/site) makes pages of the C++ headers, of the Python package and of what programs
print for --help, and refuses what lacks a comment. Needs doxygen."""
import ast
import pathlib
import re
import shutil
import sys
import unittest

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "scripts/site")]
import cpp_interface  # noqa: E402
import cpp_pages  # noqa: E402
import make_pages  # noqa: E402
import program_pages  # noqa: E402
import python_interface  # noqa: E402
import python_pages  # noqa: E402
from site_test import Case  # noqa: E402

CPP_HEADER = """// Things. They end.
#ifndef SOME_HPP_
#define SOME_HPP_
namespace moecomm {
namespace detail {
// Nobody's business.
struct Hidden {};
}  // namespace detail

// moeArgs_t with its defaults. See Thing and None.
struct Args : moeArgs_t {
  Args() noexcept : moeArgs_t MOE_ARGS_INITIALIZER {}
  explicit Args(int n) noexcept : Args() { rows = n; }

  // One number each.
  void setRows(int n) { rows = n; }
  void setHidden(int n) { hidden = n; }

  void setSide(int n) { side = n; }
};

// A thing,
// of two lines.
template <class T>
class Thing {
 public:
  Thing() = default;  // empty
  Thing(Thing&&) = default;

  // ---- Steps --------------------------------------------------------------------------------------------------------

  // Runs args.rows rows, then end() is due.
  //   n  how many
  template <class U, std::enable_if_t<sizeof(U) == 1, int> = 0>
  T run(const U& n) { return check(moeRun(n)), T(); }
  void run() { moeRun(nullptr); }
  void end() { moeStop(); }

 private:
  // Not shown.
  int private_ = 0;
};

// Adds.
inline int add(int a, int b) { return a + b; }
}  // namespace moecomm
#endif  // SOME_HPP_
"""
HELP = """Does it all: tool [OPTIONS] FILE


Usage: tool [OPTIONS] FILE

What is done:
  -n,--rows INT               rows, see moeRun, of which
                              there may be *many*
  --flag                      as it says
Examples:
  tool -n 4 x
"""


class TheCppHeaders(Case):
    OF_C = {"moeRun": "{c:func}`moeRun`", "moeArgs_t": "{c:struct}`moeArgs_t`",
            "moeArgs_t.side": "{c:member}`moeArgs_t.side`"}

    def read(self, header=CPP_HEADER):
        return cpp_interface.read(str(self.write("some.hpp", header)), self.folder)

    def pages(self):
        return cpp_pages.pages("About Thing.", "all.hpp", [self.read()], self.OF_C)

    def test_say_what_is_public_and_which_comment_belongs_to_it(self):
        read = self.read()
        self.assertEqual(read.about, "Things. They end.")
        self.assertEqual([(one.kind, one.declaration, one.comment) for one in read.entries],
                         [("struct", "Args : public moeArgs_t", "moeArgs_t with its defaults. See Thing and None."),
                          ("class", "template<class T> Thing", "A thing,\nof two lines."),
                          ("function", "int add(int a, int b)", "Adds.")])
        args, thing, _ = read.entries
        self.assertEqual([(one.declaration, one.joins) for one in args.members],
                         [("Args() noexcept", False), ("explicit Args(int n) noexcept", False),
                          ("void setRows(int n)", False), ("void setHidden(int n)", True),
                          ("void setSide(int n)", False)])
        run = "Runs args.rows rows, then end() is due.\n  n  how many"
        self.assertEqual([(one.declaration, one.comment, one.section, one.joins) for one in thing.members], [
            ("Thing()", "Empty.", "", False), ("Thing(Thing &&)", "", "", False),
            ("template<class U> T run(const U &n)", run, "Steps", False), ("void run()", "", "Steps", True),
            ("void end()", "", "Steps", False)])
        self.assertEqual(thing.members[-1].calls, ["moeStop"])

    def test_have_a_page_for_each_class_and_function(self):
        pages = self.pages()
        self.assertEqual(sorted(pages), [f"cpp/{name}" for name in
                                         ("Args.md", "Thing.md", "add.md", "index.md", "names.json")])
        thing = pages["cpp/Thing.md"]
        self.assertIn(":::{cpp:class} template<class T> Thing\n:::\n\nA thing, of two lines.\n", thing)
        self.assertIn("```{cpp:namespace} template<class T> moecomm::Thing\n```", thing)
        self.assertIn("## Steps\n\n:::{cpp:function} template<class U> T run(const U &n)\n", thing)
        self.assertIn("then {cpp:func}`end() <moecomm::Thing::end>` is due.\n\n`n`\n: how many\n", thing)
        self.assertIn("**Calls** {c:func}`moeRun`", thing)
        self.assertNotIn("private_", thing)
        args = pages["cpp/Args.md"]
        self.assertIn("{c:struct}`moeArgs_t` with its defaults. See {cpp:class}`Thing <moecomm::Thing>` and None.\n",
                      args)
        self.assertIn("{cpp:function} void setSide(int n)\n\nSets {c:member}`moeArgs_t.side`.\n:::", args)
        self.assertIn("| [`add`](add.md) | Adds. |", pages["cpp/index.md"])

    def test_what_one_comment_describes_stands_above_it(self):
        thing = self.pages()["cpp/Thing.md"]
        first, last = thing.index("template<class U> T run"), thing.index("{cpp:function} void run()")
        self.assertLess(first, last)
        self.assertGreater(thing.index("Runs `args.rows` rows"), last)

    def test_a_class_without_a_comment_is_refused(self):
        with self.assertRaises(SystemExit) as caught:
            self.read(CPP_HEADER.replace("// Adds.\n", ""))
        self.assertTrue(str(caught.exception).endswith("some.hpp:44: add has no comment"), caught.exception)

    def test_all_headers_have_pages(self):
        parts = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "include/moecomm").iterdir())
        self.assertEqual(sorted(make_pages.CPP_PARTS), parts)


class ThePythonPackage(Case):
    """The package itself, and copies of it with a planted fault."""

    def planted(self, path, before, after):
        """The generator's output for a copy of the package with another text."""
        copy = self.folder / "moecomm"
        if not copy.exists():
            shutil.copytree(ROOT / make_pages.PACKAGE, copy)
        text = (copy / path).read_text()
        self.assertEqual(text.count(before), 1, before)
        (copy / path).write_text(text.replace(before, after))
        with self.assertRaises(SystemExit) as caught:
            python_interface.read(copy)
        (copy / path).write_text(text)
        return re.sub(r":\d+:", ":", str(caught.exception).replace(f"{copy}/", ""))

    def test_every_public_name_is_on_a_page(self):
        made = python_pages.pages(python_interface.read(ROOT / make_pages.PACKAGE), {})
        described = set()
        for name, text in made.items():
            module = ""
            for kind, what in re.findall(r"\{py:(\w+)\} ([\w.]+)", text):
                module = what if kind == "currentmodule" else module
                described.add(f"{module}.{what}")
        for package in python_interface.PACKAGES:
            tree = ast.parse((ROOT / make_pages.PACKAGE / package / "__init__.py").read_text())
            listed = next(ast.literal_eval(node.value) for node in tree.body if isinstance(node, ast.Assign)
                          and node.targets[0].id == "__all__")
            self.assertGreater(len(listed), 3)
            # The class of errors that both adapters have stands on one page.
            at = {name: "moecomm.vllm" if name == "MissingInterface" else f"moecomm.{package}".rstrip(".")
                  for name in listed}
            self.assertEqual([name for name in listed if f"{at[name]}.{name}" not in described], [])
        for member in ("moecomm.Handle.route_dispatch", "moecomm.Handle.counts", "moecomm.deep_ep.Buffer.combine",
                       "moecomm.deep_ep.Buffer.internode_combine", "moecomm.Cast.out_scales"):
            self.assertIn(member, described)
        self.assertNotIn("moecomm.Handle.take_part", described)

    def test_pages_say_what_docstrings_and_signatures_say(self):
        made = python_pages.pages(python_interface.read(ROOT / make_pages.PACKAGE), {"moeRoute": "{c:func}`moeRoute`"})
        handle = made["python/handle.md"]
        self.assertIn(":::{py:method} Handle.complete(stream: Any = None) -> None\n", handle)
        self.assertIn("wire: moecomm.names.Wire = 'row'", handle)  # of **options
        self.assertIn("cast: Optional[moecomm.Cast] = None", handle)
        self.assertIn("`topk_idx`\n: `[tokens, topk]` global expert", handle)
        self.assertIn("Handle.status() -> Optional[moecomm.MoeError]", handle)
        self.assertIn("{py:obj}`counts() <moecomm.Handle.counts>`", handle)
        self.assertIn(":::{py:attribute} Counts.rows_per_rank\n:type: List[int]\n\n`[nranks]` tokens",
                      made["python/answers.md"])
        self.assertIn("Derived from {py:obj}`moecomm.MoeError <moecomm.MoeError>`, `ValueError`.",
                      made["python/errors.md"])
        self.assertIn(":::{py:type} Mode\n:canonical: Literal['auto', 'ht', 'll']", made["python/names.md"])

    def test_what_has_no_docstring_is_refused(self):
        abort = '        """Ends all waits, here and on the peers: the communicator fails with Aborted on all ranks. Any'
        self.assertEqual(self.planted("comm.py", f'{abort} thread."""\n', ""), "comm.py: Communicator.abort has no docstring")
        self.assertEqual(self.planted("torch/groups.py", "    device    where the", "    divice    where the"),
                         "torch/groups.py: communicator: the docstring describes divice, which is no parameter")
        self.assertEqual(self.planted("comm.py", "    nranks  ranks of the", "    ranks of the"),
                         "comm.py: memory_size: the docstring does not say what nranks is")
        self.assertEqual(self.planted("handle_answers.py", "    rows_per_rank           [nranks]", "    [nranks]"),
                         "handle_answers.py: Counts.rows_per_rank is not in its class's docstring")

    def test_a_name_that_is_on_no_page_is_refused(self):
        self.assertEqual(self.planted("__init__.py", '    "Cast",\n', '    "Cast",\n    "CASTS",\n'),
                         "__init__.py: CASTS is in __all__, but on no page")


class ThePrograms(Case):
    def build(self, names=program_pages.PROGRAMS):
        for name in names:
            text = "#!/bin/sh\ncat <<'END'\n" + HELP.replace("tool", name) + "END\n"
            self.write(f"build/some/src/{name}", text).chmod(0o755)
        return self.folder / "build/some"

    def test_have_pages_of_their_help(self):
        pages = program_pages.pages(program_pages.programs_of(self.build()), {"moeRun": "{c:func}`moeRun`"})
        self.assertEqual(len(pages), len(program_pages.PROGRAMS) + 2)
        page = pages["programs/moe_top.md"]
        self.assertIn("# moe_top\n\nDoes it all.\n\n```text\nmoe_top [OPTIONS] FILE\n```\n", page)
        self.assertIn("## What is done\n\n:::{option} -n, --rows INT\n\n"
                      "rows, see {c:func}`moeRun`, of which there may be \\*many\\*\n:::\n", page)
        self.assertIn(":::{option} --flag\n", page)
        self.assertIn("```text\nmoe_top -n 4 x\n```", page)
        self.assertIn("| [`moerun`](moerun.md) | Does it all. |", pages["programs/index.md"])

    def test_are_those_of_the_newest_build_that_has_all(self):
        self.assertEqual(program_pages.newest_build(self.folder), [])
        build = self.build(program_pages.PROGRAMS[1:])
        self.assertEqual(program_pages.newest_build(self.folder), [])
        self.build()
        self.assertEqual(program_pages.newest_build(self.folder),
                         [build / "src" / name for name in program_pages.PROGRAMS])

    def test_are_those_that_are_installed(self):
        listed = (ROOT / "cmake/MoecommInstall.cmake").read_text().split("foreach(tool IN ITEMS ")[1].split(")")[0]
        self.assertEqual(sorted(listed.split()), sorted(program_pages.PROGRAMS))


if __name__ == "__main__":
    if not shutil.which("doxygen"):
        print("skipped: no doxygen")
        sys.exit(77)
    unittest.main()
